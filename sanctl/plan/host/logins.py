# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: to which targets a storage node that is a host logs in now, and of which it logs out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from sanctl.model.device import DeviceSpec
from sanctl.model.own_session import Record, Session

#: Between two attempts of one path: at first, and at most. A portal that is away for hours is asked
#: once a minute; one whose target comes with Pacemaker is not waited for long.
FIRST_S, MOST_S = 3.0, 60.0
#: After so many attempts the longest wait has been reached.
RARELY = 10


class Attempts(NamedTuple):
    """How often a path was tried without success, and when last, by a monotonic clock."""

    times: int
    last_s: float


def due_logins(
    records: Iterable[Record],
    sessions: Iterable[Session],
    tried: Mapping[Record, Attempts],
    *,
    prefix: str,
    own_portals: Collection[str],
    now_s: float,
) -> tuple[Record, ...]:
    """Return the paths to log in to now, those to this node's own portals first.

    Only targets of this cluster, whose names begin with `prefix`: others are the distribution's. A
    session in recovery is one: iscsid tries it for ever.
    """
    there = {session.record for session in sessions}
    due = [
        record
        for record in dict.fromkeys(records)
        if record.target.startswith(prefix)
        and record not in there
        and now_s >= _next_s(tried.get(record))
    ]
    return tuple(sorted(due, key=lambda record: record.portal not in own_portals))


def _next_s(attempts: Attempts | None) -> float:
    if attempts is None:
        return float("-inf")
    # The exponent is bounded, lest the number be.
    wait_s = FIRST_S * 2.0 ** min(attempts.times - 1, RARELY)
    return attempts.last_s + min(wait_s, MOST_S)


def open_targets(devices: Iterable[DeviceSpec], *, prefix: str, iqn: str) -> frozenset[str]:
    """Return the targets that let a host in, or will, by what the CIB says of the devices.

    Discovery's records outlive devices and access; nobody has to wait for these.

    Args:
        devices: those of the cluster.
        prefix: how the names of its targets begin.
        iqn: the host's initiator name; empty: not known, and each device may be its.
    """
    return frozenset(
        f"{prefix}{device.name}"
        for device in devices
        if not device.is_stopping
        and not device.is_restoring
        and (
            not iqn
            or iqn in {each.value for each in device.initiators}
            or any(iqn == each.value for host in device.hosts for each in host.iqns)
        )
    )


def by_target(sessions: Iterable[Session]) -> dict[str, tuple[Session, ...]]:
    """Return the sessions with each target: they end together, or none does."""
    found: dict[str, list[Session]] = {}
    for session in sessions:
        found.setdefault(session.record.target, []).append(session)
    return {target: tuple(several) for target, several in found.items()}
