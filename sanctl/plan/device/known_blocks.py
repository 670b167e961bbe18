# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: for how long it is known what a data file shares with others, and what follows from it.

To look takes time for each extent of the file. A file shares more than before only where a restore
point of its device was made, or where it was made itself, as a clone; hosts' writes make what is
shared its own. So after a look it shares as much or less, until its device has another restore
point; where there are clones, until any has. Something else, as a copy made by hand, is seen with
the next look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from sanctl.model.pool_space import extent_map_bytes
from sanctl.plan.device.point_room import DataFile

#: How often each file is looked at, in seconds.
EVERY_S = 60.0


class Look(NamedTuple):
    """What a look at a file has found, in bytes.

    Attributes:
        own: blocks written and shared with no other file.
        shared: blocks written and shared with another file.
        reserved: blocks never written.
        allocated: all blocks of the file, those of its extent map among them (stat(2)).
        seen_s: when, on the monotonic clock.
        between: what it might share blocks with then (`sharers`).
    """

    own: int
    shared: int
    reserved: int
    allocated: int
    seen_s: float
    between: str

    @classmethod
    def parse(cls, line: str) -> tuple[str, Look] | None:
        """Read what `line` wrote: the file's name, and what was seen; None for anything else."""
        words = line.split(" ")
        try:
            own, shared, reserved, allocated = (int(word) for word in words[1:5])
            return words[0], cls(own, shared, reserved, allocated, float(words[5]), words[6])
        except (IndexError, ValueError):
            return None

    def line(self, name: str) -> str:
        """Return it as text."""
        return " ".join([name, *map(str, self)])


class SharingFile(NamedTuple):
    """A file of a restore point.

    Attributes:
        device: NAME.UUID of its device.
        token: the token of the attempt that made it.
        state: what changes when it may share more: its size; of one that is being made another
            number at each time.
    """

    device: str
    token: str
    state: int


def sharers(
    points: Iterable[SharingFile], clones: Collection[str], files: Collection[str]
) -> dict[str, str]:
    """Return by file a word that changes when the file may share more, and when it may share less.

    The latter not where a restore point of another device goes, which matters among clones alone.

    Args:
        points: the pool's restore points.
        clones: the notes of the pool's clones.
        files: the names of the pool's device files, NAME.UUID and an ending.
    """
    import hashlib  # noqa: PLC0415 - not with each monitor of a device

    by_device: dict[str, list[str]] = {}
    for each in points:
        by_device.setdefault(each.device, []).append(f"{each.token}/{each.state}")
    common = " ".join([*sorted(clones), *sorted(files)]) if clones else ""
    return {
        name: hashlib.sha256(
            " ".join([*sorted(by_device.get(name.rpartition(".")[0], [])), common]).encode()
        ).hexdigest()
        for name in files
    }


def is_known(look: Look | None, between: str, now_s: float) -> bool:
    """Whether a look is still true: the file shares no more than it did, and hardly less."""
    return look is not None and look.between == between and 0 <= now_s - look.seen_s < EVERY_S


def at_least(look: Look, *, size: int, allocated: int) -> DataFile:
    """Return a data file that needs as many new blocks as the one that was looked at, or more.

    What hosts have unmapped since needs blocks again, and is missing in what is allocated now. What
    they have written to shared blocks is the file's own by now, and is not called so. Blocks that
    XFS has set aside for such writes count as the file's own: the pool's free space lacks them.

    The file's extent map may have grown in place of what hosts have, up to its bound.
    """
    own = look.own + allocated - look.allocated - extent_map_bytes(size)
    return DataFile(size, own, look.reserved)
