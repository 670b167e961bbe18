# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads what fio found out, reads and writes each, and percentiles of both together. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

#: So that `parse` finds histograms of latency, from submission to completion.
OUTPUT_OPTIONS = "--output-format=json+ --lat_percentiles=1 --clat_percentiles=0"


class Side(NamedTuple):
    """The reads or the writes of a job; none: all is 0.

    Attributes:
        iops: requests a second.
        total: how many requests.
        mean_s: mean latency.
        bins: requests by latency in nanoseconds.
    """

    iops: float
    total: int
    mean_s: float
    bins: dict[int, int]


def parse(text: str) -> tuple[Side, Side]:
    """Return the reads and the writes of fio's first job, run with OUTPUT_OPTIONS.

    Raises:
        ValueError: fio reported an error, wrote no document, or met no request at all.
    """
    # fio writes notes before its document.
    job = json.loads(text[text.index("{") :])["jobs"][0]
    if job["error"]:
        raise ValueError(f"fio met error {job['error']}")
    reads, writes = _side(job["read"]), _side(job["write"])
    if not reads.total + writes.total:
        raise ValueError("fio read nothing and wrote nothing")
    return reads, writes


def _side(found: dict[str, Any]) -> Side:
    latency = found["lat_ns"]
    return Side(
        iops=found["iops"],
        total=found["total_ios"],
        mean_s=latency["mean"] / 1e9,
        bins={int(at): count for at, count in latency.get("bins", {}).items()},
    )


def percentile_s(sides: Sequence[Side], wanted: float) -> float:
    """Return a percentile of the latency of reads and writes together.

    Raises:
        ValueError: fio wrote no histogram.
    """
    bins: dict[int, int] = {}
    for side in sides:
        for at, count in side.bins.items():
            bins[at] = bins.get(at, 0) + count
    left = sum(bins.values()) * wanted / 100
    for at in sorted(bins):
        left -= bins[at]
        if left <= 0:
            return at / 1e9
    raise ValueError("fio wrote no histogram")
