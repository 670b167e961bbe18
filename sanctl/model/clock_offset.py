# SPDX-License-Identifier: GPL-2.0-or-later
"""How far clocks of other nodes are off from a node's own, as text that the node publishes."""

from __future__ import annotations

import re
from collections.abc import Mapping

_WORD = re.compile(r"([0-9]{1,5}):(-?[0-9]{1,6})")


def format_offsets(offsets: Mapping[int, int]) -> str:
    """Return offsets in seconds by the other node's id, such as `2:600,3:-12`."""
    return ",".join(f"{peer}:{offset}" for peer, offset in sorted(offsets.items()))


def parse_offsets(text: str) -> dict[int, int]:
    """Read the text of `format_offsets`; what is not of that form is left out."""
    found = map(_WORD.fullmatch, text.split(","))
    return {int(each[1]): int(each[2]) for each in found if each is not None}
