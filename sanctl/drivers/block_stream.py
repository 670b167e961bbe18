# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads a file or a block device from begin to end, by direct I/O, and digests it.

Direct I/O: what is read once takes no place in the page cache, which devices that hosts use need.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable

from sanctl.system import pipe_wait

CHUNK_BYTES = 4 << 20
_PIPE_BYTES = 1 << 20
_SHOW_BYTES = 256 << 20


def read_through(path: str, size_bytes: int, use: Callable[[memoryview], None]) -> str:
    """Read the first bytes of a file or a device, hand them over in order; return their SHA-256.

    Args:
        path: the file or device.
        size_bytes: how many bytes, a multiple of 512.
        use: is called with each chunk, which it must not keep.

    Raises:
        OSError: it cannot be read, or it is shorter.
    """
    digest, at = hashlib.sha256(), 0
    handle = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # An anonymous map begins with a page, as direct I/O wants it.
        with mmap.mmap(-1, CHUNK_BYTES) as buffer, memoryview(buffer) as view:
            while at < size_bytes:
                with view[: min(CHUNK_BYTES, size_bytes - at)] as wanted:
                    got = os.preadv(handle, [wanted], at)
                    if not got:
                        raise OSError(0, f"ends at byte {at} of {size_bytes}", path)
                    with wanted[:got] as part:
                        digest.update(part)
                        use(part)
                at += got
    finally:
        os.close(handle)
    return digest.hexdigest()


def digest_of_pipe(
    pipe: int, progress: Callable[[int], None], *, silence_s: float
) -> tuple[str, int]:
    """Read a pipe to its end; return the SHA-256 of what came, and how many bytes that was.

    Raises:
        OSError: it cannot be read, or nothing came for `silence_s` seconds (TimeoutError).
    """
    digest, done, buffer = hashlib.sha256(), 0, bytearray(_PIPE_BYTES)
    shown = 0
    while True:
        pipe_wait.await_data(pipe, silence_s=silence_s)
        got = os.readv(pipe, [buffer])
        if not got:
            return digest.hexdigest(), done
        with memoryview(buffer) as view, view[:got] as part:
            digest.update(part)
        done += got
        if done - shown >= _SHOW_BYTES:
            shown = done
            progress(done)
