# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: what the loaded DRBD can do: 8.4 keeps two replicas, 9 four and no full resync."""

from __future__ import annotations

from sanctl.errors import Problem

_LIMIT_8 = 2
_LIMIT_9 = 4


def replica_limit(drbd_version: str | None) -> int:
    """Return how many nodes may hold a replica of one device at one time."""
    return _LIMIT_9 if _is_9(drbd_version) else _LIMIT_8


def drbd_version_problem(replicas: int, drbd_version: str | None) -> Problem | None:
    """Return why that many replicas cannot be kept; None where they can."""
    if replicas <= replica_limit(drbd_version):
        return None
    return Problem(
        "SAN-DEV-004",
        f"{replicas} replicas need DRBD 9; what is loaded here: {drbd_version or 'none'}",
        "install the DRBD 9 kernel module and drbd-utils on every storage node (LINBIT's packages, "
        "or the distribution's drbd-dkms or kmod-drbd9x), or ask for 1 or 2",
    )


def full_resync_problem(percent: int | None, drbd_version: str | None) -> Problem | None:
    """Return why no more than this percentage may be resynced block by block; None if it may.

    DRBD 8.4 marks all of a resync's target while it is disconnected. DRBD 9 keeps a bitmap for each
    peer, and refuses to mark a target of which no peer is connected.

    The percentage is that of --full-above, None: never; the version that of the loaded DRBD, None:
    none.
    """
    if percent is None or not _is_9(drbd_version):
        return None
    return Problem(
        "SAN-SYNC-006",
        f"--full-above {percent}: DRBD {drbd_version} resyncs what differs, and never all of a"
        " device for that",
        "leave it out, or give never; --csums, --priority, --rate-max and --resync-window work",
    )


def _is_9(drbd_version: str | None) -> bool:
    return drbd_version is not None and _major(drbd_version) >= 9


def _major(version: str) -> int:
    text = version.partition(".")[0]
    return int(text) if text.isdecimal() else 0
