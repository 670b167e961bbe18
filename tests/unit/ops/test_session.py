# SPDX-License-Identifier: GPL-2.0-or-later
"""How often a command that waits asks the cluster."""

from __future__ import annotations

import pytest

from sanctl.errors import NotConverged
from sanctl.model.cluster import Cluster
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from tests.fakes.pacemaker import FakeClock, FakePacemaker, FakeReporter


class SlowPacemaker(FakePacemaker):
    """A cluster whose CIB takes a while to come."""

    def __init__(self, clock: FakeClock, takes_s: float) -> None:
        super().__init__()
        self.clock, self.takes_s, self.asked = clock, takes_s, 0

    def query(self) -> str:
        self.asked += 1
        self.clock.now += self.takes_s
        return super().query()


def unreached(_: Cluster) -> Progress:
    return Progress(is_done=False, seen="nothing")


@pytest.mark.parametrize(("takes_s", "most"), [(0.0, 41), (2.0, 6), (5.0, 3)])
def test_a_slow_cluster_is_left_alone_for_as_long_as_it_takes(takes_s: float, most: int) -> None:
    clock = FakeClock()
    pacemaker = SlowPacemaker(clock, takes_s)
    session = Session(pacemaker, clock, FakeReporter())
    with pytest.raises(NotConverged):
        session.wait(unreached, waiting_for="it", timeout_s=20.0)
    assert most - 1 <= pacemaker.asked <= most


@pytest.mark.parametrize(("since_s", "most"), [(0.0, 41), (19.0, 8), (99.0, 6)])
def test_a_cluster_is_observed_seldom_until_it_may_be_done(since_s: float, most: int) -> None:
    clock = FakeClock()
    pacemaker = SlowPacemaker(clock, 0.0)
    began_s = clock.now
    with pytest.raises(NotConverged):
        Session(pacemaker, clock, FakeReporter()).wait(
            unreached,
            waiting_for="it",
            timeout_s=20.0,
            may_be_done=lambda: clock.now - began_s >= since_s,
        )
    assert most - 2 <= pacemaker.asked <= most
    assert clock.now - began_s <= 21.0
