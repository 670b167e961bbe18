# SPDX-License-Identifier: GPL-2.0-or-later
"""What may be dirty on a node: what its devices want together, and never more than RAM allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.cache import dirty_limit
from sanctl.drivers import page_cache
from sanctl.system import state_files

MIB = 2**20
MOST = 100 * MIB


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int | None]:
    """What the kernel was told, in order."""
    told: list[int | None] = []
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(dirty_limit, "max_bytes", lambda: MOST)
    monkeypatch.setattr(page_cache, "set_dirty_limit", lambda most, saved_in: told.append(most))
    monkeypatch.setattr(page_cache, "usage", lambda _path: None)
    monkeypatch.setattr(page_cache, "flush_rate_bytes_s", lambda _path: None)
    return told


def test_it_is_the_sum_of_what_the_devices_want(limits: list[int | None]) -> None:
    dirty_limit.set_limit("a", 32 * MIB)
    dirty_limit.set_limit("b", 64 * MIB)
    dirty_limit.set_limit("b", 64 * MIB)
    dirty_limit.set_limit("a", None)
    dirty_limit.set_limit("b", None)
    assert limits == [32 * MIB, 96 * MIB, 64 * MIB, None]


def test_it_is_never_more_than_the_node_allows(limits: list[int | None]) -> None:
    dirty_limit.set_limit("a", 7 << 50)
    assert limits == [MOST]
    assert f" limit={7 << 50} node-limit={MOST}" in dirty_limit.published_fields("a", 7 << 50)
    dirty_limit.set_limit("a", 8 * MIB)
    assert dirty_limit.published_fields("a", 8 * MIB) == f" limit={8 * MIB}"


@pytest.mark.parametrize("change", [64 * MIB, 8 * MIB, None])
def test_what_the_kernel_was_not_told_is_told_again(
    limits: list[int | None], monkeypatch: pytest.MonkeyPatch, change: int | None
) -> None:
    """Killed, or refused, before it was told or after: the next call is the same."""
    dirty_limit.set_limit("a", 32 * MIB)
    for dies_before in (True, False):

        def dies(most: int | None, saved_in: str, *, dies_before: bool = dies_before) -> None:
            if not dies_before:
                limits.append(most)
            raise OSError("refused")

        with monkeypatch.context() as patched:
            patched.setattr(page_cache, "set_dirty_limit", dies)
            with pytest.raises(OSError, match="refused"):
                dirty_limit.set_limit("a", change)
    dirty_limit.set_limit("a", change)
    dirty_limit.set_limit("a", change)
    assert limits == [32 * MIB, change, change]


def test_a_node_allows_a_fifth_of_its_ram() -> None:
    total_kib = int(Path("/proc/meminfo").read_text(encoding="ascii").split()[1])
    assert dirty_limit.max_bytes() == pytest.approx(total_kib * 1024 / 5, rel=0.01)
