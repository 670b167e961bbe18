# SPDX-License-Identifier: GPL-2.0-or-later
"""What the kernel says of DRBD without a process: /proc/drbd, sysfs(5), debugfs.

Each function reads one file, in less time than a program takes to start, so monitors and waits use
these where they can. What only a program tells, and whatever changes something, is in
sanctl/drivers/drbdsetup.py.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import OldRequest
from sanctl.parse.drbd import (
    PendingRequests,
    ProcState,
    SyncProgress,
    parse_bitmap_owners,
    parse_blank_replicas,
    parse_connections,
    parse_oldest_requests,
    parse_pending_requests,
    parse_primaries_without_disk,
    parse_proc_state,
    parse_standbys_without_peer,
    parse_state_line,
    parse_sync_progress,
)
from sanctl.system.files import is_folder, read_text_or

#: Between two looks at /proc/drbd; without it (DRBD 9); and whether or not a line has changed.
_PROC_POLL_S, _POLL_S, _LOOK_ANYWAY_S = 0.05, 0.25, 2.0
#: A wait looks less often the longer it lasts: with many devices that wait, their looks add up.
_PROC_POLLS = 10
_BLOCK, _PREFIX = "/sys/block", "drbd"
_DEBUG = "/sys/kernel/debug/drbd/resources"


def generation() -> int:
    """Return 8 or 9: which DRBD the running kernel has loaded.

    Raises:
        CommandError: DRBD is not loaded, or has a version that sanctl does not know.
    """
    text = read_text_or("/sys/module/drbd/version", "")
    major = text.partition(".")[0].strip()
    if major not in {"8", "9"}:
        raise CommandError(
            Problem(
                "SAN-DRBD-001",
                f"DRBD 8.4 or 9 is not loaded (version read: {text.strip() or 'none'})",
                "modprobe drbd",
            )
        )
    return int(major)


def is_loaded() -> bool:
    """Whether the running kernel has DRBD; where not, no resource can be up."""
    return bool(read_text_or("/sys/module/drbd/version", ""))


def has_device(minor: int) -> bool:
    """Whether the kernel has the DRBD device of that minor, whatever its state.

    Raises:
        OSError: that is not known.
    """
    return is_folder(f"/sys/block/drbd{minor}")


def minors() -> frozenset[int]:
    """Return the minors of all DRBD devices that the kernel has, configured or not.

    Raises:
        OSError: that is not known.
    """
    found = os.listdir(_BLOCK)
    numbers = (name.removeprefix(_PREFIX) for name in found if name.startswith(_PREFIX))
    return frozenset(int(number) for number in numbers if number.isdecimal())


def state_line(minor: int) -> str:
    """Return what /proc/drbd says of a device's connection, roles and disks; empty with DRBD 9."""
    return parse_state_line(read_text_or("/proc/drbd", ""), minor)


def size_bytes(minor: int) -> int:
    """Return the size of a DRBD device as the kernel has it, 0 where it has none (sysfs(5))."""
    text = read_text_or(f"/sys/block/drbd{minor}/size", "").strip()
    return int(text) * 512 if text.isdecimal() else 0


def proc_state(minor: int) -> ProcState | None:
    """Return what /proc/drbd says of a device, without a process; None with DRBD 9 or unknown."""
    return parse_proc_state(read_text_or("/proc/drbd", ""), minor)


def count_standbys_without_peer() -> int:
    """Return how many devices could be promoted here, and have lost their peer; 0 with DRBD 9."""
    return parse_standbys_without_peer(read_text_or("/proc/drbd", ""))


def count_primaries_without_disk() -> int:
    """Return how many devices are served here from their peer's disk; 0 with DRBD 9."""
    return parse_primaries_without_disk(read_text_or("/proc/drbd", ""))


def count_blank_replicas() -> int:
    """Return how many devices have only empty replicas, in contact, one of them here; 0 with 9."""
    return parse_blank_replicas(read_text_or("/proc/drbd", ""))


