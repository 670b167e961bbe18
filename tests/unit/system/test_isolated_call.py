# SPDX-License-Identifier: GPL-2.0-or-later
"""A call that does not come back does not hold who makes it, nor what that one holds."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

from sanctl.system import isolated_call


def test_the_error_comes_back() -> None:
    assert isolated_call.errno_of(lambda: None, within_s=10) == 0
    assert isolated_call.errno_of(lambda: os.rmdir("/none"), within_s=10) == errno.ENOENT


def test_one_that_breaks_otherwise_is_not_known() -> None:
    def breaks() -> None:
        raise ValueError

    assert isolated_call.errno_of(breaks, within_s=10) is None


def test_one_that_hangs_is_left_and_holds_no_lock_but_its_own(tmp_path: Path) -> None:
    ours = os.open(tmp_path / "ours", os.O_RDWR | os.O_CREAT)
    its = os.open(tmp_path / "its", os.O_RDWR | os.O_CREAT)
    until = tmp_path / "until"
    fcntl.flock(ours, fcntl.LOCK_EX)
    fcntl.flock(its, fcntl.LOCK_EX)

    def hangs() -> None:
        while not until.exists():
            time.sleep(0.01)

    try:
        assert isolated_call.errno_of(hangs, within_s=0.05, keep=(its,)) is None
        os.close(ours)
        os.close(its)
        assert _is_free(tmp_path / "ours", within_s=10)
        assert not _is_free(tmp_path / "its", within_s=0.1)
    finally:
        until.touch()
    assert _is_free(tmp_path / "its", within_s=10)


def _is_free(path: Path, *, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.01)
            else:
                return True
