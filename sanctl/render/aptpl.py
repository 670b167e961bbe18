# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes reservations as LIO takes them back (`pr/res_aptpl_metadata`, target_core_configfs.c)."""

from __future__ import annotations

from sanctl.model.reservation import Reservations


def render_aptpl(reservations: Reservations, *, iqn: str, tag: int, port_id: int) -> list[str]:
    """Return one text for each registration, to be written on its own while there is no LUN.

    Numbers are those of C: one that begins with a zero is octal for the kernel. Of 08 it makes
    nothing, which is no type, and it refuses the registration (lib/parser.c, match_one).

    Without the initiator's session id: it is the registration of any session of that initiator
    (with `enforce_pr_isids` 0), as a session with another node has another id.

    Args:
        reservations: what is to be in force.
        iqn: the target's name.
        tag: the TPG's tag on this node.
        port_id: the relative target port id on this node.
    """
    texts = []
    for initiator, key in reservations.registrations:
        is_holder = initiator == reservations.holder
        fields = [
            "initiator_fabric=iSCSI",
            f"initiator_node={initiator}",
            f"sa_res_key={key}",
            f"res_holder={int(is_holder)}",
            *([f"res_type={reservations.type}", "res_scope=0"] if is_holder else []),
            "res_all_tg_pt=0",
            "mapped_lun=0",
            "target_fabric=iSCSI",
            f"target_node={iqn}",
            f"tpgt={tag}",
            f"port_rtpi={port_id}",
            "target_lun=0",
        ]
        texts.append(",".join(fields))
    return texts
