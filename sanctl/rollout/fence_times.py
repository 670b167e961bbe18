# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: how long a fencing may take, and how long a fencing device may be asked how it is.

A fencing that is given up before it can have ended fails always, and nothing is taken over:

* `sbd message` returns once msgwait of the disk's header is over. Both the agent (`power_timeout`)
  and Pacemaker (`pcmk_reboot_timeout`, else stonith-timeout) end it after their own times.
* An order to a fencing device waits for a monitor of the same one: its own time begins after that,
  and the node that has asked for it gives it up after 1.2 times stonith-timeout.
* While the watchdog of a lost node is waited for, the time of the whole fencing runs, which is 1.2
  times stonith-timeout in Pacemaker 2.1.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

#: What the slowest BMCs need to switch a node off.
BMC_S = 10
_UNITS_MS = {"": 1000, "s": 1000, "sec": 1000, "ms": 1, "msec": 1, "m": 60_000, "min": 60_000}


@dataclass(frozen=True, slots=True)
class FenceTimes:
    """Times of the CIB, in seconds."""

    # fence-sbd's own, and Pacemaker's for it.
    message_s: int
    # stonith-timeout.
    whole_s: int


def fence_times(
    mode: str, timeout_s: int, watchdog_s: int, *, msgwaits: Iterable[int], present_wait: str
) -> FenceTimes:
    """Return what stonith-timeout and fence-sbd have to be.

    Args:
        mode: `diskless`, `disk`, or empty where there is no SBD.
        timeout_s: what the inventory asks for: the least.
        watchdog_s: SBD's watchdog timeout in the inventory.
        msgwaits: of the headers on SBD's disks, in seconds; they go before the inventory.
        present_wait: the cluster's stonith-watchdog-timeout where it may stay, else empty.
    """
    message_s = max(timeout_s, _and_a_fifth(max([2 * watchdog_s, *msgwaits])) + 5)
    if mode == "disk":
        return FenceTimes(message_s, message_s)
    if mode == "diskless":
        wait_s = max(2 * watchdog_s, _seconds(present_wait))
        return FenceTimes(message_s, max(timeout_s, _and_a_fifth(wait_s)))
    return FenceTimes(message_s, timeout_s)


def longest_ask_s(timeout_s: int) -> int:
    """Return how long a monitor of a fencing device may take, where a fencing may take so long."""
    return timeout_s * 12 // 10 - BMC_S


def seconds_of(text: str) -> int | None:
    """Return a time as Pacemaker's options give it, in seconds; None: it is not a time."""
    return _seconds(text) or None


def _and_a_fifth(seconds: int) -> int:
    # In whole numbers: 1.2 times 10 is more than 12 otherwise.
    return ceil(seconds * 12 / 10)


def _seconds(text: str) -> int:
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text)
    if not found or found[2] not in _UNITS_MS:
        return 0
    return ceil(int(found[1]) * _UNITS_MS[found[2]] / 1000)
