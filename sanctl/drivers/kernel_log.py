# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's log, read from /dev/kmsg (Documentation/ABI/testing/dev-kmsg)."""

from __future__ import annotations

import os
from collections.abc import Iterator

_RECORD_BYTES = 8192


def records() -> Iterator[tuple[int, str]]:
    """Yield the records that the log holds now: sequence number and text, oldest first."""
    handle = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                record = os.read(handle, _RECORD_BYTES).decode(errors="replace")
            except BlockingIOError:
                return
            except BrokenPipeError:
                continue  # Overwritten before this read; the next read goes on behind the gap.
            head, _, text = record.partition(";")
            number = head.split(",")[1:2]
            if number and number[0].isdecimal():
                yield int(number[0]), text.partition("\n")[0]
    finally:
        os.close(handle)


def newest() -> int:
    """Return the number of the newest record, 0 for an empty log."""
    return max((number for number, _ in records()), default=0)
