# SPDX-License-Identifier: GPL-2.0-or-later
"""A fencing is not given up before SBD can have carried it out."""

from __future__ import annotations

import pytest

from sanctl.rollout.fence_times import FenceTimes, fence_times, longest_ask_s, seconds_of


@pytest.mark.parametrize(
    ("mode", "watchdog_s", "msgwaits", "present", "expected"),
    [
        # The defaults, and no SBD whatever its settings.
        ("", 5, [], "", FenceTimes(30, 30)),
        ("", 300, [], "", FenceTimes(725, 30)),
        ("disk", 5, [10, 10, 10], "", FenceTimes(30, 30)),
        ("diskless", 5, [], "10s", FenceTimes(30, 30)),
        # A disk that multipath serves.
        ("disk", 15, [30], "", FenceTimes(41, 41)),
        ("disk", 20, [40], "", FenceTimes(53, 53)),
        # A header goes before the inventory; blank disks have none yet.
        ("disk", 5, [10, 120, 10], "", FenceTimes(149, 149)),
        ("disk", 20, [10], "", FenceTimes(53, 53)),
        ("disk", 20, [], "", FenceTimes(53, 53)),
        ("disk", 20, [0], "", FenceTimes(53, 53)),
        # What Pacemaker 2.1.5 adds does not count: 1.2 times 30 s is less than 40.
        ("diskless", 20, [], "", FenceTimes(53, 48)),
        # The wait stays longer until all nodes run with the new timeout.
        ("diskless", 5, [], "60s", FenceTimes(30, 72)),
        ("diskless", 5, [], "60000ms", FenceTimes(30, 72)),
        ("diskless", 5, [], "1min", FenceTimes(30, 72)),
        ("diskless", 20, [], "10s", FenceTimes(53, 48)),
        ("diskless", 20, [], "-1", FenceTimes(53, 48)),
        ("diskless", 20, [], "some", FenceTimes(53, 48)),
    ],
)
def test_each_time_is_long_enough(
    mode: str, watchdog_s: int, msgwaits: list[int], present: str, expected: FenceTimes
) -> None:
    found = fence_times(mode, 30, watchdog_s, msgwaits=msgwaits, present_wait=present)
    assert found == expected


@pytest.mark.parametrize("watchdog_s", range(1, 200))
def test_whatever_the_timeout_the_fencing_can_end(watchdog_s: int) -> None:
    times = fence_times("disk", 30, watchdog_s, msgwaits=[], present_wait="")
    assert times.message_s >= 1.2 * 2 * watchdog_s + 5 - 1e-9
    assert times.whole_s >= times.message_s
    diskless = fence_times("diskless", 30, watchdog_s, msgwaits=[], present_wait="")
    assert diskless.whole_s >= 1.2 * 2 * watchdog_s - 1e-9


def test_what_the_inventory_asks_for_is_the_least() -> None:
    for mode in ("", "diskless", "disk"):
        assert fence_times(mode, 90, 5, msgwaits=[], present_wait="").whole_s == 90


def test_a_monitor_leaves_an_order_that_waits_for_it_its_time() -> None:
    """Who has asked gives it up after 1.2 times the time of a fencing; a BMC takes ten seconds."""
    assert [longest_ask_s(seconds) for seconds in (8, 30, 31, 50)] == [-1, 26, 27, 50]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20", 20), ("20s", 20), ("1min", 60), ("1500ms", 2), ("0s", None), ("soon", None)],
)
def test_a_time_is_read_as_pacemaker_does(text: str, seconds: int | None) -> None:
    assert seconds_of(text) == seconds
