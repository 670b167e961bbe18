# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: when a monitor that finds nothing changed may be answered without doing all of its work.

A whole monitor leaves a fingerprint: what the kernel and the files say on which its result and its
duties depend. The client of a later monitor reads the same again, and ends with the same status if
all of it is as it was (docs/adr/0053). So a fingerprint is left only where all that a monitor has
to do follows from what is in it, and nothing is left to do.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from sanctl.parse.drbd import ProcLine

#: How long after a monitor the next one comes, at most.
LONGEST_INTERVAL_S = 11.0
#: What is due after this time is done once a minute, by the next whole monitor.
MINUTE_S = 55.0
#: The same for replicas in sync, whose whole monitors come every two minutes, and every four or six
#: where a node has twenty or thirty replicas.
_IN_SYNC_S = 115.0
_REPLICAS, _AT_MOST_TIMES = 10, 3
#: A host's request that waits for so long has the next monitor look at all of it. Less than a sixth
#: of the time after which a request counts as hung (plan/failover/hung_io_reboot.py).
YOUNG_REQUEST_MS = 5000
#: A file that was changed just now may be changed again without a trace in its times, which a
#: fingerprint has in seconds.
SETTLED_AFTER_S = 2.0

_IN_SYNC = "cs:Connected ro:{} ds:UpToDate/UpToDate C r-----"
_PRIMARY, _STANDBY = _IN_SYNC.format("Primary/Secondary"), _IN_SYNC.format("Secondary/Primary")
#: A Primary that waits for its peer to come back, and whose fence-peer handler has ended.
_ALONE = frozenset(
    f"cs:WFConnection ro:Primary/Unknown ds:UpToDate/{peer} C r-----"
    for peer in ("Outdated", "DUnknown")
)
#: Notes of a device by which nothing is to be done while its replicas are in sync. With any other,
#: one that this release does not know among them, each monitor is a whole one.
_HARMLESS_NOTES = frozenset(
    {
        "admission",
        "attrd-cache",
        "cache-policy",
        "cache-unreadable",
        "connected",
        "discard-waits",
        "disk-drops",
        "duties-done",
        "filling",
        "io-progress",
        "listed-portals",
        "mark-answer",
        "mark-request",
        "met-disk",
        "no-secret",
        "operator-trust",
        "peers-unknown",
        "published",
        "reattach-tried",
        "refused-entries",
        "restore-since",
        "resync-marked",
        "resync-received",
        "secrets-digest",
        "sync-policy",
        "target",
        "unmap-offer",
        "unusable-secrets",
        "verify-position",
        "was-active",
    }
)


class Seen(NamedTuple):
    """What a fingerprint says, as far as it decides whether the replica is whole.

    Attributes:
        drbd: what DRBD says; None: not known, or DRBD 9.
        lower: the block device below the gate; empty: it fails all I/O; None: there is no gate.
        is_suspended: a device-mapper device of the replica holds I/O back.
        alua: the text of the ALUA group's state.
        is_enabled: the target's TPG is enabled.
        drbd_bytes: the size of the DRBD device.
        target_bytes: the size of the device that LIO opens.
        notes: the names of the device's state files.
    """

    drbd: ProcLine | None
    lower: str | None
    is_suspended: bool
    alua: str
    is_enabled: bool
    drbd_bytes: int
    target_bytes: int
    notes: frozenset[str]


def is_alone(drbd: ProcLine) -> bool:
    """Whether a Primary serves without its peer, and has nothing to do until the peer is back."""
    return drbd.state in _ALONE


def is_whole(
    seen: Seen, *, minor: int, size_bytes: int, is_active: bool, replicas: int, cache: str
) -> bool:
    """Whether a replica is whole, and nothing is left to do for it, now or after some time.

    Only one of two replicas, one of them Primary: in sync, or the Primary that waits for its peer.
    With a node gone, all devices of the other one are such: monitors that do all of their work
    would take the processor from the handlers that are called when the peers come back. Any other
    replica that is behind or without contact, and replicas of which none serves, have duties at
    each monitor (reconnects, orders to heal, marks), and so has a device with a cache policy.

    Args:
        seen: what the fingerprint says.
        minor: the DRBD minor.
        size_bytes: the wanted size.
        is_active: the monitor has found a replica that serves, rather than a standby.
        replicas: how many replicas the device has.
        cache: the cache policy.
    """
    if seen.drbd is None:
        return False
    is_waiting = is_active and is_alone(seen.drbd)
    if not is_waiting and "connected" not in seen.notes:
        return False  # until the peer has joined Pacemaker (agents/fencing/joined_peers.py)
    if not is_waiting and seen.drbd.state != (_PRIMARY if is_active else _STANDBY):
        return False
    return (
        replicas == 2
        and not cache
        and (is_waiting or not seen.drbd.out_of_sync_kib)
        and seen.lower == (f"drbd{minor}" if is_active else "")
        and not seen.is_suspended
        and seen.alua == ("0" if is_active else "2")
        and seen.is_enabled
        and size_bytes <= seen.drbd_bytes == seen.target_bytes
        and {note.partition(".")[0] for note in seen.notes} <= _HARMLESS_NOTES
    )


class Period(NamedTuple):
    """The time from one whole monitor of a device to the next, as long as nothing changes.

    Attributes:
        passed_s: how much of it has passed.
        left_s: how much of it is left.
    """

    passed_s: float
    left_s: float


def period(*, name: str, replicas_here: int, is_in_sync: bool, now_s: float) -> Period:
    """Return the present period of a device, in which its score and state are published once.

    Periods are the longer the more replicas in sync the node has: what a whole monitor alone does
    for one of these can wait (docs/adr/0053). What a Primary without its peer publishes grows, and
    has its minute. They begin by the clock, for each device at another moment of it: devices that
    are promoted together would have their whole monitors together for ever.

    Args:
        name: the device.
        replicas_here: how many replicas the node has; 0: not known, as few.
        is_in_sync: the device has two replicas, in sync, and may have fingerprints.
        now_s: the time, on a clock that is not set.
    """
    length_s = MINUTE_S
    if is_in_sync:
        length_s = _IN_SYNC_S * min(max(replicas_here // _REPLICAS, 1), _AT_MOST_TIMES)
    passed_s = (now_s + spread_s(name, length_s)) % length_s
    return Period(passed_s, length_s - passed_s)


def spread_s(name: str, within_s: float) -> float:
    """Return a device's own time, always the same, from 0 to `within_s`."""
    return within_s * zlib.crc32(name.encode()) / 2**32


def valid_for_s(
    published_ages_s: tuple[float | None, ...], present: Period, *, sooner_s: tuple[float, ...] = ()
) -> float:
    """Return for how long a fingerprint holds; 0: none may be left.

    Until the end of the period, and only where all was published in it.

    Args:
        published_ages_s: how long ago each attribute was published; None: it was not.
        present: the device's period.
        sooner_s: in how long something is due that does not wait for the period's end.
    """
    if any(age_s is None or not 0 <= age_s < present.passed_s for age_s in published_ages_s):
        return 0.0
    return min((present.left_s, *sooner_s))
