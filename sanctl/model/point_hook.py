# SPDX-License-Identifier: GPL-2.0-or-later
"""The hook that runs before and after a restore point: as it is ordered, and what became of it.

NamedTuples, not dataclasses: the agents read them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sanctl.errors import Problem, UsageError

#: The bounds of the limit. A standby that is ready waits that much longer for the copy
#: (sanctl/agents/points/follower.py).
MIN_LIMIT_S, MAX_LIMIT_S = 5, 45
#: The limit that is taken where none is given.
DEFAULT_LIMIT_S = 30

_PREFIX, _OR_CRASH, _NO_CODE = "hook=", "or-crash", "-"
_GROUP = "group="
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_CODE = re.compile(r"SAN-[A-Z]{2,6}-[0-9]{3}")


class PointHook(NamedTuple):
    """A hook as an order for a restore point, or a schedule, asks for it.

    Attributes:
        name: its file's name in the folder of the hooks.
        limit_s: for how long the application may be kept quiet, in whole seconds.
        or_crash: where the hook fails, the restore point is made without it.
    """

    name: str
    limit_s: int = DEFAULT_LIMIT_S
    or_crash: bool = False

    @classmethod
    def given(cls, name: str, limit_s: int, *, or_crash: bool) -> PointHook:
        """Return the hook that an operator names.

        Raises:
            UsageError: the name is none of a file in the folder of the hooks, or the limit is out
                of bounds.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(
                Problem(
                    "SAN-HOOK-001",
                    f"{name[:60]!r} is no name of a hook",
                    "give the name of a file in /etc/sanctl/hooks.d, without the folder: 1 to 40 "
                    "of letters, digits and '.', '_', '-', the first a letter or digit",
                )
            )
        if not MIN_LIMIT_S <= limit_s <= MAX_LIMIT_S:
            raise UsageError(
                Problem(
                    "SAN-HOOK-001",
                    f"an application cannot be kept quiet for {limit_s} s",
                    f"give {MIN_LIMIT_S} to {MAX_LIMIT_S} seconds",
                )
            )
        return cls(name, limit_s, or_crash)

    @classmethod
    def parse(cls, word: str) -> PointHook | None:
        """Read what `str` wrote; None for anything else."""
        name, *more = word.removeprefix(_PREFIX).split(",")
        if (
            not word.startswith(_PREFIX)
            or not _NAME.fullmatch(name)
            or not more
            or not more[0].isdecimal()
            or more[1:] not in ([], [_OR_CRASH])
        ):
            return None
        limit_s = int(more[0])
        in_bounds = MIN_LIMIT_S <= limit_s <= MAX_LIMIT_S
        return cls(name, limit_s, bool(more[1:])) if in_bounds else None

    @property
    def options(self) -> str:
        """The options of a command that gives it."""
        more = " --or-crash" if self.or_crash else ""
        return f"--hook {self.name} --hook-limit {self.limit_s}{more}"

    def __str__(self) -> str:
        words = (self.name, str(self.limit_s), *((_OR_CRASH,) if self.or_crash else ()))
        return _PREFIX + ",".join(words)


class HookResult(NamedTuple):
    """What became of a restore point's hook, as the restore point says it.

    Attributes:
        name: the name of the hook.
        before: why the application was not quiet when the copies were made; empty: it was.
        after: why it may still be quiet; empty: the hook that ends it succeeded, or was not needed.
    """

    name: str
    before: str = ""
    after: str = ""

    @classmethod
    def parse(cls, word: str) -> HookResult | None:
        """Read what `str` wrote; None for anything else."""
        words = word.removeprefix(_PREFIX).split("/")
        if (
            not word.startswith(_PREFIX)
            or len(words) != 3
            or not _NAME.fullmatch(words[0])
            or not all(code == _NO_CODE or _CODE.fullmatch(code) for code in words[1:])
        ):
            return None
        before, after = ("" if code == _NO_CODE else code for code in words[1:])
        return cls(words[0], before, after)

    def __str__(self) -> str:
        return f"{_PREFIX}{self.name}/{self.before or _NO_CODE}/{self.after or _NO_CODE}"


class HookRun(NamedTuple):
    """One use of a hook on a node, as the unit that runs it gets it.

    Attributes:
        token: 16 hex digits that name the attempt at the restore point.
        point: the name of the restore point.
        hook: the hook.
        group: the devices whose restore points it is for, the first of which has the unit; empty:
            that device alone.
    """

    token: str
    point: str
    hook: PointHook
    group: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> HookRun | None:
        """Read what `str` wrote; None for anything else."""
        words = text.split(" ")
        group: tuple[str, ...] = ()
        if len(words) == 4 and words[3].startswith(_GROUP):
            group = tuple(words.pop().removeprefix(_GROUP).split(","))
        hook = PointHook.parse(words[2]) if len(words) == 3 else None
        return cls(words[0], words[1], hook, group) if hook else None

    def environment(self, *, device: str, node: str, phase: str) -> dict[str, str]:
        """Return what the hook's file finds in its environment."""
        return {
            "SANCTL_DEVICE": device,
            "SANCTL_DEVICES": " ".join(self.group or (device,)),
            "SANCTL_POINT": self.point,
            "SANCTL_PHASE": phase,
            "SANCTL_NODE": node,
            "SANCTL_TOKEN": self.token,
            "SANCTL_LIMIT_S": str(self.hook.limit_s),
        }

    def __str__(self) -> str:
        words = f"{self.token} {self.point} {self.hook}"
        return f"{words} {_GROUP}{','.join(self.group)}" if self.group else words
