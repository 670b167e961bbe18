# SPDX-License-Identifier: GPL-2.0-or-later
"""Notes in /run of a newer release: after the way back they fail no stop, flush or handler."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.cache import dirty_limit, read_cache, write_cache
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, page_cache
from sanctl.errors import CommandError, Problem
from sanctl.model.cache_policy import DEFAULT_DIRTY_BYTES
from sanctl.system import journal, state_files

MIB = 2**20
VM1 = Device("vm1", "a" * 32, 1 << 20, "main", ("n1", "n2"), 3, ())


@pytest.fixture(autouse=True)
def journaled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(journal, "write", lambda text, **_: lines.append(text))
    return lines


@pytest.mark.parametrize(
    ("note", "bytes_"),
    [("33554432 tier=2", 32 * MIB), ("tier=2 33554432", DEFAULT_DIRTY_BYTES), (" ", 0)],
)
def test_another_devices_limit_fails_neither_a_stop_nor_a_flush(
    note: str, bytes_: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int | None] = []
    monkeypatch.setattr(page_cache, "set_dirty_limit", lambda limit, saved_in: given.append(limit))
    monkeypatch.setattr(dirty_limit, "max_bytes", lambda: 1 << 30)
    state_files.of_device("vm2", "dirty-limit").write(note)
    dirty_limit.set_limit("vm1", 8 * MIB)
    dirty_limit.set_limit("vm1", None)
    assert given == [8 * MIB + bytes_, bytes_ or None]


def test_settings_that_were_saved_otherwise_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "_VM", str(tmp_path))
    saved_in = state_files.of_node("dirty-before")
    for text, written in (("bytes=0 ratio=20 0 10", 1), ("0 20 0 10", 2)):
        saved_in.write(text)
        page_cache.set_dirty_limit(None, saved_in=saved_in)
        assert not saved_in.exists() and len(list(tmp_path.glob("dirty_*"))) == written


@pytest.mark.parametrize(
    "error", [OSError(22, "Invalid argument"), CommandError(Problem("SAN-X-001", "refused"))]
)
def test_no_stop_fails_for_the_limit_of_dirty_memory(
    error: Exception, journaled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    state_files.of_device("vm1", "dirty-limit").write("1048576")
    monkeypatch.setattr(page_cache, "set_dirty_limit", refuse)
    write_cache.after_stop("vm1")
    assert "dirty memory" in journaled[-1]


def test_when_unmap_was_offered_last_is_known_by_the_notes_age(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drbd_kernel, "oldest_requests", lambda _name: [])
    note = state_files.of_device("vm1", "unmap-offer")
    note.write("at=12.0 on=no")
    assert read_cache._may_unmap_still(VM1)
    note.make_old()
    assert not read_cache._may_unmap_still(VM1)
