"""What may be dirty on a node: what its devices want together, and never more than RAM allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents import dirty
from sanctl.drivers import filecache

MIB = 2**20
MOST = 100 * MIB


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int | None]:
    """What the kernel was told, in order."""
    told: list[int | None] = []
    monkeypatch.setattr(dirty, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(dirty, "most_bytes", lambda: MOST)
    monkeypatch.setattr(filecache, "limit_dirty", lambda most, saved_in: told.append(most))
    monkeypatch.setattr(filecache, "usage", lambda _path: None)
    monkeypatch.setattr(filecache, "flush_rate", lambda _path: None)
    return told


def test_it_is_the_sum_of_what_the_devices_want(limits: list[int | None]) -> None:
    dirty.limit("a", 32 * MIB)
    dirty.limit("b", 64 * MIB)
    dirty.limit("b", 64 * MIB)
    dirty.limit("a", None)
    dirty.limit("b", None)
    assert limits == [32 * MIB, 96 * MIB, 64 * MIB, None]


def test_it_is_never_more_than_the_node_allows(limits: list[int | None]) -> None:
    dirty.limit("a", 7 << 50)
    assert limits == [MOST]
    assert f" limit={7 << 50} node-limit={MOST}" in dirty.words("a", 7 << 50)
    dirty.limit("a", 8 * MIB)
    assert dirty.words("a", 8 * MIB) == f" limit={8 * MIB}"


@pytest.mark.parametrize("change", [64 * MIB, 8 * MIB, None])
def test_what_the_kernel_was_not_told_is_told_again(
    limits: list[int | None], monkeypatch: pytest.MonkeyPatch, change: int | None
) -> None:
    """Killed, or refused, before it was told or after: the next call is the same."""
    dirty.limit("a", 32 * MIB)
    for dies_before in (True, False):

        def dies(most: int | None, saved_in: str, *, dies_before: bool = dies_before) -> None:
            if not dies_before:
                limits.append(most)
            raise OSError("refused")

        with monkeypatch.context() as patched:
            patched.setattr(filecache, "limit_dirty", dies)
            with pytest.raises(OSError, match="refused"):
                dirty.limit("a", change)
    dirty.limit("a", change)
    dirty.limit("a", change)
    assert limits == [32 * MIB, change, change]


def test_a_node_allows_a_fifth_of_its_ram() -> None:
    total_kib = int(Path("/proc/meminfo").read_text(encoding="ascii").split()[1])
    assert dirty.most_bytes() == pytest.approx(total_kib * 1024 / 5, rel=0.01)
