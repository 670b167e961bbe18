# SPDX-License-Identifier: GPL-2.0-or-later
"""Corosync's links that are lost, as text that a node publishes."""

from __future__ import annotations

from collections.abc import Iterable

#: The number of a link, and the id of the node that it leads to.
LostLink = tuple[int, int]


def format_links(links: Iterable[LostLink]) -> str:
    """Return lost links as text, such as `0:2,0:3`."""
    return ",".join(f"{number}:{peer}" for number, peer in sorted(links))


def parse_links(text: str) -> frozenset[LostLink]:
    """Read the text of `format_links`; what is not of that form is left out."""
    pairs = (word.partition(":")[::2] for word in text.split(","))
    return frozenset(
        (int(number), int(peer))
        for number, peer in pairs
        if number.isascii() and number.isdecimal() and peer.isascii() and peer.isdecimal()
    )
