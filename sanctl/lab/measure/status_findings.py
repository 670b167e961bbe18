# SPDX-License-Identifier: GPL-2.0-or-later
"""Recovery of a cluster from a laboratory fault, judged by what `sanctl status` prints."""

from __future__ import annotations

import re
from collections.abc import Collection

# The findings that degrade `sanctl status`, each with its code; notes do not.
_CODE = re.compile(r"^  (?:critical|warning): .*\((SAN-[A-Z]+-\d{3})\)$", re.MULTILINE)
#: What is told for a day after faults: disks that were dropped more than once.
_TOLD_LATER = frozenset({"SAN-HLT-160"})


def has_recovered(status: int, text: str, *, known: Collection[str] = ()) -> bool:
    """Whether nothing is wrong any more, other than findings with the codes of `known`.

    Args:
        status: the exit status of `sanctl status`.
        text: what it printed.
        known: codes of findings that may be there.
    """
    codes = set(_CODE.findall(text))
    return status == 0 or (status == 1 and bool(codes) and codes <= _TOLD_LATER | set(known))
