# SPDX-License-Identifier: GPL-2.0-or-later
"""The role of a replica by the history of actions in the CIB."""

from __future__ import annotations

import pytest

from sanctl.plan.failover.action_history import Action, is_primary

START = Action(10, "start", 0)
WATCHED = Action(11, "monitor", 0)
PROMOTED = Action(12, "promote", 0)
SERVES = Action(13, "monitor", 8)


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ((), False),
        ((START,), False),
        ((START, WATCHED), False),
        ((PROMOTED,), True),
        ((PROMOTED, SERVES), True),
        # Under way: its number is not known, and it is the last one.
        ((Action(-1, "promote", 193), WATCHED), True),
        ((SERVES, Action(-1, "demote", 193)), True),
        ((SERVES, Action(-1, "stop", 193)), True),
        ((Action(14, "demote", 1), SERVES), True),
        ((Action(14, "demote", 0), SERVES), False),
        ((Action(14, "stop", 0), SERVES), False),
        ((Action(14, "stop", 1),), True),
        # A promotion that has failed may have made DRBD Primary.
        ((START, Action(12, "promote", 1)), True),
        ((START, Action(12, "promote", 1), Action(13, "stop", 0)), False),
        # A reload, which is written down as a start in place of the promotion.
        ((SERVES, Action(40, "start", 0)), True),
        # What does not tell the role changes nothing.
        ((PROMOTED, Action(14, "monitor", 1)), True),
        ((PROMOTED, Action(14, "monitor", None)), True),
        # A probe.
        ((Action(5, "monitor", 7),), False),
        ((Action(5, "monitor", 8),), True),
        ((Action(5, "monitor", 9),), True),
        ((Action(-1, "monitor", 193),), False),
        # Started anew after a stop; a later start is no Primary.
        ((PROMOTED, Action(20, "start", 0)), False),
    ],
)
def test_role(history: tuple[Action, ...], expected: bool) -> None:
    assert is_primary(history) is expected
    assert is_primary(tuple(reversed(history))) is expected


def test_attributes() -> None:
    found = {"call-id": "48", "operation": "promote", "rc-code": "0", "interval": "0"}
    assert Action.parse(found) == Action(48, "promote", 0)
    pending = {"call-id": "-1", "operation": "demote", "rc-code": "193"}
    assert Action.parse(pending) == Action(-1, "demote", 193)
    assert Action.parse({}) == Action(-1, "", None)
