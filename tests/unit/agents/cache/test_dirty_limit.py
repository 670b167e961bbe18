# SPDX-License-Identifier: GPL-2.0-or-later
"""The limit of dirty memory is the sum of the devices' limits, and at limit a fifth of RAM."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.cache import dirty_limit
from sanctl.drivers import page_cache
from sanctl.system import state_files

MIB = 2**20
MAX_BYTES = 100 * MIB


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int | None]:
    """The limits that the kernel was given, in order."""
    limits_set: list[int | None] = []
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(dirty_limit, "max_bytes", lambda: MAX_BYTES)
    monkeypatch.setattr(
        page_cache, "set_dirty_limit", lambda limit, saved_in: limits_set.append(limit)
    )
    monkeypatch.setattr(
        page_cache, "dirty_limit_bytes", lambda: (limits_set[-1] if limits_set else 0) or 0
    )
    monkeypatch.setattr(page_cache, "usage", lambda _path: None)
    monkeypatch.setattr(page_cache, "flush_rate_bytes_s", lambda _path: None)
    return limits_set


def test_the_limit_is_the_sum_of_the_devices_limits(limits: list[int | None]) -> None:
    dirty_limit.set_limit("a", 32 * MIB)
    dirty_limit.set_limit("b", 64 * MIB)
    dirty_limit.set_limit("b", 64 * MIB)
    dirty_limit.set_limit("a", None)
    dirty_limit.set_limit("b", None)
    assert limits == [32 * MIB, 96 * MIB, 64 * MIB, None]


def test_a_limit_that_another_program_has_lifted_is_set_again(limits: list[int | None]) -> None:
    """What broke: sysctl wrote vm.dirty_bytes, and the note said that the limit was in force."""
    dirty_limit.set_limit("a", 32 * MIB)
    dirty_limit.set_limit("b", 64 * MIB)
    limits.append(0)
    dirty_limit.set_limit("a", 32 * MIB)
    dirty_limit.set_limit("b", 64 * MIB)
    assert limits == [32 * MIB, 96 * MIB, 0, 96 * MIB]
    dirty_limit.set_limit("a", 7 << 50)
    dirty_limit.set_limit("b", 64 * MIB)
    assert limits[4:] == [MAX_BYTES]


def test_the_limit_is_never_above_the_nodes_maximum(limits: list[int | None]) -> None:
    dirty_limit.set_limit("a", 7 << 50)
    assert limits == [MAX_BYTES]
    assert f" limit={7 << 50} node-limit={MAX_BYTES}" in dirty_limit.published_fields("a", 7 << 50)
    dirty_limit.set_limit("a", 8 * MIB)
    assert dirty_limit.published_fields("a", 8 * MIB) == f" limit={8 * MIB}"


@pytest.mark.parametrize("change", [64 * MIB, 8 * MIB, None])
def test_a_limit_is_set_again_after_a_kill_or_an_error(
    limits: list[int | None], monkeypatch: pytest.MonkeyPatch, change: int | None
) -> None:
    """Killed or refused, before or after the kernel had the limit: the next call sets it."""
    dirty_limit.set_limit("a", 32 * MIB)
    for dies_before in (True, False):

        def dies(limit: int | None, saved_in: str, *, dies_before: bool = dies_before) -> None:
            if not dies_before:
                limits.append(limit)
            raise OSError("refused")

        with monkeypatch.context() as patched:
            patched.setattr(page_cache, "set_dirty_limit", dies)
            with pytest.raises(OSError, match="refused"):
                dirty_limit.set_limit("a", change)
    dirty_limit.set_limit("a", change)
    dirty_limit.set_limit("a", change)
    assert limits == [32 * MIB, change, change]


def test_the_maximum_is_a_fifth_of_ram() -> None:
    total_kib = int(Path("/proc/meminfo").read_text(encoding="ascii").split()[1])
    assert dirty_limit.max_bytes() == pytest.approx(total_kib * 1024 / 5, rel=0.01)
