# SPDX-License-Identifier: GPL-2.0-or-later
"""For which promotions a leader waits before it marks, and for which it does not."""

from __future__ import annotations

import pytest

from sanctl.plan.failover.shared_marks import QUIET_S, Promotions, may_gather, waits_for_more

_DEAD = "dead"


@pytest.mark.parametrize(
    ("begun", "asked", "standbys", "unchanged_s", "waits"),
    [
        pytest.param({}, {"a"}, 1, 0.0, False, id="alone"),
        pytest.param({}, {"a"}, 0, 0.0, False, id="DRBD 9"),
        pytest.param({"b": "1"}, {"a"}, 2, 9.0, True, id="begun"),
        pytest.param({"b": "1"}, {"a"}, 0, 9.0, True, id="begun, DRBD 9"),
        pytest.param({"b": "1"}, {"a", "b"}, 2, 0.0, False, id="all have asked"),
        pytest.param({"b": _DEAD}, {"a"}, 1, 0.0, False, id="killed"),
        pytest.param({}, {"a"}, 2, 0.0, True, id="may come"),
        pytest.param({}, {"a"}, 2, QUIET_S, False, id="nobody promotes it"),
        pytest.param({"b": _DEAD}, {"a"}, 2, 0.0, True, id="killed, may be tried again"),
    ],
)
def test_who_is_waited_for(
    begun: dict[str, str], asked: set[str], standbys: int, unchanged_s: float, waits: bool
) -> None:
    seen = Promotions(begun, frozenset(asked), standbys)
    assert (
        waits_for_more(seen, unchanged_s=unchanged_s, is_alive=lambda token: token != _DEAD)
        is waits
    )


@pytest.mark.parametrize(
    ("waited_s", "unchanged_s", "may"),
    [
        (4.9, 4.9, True),
        (5.0, QUIET_S, False),
        (5.0, QUIET_S - 0.1, True),
        (10.0, 0.0, False),
    ],
)
def test_a_leader_waits_on_while_others_ask(waited_s: float, unchanged_s: float, may: bool) -> None:
    assert may_gather(waited_s, unchanged_s=unchanged_s, usual_s=5.0, longest_s=10.0) is may
