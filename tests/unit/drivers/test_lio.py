"""What is told of LIO from its attributes alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.drivers import lio


@pytest.mark.parametrize(
    ("atomic", "is_long"),
    [(None, True), ("0\n", False), ("128\n", True)],
    ids=["an older kernel", "no atomic writes", "atomic writes"],
)
def test_limits_are_set_where_hosts_read_them(
    tmp_path: Path, atomic: str | None, is_long: bool
) -> None:
    (tmp_path / "attrib").mkdir()
    if atomic is not None:
        (tmp_path / "attrib" / "atomic_max_len").write_text(atomic)
    assert lio.has_long_block_limits(str(tmp_path)) is is_long
