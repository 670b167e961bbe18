# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads LIO's reservations: the text that it writes, and the attributes in `pr/` of a backstore.

The text (target_core_pr.c) has one block for each registration, `PR_REG_START: N` to
`PR_REG_END: N`, a `key=value` in each line between; `No Registrations or Reservations` without any.
The text ends in a zero byte.
"""

from __future__ import annotations

import re

from sanctl.errors import CommandError, Problem
from sanctl.model.reservation import Reservations, of_initiators

_NONE = "No Registrations or Reservations"
_KEY_BITS = 64
_REGISTERED = re.compile(
    r"^iSCSI Node: (\S+?)(?:,i,0x[0-9a-f]+)? Key: 0x([0-9a-f]+) PRgen: 0x([0-9a-f]+)", re.M
)
_HOLDER = re.compile(r"^SPC-3 Reservation: iSCSI Initiator: (\S+?)(?:,i,0x[0-9a-f]+)?$", re.M)
#: target_core_pr.c, core_scsi3_pr_dump_type.
_TYPES = {
    "Write Exclusive Access": 1,
    "Exclusive Access": 3,
    "Write Exclusive Access, Registrants Only": 5,
    "Exclusive Access, Registrants Only": 6,
    "Write Exclusive Access, All Registrants": 7,
    "Exclusive Access, All Registrants": 8,
}
# The list of registrations ends with the page, whole lines only (target_core_configfs.c,
# target_pr_res_pr_registered_i_pts_show).
_PAGE, _LONGEST_LINE = 4096, 384


def parse_aptpl(text: str) -> Reservations:
    """Return what a text says, by initiator: the ports and sessions of one count once.

    Raises:
        CommandError: the text is cut off, or not of this form.
    """
    lines = [line.strip() for line in text.rstrip("\0").splitlines() if line.strip()]
    if not lines or lines == [_NONE]:
        return Reservations()
    found: list[tuple[str, int]] = []
    holder, type_ = None, None
    block: dict[str, str] | None = None
    for line in lines:
        if line.startswith("PR_REG_START:"):
            if block is not None:
                raise _error("a registration begins in another one")
            block = {}
        elif line.startswith("PR_REG_END:"):
            if block is None:
                raise _error("a registration ends that has not begun")
            initiator, key = _registration(block)
            found.append((initiator, key))
            if block.get("res_holder") == "1":
                holder, type_ = initiator, _number(block.get("res_type", ""), 16)
            block = None
        elif block is None or "=" not in line:
            raise _error(f"the line {line!r} is in no registration")
        else:
            name, _, value = line.partition("=")
            block[name] = value
    if block is not None:
        raise _error("it is cut off")
    return of_initiators(found, holder=holder, type_=type_)


def parse_in_force(registered: str, holder: str, type_: str) -> Reservations | None:
    """Return what the attributes of a backstore say is in force.

    Args:
        registered: `res_pr_registered_i_pts`.
        holder: `res_holder`.
        type_: `res_pr_type`.

    Returns:
        None where the list may be cut off: it has many registrations.

    Raises:
        CommandError: the reservation has a type that LIO does not have.
    """
    found = parse_registrations(registered)
    if found is None:
        return None
    holds = _HOLDER.search(holder)
    if holds is None:
        return of_initiators(found)
    name = type_.strip().rpartition("Type: ")[2]
    if name not in _TYPES:
        raise _error(f"{name!r} is no type of a reservation")
    return of_initiators(found, holder=holds[1], type_=_TYPES[name])


def parse_registrations(registered: str) -> list[tuple[str, int]] | None:
    """Return initiator and key of each registration (`res_pr_registered_i_pts`), the newest last.

    A key is changed in its place, with a new generation. None where the list may be cut off.
    """
    if len(registered) > _PAGE - _LONGEST_LINE:
        return None
    found = _REGISTERED.findall(registered)
    return [
        (name, int(key, 16)) for name, key, _ in sorted(found, key=lambda each: int(each[2], 16))
    ]


def _registration(block: dict[str, str]) -> tuple[str, int]:
    initiator, key = block.get("initiator_node", ""), _number(block.get("sa_res_key", ""), 10)
    if not initiator or not 0 < key < 1 << _KEY_BITS:
        raise _error("a registration has no initiator or no key")
    return initiator, key


def _number(text: str, base: int) -> int:
    try:
        return int(text, base)
    except ValueError as error:
        raise _error(f"{text!r} is no number") from error


def _error(why: str) -> CommandError:
    return CommandError(
        Problem("SAN-RES-001", f"LIO's text of reservations could not be read: {why}")
    )
