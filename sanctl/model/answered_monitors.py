# SPDX-License-Identifier: GPL-2.0-or-later
"""A device's monitors in a row that had no answer in time, and that their client answered for.

The client notes them (resource-agents/client, docs/adr/0091); what a node publishes of the replica
has a word of them, such as `1764150000:8`. Nothing is decided by it. Light: the agents import it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: The kind of the client's note, and the word's key in the published state.
NOTE_KIND = KEY = "answered-for"
#: While they are late the next one ends within 105 s and an interval. After a longer pause no
#: monitor runs any more, as in maintenance.
_LONGEST_PAUSE_S = 300.0
#: Eleven digits end in the year 5138: a date can be made of each such moment (datetime.MAXYEAR).
_NOTE, _WORD = (re.compile(rf"([0-9]{{1,11}}){sign}([0-9]{{1,9}})") for sign in (" ", ":"))


class AnsweredMonitors(NamedTuple):
    """Monitors of a replica in a row that were answered for.

    Attributes:
        since_s: when the first one was, in seconds since 1970.
        at_least: how many there were, or more.
    """

    since_s: int
    at_least: int


def published_word(note: str, age_s: float) -> str:
    """Return what is published of a client's note; empty where it says nothing.

    The number is rounded down to a power of two: what is published changes with each change of it.

    Args:
        note: since when, and how many.
        age_s: the time since it was written; negative where the clock was put back.
    """
    found = _NOTE.fullmatch(note)
    if found is None or age_s > _LONGEST_PAUSE_S or not int(found[2]):
        return ""
    return f"{int(found[1])}:{1 << (int(found[2]).bit_length() - 1)}"


def parse_answered(word: str) -> AnsweredMonitors | None:
    """Read what `published_word` gave; None for anything else, which says nothing."""
    found = _WORD.fullmatch(word)
    return None if found is None else AnsweredMonitors(int(found[1]), int(found[2]))
