# SPDX-License-Identifier: GPL-2.0-or-later
"""What the node that serves says of a device's reservations, and what is not understood."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sanctl.model.published_reservations import (
    PublishedReservations,
    are_on,
    format_published,
    parse_published,
)
from sanctl.model.reservation import Reservations, Version

A, B = "iqn.2026-11.net.example:a", "iqn.2026-11.net.example:b"
FOUND = PublishedReservations(
    Version(3, 17), Reservations(((A, 0xABC1), (B, (1 << 64) - 1)), A, 5), "1" * 16
)


@pytest.mark.parametrize(
    "found", [FOUND, PublishedReservations(Version(0, 0), Reservations(((A, 1),)))]
)
def test_what_is_written_is_read(found: PublishedReservations) -> None:
    assert parse_published(format_published(found)) == found


def test_the_form_that_is_published() -> None:
    assert json.loads(format_published(FOUND)) == {
        "version": [3, 17],
        "registrations": {A: "0xabc1", B: "0xffffffffffffffff"},
        "holder": A,
        "type": 5,
        "cleared": "1" * 16,
    }


def test_one_that_has_carried_out_no_order_need_not_say_so() -> None:
    text = json.loads(format_published(FOUND))
    del text["cleared"]
    assert parse_published(json.dumps(text)) == FOUND._replace(cleared="")


@pytest.mark.parametrize(
    "change",
    [
        {"version": [3]},
        {"version": [3, -1]},
        {"version": [3, True]},
        {"version": None},
        {"registrations": None},
        {"registrations": {A: "0x0"}},
        {"registrations": {A: "0x10000000000000000"}},
        {"registrations": {A: "12"}},
        {"registrations": {A: "0xnone"}},
        {"registrations": {A: 12}},
        {"registrations": {B: "0x1"}},
        {"holder": None},
        {"type": None},
        {"type": 2},
        {"cleared": 7},
    ],
)
def test_what_is_not_understood_is_not_known(change: dict[str, Any]) -> None:
    """And not empty: who is registered would be taken for nobody."""
    text = json.loads(format_published(FOUND))
    assert parse_published(json.dumps({**text, **change})) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '"?"', "[" * 100_000])
def test_what_is_no_such_text_is_not_known(text: str) -> None:
    assert parse_published(text) is None


@pytest.mark.parametrize(("word", "is_on"), [("", False), ("off", False), ("on", True)])
def test_the_parameter(word: str, is_on: bool) -> None:
    assert are_on(word) is is_on


def test_a_word_of_a_later_release_is_on() -> None:
    """Off would let in together the hosts that count on being kept apart."""
    assert are_on("all-registrants")
