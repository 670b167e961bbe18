# SPDX-License-Identifier: GPL-2.0-or-later
"""Which replica may have a fingerprint: one of two in sync, whole, with nothing left to do."""

from __future__ import annotations

import pytest

from sanctl.parse.drbd import ProcLine
from sanctl.plan.device.short_monitor import VALID_S, Seen, is_whole, valid_for_s

_STATE = "cs:Connected ro:{} ds:UpToDate/UpToDate C r-----"
NOTES = frozenset(
    {
        "attrd-cache.state",
        "attrd-cache.score",
        "published",
        "connected",
        "was-active.0123",
        "target",
    }
)
ACTIVE = Seen(
    drbd=ProcLine(_STATE.format("Primary/Secondary"), "f", 0),
    lower="drbd3",
    is_suspended=False,
    alua="0",
    is_enabled=True,
    drbd_bytes=4096,
    target_bytes=4096,
    notes=NOTES,
)
STANDBY = ACTIVE._replace(
    drbd=ProcLine(_STATE.format("Secondary/Primary"), "f", 0), lower="", alua="2"
)


_ALONE = "cs:WFConnection ro:Primary/Unknown ds:UpToDate/{} C {}-----"


def whole(
    seen: Seen, *, is_active: bool = True, size: int = 4096, replicas: int = 2, cache: str = ""
) -> bool:
    return is_whole(
        seen, minor=3, size_bytes=size, is_active=is_active, replicas=replicas, cache=cache
    )


def test_a_replica_that_serves_and_its_standby_are_whole() -> None:
    assert whole(ACTIVE)
    assert whole(STANDBY, is_active=False)
    assert not whole(ACTIVE, is_active=False)
    assert not whole(STANDBY)


@pytest.mark.parametrize(
    "seen",
    [
        ACTIVE._replace(drbd=None),
        ACTIVE._replace(drbd=ProcLine(_STATE.format("Primary/Secondary"), "f", 4)),
        *(
            ACTIVE._replace(drbd=ProcLine(state, "f", 0))
            for state in (
                _STATE.format("Primary/Primary"),
                _STATE.format("Primary/Unknown"),
                _STATE.format("Primary/Secondary").replace("r-----", "s-----"),
                _STATE.format("Primary/Secondary").replace("Connected", "VerifyS"),
                _STATE.format("Primary/Secondary").replace("/UpToDate", "/Diskless"),
            )
        ),
        ACTIVE._replace(lower=""),
        ACTIVE._replace(lower=None),
        ACTIVE._replace(lower="drbd4"),
        ACTIVE._replace(is_suspended=True),
        ACTIVE._replace(alua="2"),
        ACTIVE._replace(is_enabled=False),
        ACTIVE._replace(target_bytes=2048),
        ACTIVE._replace(notes=NOTES | {"outdated-unmarked.n2"}),
        ACTIVE._replace(notes=NOTES | {"change-of-nodes"}),
        ACTIVE._replace(notes=NOTES | {"a-kind-of-a-later-release"}),
    ],
)
def test_anything_else_is_looked_at_by_each_monitor(seen: Seen) -> None:
    assert not whole(seen)


@pytest.mark.parametrize("peer", ["Outdated", "DUnknown"])
def test_a_primary_that_waits_for_its_peer_has_nothing_to_do(peer: str) -> None:
    alone = ACTIVE._replace(drbd=ProcLine(_ALONE.format(peer, "r"), "f", 4096))
    assert whole(alone)
    assert not whole(alone, is_active=False)
    # A Primary whose gate is closed and whose paths are Standby: no standby.
    assert not whole(STANDBY._replace(drbd=alone.drbd), is_active=False)
    assert not whole(alone._replace(lower=""))
    assert not whole(alone._replace(notes=NOTES | {"outdated-unmarked.n2"}))


@pytest.mark.parametrize(
    "state",
    [
        _ALONE.format("Outdated", "s"),
        _ALONE.format("Inconsistent", "r"),
        _ALONE.format("Outdated", "r").replace("WFConnection", "StandAlone"),
        _ALONE.format("Outdated", "r").replace("UpToDate/", "Inconsistent/"),
        _ALONE.format("Outdated", "r").replace("Primary", "Secondary"),
    ],
)
def test_frozen_dropped_or_behind_it_has(state: str) -> None:
    seen = ACTIVE._replace(drbd=ProcLine(state, "f", 0))
    assert not whole(seen)
    assert not whole(seen, is_active=False)


def test_replicas_of_which_none_serves_may_have_marks_to_remove() -> None:
    idle = STANDBY._replace(drbd=ProcLine(_STATE.format("Secondary/Secondary"), "f", 0))
    assert not whole(idle, is_active=False)


def test_what_is_wanted_otherwise_is_due() -> None:
    assert not whole(ACTIVE, size=8192)
    assert not whole(ACTIVE, replicas=3)
    assert not whole(ACTIVE, cache="write-back")


def test_a_fingerprint_ends_when_an_attribute_is_to_be_published_again() -> None:
    assert valid_for_s((1.0, 2.0), repeat_s=60.0) == VALID_S
    assert valid_for_s((1.0, 50.0), repeat_s=60.0) == 10.0
    assert valid_for_s((1.0, 60.0), repeat_s=60.0) == 0.0
    assert valid_for_s((None, 2.0), repeat_s=60.0) == 0.0
    assert valid_for_s((-5.0, 2.0), repeat_s=60.0) == 0.0
