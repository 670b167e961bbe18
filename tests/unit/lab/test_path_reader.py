# SPDX-License-Identifier: GPL-2.0-or-later
"""Which reads of one path are stale: they saw less than had been acknowledged."""

from __future__ import annotations

import json

from tests.support.path_reader import Read, parse, stale

# Block 0: write 1 acknowledged at 10, write 5 at 20. Block 1: write 2 at 15.
ACKNOWLEDGED = [(0, 1, 10), (1, 2, 15), (0, 5, 20)]


def read(block: int, asked_ns: int, sequence: int | None) -> Read:
    return Read(block, asked_ns, asked_ns + 100, sequence, "")


def test_a_read_that_misses_what_was_acknowledged_before_it_is_old() -> None:
    assert len(stale([read(0, 21, 1)], ACKNOWLEDGED)) == 1
    assert len(stale([read(1, 16, 0)], ACKNOWLEDGED)) == 1
    assert "write 1 was read" in stale([read(0, 21, 1)], ACKNOWLEDGED)[0]


def test_a_read_that_was_under_way_meanwhile_may_see_either() -> None:
    assert (
        stale([read(0, 19, 1), read(0, 20, 1), read(0, 19, 5), read(0, 9, 0)], ACKNOWLEDGED) == []
    )


def test_what_is_newer_than_acknowledged_or_no_data_is_not_old() -> None:
    assert stale([read(0, 21, 5), read(0, 21, 7), read(0, 21, None)], ACKNOWLEDGED) == []
    assert stale([read(7, 21, 0)], ACKNOWLEDGED) == []


def test_a_log_that_grows_ends_with_a_read_that_hangs() -> None:
    lines = [[3, 10], [11, 8, ""], [4, 12], [15, None, "status 2 host 0"], [5, 16]]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    whole = [Read(3, 10, 11, 8, ""), Read(4, 12, 15, None, "status 2 host 0")]
    assert parse(text) == [*whole, Read(5, 16, None, None, "")]
    assert parse(text + "[17, 9") == parse(text)
    assert parse(text.rpartition("[5")[0]) == whole
