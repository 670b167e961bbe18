# SPDX-License-Identifier: GPL-2.0-or-later
"""The version of a CIB, from the first of its text: what makes one newer than another."""

from __future__ import annotations

import re

#: Longer than the element `cib` with all its attributes.
HEAD_BYTES = 1024

_ELEMENT = re.compile(r"<cib\b([^>]*)>")
_NUMBER = re.compile(r"""\s(admin_epoch|epoch)=["'](\d+)["']""", re.ASCII)


def parse_cib_version(text: str) -> tuple[int, int] | None:
    """Return `admin_epoch` and `epoch`; None where the text says neither.

    The third number, `num_updates`, counts changes of the status section, which is in no file:
    Pacemaker writes 0 for it there (Pacemaker, lib/cib/cib_file.c).
    """
    element = _ELEMENT.search(text)
    numbers = dict(_NUMBER.findall(element[1])) if element else {}
    if len(numbers) < 2:
        return None
    return int(numbers["admin_epoch"]), int(numbers["epoch"])
