# SPDX-License-Identifier: GPL-2.0-or-later
"""The table and the judgement of copies within a device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.lab.measure import offload_figures
from sanctl.lab.measure.offload_figures import Method, RangeCopy

MIB = 1 << 20
BY_NODE = RangeCopy(
    method=Method.OFFLOAD, seconds=1.0, iscsi_bytes=MIB // 4, sync_bytes=66 * MIB, is_equal=True
)
BY_HOST = RangeCopy(
    method=Method.HOST, seconds=4.0, iscsi_bytes=131 * MIB, sync_bytes=66 * MIB, is_equal=True
)
COPIES = (
    BY_NODE,
    BY_HOST,
    replace(BY_NODE, seconds=3.0),
    replace(BY_HOST, seconds=5.0),
    replace(BY_NODE, seconds=2.0, iscsi_bytes=MIB),
    replace(BY_HOST, seconds=4.0),
)


def test_medians_of_each_kind_are_shown() -> None:
    assert offload_figures.rows(COPIES) == [
        ("EXTENDED COPY", "2.00 s (1.00-3.00)", "256 KiB", "66 MiB", "3 of 3"),
        ("through the host", "4.00 s (4.00-5.00)", "131 MiB", "66 MiB", "3 of 3"),
    ]
    assert offload_figures.time_ratio(COPIES) == 0.5


@pytest.mark.parametrize(
    ("changed", "is_good"),
    [
        (BY_NODE, True),
        (replace(BY_NODE, iscsi_bytes=4 * MIB), False),
        (replace(BY_NODE, is_equal=False), False),
        (replace(BY_HOST, is_equal=False), False),
    ],
)
def test_a_copy_is_equal_and_does_not_cross_the_network_of_hosts(
    changed: RangeCopy, is_good: bool
) -> None:
    assert offload_figures.is_good((*COPIES, changed), 64 * MIB) is is_good
