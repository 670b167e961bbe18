# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which step of `pool prepare` comes next, or a refusal; how a step is done: ops.

The invariant: a device is formatted only where what is to be overwritten was read and is blank, or
where sanctl had begun to format it and nothing can have been stored; and never where the pool was
made on this node before. A disk that cannot be read does not count as blank. A pool that was made
once is reformatted by `sanctl pool prepare NAME --anew` alone.

Two notes on the node's own disk are needed, each with the pool's uuid:

* `making`: written before the filesystem is made, removed before it is mounted for the first time.
* `made`: the pool has had its marker. Beside `making` it says that `--anew` was interrupted.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class DeviceContent(StrEnum):
    """What was found on a device."""

    OURS = "ours"
    """What sanctl has written there for this pool; of the filesystem: any content."""
    FOREIGN = "foreign"
    BLANK = "blank"
    """Its first MiB was read and is zero, and blkid(8) finds nothing."""
    UNREADABLE = "unreadable"
    ABSENT = "absent"


class MarkerState(StrEnum):
    """Which of the pool's marker and its folder of devices the mounted filesystem has."""

    THERE = "there"
    """The marker and the folder of the devices."""
    FOLDER_MISSING = "folder missing"
    MISSING = "missing"
    """Neither the marker nor the folder."""
    FOLDER_ALONE = "folder alone"


class PoolEvidence(NamedTuple):
    """What was found of a pool on this node.

    Attributes:
        is_mounted: a filesystem is mounted at the pool's path.
        is_running: the slow disk is in use through bcache.
        has_flash: the flash is attached to the slow disk.
        origin: what the slow disk holds; None: not read, while bcache has it.
        flash: what the flash device holds; None: not read, while it is in use.
        filesystem: what the assembled disk holds; None: not assembled by this run yet.
        marker: what the filesystem has of marker and folder; None: not mounted.
        is_making: the note `making` is there.
        is_made: the note `made` is there.
        is_noted_write_back: the note `write-back` is there: data may be on flash alone.
        leaves_flash: the flash has failed, and no operator has asked for it.
        is_on_other_bcache: what is mounted is on bcache, or may be, and not on this slow disk.
    """

    is_mounted: bool
    is_running: bool
    has_flash: bool
    origin: DeviceContent | None
    flash: DeviceContent | None
    filesystem: DeviceContent | None
    marker: MarkerState | None
    is_making: bool
    is_made: bool
    is_noted_write_back: bool
    leaves_flash: bool = False
    is_on_other_bcache: bool = False

    @property
    def was_made(self) -> bool:
        """Whether a note says that the pool was made on this node before."""
        return self.is_made or self.is_noted_write_back


class PrepareStep(StrEnum):
    """The next step, after which the pool is inspected again."""

    FORMAT = "format"
    """Make the blank slow disk the pool's."""
    GIVE_FLASH = "give flash"
    """Make the blank flash device the pool's."""
    ATTACH_FLASH = "attach flash"
    """Empty the flash and attach it to the slow disk, which is in use without flash."""
    START = "start"
    """Assemble disk and flash (bcache)."""
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
    """The pool was made here before, and its content is gone."""
    REFUSE_UNFINISHED = "refuse unfinished"
    """`--anew` was interrupted."""
    REFUSE_MARKER = "refuse marker"


def leaves_flash(found: PoolEvidence) -> bool:
    """Whether the pool is in use without its flash, which is left as it is."""
    return found.is_mounted and found.is_running and not found.has_flash and found.leaves_flash


def next_prepare_step(found: PoolEvidence) -> PrepareStep:
    """Return what to do next."""
    if found.is_made and found.is_making:
        return PrepareStep.REFUSE_UNFINISHED
    if found.is_mounted:
        return _while_mounted(found)
    if found.origin is DeviceContent.BLANK:
        if found.was_made or found.flash is DeviceContent.OURS:
            return PrepareStep.REFUSE_MADE
        return (
            PrepareStep.FORMAT if found.flash is DeviceContent.BLANK else PrepareStep.REFUSE_FLASH
        )
    if found.origin is DeviceContent.FOREIGN and found.was_made:
        return PrepareStep.REFUSE_MADE
    if found.origin is not DeviceContent.OURS:
        return PrepareStep.REFUSE_ORIGIN
    if found.flash is DeviceContent.BLANK:
        return PrepareStep.GIVE_FLASH
    if found.flash is not DeviceContent.OURS:
        return PrepareStep.REFUSE_FLASH
    return PrepareStep.START if found.filesystem is None else _assembled(found)


def _assembled(found: PoolEvidence) -> PrepareStep:
    if found.filesystem in {DeviceContent.UNREADABLE, DeviceContent.ABSENT}:
        return PrepareStep.REFUSE_FILESYSTEM
    if found.filesystem is DeviceContent.BLANK or found.is_making:
        return PrepareStep.REFUSE_MADE if found.was_made else PrepareStep.MAKE_FILESYSTEM
    return PrepareStep.MOUNT


def _while_mounted(found: PoolEvidence) -> PrepareStep:
    # The inventory names a wrong disk: taken for prepared, its flash would be taken for unused.
    if not found.is_running and (
        found.is_on_other_bcache or found.origin in {DeviceContent.ABSENT, DeviceContent.UNREADABLE}
    ):
        return PrepareStep.REFUSE_ORIGIN
    if found.is_running and not found.has_flash and not leaves_flash(found):
        is_free = found.flash in {DeviceContent.OURS, DeviceContent.BLANK}
        return PrepareStep.ATTACH_FLASH if is_free else PrepareStep.REFUSE_FLASH
    if found.is_making:
        return PrepareStep.FORGET_MAKING
    if found.marker is MarkerState.FOLDER_ALONE:
        return PrepareStep.REFUSE_MARKER
    if found.marker is MarkerState.FOLDER_MISSING:
        return PrepareStep.MARK
    if found.marker is not MarkerState.THERE:
        return PrepareStep.REFUSE_MADE if found.was_made else PrepareStep.MARK
    # A pool mounted without bcache is to be reformatted node by node, and is not yet.
    return PrepareStep.NOTE_MADE if found.is_running and not found.is_made else PrepareStep.DONE
