# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: whether a replica is Primary, by the history of actions that the CIB has of its node.

Pacemaker's scheduler reads the same history (`lrm_rsc_op`) of a node that is lost: it fences the
node for a resource that was active there, and the fencing deletes the history. What `node_state`
says of the node is not as certain, see `fence_rules.is_fenced`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

#: An action that is under way has this in place of its number.
_UNDER_WAY = -1
#: Of a monitor: Promoted, and failed while promoted (OCF Resource Agent API 1.1).
_PROMOTED = frozenset({8, 9})
#: Unpromoted, or stopped.
_NOT_PROMOTED = frozenset({0, 7})


class Action(NamedTuple):
    """One action of a resource on a node.

    Attributes:
        number: the order of the node's actions; -1: it is under way.
        operation: `start`, `promote`, `monitor` and so on.
        status: the agent's exit status; None where it is not a number.
    """

    number: int
    operation: str
    status: int | None

    @classmethod
    def parse(cls, attributes: Mapping[str, str]) -> Action:
        """Read the attributes of an `lrm_rsc_op`; what is not a number is under way."""
        number, status = attributes.get("call-id", ""), attributes.get("rc-code", "")
        return cls(
            number=int(number) if number.isdecimal() else _UNDER_WAY,
            operation=attributes.get("operation", ""),
            status=int(status) if status.isdecimal() else None,
        )


def is_primary(actions: Iterable[Action]) -> bool:
    """Return whether the last actions that tell the role leave a replica Primary.

    A promotion, however it ended; a demotion or a stop that has not succeeded; a monitor that found
    it Promoted. Pacemaker writes a reload down as a `start` in place of the promotion
    (docs/adr/0087), which leaves that monitor's record; a true start has none.
    """
    by_action = is_watched = False
    for action in sorted(actions, key=lambda each: (each.number == _UNDER_WAY, each.number)):
        match action.operation:
            case "promote":
                by_action = True
            case "demote" | "stop":
                by_action = action.status != 0
                is_watched = is_watched and by_action
            case "start":
                by_action = False
            case "monitor" if action.status in _PROMOTED:
                is_watched = True
            case "monitor" if action.status in _NOT_PROMOTED:
                by_action = is_watched = False
    return by_action or is_watched
