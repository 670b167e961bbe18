# SPDX-License-Identifier: GPL-2.0-or-later
"""A restore point of a device as the CIB holds it, and the order to make one.

NamedTuples, not dataclasses: the agents read them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sanctl.errors import Problem, SanctlError, UsageError
from sanctl.model.point_hook import HookResult, PointHook
from sanctl.model.point_schedule import ScheduledSlot

#: The id of the cluster_property_set that has the restore points, and the beginning of their
#: properties' names and ids, which end with DEVICE.POINT. Devices' names have no dot.
POINTS_ID = "sanctl.points"
POINT_PREFIX = "sanctl-point."
#: The transient node attribute with the bytes that each restore point alone holds on the node.
#: And with the extents of data files (`extents_key`), which releases before that ignore.
SIZES_ATTRIBUTE = "sanctl.points"
#: In it, in place of the bytes of a restore point whose file the node has lost.
FILE_IS_GONE = "gone"
#: The most extents of a data file of which restore points are made: while hosts wait, the file's
#: map is read and compared, 1 to 3 µs for each extent.
MAX_EXTENTS = 100_000
#: The most where the whole file is copied while hosts wait, as where the filesystem does not tell
#: where its blocks are: 10 to 40 µs go for each.
MAX_HELD_EXTENTS = 8000
#: Followed by a device's name: the transient node attribute with the order that failed there.
FAILED_PREFIX = "sanctl.point."
#: An order that is older is not carried out: nobody waits for it any more.
ORDER_LIFE_S = 60
#: The most restore points of one device.
MAX_POINTS = 64
#: The most devices whose restore points are made at one moment.
MAX_GROUP = 8
#: So many first digits are the same in the tokens of restore points that were made at one moment.
_MOMENT_DIGITS = 12
#: The most of all devices: the CIB has to fit Pacemaker's messages (plan/cluster/cib_size.py).
MAX_ALL_POINTS = 256
#: Together with those that wait to be removed on a node that is away: each of the points that it
#: had may wait for that.
MAX_ENTRIES = 2 * MAX_ALL_POINTS

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_TOKEN = re.compile(r"[0-9a-f]{16}")
_SLOT, _DELETING, _GROUP = "slot=", "deleting", "group="
#: Before the hint of a failure. A release without takes both for the text.
_HINT = " || "
_UUID = re.compile(r"[0-9a-f]{32}")
_EXTENTS_KEY = re.compile(r"[a-z0-9-]{1,63}\.[0-9a-f]{8}")


def parse_point_name(text: str) -> str:
    """Return the name of a restore point.

    Raises:
        UsageError: it is none.
    """
    if not _NAME.fullmatch(text):
        raise UsageError(
            Problem(
                "SAN-NAME-008",
                f"restore point name {text!r} is not valid",
                "use 1 to 40 of a-z, 0-9 and '-', the first and last a letter or digit",
            )
        )
    return text


class PointOrder(NamedTuple):
    """The order to make a restore point, as the device's parameter `point` has it.

    Attributes:
        name: the name of the restore point.
        token: 16 hex digits that no other order has.
        given_s: the moment, in seconds since 1970.
        hook: what makes the application's data consistent meanwhile; None: nothing.
        group: the devices of which restore points are made at one moment, this one among them,
            sorted; empty: of this device alone. The hook is run once for all of them. Nodes of
            0.1.0 do not read, and so do not carry out, an order that has one.
    """

    name: str
    token: str
    given_s: int
    hook: PointHook | None = None
    group: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> PointOrder | None:
        """Read what `str` wrote; None for anything else."""
        words = text.split(" ")
        group: tuple[str, ...] = ()
        if len(words) > 3 and words[-1].startswith(_GROUP):
            group = tuple(words.pop().removeprefix(_GROUP).split(","))
        hook = PointHook.parse(words[3]) if len(words) == 4 else None
        if (
            len(words) != (3 if hook is None else 4)
            or not _NAME.fullmatch(words[0])
            or not _TOKEN.fullmatch(words[1])
            or not words[2].isdecimal()
        ):
            return None
        return cls(words[0], words[1], int(words[2]), hook, group)

    def of_member(self, device: str) -> PointOrder:
        """Return the order of another device of the group, or of this one.

        Raises:
            ValueError: the device is not of the group.
        """
        number = self.group.index(device)
        return self._replace(token=f"{self.token[:_MOMENT_DIGITS]}{number:04x}")

    def is_open(self, now_s: float) -> bool:
        """Whether somebody still waits for it; the nodes' clocks may differ by half of that."""
        return -ORDER_LIFE_S / 2 <= now_s - self.given_s <= ORDER_LIFE_S

    def __str__(self) -> str:
        words = f"{self.name} {self.token} {self.given_s}"
        words = f"{words} {self.hook}" if self.hook else words
        return f"{words} {_GROUP}{','.join(self.group)}" if self.group else words


