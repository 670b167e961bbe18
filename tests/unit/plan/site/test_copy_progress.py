# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a copy is under way: only what is new, and of the run that the CIB knows."""

from __future__ import annotations

import pytest

from sanctl.model.copy_progress import ENDED, SENDING, WAITING, CopyStep
from sanctl.model.site import CopyRecord
from sanctl.plan.site.copy_progress import FRESH_S, left_s, under_way
from tests.unit.model.test_copy_progress import PROGRESS

RECORD = CopyRecord("web", "far", "a" * 32, PROGRESS.token, None)
NOW = PROGRESS.at_s + 5.0


def test_the_newest_of_the_run_counts() -> None:
    later = PROGRESS._replace(at_s=PROGRESS.at_s + 3)
    other = later._replace(token="8" * 16)
    published = {"n3": str(later), "n1": str(PROGRESS), "n2": str(other), "n4": ENDED}
    assert under_way(RECORD, published, NOW) == ("n3", later)
    assert under_way(RECORD._replace(attempt=""), published, NOW) is None
    assert under_way(RECORD, {}, NOW) is None


@pytest.mark.parametrize("late_s", [FRESH_S + 1, -FRESH_S - 1])
def test_of_a_process_that_was_killed_it_is_no_run_for_good(late_s: int) -> None:
    published = {"n1": str(PROGRESS)}
    assert under_way(RECORD, published, PROGRESS.at_s + late_s) is None
    edge = PROGRESS.at_s + (FRESH_S if late_s > 0 else -FRESH_S)
    assert under_way(RECORD, published, edge) == ("n1", PROGRESS)


def test_the_time_left() -> None:
    assert left_s(PROGRESS, PROGRESS.at_s) == 90
    assert left_s(PROGRESS, PROGRESS.at_s + 30) == 60
    assert left_s(PROGRESS, PROGRESS.at_s - 30) == 90, "a clock that is behind"
    assert left_s(PROGRESS, PROGRESS.at_s + 1000) == 0
    for step in (CopyStep(WAITING, 0, 100), CopyStep(SENDING, 0, 100)):
        assert left_s(PROGRESS._replace(step=step), NOW) is None
    assert left_s(PROGRESS._replace(since_s=PROGRESS.at_s), NOW) is None
