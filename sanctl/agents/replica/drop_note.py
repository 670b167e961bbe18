# SPDX-License-Identifier: GPL-2.0-or-later
"""Notes how often DRBD has dropped a replica's disk that was attached again, and publishes it.

On tmpfs, not beside the data: that is on the disk that fails. A stop of the replica removes the
note, and no disk is replaced without one.
"""

from __future__ import annotations

import time

from sanctl.model.disk_drops import KEY, NOTE_KIND, is_kept, parse_drops, with_one_more
from sanctl.system import state_files


def add(name: str) -> None:
    """Note one more drop of a device's disk, which has just been attached again.

    Raises:
        OSError: it is not noted.
    """
    note = state_files.of_device(name, NOTE_KIND)
    note.write(with_one_more(parse_drops(note.read()), int(time.time())).word)


def published_field(name: str) -> str:
    """Return what is published, after a blank; empty where there was no drop for a day."""
    drops = parse_drops(state_files.of_device(name, NOTE_KIND).read())
    if drops is None or not is_kept(drops, int(time.time())):
        return ""
    return f" {KEY}={drops.word}"
