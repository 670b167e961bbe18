# SPDX-License-Identifier: GPL-2.0-or-later
"""Takeovers: what is written is read again, and what cannot be read is a takeover all the same."""

from __future__ import annotations

from typing import Any

import pytest

from sanctl.model.site_takeover import TAKEOVER_PREFIX, Ending, Successor, Takeover

SUCCESSOR = Successor("web-dr", "e" * 32, "to-far-1", 1_764_072_000)
TAKEOVER = Takeover("web", "far", "d" * 32, SUCCESSOR)


def test_it_is_read_as_it_was_written() -> None:
    assert Takeover.parse(TAKEOVER.id, TAKEOVER.value) == TAKEOVER
    lost = TAKEOVER._replace(is_lost=True)
    assert Takeover.parse(lost.id, lost.value) == lost
    assert Successor.of(SUCCESSOR._asdict()) == SUCCESSOR
    ending = Ending(SUCCESSOR, 7, "n1.example")
    assert Ending.of(ending.fields) == ending


@pytest.mark.parametrize("field", [*Successor._fields, "ended_s", "by"])
def test_an_ending_that_cannot_be_read_ends_no_takeover_that_is_known(field: str) -> None:
    ending = Ending(SUCCESSOR, 7, "n1")
    found = Ending.of({**ending.fields, field: "\x1b["})
    if field in Successor._fields:
        assert found.successor.device == "unknown"
    else:
        assert found in (ending._replace(ended_s=0), ending._replace(by="unknown"))


@pytest.mark.parametrize(
    ("identifier", "value"),
    [
        ("sanctl-copy.web.far", TAKEOVER.value),
        (f"{TAKEOVER_PREFIX}web", TAKEOVER.value),
        (f"{TAKEOVER_PREFIX}.far", TAKEOVER.value),
        (TAKEOVER.id, TAKEOVER.value + " more"),
        (TAKEOVER.id, TAKEOVER.value + " lost lost"),
        (TAKEOVER.id, "lost"),
        (TAKEOVER.id, "d" * 32),
        (TAKEOVER.id, TAKEOVER.value.replace("d" * 32, "d")),
        (TAKEOVER.id, TAKEOVER.value.replace("e" * 32, "e")),
        (TAKEOVER.id, TAKEOVER.value.replace("web-dr", "../web")),
        (TAKEOVER.id, TAKEOVER.value.replace("to-far-1", "To")),
        (TAKEOVER.id, TAKEOVER.value.replace(" 17", " -17")),
    ],
)
def test_what_is_no_takeover(identifier: str, value: str) -> None:
    assert Takeover.parse(identifier, value) is None


@pytest.mark.parametrize("fields", [{}, {"device": 5}, {**SUCCESSOR._asdict(), "uuid": "x y"}])
def test_one_that_cannot_be_read_is_by_nobody_known(fields: dict[str, Any]) -> None:
    found = Successor.of(fields)
    assert found.device == "unknown"
    takeover = TAKEOVER._replace(successor=found)
    assert Takeover.parse(takeover.id, takeover.value) == takeover
