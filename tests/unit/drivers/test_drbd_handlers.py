# SPDX-License-Identifier: GPL-2.0-or-later
"""The calls of fence-peer that the kernel waits for, as /proc shows them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sanctl.drivers import drbd_handlers
from sanctl.model.drbd import HandlerCalls


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(drbd_handlers, "_PROC", str(tmp_path))
    (tmp_path / "meminfo").write_text("MemTotal: 1 kB\n")
    (tmp_path / "sys").mkdir()
    return tmp_path


def _process(proc: Path, pid: int, name: str, *words: str) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "comm").write_text(f"{name}\n")
    (proc / str(pid) / "cmdline").write_text("".join(f"{word}\0" for word in words))


def test_threads_and_programs_are_counted(proc: Path) -> None:
    _process(proc, 2, "kthreadd")
    _process(proc, 70, "drbd_async_h")
    _process(proc, 71, "drbdadm", "/sbin/drbdadm", "fence-peer", "vol1")
    _process(proc, 72, "drbdadm-84", "drbdadm", "fence-peer", "vol-2")
    # The handler's own program, and other calls of drbdadm.
    _process(proc, 73, "fence-peer", "/usr/bin/python3", "-I", "/usr/lib/sanctl/fence-peer")
    _process(proc, 74, "drbdadm", "/sbin/drbdadm", "before-resync-source", "vol3")
    _process(proc, 75, "drbdadm", "drbdadm", "adjust", "fence-peer")
    _process(proc, 76, "drbdadm")
    assert drbd_handlers.observe_calls() == HandlerCalls(1, ("vol1", "vol-2"))


def test_nothing_is_under_way(proc: Path) -> None:
    _process(proc, 1, "systemd", "/sbin/init")
    assert drbd_handlers.observe_calls() == HandlerCalls(0, ())


def test_a_process_that_ends_meanwhile_is_none(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _process(proc, 71, "drbdadm", "/sbin/drbdadm", "fence-peer", "vol1")
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: [*listed(path), "72"])
    assert drbd_handlers.observe_calls().resources == ("vol1",)


def test_a_process_that_cannot_be_looked_at_is_not_taken_for_none(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _process(proc, 71, "drbdadm", "/sbin/drbdadm", "fence-peer", "vol1")

    def fail(path: str) -> str:
        raise OSError(errno.ENOMEM, "no memory", path)

    monkeypatch.setattr(drbd_handlers, "read_text", fail)
    with pytest.raises(OSError, match="no memory"):
        drbd_handlers.observe_calls()
