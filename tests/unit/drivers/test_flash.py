"""What a node says of its pool's flash."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from sanctl.drivers import bcache, flash, poolnotes
from sanctl.model.cache import Mode
from sanctl.model.names import NodeName, PoolName
from sanctl.model.poolcache import CacheState, ModeWish
from sanctl.model.topology import Pool, PoolCache

THROUGH = Mode.WRITE_THROUGH
POOL = Pool(
    name=PoolName.parse("main"),
    path=PurePosixPath("/srv/sanctl/main"),
    uuid="5d4c1f6e-9d0b-4c39-8a54-0c6f6f0b7a11",
    nodes=(NodeName.parse("n1"),),
    cache=PoolCache(origin=PurePosixPath("/dev/slow"), flash=PurePosixPath("/dev/flash")),
)
#: A disk that is there wherever the tests run.
SEEN = bcache.Seen("null", True, THROUGH, True, 0, 0, 0)


@pytest.fixture(autouse=True)
def _folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(flash, "_RUNTIME", str(tmp_path))
    monkeypatch.setattr(poolnotes, "_FOLDER", str(tmp_path))


def follow(monkeypatch: pytest.MonkeyPatch, seen: bcache.Seen, wish: ModeWish) -> CacheState:
    monkeypatch.setattr(bcache, "observe", lambda _origin: seen)
    return flash.follow(POOL, wish, at=lambda _step: None)


def test_the_answer_bears_the_serial_of_the_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    told = follow(monkeypatch, SEEN, ModeWish(THROUGH, 7))
    assert told == CacheState(THROUGH, THROUGH, serial=7)


def test_while_another_changes_it_nothing_is_called_done(monkeypatch: pytest.MonkeyPatch) -> None:
    with flash.locked(POOL):
        told = follow(monkeypatch, SEEN, ModeWish(THROUGH))
    assert told.reason == "changing"


@pytest.mark.parametrize(("hits", "misses", "percent"), [(4, 1, None), (400, 100, 80)])
def test_a_few_reads_tell_nothing(
    monkeypatch: pytest.MonkeyPatch, hits: int, misses: int, percent: int | None
) -> None:
    seen = SEEN._replace(hits=hits, misses=misses)
    assert follow(monkeypatch, seen, ModeWish(THROUGH)).hit_percent == percent
