# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbered blocks that a host writes in order, and the count of those found on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sanctl.lab.harness.initiator import Initiator

BLOCK_BYTES = 4096


class Stretch(NamedTuple):
    """Blocks of a device: the first, and how many."""

    at: int
    blocks: int


def _writing(path: str, stretch: Stretch, *, flushed: bool) -> str:
    return (
        f"seq -f 'block %06g {stretch.at}' 1 {stretch.blocks}"
        f" | while read -r line; do printf '%-{BLOCK_BYTES - 1}s\\n' \"$line\"; done |"
        f" dd of={path} bs={BLOCK_BYTES} seek={stretch.at} oflag=direct iflag=fullblock"
        f" conv=notrunc{',fsync' if flushed else ''} status=none"
    )


def write(host: Initiator, path: str, stretch: Stretch, *, flushed: bool) -> None:
    """Write a stretch of a device, each block acknowledged before the next."""
    host.sh(_writing(path, stretch, flushed=flushed), timeout_s=180)


def write_side_by_side(host: Initiator, path: str, stretches: Sequence[Stretch]) -> None:
    """Write stretches at the same time, so that much is acknowledged that no flush came after.

    Raises:
        CommandError: a write met an error.
    """
    jobs = "\n".join(
        f'{{ {_writing(path, one, flushed=False)}; }} & jobs="$jobs $!"' for one in stretches
    )
    host.sh(f"{jobs}\nfor job in $jobs; do wait $job || exit 1; done", timeout_s=300)


def found(host: Initiator, path: str, stretch: Stretch) -> int:
    """How many of the blocks are there, read from the device past the host's cache."""
    out = host.sh(
        f"dd if={path} bs={BLOCK_BYTES} skip={stretch.at} count={stretch.blocks} iflag=direct"
        f" status=none | {counting(stretch)}",
        timeout_s=300,
    )
    return int(out)


def counting(stretch: Stretch) -> str:
    """A filter that counts the blocks of a stretch in what it reads."""
    return f"tr -d '\\0' | {{ grep -c '^block ...... *{stretch.at}' || true; }}"
