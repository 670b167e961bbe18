# SPDX-License-Identifier: GPL-2.0-or-later
"""The order to restore a device, and what a node says of it, as text and back."""

from __future__ import annotations

import pytest

from sanctl.model.device_restore import (
    COPYING,
    DONE,
    GIVEN_UP,
    ORDERED,
    RestoreOrder,
    RestoreReport,
    closes,
)
from sanctl.model.site_copy import SiteCopy

ORDER = RestoreOrder("1" * 16, "good", "2" * 16, "3" * 16, 1_800_000_000)


def test_what_a_device_is_to_hold() -> None:
    copy = SiteCopy("far", "web", "a" * 32, "to-far", "b" * 16, "c" * 64)
    order = RestoreOrder.from_copy("7" * 16, copy, 5)
    assert RestoreOrder.parse(str(order)) == order and order.state == COPYING
    assert order.copy == copy and order.backup is None and not order.is_of_point
    assert order.source == "copy web.aaaaaaaa@to-far at site far"
    backup = RestoreOrder.from_backup("7" * 16, "nas", "web@x.20260101-000000", 5)
    assert backup.copy is None and not backup.is_of_point
    assert ORDER.is_of_point and ORDER.copy is None and ORDER.source == "restore point good"


@pytest.mark.parametrize("kept", ["3" * 16, ""])
@pytest.mark.parametrize(
    ("state", "is_open"), [(ORDERED, True), (COPYING, True), (DONE, False), (GIVEN_UP, False)]
)
def test_an_order_as_text(kept: str, state: str, is_open: bool) -> None:
    order = ORDER._replace(kept_token=kept, state=state)
    assert RestoreOrder.parse(str(order)) == order
    assert order.is_open == is_open == closes(str(order))


def test_only_the_begin_needs_the_word_that_older_releases_cannot_read() -> None:
    order = ORDER._replace(may_keep_on_few=True)
    assert RestoreOrder.parse(str(order)) == order != ORDER
    for state in (COPYING, DONE, GIVEN_UP):
        assert str(order.in_state(state)) == str(ORDER._replace(state=state))


@pytest.mark.parametrize(
    "text",
    [
        "x",
        str(ORDER) + " kept-on-few more",
        str(ORDER) + " more",
        str(ORDER).replace("ordered", "paused"),
        str(ORDER).replace("2" * 16, "2"),
        str(ORDER).replace("3" * 16, "z" * 16),
        str(ORDER).replace("1800000000", "soon"),
        str(ORDER).replace("good", ""),
    ],
)
def test_what_cannot_be_read_closes_the_device(text: str) -> None:
    assert RestoreOrder.parse(text) is None
    assert closes(text)


def test_no_order_closes_nothing() -> None:
    assert RestoreOrder.parse("") is None
    assert not closes("")


@pytest.mark.parametrize(
    "report",
    [
        RestoreReport("1" * 16, "SAN-REST-008", "it cannot be read: why"),
        RestoreReport("1" * 16, text="n2 still lets hosts in"),
        RestoreReport("1" * 16, "", "", 3, 10, 2),
        RestoreReport("1" * 16, "", "", 0, 0, 0),
    ],
)
def test_a_report_as_text(report: RestoreReport) -> None:
    assert RestoreReport.parse(str(report)) == report


@pytest.mark.parametrize(
    "text",
    ["", "1", "1" * 16, f"{'1' * 16} copying 1 2", f"{'1' * 16} copying 1 2 x",
     f"{'1' * 16} failed SAN-X", f"{'1' * 16} pausing 1 2 3"],
)  # fmt: skip
def test_what_is_no_report(text: str) -> None:
    assert RestoreReport.parse(text) is None


def test_the_share_that_is_done() -> None:
    assert RestoreReport("1" * 16, "", "", 3, 12, 2).percent == 25.0
    assert RestoreReport("1" * 16, "", "", 13, 12, 2).percent == 100.0
    assert RestoreReport("1" * 16).percent == 0.0
