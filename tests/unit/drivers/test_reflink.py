# SPDX-License-Identifier: GPL-2.0-or-later
"""A copy that shares blocks is whole, or none."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from sanctl.drivers import reflink


@pytest.mark.parametrize("copied", [4096, 8192])
def test_a_copy_that_ended_early_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: int
) -> None:
    """What kernels before 6.13 call a success: the filesystem was full in the middle of it."""
    origin = os.open(tmp_path / "origin", os.O_RDWR | os.O_CREAT)
    copy = os.open(tmp_path / "copy", os.O_RDWR | os.O_CREAT)
    os.truncate(origin, 8192)
    monkeypatch.setattr(fcntl, "ioctl", lambda handle, *_: os.truncate(handle, copied))
    try:
        if copied < 8192:
            with pytest.raises(OSError, match="ended at byte 4096 of 8192") as refused:
                reflink.clone(origin, copy)
            assert refused.value.errno == errno.EIO
        else:
            reflink.clone(origin, copy)
    finally:
        os.close(origin)
        os.close(copy)
