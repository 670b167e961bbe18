# SPDX-License-Identifier: GPL-2.0-or-later
"""The sync policy: what is written is read back, and nothing without meaning gets in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.errors import UsageError
from sanctl.model.sync_policy import DEFAULT_SYNC_POLICY, Schedule, SyncPolicy, Window

_HOUR = st.integers(0, 23)
_RATE = st.integers(250, 4 << 20)
_WINDOWS = st.tuples(_HOUR, _HOUR).filter(lambda w: w[0] != w[1]).map(lambda w: Window(*w))
_SCHEDULES = st.builds(Schedule, day=st.none() | st.integers(0, 6), hour=_HOUR)


@given(
    st.builds(
        SyncPolicy,
        full_above_percent=st.none() | st.integers(1, 99),
        csums=st.booleans(),
        rate_min_kib_s=_RATE,
        rate_max_kib_s=st.none() | _RATE,
        window=st.none() | _WINDOWS,
        priority=st.integers(0, 100),
        verify=st.none() | _SCHEDULES,
    ).filter(lambda p: p.rate_max_kib_s is None or p.rate_max_kib_s >= p.rate_min_kib_s)
)
def test_what_is_written_is_read_back(policy: SyncPolicy) -> None:
    assert SyncPolicy.parse(str(policy)) == policy


def test_the_default_says_nothing() -> None:
    assert str(DEFAULT_SYNC_POLICY) == ""
    assert SyncPolicy.parse("") == DEFAULT_SYNC_POLICY
    assert str(SyncPolicy.parse("csums=off rate-min=32M window=always verify=off")) == ""


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("rate-min=500K", "rate-min=500"),
        ("rate-max=1g", "rate-max=1048576"),
        ("rate-max=network", ""),
        ("window=22-06", "window=22-06"),
        ("verify=daily@03", "verify=daily@03"),
        ("full-above=never priority=0", "priority=0"),
    ],
)
def test_values_as_they_are_typed(text: str, stored: str) -> None:
    assert str(SyncPolicy.parse(text)) == stored


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("new=1", ["SAN-SYNC-002"]),
        ("csums", ["SAN-SYNC-002"]),
        ("csums=yes full-above=0 full-above=100", ["SAN-SYNC-003"] * 2),
        ("full-above=x", ["SAN-SYNC-003"]),
        ("rate-min=32", ["SAN-SYNC-003"]),
        ("rate-min=5G", ["SAN-SYNC-003"]),
        ("rate-min=M", ["SAN-SYNC-003"]),
        ("rate-max=1M", ["SAN-SYNC-004"]),
        ("window=22-22", ["SAN-SYNC-003"]),
        ("window=24-06", ["SAN-SYNC-003"]),
        ("priority=101 verify=sun", ["SAN-SYNC-003", "SAN-SYNC-001"]),
    ],
)
def test_nothing_without_meaning(text: str, codes: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        SyncPolicy.parse(text)
    assert [problem.code for problem in caught.value.problems] == codes


def test_all_problems_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        DEFAULT_SYNC_POLICY.changed({"csums": "x", "window": "y"})
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("window", "open_at", "closed_at"),
    [(Window(22, 6), (22, 23, 0, 5), (6, 12, 21)), (Window(8, 17), (8, 16), (7, 17, 23, 0))],
)
def test_hours(window: Window, open_at: tuple[int, ...], closed_at: tuple[int, ...]) -> None:
    assert all(window.is_open(hour) for hour in open_at)
    assert not any(window.is_open(hour) for hour in closed_at)
