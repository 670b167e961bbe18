# SPDX-License-Identifier: GPL-2.0-or-later
"""Persistent reservations of a LIO backstore: switched on or off, read, taken back.

LIO takes registrations back by `pr/res_aptpl_metadata` while no TPG has the backstore as a LUN, and
gives each to its initiator when that one's LUN is mapped (target_core_pr.c,
core_scsi3_check_aptpl_registration).
"""

from __future__ import annotations

import os

from sanctl.drivers import configfs
from sanctl.model.reservation import Reservations
from sanctl.parse.aptpl import parse_in_force, parse_registrations
from sanctl.render.aptpl import render_aptpl
from sanctl.system.files import exists, read_text, read_text_or


def prepare(backstore: str) -> None:
    """Have a backstore able to take reservations; it goes on to refuse the commands.

    LIO writes each change into its file then (`force_pr_aptpl`), and a registration that was taken
    back is that of any session of its initiator (`enforce_pr_isids` 0). Called while no TPG has the
    backstore as a LUN: the kernel refuses the former else (target_core_configfs.c,
    force_pr_aptpl_store).

    Raises:
        CommandError: the kernel refused.
        OSError: the kernel is too old for an attribute.
    """
    configfs.set_value(f"{backstore}/attrib/force_pr_aptpl", "1")
    configfs.set_value(f"{backstore}/attrib/enforce_pr_isids", "0")


def set_mode(backstore: str, *, is_on: bool) -> None:
    """Have a backstore take reservations, for which it has to be prepared, or refuse the commands.

    Raises:
        CommandError: the kernel refused.
        OSError: the kernel is too old for the attribute.
    """
    configfs.set_value(f"{backstore}/attrib/emulate_pr", "1" if is_on else "0")


def is_on(backstore: str) -> bool:
    """Whether a backstore takes reservations."""
    return read_text_or(f"{backstore}/attrib/emulate_pr", "0").strip() == "1"


def read(backstore: str) -> Reservations | None:
    """Return what is in force; None where it has more than the kernel lists.

    Raises:
        OSError: there is no such backstore.
    """
    return parse_in_force(
        *(
            read_text(f"{backstore}/pr/{attribute}")
            for attribute in ("res_pr_registered_i_pts", "res_holder", "res_pr_type")
        )
    )


def read_registrations(backstore: str) -> list[tuple[str, int]] | None:
    """Return initiator and key of each registration, without a lock that a command may hold.

    None where there are more than the kernel lists.

    Raises:
        OSError: there is no such backstore.
    """
    return parse_registrations(read_text(f"{backstore}/pr/res_pr_registered_i_pts"))


def is_writing(backstore: str) -> bool:
    """Whether LIO writes each change of a backstore's reservations into its file."""
    return "Activated" in read_text_or(f"{backstore}/pr/res_aptpl_active", "")


def restore(backstore: str, tpg: str, wanted: Reservations) -> None:
    """Have reservations in force once the LUN is there and mapped.

    Raises:
        CommandError: the kernel refused: a TPG has the backstore as a LUN.
    """
    iqn, _, tag = tpg.rpartition("/tpgt_")
    texts = render_aptpl(
        wanted, iqn=os.path.basename(iqn), tag=int(tag), port_id=_relative_port_id(tpg)
    )
    for text in texts:
        configfs.write(f"{backstore}/pr/res_aptpl_metadata", text)


def _relative_port_id(tpg: str) -> int:
    for path in (f"{tpg}/rtpi", f"{tpg}/attrib/rtpi"):
        if exists(path):
            return int(read_text(path), 0)
    return 1
