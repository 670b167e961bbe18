# SPDX-License-Identifier: GPL-2.0-or-later
"""The parameter `needs` of a device: words for what a release has to know to serve it.

A release adds a word for each feature without which another one would serve the device wrongly, and
writes it in the change of the CIB that switches the feature on (docs/adr/0085). Light: for agents,
too.
"""

from __future__ import annotations

from collections.abc import Iterable

PARAMETER = "needs"
#: Persistent reservations are kept over a failover (docs/adr/0083).
RESERVATIONS = "reservations"
#: Hosts wait for the sites' answer after a restart of the whole cluster (docs/adr/0073).
AWAITS = "awaits"
#: A device that is held as a copy at a site lets no host in (docs/adr/0093).
HELD_COPIES = "held-copies"
#: What this release knows. A word is never taken away, nor given another meaning.
KNOWN = frozenset({RESERVATIONS, AWAITS, HELD_COPIES})
#: What a node publishes with a replica's state: the words that its release does not know.
LACKS_KEY = "lacks"


def parse_needs(text: str) -> tuple[str, ...]:
    """Return the words of the parameter, sorted."""
    return tuple(sorted(set(text.split())))


def not_known(text: str) -> tuple[str, ...]:
    """Return the words of the parameter that this release does not know, sorted."""
    return tuple(word for word in parse_needs(text) if word not in KNOWN)


def format_lacks(words: Iterable[str]) -> str:
    """Return the value of LACKS_KEY; of a word only what a node attribute takes is shown."""
    return ",".join(
        "".join(each if each.isascii() and (each.isalnum() or each in "-_.") else "?" for each in w)
        for w in words
    )


def parse_lacks(text: str) -> tuple[str, ...]:
    """Read the text of `format_lacks`; empty: it lacks nothing, or does not say."""
    return tuple(word for word in text.split(",") if word)
