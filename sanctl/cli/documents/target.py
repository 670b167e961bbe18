# SPDX-License-Identifier: GPL-2.0-or-later
"""Declares the JSON fields of `sanctl target ...`: portals, WWID, access list, reservations."""

from __future__ import annotations

from typing import Annotated, TypedDict


class Portals(TypedDict):
    """The portals of a device on one node."""

    node: Annotated[str, "the node"]
    group: Annotated[int, "its ALUA target port group"]
    addresses: Annotated[list[str], "address:port of each portal"]


class Target(TypedDict):
    """What a host needs to use a device."""

    device: Annotated[str, "the device"]
    target: Annotated[str, "the iSCSI target"]
    lun: Annotated[int, "always 0"]
    serial: Annotated[str, "the unit's serial number"]
    wwid: Annotated[str, "as in `Device`"]
    active_node: Annotated[str | None, "as in `Device`"]
    portals: Annotated[list[Portals], "for each node with a replica"]
    initiators: Annotated[list[str], "the initiators that may use it by their IQN alone"]
    hosts: Annotated[list[str], "the names of the hosts that may use it, through a group or not"]
    host_groups: Annotated[list[str], "the host groups that it is given to"]


class Access(TypedDict):
    """A device's access list after `allow` or `deny`."""

    changed: Annotated[bool, "false: the list was like that already"]
    device: Annotated[str, "the device"]
    initiators: Annotated[list[str], "the initiators that may use it now by their IQN alone"]
    hosts: Annotated[list[str], "the names of the hosts that may use it now"]
    host_groups: Annotated[list[str], "the host groups that it is given to now"]
    lost: Annotated[list[str], "the IQNs that could use it before, and cannot any more"]
    left: Annotated[
        list[str], "in words, the entries that still let in an IQN of a host that was denied"
    ]
    not_in_force: Annotated[
        list[str],
        "nodes in maintenance, which let in who might before until that ends; also those whose "
        "Pacemaker does not run",
    ]


class Registration(TypedDict):
    """An initiator that is registered with a device."""

    initiator: Annotated[str, "its name"]
    host: Annotated[str | None, "the host of `sanctl host` that has it; null: none"]
    key: Annotated[str, "its reservation key, in hexadecimal digits behind `0x`"]
    holder: Annotated[bool, "it holds the reservation, alone or as all that are registered"]


class Reservations(TypedDict):
    """The persistent reservations of a device, as the node that serves it says."""

    device: Annotated[str, "the device"]
    on: Annotated[bool, "hosts may make reservations"]
    active_node: Annotated[str | None, "as in `Device`"]
    type: Annotated[
        int | None, "the type in force, as SPC numbers them; null: nothing is reserved, or unknown"
    ]
    type_name: Annotated[
        str | None, "the same in words, such as `Write Exclusive, Registrants Only`"
    ]
    registrations: Annotated[list[Registration] | None, "null: not known, or reservations are off"]


class ReservationsCleared(Reservations):
    """A device after `clear`; hosts that are alive may have registered again."""

    changed: Annotated[bool, "false: no host was registered"]
    duration_s: Annotated[float, "seconds until the node that serves it had done so"]
