# SPDX-License-Identifier: GPL-2.0-or-later
"""The bytes and seconds of a flush, read from the survivor's journal."""

from __future__ import annotations

import pytest

from sanctl.errors import UsageError
from sanctl.lab.bench import standby_loss
from sanctl.lab.measure.timeline import Entry
from sanctl.model.names import ByteSize

FLUSHED = "vol1: cache: write-through: all that was in RAM is on the disk"


def entry(at_s: float, message: str, *, device: str = "vol1", took_s: float = 0.5) -> Entry:
    return Entry(
        node="n1",
        at_s=at_s,
        identifier="sanctl",
        message=message,
        device=device,
        duration_s=took_s,
    )


def test_the_first_flush_since_then_counts() -> None:
    entries = [
        entry(30.0, f"{FLUSHED} (1 bytes)"),
        entry(20.0, f"{FLUSHED} (4096 bytes)", took_s=1.25),
        entry(15.0, f"{FLUSHED} (2 bytes)", device="vol2"),
        entry(5.0, f"{FLUSHED} (3 bytes)"),
        entry(12.0, "vol1: cache: write-back: both copies are in sync"),
    ]
    assert standby_loss.find_flush(entries, "vol1", 10.0) == (4096, 1.25)


def test_a_kernel_that_does_not_count_pages_has_no_flush() -> None:
    assert standby_loss.find_flush([entry(20.0, FLUSHED)], "vol1", 10.0) is None


def test_limits_are_sizes() -> None:
    assert standby_loss._limits("4M,16M") == (ByteSize(bytes=4 << 20), ByteSize(bytes=16 << 20))
    with pytest.raises(UsageError):
        standby_loss._limits("4M,much")
