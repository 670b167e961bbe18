# SPDX-License-Identifier: GPL-2.0-or-later
"""Tells which files of a pool prove that its filesystem was not shut down when that was noted.

What has shut itself down takes no more writes before it is unmounted: XFS keeps that flag, ext4 an
aborted journal, and refuses a remount with `rw` (fs/xfs/xfs_fsops.c, fs/ext4/super.c). A file that
is attached keeps its filesystem from being unmounted. So one that is attached since before the note
was written, on a filesystem that takes writes, is on one that never was shut down: the trial that
led to the note has met a passing error of the disk.

A note of another boot, of an earlier release, of `sanctl pool`, or made by a kernel without
`diskseq` (before Linux 5.15) proves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from sanctl.drivers import loop
from sanctl.system.files import read_text_or

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def describe() -> str:
    """Return the text of a note: this boot, and the files that are attached now."""
    boot = read_text_or(_BOOT_ID, "").strip()
    attached = sorted(loop.attachments().items())
    return "".join(f"{line}\n" for line in (boot, *(f"{seq} {path}" for path, seq in attached)))


def proven(note: str, files: Collection[str], folder: str) -> frozenset[str]:
    """Return those attached files that are attached to the same filesystem since before a note.

    Args:
        note: the note's text.
        files: the paths of attached files.
        folder: the root of the filesystem that has just taken a write.
    """
    boot, *lines = note.splitlines() or [""]
    if not boot or boot != read_text_or(_BOOT_ID, "").strip():
        return frozenset()
    before = {path: seq for seq, _, path in (line.partition(" ") for line in lines)}
    now = loop.attachments()
    found = set()
    for path in files:
        seq = before.get(path)
        if not seq or now.get(path) != seq:
            continue
        try:
            is_same = os.stat(path).st_dev == os.stat(folder).st_dev and loop.is_over(path)
        except OSError:
            continue
        if is_same:
            found.add(path)
    return frozenset(found)
