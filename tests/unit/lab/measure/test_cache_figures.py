# SPDX-License-Identifier: GPL-2.0-or-later
"""fio's JSON read, and the factors between cache modes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sanctl.lab.measure import cache_figures


def side(iops: float, bins: dict[str, int]) -> dict[str, Any]:
    count = sum(bins.values())
    mean = sum(int(at) * many for at, many in bins.items()) / count if count else 0
    return {"iops": iops, "total_ios": count, "lat_ns": {"mean": mean, "bins": bins}}


def answer(error: int = 0, **changes: Any) -> str:
    job = {
        "error": error,
        "read": side(90.0, {"1000000": 90}),
        "write": side(10.0, {"16000000": 9, "50000000": 1}),
    }
    return "fio: a note\n" + json.dumps({"jobs": [job | changes]})


def test_reads_and_writes_are_one() -> None:
    reported = cache_figures.parse_fio(answer(), "none", hit_percent=5)
    assert reported.iops == 100.0
    assert reported.mean_s == pytest.approx((90 * 0.001 + 9 * 0.016 + 0.05) / 100)
    assert reported.percentiles_s == {50.0: 0.001, 95.0: 0.016, 99.0: 0.016}
    assert (reported.read_s, reported.hit_percent) == (0.001, 5)


def test_a_run_that_proves_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="error 5"):
        cache_figures.parse_fio(answer(error=5), "none", hit_percent=None)
    with pytest.raises(ValueError, match="wrote nothing"):
        cache_figures.parse_fio(answer(write=side(0.0, {})), "none", hit_percent=None)
    empty = side(10.0, {"1": 1})
    empty["lat_ns"]["bins"] = {}
    with pytest.raises(ValueError, match="histogram"):
        cache_figures.parse_fio(answer(read=empty, write=empty), "none", hit_percent=None)


def test_factors_are_over_the_first(tmp_path: Path) -> None:
    slow = cache_figures.parse_fio(answer(), "none", hit_percent=None)
    fast = cache_figures.parse_fio(
        answer(read=side(590.0, {"1000": 590})), "write-back", hit_percent=90
    )
    assert cache_figures.factors([slow, fast]) == [1.0, 6.0]
    ram = replace(fast, mode=cache_figures.RAM)
    made = cache_figures.draw([slow, fast, ram], "a title", tmp_path / "cache")
    assert all(path.stat().st_size > 1000 for path in made)
