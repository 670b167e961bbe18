# SPDX-License-Identifier: GPL-2.0-or-later
"""A call in a child that waits for its word, and that ends with its parent or when it is killed."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sanctl.system.forked_call import ForkedCall


def wait_for(what: Callable[[], bool], within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() or ["X"])[0] in "ZX"


def test_the_call_is_made_when_told_and_its_error_comes_back(tmp_path: Path) -> None:
    made = tmp_path / "made"
    call = ForkedCall(made.mkdir)
    assert call.errno_of(within_s=0.2) is None and not made.exists()
    call.begin(within_s=60)
    assert call.errno_of(within_s=10) == 0 and made.exists()
    assert call.end(within_s=10)
    call = ForkedCall(made.mkdir)
    call.begin(within_s=60)
    assert call.errno_of(within_s=10) == errno.EEXIST
    assert call.end(within_s=10)


def test_a_child_that_dies_or_breaks_has_made_no_call() -> None:
    call = ForkedCall(lambda: 1 // 0)
    call.begin(within_s=60)
    assert call.errno_of(within_s=10) == errno.EIO
    assert call.end(within_s=10)
    call = ForkedCall(lambda: None)
    os.kill(call._child, signal.SIGKILL)
    assert wait_for(lambda: is_gone(call._child))
    call.begin(within_s=60)
    assert call.errno_of(within_s=10) == errno.EIO
    assert call.end(within_s=10)


def test_a_call_that_is_killed_goes_no_further(tmp_path: Path) -> None:
    """Without this a copy would go on after hosts' I/O is let go."""
    steps = tmp_path / "steps"

    def slow() -> None:
        with steps.open("ab", buffering=0) as file:
            while True:
                file.write(b".")
                time.sleep(0.01)

    call = ForkedCall(slow)
    call.begin(within_s=60)
    assert call.errno_of(within_s=0.1) is None
    call.kill()
    assert wait_for(lambda: is_gone(call._child))
    done = steps.stat().st_size
    time.sleep(0.1)
    assert done and steps.stat().st_size == done
    assert call.errno_of(within_s=10) == errno.EIO
    assert call.end(within_s=10)


def test_the_call_ends_by_itself_where_its_parent_does_nothing() -> None:
    """A parent that is stopped kills nobody."""
    call = ForkedCall(lambda: time.sleep(60))
    call.begin(within_s=0.1)
    assert wait_for(lambda: is_gone(call._child))
    assert call.errno_of(within_s=0) == errno.EIO
    assert call.end(within_s=10)


def test_the_wait_ends_when_another_descriptor_has_data() -> None:
    reading, writing = os.pipe()
    call = ForkedCall(lambda: time.sleep(60))
    call.begin(within_s=60)
    os.close(writing)
    begin = time.monotonic()
    assert call.errno_of(within_s=30, unless_readable=reading) is None
    assert time.monotonic() - begin < 10
    os.close(reading)
    assert call.end(within_s=10)


def test_the_child_keeps_only_what_its_call_needs(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    kept = os.open(tmp_path / "kept", os.O_RDWR | os.O_CREAT)
    call = ForkedCall(lambda: os.write(kept, b"x"), keep=(kept,))
    os.close(writing)
    assert os.read(reading, 1) == b"", "the child has the pipe, too"
    call.begin(within_s=60)
    assert call.errno_of(within_s=10) == 0
    assert (tmp_path / "kept").read_bytes() == b"x"
    assert call.end(within_s=10)
    os.close(reading)
    os.close(kept)


@pytest.mark.parametrize("is_begun", [True, False], ids=["in its call", "waits"])
def test_the_child_dies_with_its_parent(tmp_path: Path, *, is_begun: bool) -> None:
    """Whatever kills the parent: a copy that is completed later would be nobody's."""
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            call = ForkedCall(lambda: time.sleep(60))
            if is_begun:
                call.begin(within_s=60)
            os.write(writing, f"{call._child}\n".encode())
            time.sleep(60)
        finally:
            os._exit(1)
    child = int(os.read(reading, 32))
    assert not is_gone(child)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert wait_for(lambda: is_gone(child))
    os.close(reading)
    os.close(writing)


def test_nothing_is_left_where_there_is_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(os.listdir("/proc/self/fd"))

    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, "no process")

    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(OSError, match="no process"):
        ForkedCall(lambda: None)
    assert len(set(os.listdir("/proc/self/fd"))) == len(before)
    monkeypatch.undo()
    for _ in range(3):
        call = ForkedCall(lambda: None)
        assert call.end(within_s=10)
    assert len(set(os.listdir("/proc/self/fd"))) == len(before)
