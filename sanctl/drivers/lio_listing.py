# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes into configfs the TPGs without LUNs by which LIO lists other nodes' portals.

A target answers SendTargets from its own configuration alone. So on each node it has, for every
other replica node, a TPG with that node's tag and portals (docs/adr/0051). Such a TPG

* is never enabled: a login finds no TPG at that portal and is refused (iscsi_target_tpg.c,
  iscsit_get_tpg_from_np), and `tpg_enabled_sendtargets` 0 has it listed all the same
  (iscsi_target.c, iscsit_build_sendtargets_response);
* has no LUN, and so no ALUA group and no relative target port id;
* has the access list, without mapped LUNs: the kernel lists it to these initiators only.

Its portal's address is not this node's. The kernel binds it with IP_FREEBIND
(iscsi_target_login.c, iscsit_setup_np), and nothing arrives there.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from sanctl.drivers import configfs, lio, lio_acl

_ATTRIBUTES = (
    ("generate_node_acls", "0"),
    ("demo_mode_write_protect", "1"),
    ("demo_mode_discovery", "0"),
    # Last: from then on the TPG is listed.
    ("tpg_enabled_sendtargets", "0"),
)
# No replica waits long for this: the monitor tries again.
_WAIT_S = 0.5


def set_listed(
    name: str, portals: Mapping[int, Collection[str]], initiators: Collection[str]
) -> None:
    """Have discovery here name exactly these portals of other nodes to these initiators.

    `portals` are by TPG tag.

    Raises:
        CommandError: the kernel refused an attribute; a new call goes on.
        OSError: the kernel refused a folder; a new call goes on.
    """
    for target in lio.find_targets(name):
        own = {tpg for tpg in lio.tpgs([target]) if lio.has_lun(tpg)}
        if not own:
            continue  # Half made, or half removed.
        taken = {portal for tpg in own for portal in configfs.folders(f"{tpg}/np")}
        wanted = {
            f"{target}/tpgt_{tag}": sorted(set(addresses) - taken)
            for tag, addresses in portals.items()
            if f"{target}/tpgt_{tag}" not in own
        }
        # All that goes first: the kernel wants a portal in one TPG of a target only.
        for tpg in lio.tpgs([target]):
            if tpg not in own:
                _remove_unwanted(tpg, wanted.get(tpg), initiators)
        for tpg, addresses in wanted.items():
            _add(tpg, addresses, initiators)


def _remove_unwanted(tpg: str, portals: list[str] | None, initiators: Collection[str]) -> None:
    if portals is None:
        lio.remove_tpg(tpg)
        return
    for portal in configfs.folders(f"{tpg}/np"):
        if portal not in portals:
            os.rmdir(f"{tpg}/np/{portal}")
    for initiator in configfs.folders(f"{tpg}/acls"):
        if initiator not in initiators:
            lio_acl.remove(f"{tpg}/acls/{initiator}")


def _add(tpg: str, portals: list[str], initiators: Collection[str]) -> None:
    os.makedirs(tpg, exist_ok=True)
    for initiator in sorted(initiators):
        os.makedirs(f"{tpg}/acls/{initiator}", exist_ok=True)
    for portal in portals:
        lio.make_portal(f"{tpg}/np/{portal}", wait_s=_WAIT_S)
    for attribute, value in _ATTRIBUTES:
        configfs.set_value(f"{tpg}/attrib/{attribute}", value)