class RestorePoint(NamedTuple):
    """A restore point that is whole on each of its nodes, or is being deleted there.

    Attributes:
        device: the device's name.
        name: its own.
        token: 16 hex digits that name the attempt that made it, and its files.
        uuid: the device's UUID.
        pool: the name of the pool with its files.
        made_s: when it was made, in seconds since 1970.
        size_bytes: the size of the device then.
        pause_ms: for how long the device's I/O waited.
        nodes: the nodes with a file of it.
        is_deleting: its nodes are removing their files.
        slot: what a schedule made it for; None: an operator made it.
        hook: what became of its hook; None: it was made without one.
    """

    device: str
    name: str
    token: str
    uuid: str
    pool: str
    made_s: int
    size_bytes: int
    pause_ms: int
    nodes: tuple[str, ...]
    is_deleting: bool = False
    slot: ScheduledSlot | None = None
    hook: HookResult | None = None

    @property
    def is_application_consistent(self) -> bool:
        """Whether the application was kept quiet while it was made; else it is as a power cut."""
        return self.hook is not None and not self.hook.before

    def is_of_same_moment(self, other: RestorePoint) -> bool:
        """Whether the two were made at one moment, of two devices."""
        return (
            self.device != other.device
            and self.token[:_MOMENT_DIGITS] == other.token[:_MOMENT_DIGITS]
        )

    @property
    def id(self) -> str:
        """The id and the name of its property."""
        return f"{POINT_PREFIX}{self.device}.{self.name}"

    @property
    def value(self) -> str:
        """The value of its property."""
        numbers = (self.made_s, self.size_bytes, self.pause_ms)
        words = (self.token, self.uuid, self.pool, *map(str, numbers), ",".join(self.nodes))
        slot = (f"{_SLOT}{self.slot}",) if self.slot else ()
        # A release without hooks does not read such a point: it removes no file that has its name,
        # and one that has not been given its name yet after a while.
        hook = (str(self.hook),) if self.hook else ()
        return " ".join((*words, *slot, *hook, *((_DELETING,) if self.is_deleting else ())))

    @classmethod
    def parse(cls, identifier: str, value: str) -> RestorePoint | None:
        """Read a property; None for one that is no restore point as this release writes them."""
        device, _, name = identifier.removeprefix(POINT_PREFIX).partition(".")
        words = value.split(" ")
        if not identifier.startswith(POINT_PREFIX) or not device or not _NAME.fullmatch(name):
            return None
        more = words[7:]
        is_deleting = more[-1:] == [_DELETING]
        more = more[:-1] if is_deleting else more
        hook = HookResult.parse(more[-1]) if more else None
        more = more[:-1] if hook else more
        slot = ScheduledSlot.parse(more[0].removeprefix(_SLOT)) if more else None
        if len(words) < 7 or len(more) > 1 or (more and (slot is None or _SLOT not in more[0])):
            return None
        token, uuid, pool, made_s, size_bytes, pause_ms, nodes = words[:7]
        if (
            not _TOKEN.fullmatch(token)
            or not _UUID.fullmatch(uuid)
            or not all(number.isdecimal() for number in (made_s, size_bytes, pause_ms))
        ):
            return None
        return cls(
            device, name, token, uuid, pool, int(made_s), int(size_bytes), int(pause_ms),
            tuple(node for node in nodes.split(",") if node), is_deleting, slot, hook,
        )  # fmt: skip


class PointFailure(NamedTuple):
    """Why an order was not carried out, as a node publishes it.

    Attributes:
        token: that of the order.
        code: the problem's.
        text: what is wrong, where and why.
        hint: what to do about it; empty: that is not known.
    """

    token: str
    code: str
    text: str
    hint: str = ""

    @classmethod
    def of(cls, token: str, error: Exception) -> PointFailure:
        """Return the failure of an order that an error has caused."""
        if not isinstance(error, SanctlError):
            return cls(token, "SAN-SNAP-005", str(error))
        first = error.problems[0]
        return cls(token, first.code, first.text, first.hint)

    @classmethod
    def parse(cls, text: str) -> PointFailure | None:
        """Read what `str` wrote; None for anything else."""
        token, _, rest = text.partition(" ")
        code, _, said = rest.partition(" ")
        why, _, hint = said.partition(_HINT)
        return cls(token, code, why, hint) if _TOKEN.fullmatch(token) and why else None

    @property
    def problem(self) -> Problem:
        """What is wrong."""
        return Problem(self.code, self.text, self.hint)

    def __str__(self) -> str:
        words = f"{self.token} {self.code} {self.text}"
        return f"{words}{_HINT}{self.hint}" if self.hint else words


def parse_sizes(text: str) -> dict[str, int]:
    """Read the node attribute `sanctl.points`: bytes that each restore point alone holds."""
    sizes = {}
    for word in text.split():
        token, _, number = word.partition("=")
        if _TOKEN.fullmatch(token) and number.isdecimal():
            sizes[token] = int(number)
    return sizes


def extents_key(device: str, uuid: str) -> str:
    """Return what the same has before `=` and the extents of a device's data file.

    With the UUID's beginning: a file of an earlier device of that name may still be there.
    """
    return f"{device}.{uuid[:8]}"


def parse_extents(text: str) -> dict[str, int]:
    """Read of the same: how many extents data files have, by their `extents_key`."""
    words = (word.partition("=") for word in text.split())
    return {
        key: int(number)
        for key, _, number in words
        if number.isdecimal() and _EXTENTS_KEY.fullmatch(key)
    }


def parse_lost(text: str) -> frozenset[str]:
    """Read of the same: the tokens of restore points whose file is gone from the node."""
    words = (word.partition("=") for word in text.split())
    return frozenset(
        token for token, _, value in words if value == FILE_IS_GONE and _TOKEN.fullmatch(token)
    )
