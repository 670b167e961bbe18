# SPDX-License-Identifier: GPL-2.0-or-later
"""Declares the JSON fields of `sanctl host ...`: IQNs, CHAP user, groups, devices."""

from __future__ import annotations

from typing import Annotated, TypedDict


class Host(TypedDict):
    """A host."""

    name: Annotated[str, "its name"]
    iqns: Annotated[list[str], "the names of its initiators"]
    chap_user: Annotated[str | None, "the user name of CHAP; null: it logs in without"]
    mutual: Annotated[bool, "the target authenticates to it, too"]
    group: Annotated[str | None, "the host group that it is in; null: none"]
    devices: Annotated[list[str], "the devices that it may use, by itself or through its group"]


class HostPath(TypedDict):
    """A path of a host to a device: the sessions of one of its initiators with one node."""

    device: Annotated[str, "the device"]
    node: Annotated[str, "a node with a replica"]
    iqn: Annotated[str, "the initiator"]
    session: Annotated[bool | None, "whether there is a session; null: the node does not say"]
    addresses: Annotated[list[str], "the host's addresses, as the node sees them"]
    state: Annotated[str, "`active`: the node serves the device, `standby`, or `unknown`"]


class HostShown(Host):
    """A host with its paths, as the nodes have published them in the last 10 s or so."""

    paths: Annotated[list[HostPath], "for each device, node and initiator"]


class ByItself(TypedDict):
    """An IQN that a device lets in by itself, not as that of a host (SAN-HLT-123)."""

    device: Annotated[str, "the device"]
    iqn: Annotated[str, "the initiator"]


class NotInForce(TypedDict):
    """A node in maintenance on which a device's access list is not in force, or may not be."""

    device: Annotated[str, "the device"]
    node: Annotated[str, "the node: it lets in who might before until its maintenance ends"]


class HostChanged(Host):
    """A host after `create`, `set` or `rename`."""

    changed: Annotated[bool, "false: it was like that already"]
    not_in_force: Annotated[list[NotInForce], "where its devices' access lists are not in force"]
    by_themselves: Annotated[
        list[ByItself], "devices that let in an IQN of it, or one that it has lost, all the same"
    ]


class HostDeleted(TypedDict):
    """A host that was deleted."""

    name: Annotated[str, "its name"]
    by_themselves: Annotated[list[ByItself], "devices that let in an IQN of it all the same"]


class Lacking(TypedDict):
    """A host that a device of its group does not let in (SAN-HLT-113)."""

    device: Annotated[str, "the device"]
    host: Annotated[str, "the host"]


class HostGroup(TypedDict):
    """A host group."""

    name: Annotated[str, "its name"]
    hosts: Annotated[list[str], "the names of its hosts"]
    devices: Annotated[list[str], "the devices that are given to it"]
    lacking: Annotated[list[Lacking], "hosts of it that a device does not let in; usually empty"]


class HostGroupChanged(HostGroup):
    """A host group after `create`, `add` or `rename`."""

    changed: Annotated[bool, "false: it was like that already"]
    not_in_force: Annotated[list[NotInForce], "where its devices' access lists are not in force"]


class AccessLost(TypedDict):
    """What hosts that left a group have lost of one of its devices."""

    device: Annotated[str, "the device"]
    lost: Annotated[list[str], "the IQNs that could use it before, and cannot any more"]
    left: Annotated[list[str], "in words, the entries that still let in an IQN of these hosts"]


class HostGroupReduced(HostGroupChanged):
    """A host group after `remove`."""

    access: Annotated[list[AccessLost], "for each device of the group"]


class HostGroupDeleted(TypedDict):
    """A host group that was deleted."""

    name: Annotated[str, "its name"]
