# SPDX-License-Identifier: GPL-2.0-or-later
"""How often a disk was dropped is published as one word, and read again."""

from __future__ import annotations

import pytest

from sanctl.model.disk_drops import DiskDrops, parse_drops
from sanctl.parse.published_state import parse_replica_state


def test_the_word_is_read_again() -> None:
    drops = DiskDrops(3, 1_790_000_000, 1_790_040_000)
    assert drops.word == "3:1790000000:1790040000"
    assert parse_drops(drops.word) == drops
    assert parse_replica_state(f"disk=UpToDate disk-drops={drops.word}").drops == drops
    assert parse_replica_state("disk=UpToDate").drops is None


@pytest.mark.parametrize(
    "word", ["", "3", "1:2", "0:1:2", "x:1:2", "1:2:3:4", "1:²:3", f"1:1:{1 << 38}"]
)
def test_what_is_no_such_word_says_nothing(word: str) -> None:
    assert parse_drops(word) is None