def ended_writes(minor: int) -> tuple[str, ...] | None:
    """Return the numbers and sectors of writes and discards that a device has ended since it is up.

    Counted before who sent the write hears of its end (drbd_req.c, bio_end_io_acct), so what the
    gate above has waited for is in it. None: there is no such device.
    """
    # Documentation/block/stat.rst: fields 5, 7, 12 and 14.
    fields = read_text_or(f"/sys/block/drbd{minor}/stat", "").split()
    return (fields[4], fields[6], fields[11], fields[13]) if len(fields) > 13 else None


def wait_for_change(minor: int, before: str, deadline_s: float) -> None:
    """Return when a device's state line may differ from `before`, or at the deadline.

    With DRBD 8.4 that costs no process: with many devices that wait, processes that only look
    would take the processors from those that do something.

    `before` is from before the state that was found wanting was observed, so that no change is
    missed; `deadline_s` is on the monotonic clock.
    """
    if not before:
        time.sleep(_POLL_S)
        return
    until_s = min(deadline_s, time.monotonic() + _LOOK_ANYWAY_S)
    _look_while(minor, lambda line: line == before, until_s)


def wait_while(minor: int, holds: Callable[[str], bool], deadline_s: float) -> None:
    """Return once a device's state line is not one that `holds` accepts, or at the deadline.

    At once with DRBD 9, which has no such line; `deadline_s` is on the monotonic clock.
    """
    _look_while(minor, lambda line: bool(line) and holds(line), deadline_s)


def _look_while(minor: int, holds: Callable[[str], bool], deadline_s: float) -> None:
    begin_s = now_s = time.monotonic()
    while holds(state_line(minor)) and now_s < deadline_s:
        pause_s = min(_POLL_S, max(_PROC_POLL_S, (now_s - begin_s) / _PROC_POLLS))
        time.sleep(min(pause_s, deadline_s - now_s))
        now_s = time.monotonic()


def connections() -> dict[int, str]:
    """Return the states of all connections of this node, by minor; empty with DRBD 9."""
    return parse_connections(read_text_or("/proc/drbd", ""))


def sync_progress() -> dict[int, SyncProgress]:
    """Return the progress of resyncs and verifies on this node, by minor; empty with DRBD 9."""
    return parse_sync_progress(read_text_or("/proc/drbd", ""))


def oldest_requests_path(name: str) -> str:
    """Return where the kernel says which requests of hosts have waited longest."""
    return f"{_DEBUG}/{name}/volumes/0/oldest_requests"


def oldest_requests(name: str) -> tuple[OldRequest, ...]:
    """Return the requests of hosts that have waited longest; none where debugfs is not readable."""
    # Without debugfs, or where a locked-down kernel keeps it shut, nothing is known.
    return parse_oldest_requests(read_text_or(oldest_requests_path(name), ""))


def bitmap_owners(name: str) -> frozenset[int]:
    """Return the node ids of the peers that an attached disk has a bitmap for, with DRBD 9.

    None where debugfs is not readable, and without a disk.
    """
    try:
        text = read_text_or(f"{_DEBUG}/{name}/volumes/0/data_gen_id", "")
    except OSError:  # a kernel that is locked down
        text = ""
    return parse_bitmap_owners(text)


def pending_requests(minor: int) -> PendingRequests | None:
    """Return how many requests of a device are not completed; None with DRBD 9."""
    return parse_pending_requests(read_text_or("/proc/drbd", "")).get(minor)


def completed_requests(minor: int) -> int:
    """Return how many requests of hosts have been completed since the device exists."""
    # Documentation/block/stat.rst: the first field of each kind counts completed requests.
    fields = read_text_or(f"/sys/block/drbd{minor}/stat", "").split()
    return sum(int(fields[at]) for at in (0, 4, 11, 15) if at < len(fields))
