# SPDX-License-Identifier: GPL-2.0-or-later
"""Speed of the interface with one of this node's addresses, for the resync rates of DRBD."""

from __future__ import annotations

import os

from sanctl.system.files import read_text
from sanctl.system.runner import Runner

_TIMEOUT_S = 10.0


def bytes_per_s(runner: Runner, address: str) -> int | None:
    """Return the speed of the interface that has an address, None where that is not known.

    A virtual interface has no speed; the kernel then says -1, or refuses the read.
    """
    done = runner.run(
        ["ip", "-oneline", "address", "show", "to", address], timeout_s=_TIMEOUT_S, ok=range(256)
    )
    words = done.stdout.split()
    if len(words) < 2:
        return None
    try:
        megabits = read_text(f"/sys/class/net/{os.path.basename(words[1])}/speed").strip()
    except OSError:
        return None
    return int(megabits) * 1_000_000 // 8 if megabits.isdecimal() and int(megabits) else None
