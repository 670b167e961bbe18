# SPDX-License-Identifier: GPL-2.0-or-later
"""What an active node publishes of requests that hang while it is not rebooted for them.

A word in the state that a replica's agent publishes, such as `forgotten:1764150000:vm2,vm3+47`.
Light: the agents import it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from sanctl.model.name_list import in_words

#: The kind of the note that holds the word, and the word's key in the published state.
NOTE_KIND, KEY = "hung-io", "hung"
#: More names would say no more to an operator, and the value is published for each change.
_NAMES = 3
_UNKNOWN, _NOBODY = "?", "-"
#: Later moments are not read: no date may be made of them (datetime.MAXYEAR).
_LATEST_S = 1 << 37


class HungCause(StrEnum):
    """Why a request gets no answer."""

    FORGOTTEN = "forgotten"
    """DRBD has forgotten it."""
    DISK = "disk"
    """The disk below DRBD does not answer."""


class HungIo(NamedTuple):
    """Requests that hang, and why their node is not rebooted.

    Attributes:
        cause: why they hang.
        since_s: since when, in seconds since 1970.
        needed_by: other devices that this node alone serves, the first ones by name; none: the
            device itself has no other node that can serve it. None: whether there are such devices
            is not known.
        more: how many more such devices there are.
    """

    cause: HungCause
    since_s: int
    needed_by: tuple[str, ...] | None
    more: int = 0

    @property
    def who(self) -> str:
        """The other devices in words; empty without any that is known."""
        if not self.needed_by:
            return ""
        if self.more:
            return f"{', '.join(self.needed_by)} and {self.more} more"
        return in_words(self.needed_by)


def hung_io(cause: HungCause, since_s: int, needed_by: tuple[str, ...] | None) -> HungIo:
    """Return what is published where these devices need the node."""
    if needed_by is None:
        return HungIo(cause, since_s, None)
    names = tuple(sorted(needed_by))
    # Of four the last is named as well: "and 1 more" is no shorter.
    kept = len(names) if len(names) <= _NAMES + 1 else _NAMES
    return HungIo(cause, since_s, names[:kept], len(names) - kept)


def hung_word(hung: HungIo) -> str:
    """Return it as it is published."""
    if hung.needed_by is None:
        who = _UNKNOWN
    else:
        who = ",".join(hung.needed_by) or _NOBODY
        who += f"+{hung.more}" if hung.more else ""
    return f"{hung.cause}:{hung.since_s}:{who}"


def parse_hung(word: str) -> HungIo | None:
    """Read what `hung_word` gave; None for anything else, which says nothing."""
    cause, _, rest = word.partition(":")
    since, sign, who = rest.partition(":")
    names, _, more = who.partition("+")
    if not (sign and names and _is_number(since) and _is_number(more or "0")):
        return None
    try:
        found = HungIo(HungCause(cause), int(since), (), int(more or "0"))
    except ValueError:
        return None
    if found.since_s > _LATEST_S:
        return None
    if names == _UNKNOWN:
        return found._replace(needed_by=None)
    return found._replace(needed_by=() if names == _NOBODY else tuple(names.split(",")))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
