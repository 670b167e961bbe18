# SPDX-License-Identifier: GPL-2.0-or-later
"""Which replica may have a fingerprint: one of two in sync, whole, with nothing left to do."""

from __future__ import annotations

import bisect
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.parse.drbd import ProcLine
from sanctl.plan.device.short_monitor import (
    MINUTE_S,
    Period,
    Seen,
    is_whole,
    period,
    spread_s,
    valid_for_s,
)

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


@pytest.mark.parametrize(
    ("replicas_here", "length_s"), [(0, 115), (1, 115), (19, 115), (20, 230), (30, 345), (500, 345)]
)
def test_periods_grow_with_the_replicas_in_sync_of_the_node(
    replicas_here: int, length_s: int
) -> None:
    found = period(name="vm1", replicas_here=replicas_here, is_in_sync=True, now_s=9e5)
    assert found.passed_s + found.left_s == pytest.approx(length_s)
    alone = period(name="vm1", replicas_here=replicas_here, is_in_sync=False, now_s=9e5)
    assert alone.passed_s + alone.left_s == pytest.approx(MINUTE_S)


class Case(NamedTuple):
    """A moment in which a device's fingerprint may be left."""

    name: str
    replicas_here: int
    is_in_sync: bool
    now_s: float

    def present(self) -> Period:
        return period(**self._asdict())


_CASES = st.builds(
    Case,
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,30}", fullmatch=True),
    replicas_here=st.integers(0, 1000),
    is_in_sync=st.booleans(),
    now_s=st.floats(0, 1e9),
)


@given(
    case=_CASES,
    ages_s=st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=2),
    sooner_s=st.lists(st.floats(0, 4000), max_size=2),
)
def test_no_fingerprint_outlives_its_period_nor_six_minutes(
    case: Case, ages_s: list[float | None], sooner_s: list[float]
) -> None:
    present = case.present()
    assert present == case.present(), "the same at each look"
    longest_s = 345.0 if case.is_in_sync else MINUTE_S
    assert 0 <= present.passed_s <= longest_s and 0 <= present.left_s <= longest_s
    left_s = valid_for_s(tuple(ages_s), present, sooner_s=tuple(sooner_s))
    assert 0 <= left_s <= min([present.left_s, *sooner_s])
    if any(age_s is None or age_s < 0 or age_s >= present.passed_s for age_s in ages_s):
        assert left_s == 0, "unknown, of the future, or not of this period"


@pytest.mark.parametrize("pattern", ["vm{}", "vm{:02}", "disk-{}", "mail{:03}", "vm-{}-data"])
@pytest.mark.parametrize(("is_in_sync", "at_once"), [(True, 9), (False, 27)])
@pytest.mark.parametrize("is_one_moment", [True, False])
def test_of_fifty_that_are_promoted_together_few_have_whole_monitors_together(
    pattern: str, is_in_sync: bool, at_once: int, is_one_moment: bool
) -> None:
    """Monitors ten seconds apart, all in one moment or spread, from the second whole one on."""
    wholes_s: list[float] = []
    for number in range(50):
        name = pattern.format(number)
        until_s, monitor_s = 0.0, 5000.0 + (0 if is_one_moment else number / 5)
        begin_s = monitor_s
        while monitor_s < begin_s + 1800:
            if monitor_s > until_s:
                wholes_s += [monitor_s] if monitor_s > begin_s else []
                present = period(
                    name=name, replicas_here=50, is_in_sync=is_in_sync, now_s=monitor_s
                )
                left_s = valid_for_s((0.0, 0.0), present)
                assert left_s > 0
                until_s = monitor_s + left_s
            monitor_s += 10.0
    wholes_s.sort()
    windows = [bisect.bisect_right(wholes_s, begin_s + 11) - at
               for at, begin_s in enumerate(wholes_s)]  # fmt: skip
    assert max(windows) <= at_once
    length_s = 345 if is_in_sync else MINUTE_S
    assert len(wholes_s) <= 50 * (1800 / length_s + 1), "and hardly more than one in a period"


def test_a_fingerprint_holds_until_the_end_of_its_period_if_all_was_published_in_it() -> None:
    present = Period(passed_s=60.0, left_s=55.0)
    assert valid_for_s((1.0, 59.0), present) == 55.0
    assert valid_for_s((1.0, 59.0), present, sooner_s=(99.0, 20.0)) == 20.0
    assert valid_for_s((1.0, 59.0), present, sooner_s=(99.0,)) == 55.0
    assert valid_for_s((1.0, 60.0), present) == 0.0
    assert valid_for_s((None, 2.0), present) == 0.0
    assert valid_for_s((-5.0, 2.0), present) == 0.0


def test_a_device_has_a_time_of_its_own() -> None:
    found = {spread_s(f"vm{number}", 44.0) for number in range(50)}
    assert len(found) == 50
    assert 0 <= min(found) < 5 and 39 < max(found) <= 44
