# SPDX-License-Identifier: GPL-2.0-or-later
"""Files are flushed, soon, where one replica alone has acknowledged writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.cache_policy import CacheMode
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.cache.only_replica_flush import (
    LOOK_EVERY_S,
    FileProgress,
    is_only_good_replica,
    must_flush,
)

ALONE = ResourceState("vol1", "Primary", "no", "UpToDate", 1024, ())


def with_peer(
    disk: str, *, connection: str = "Connected", role: str = "Secondary", runs: str = "Established"
) -> ResourceState:
    return ALONE._replace(peers=(PeerState("n2", connection, role, runs, disk, 0),))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(ALONE, True, id="only replica"),
        pytest.param(with_peer("UpToDate"), False, id="two in sync"),
        pytest.param(with_peer("UpToDate", runs="VerifyS"), False, id="compared"),
        pytest.param(with_peer("DUnknown", connection="Connecting"), True, id="peer lost"),
        pytest.param(with_peer("Inconsistent", runs="SyncSource"), True, id="peer filled"),
        pytest.param(with_peer("Diskless"), True, id="peer's disk failed"),
        pytest.param(ALONE._replace(role="Secondary"), False, id="not served"),
        pytest.param(ALONE._replace(disk="Diskless"), False, id="no disk here"),
        pytest.param(
            with_peer("Diskless", role="Primary")._replace(role="Secondary"), True,
            id="the Primary works on this one",
        ),
        pytest.param(
            with_peer("UpToDate", role="Primary")._replace(role="Secondary", disk="Inconsistent"),
            False, id="filled from the Primary",
        ),
    ],
)  # fmt: skip
def test_which_replica_is_the_only_good_one(state: ResourceState, expected: bool) -> None:
    assert is_only_good_replica(state) is expected
    assert must_flush(state, CacheMode.NONE) is expected
    assert not must_flush(state, CacheMode.WRITE_THROUGH)
    assert not must_flush(state, CacheMode.WRITE_BACK)


def flushes(changes: set[int], looks: int, took_s: float) -> list[float]:
    """Return when flushes begin, of a file that changes at these looks."""
    progress, now_s, begun = FileProgress(0, 0.0), 0.0, []
    for look in range(looks):
        progress = progress.looked_at(progress.written_ns + (look in changes), now_s)
        if progress.is_due(now_s):
            begun.append(now_s)
            progress = progress._replace(flushed_s=now_s, took_s=took_s)
            now_s += took_s
        now_s += LOOK_EVERY_S
    return begun


def test_a_file_that_changes_all_the_time_is_flushed_at_each_look() -> None:
    assert len(flushes(set(range(100)), 100, 0.0)) == 100


def test_flushes_after_a_change_become_rare_and_end() -> None:
    """A filesystem's own commit has come by then."""
    begun = flushes({0}, 5000, 0.0)
    assert len(begun) < 30
    assert 35 < begun[-1] < 80


def test_a_change_is_flushed_at_the_next_look_after_a_quiet_hour() -> None:
    begun = flushes({0, 80_000}, 80_010, 0.001)
    assert any(abs(at - 80_000 * LOOK_EVERY_S) < 0.1 for at in begun)


@given(st.floats(min_value=0.0, max_value=3.0))
def test_a_slow_disk_spends_a_fifth_of_its_time_at_most(took_s: float) -> None:
    looks = 200
    begun = flushes(set(range(looks)), looks, took_s)
    whole_s = looks * LOOK_EVERY_S + len(begun) * took_s
    assert len(begun) * took_s <= whole_s / 5 + took_s + LOOK_EVERY_S
