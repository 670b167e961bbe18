# SPDX-License-Identifier: GPL-2.0-or-later
"""When a node reboots itself, over time and to the last branch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sanctl.plan.failover.frozen_io_reboot import (
    REBOOT_AFTER_S,
    must_reboot,
    must_reboot_after_failed_stop,
    quorum_lost_since,
)


def test_time_without_quorum_is_counted_from_its_beginning() -> None:
    since = quorum_lost_since(None, 10.0, is_alone=True)
    since = quorum_lost_since(since, 20.0, is_alone=True)
    assert since == 10.0
    assert not must_reboot(since, 10.0 + REBOOT_AFTER_S - 0.1)
    assert must_reboot(since, 10.0 + REBOOT_AFTER_S)


def test_a_moment_of_quorum_begins_it_anew() -> None:
    since = quorum_lost_since(10.0, 50.0, is_alone=False)
    assert since is None
    assert not must_reboot(since, 1e9)


@given(st.lists(st.tuples(st.floats(0, 30), st.booleans()), max_size=40))
def test_never_with_quorum_and_never_before_its_time(looks: list[tuple[float, bool]]) -> None:
    now, since, last_quorum = 0.0, None, 0.0
    for passed, is_alone in looks:
        now += passed
        since = quorum_lost_since(since, now, is_alone=is_alone)
        if not is_alone:
            last_quorum = now
        if must_reboot(since, now):
            assert is_alone
            assert now - last_quorum >= REBOOT_AFTER_S


def test_a_failed_stop_is_the_clusters_affair_while_there_is_one() -> None:
    assert must_reboot_after_failed_stop(False)
    assert not must_reboot_after_failed_stop(True)
    assert not must_reboot_after_failed_stop(None)
