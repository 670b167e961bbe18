# SPDX-License-Identifier: GPL-2.0-or-later
"""What `sanctl pool prepare` does next to a pool with a flash cache, from what it has seen.

The invariant: a device is formatted only where what is to be overwritten was read and is blank, or
where sanctl had begun to make it and nothing can have been stored; and never where the pool has
been made on this node before. A disk that cannot be read is none that is blank. What was made once
is made anew by `sanctl pool prepare NAME --anew` alone.

Two notes on the node's own disk are needed, each with the pool's uuid:

* `making`: written before the filesystem is made, removed before it is mounted for the first time.
* `made`: the pool has had its marker. Beside `making` it says that `--anew` was interrupted.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Holds(StrEnum):
    """What a device holds."""

    OURS = "ours"
    """What sanctl has put there for this pool; of the filesystem: any content."""
    FOREIGN = "foreign"
    BLANK = "blank"
    """Its first MiB was read and is zero, and blkid(8) finds nothing."""
    UNREADABLE = "unreadable"
    ABSENT = "absent"


class Marker(StrEnum):
    """What lies in the filesystem that is mounted."""

    THERE = "there"
    """The marker and the folder of the devices."""
    FOLDER_MISSING = "folder missing"
    MISSING = "missing"
    """Neither the marker nor the folder."""
    FOLDER_ALONE = "folder alone"


class Seen(NamedTuple):
    """What there is of a pool on this node.

    Attributes:
        is_mounted: a filesystem is, at the pool's path.
        is_running: the slow disk is in use through bcache.
        has_flash: it has its flash.
        origin: what the slow disk holds; None: not asked, while mounted.
        flash: what the flash device holds; None: not asked, while it is in use.
        filesystem: what the assembled disk holds; None: not assembled by this run yet.
        marker: what lies in the filesystem; None: not mounted.
        is_making: the note `making` is there.
        is_made: the note `made` is there.
        is_noted_write_back: the note `write-back` is there: data may be on flash alone.
    """

    is_mounted: bool
    is_running: bool
    has_flash: bool
    origin: Holds | None
    flash: Holds | None
    filesystem: Holds | None
    marker: Marker | None
    is_making: bool
    is_made: bool
    is_noted_write_back: bool

    @property
    def was_made(self) -> bool:
        """Something says that the pool has been made on this node before."""
        return self.is_made or self.is_noted_write_back


class Act(StrEnum):
    """The next thing to be done, after which it is looked anew."""

    FORMAT = "format"
    """Make the blank slow disk the pool's."""
    GIVE_FLASH = "give flash"
    """Make the blank flash device the pool's."""
    ATTACH_FLASH = "attach flash"
    """Empty the flash and attach it to the slow disk, which is in use without."""
    START = "start"
    """Put disk and flash together."""
    MAKE_FILESYSTEM = "make filesystem"
    FORGET_MAKING = "forget making"
    MOUNT = "mount"
    MARK = "mark"
    """Write the marker, or make the folder that is missing beside it."""
    NOTE_MADE = "note made"
    DONE = "done"
    REFUSE_ORIGIN = "refuse origin"
    REFUSE_FLASH = "refuse flash"
    REFUSE_FILESYSTEM = "refuse filesystem"
    REFUSE_MADE = "refuse made"
    """It was made here before, and what was made is not there."""
    REFUSE_UNFINISHED = "refuse unfinished"
    """`--anew` was interrupted."""
    REFUSE_MARKER = "refuse marker"


def next_act(seen: Seen) -> Act:
    """Return what to do next."""
    if seen.is_made and seen.is_making:
        return Act.REFUSE_UNFINISHED
    if seen.is_mounted:
        return _while_mounted(seen)
    if seen.origin is Holds.BLANK:
        if seen.was_made or seen.flash is Holds.OURS:
            return Act.REFUSE_MADE
        return Act.FORMAT if seen.flash is Holds.BLANK else Act.REFUSE_FLASH
    if seen.origin is Holds.FOREIGN and seen.was_made:
        return Act.REFUSE_MADE
    if seen.origin is not Holds.OURS:
        return Act.REFUSE_ORIGIN
    if seen.flash is Holds.BLANK:
        return Act.GIVE_FLASH
    if seen.flash is not Holds.OURS:
        return Act.REFUSE_FLASH
    return Act.START if seen.filesystem is None else _assembled(seen)


def _assembled(seen: Seen) -> Act:
    if seen.filesystem in {Holds.UNREADABLE, Holds.ABSENT}:
        return Act.REFUSE_FILESYSTEM
    if seen.filesystem is Holds.BLANK or seen.is_making:
        return Act.REFUSE_MADE if seen.was_made else Act.MAKE_FILESYSTEM
    return Act.MOUNT


def _while_mounted(seen: Seen) -> Act:
    if seen.is_running and not seen.has_flash:
        is_free = seen.flash in {Holds.OURS, Holds.BLANK}
        return Act.ATTACH_FLASH if is_free else Act.REFUSE_FLASH
    if seen.is_making:
        return Act.FORGET_MAKING
    if seen.marker is Marker.FOLDER_ALONE:
        return Act.REFUSE_MARKER
    if seen.marker is Marker.FOLDER_MISSING:
        return Act.MARK
    if seen.marker is not Marker.THERE:
        return Act.REFUSE_MADE if seen.was_made else Act.MARK
    # One that is mounted without bcache is to be made anew, device by device, and is not yet.
    return Act.NOTE_MADE if seen.is_running and not seen.is_made else Act.DONE
