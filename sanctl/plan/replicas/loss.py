# SPDX-License-Identifier: GPL-2.0-or-later
"""What the choice of a replica to keep would lose."""

from __future__ import annotations

from dataclasses import dataclass

from sanctl.model.names import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What keeping one replica would lose: of which nodes, as text, and how much at most."""

    nodes: tuple[NodeName, ...]
    text: str
    bytes_at_most: int | None
    """None: not known."""
