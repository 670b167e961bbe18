"""When a replica's state is told again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sanctl.agents import announce


@pytest.mark.parametrize(
    ("written_before_s", "is_fresh"),
    [(0.0, True), (30.0, True), (61.0, False), (-3600.0, False)],
)
def test_a_note_is_fresh_for_a_minute_whatever_the_clock_did(
    tmp_path: Path, written_before_s: float, is_fresh: bool
) -> None:
    """Of a note from the future nobody can say how old it is."""
    note = tmp_path / "told-vol1"
    note.write_text("9000 disk=UpToDate")
    written_s = time.time() - written_before_s
    os.utime(note, (written_s, written_s))
    assert announce._is_fresh(str(note)) is is_fresh


def test_what_was_never_told_is_not_fresh(tmp_path: Path) -> None:
    assert not announce._is_fresh(str(tmp_path / "told-vol1"))
