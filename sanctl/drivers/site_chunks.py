# SPDX-License-Identifier: GPL-2.0-or-later
"""The part of a second site's program that keeps the digests of the chunks of each proven copy.

They are in a file beside the copy, which is written before the copy gets its name. The digest that
is noted of the copy is made of them: so a list that is damaged, or another copy's, is found out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from sanctl.drivers.site_protocol import CHUNK_BYTES, DIGEST_BYTES, chunk_count, digest_of

#: What the name of the list has behind that of the copy.
SUFFIX = ".chunks"


def chunks_of(folder: str, copy: dict[str, Any]) -> bytes:
    """Return the digests of the chunks of a proven copy as it was proven, one behind the other.

    Nothing of the copy is read: what has rotted since is not seen.

    Args:
        folder: the path of the device's folder.
        copy: what is known of the copy (site_copies.py).

    Returns:
        The list; empty: there is none, as of an earlier release, or it is not right.
    """
    path = f"{folder}/{copy['name']}.{copy['token']}{SUFFIX}"
    size_bytes = copy["size_bytes"]
    length = chunk_count(size_bytes) * DIGEST_BYTES
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(path, flags), "rb") as file:
            found = file.read(length + 1)
    except OSError:
        return b""
    is_right = len(found) == length and digest_of(found, size_bytes) == copy["digest"]
    return found if is_right else b""


class WrittenChunks:
    """Which chunks of a copy were written since it began: a bit for each."""

    def __init__(self, size_bytes: int) -> None:
        self._count = chunk_count(size_bytes)
        self._bits = bytearray(-(-self._count // 8))

    def mark(self, begin: int, length: int) -> None:
        """Note that a range was written, or made zeros."""
        for number in range(begin // CHUNK_BYTES, chunk_count(begin + length)):
            self._bits[number >> 3] |= 1 << (number & 7)

    def numbers(self) -> Iterator[int]:
        """Yield the numbers of those chunks, in order."""
        return (
            number for number in range(self._count) if self._bits[number >> 3] >> (number & 7) & 1
        )
