# SPDX-License-Identifier: GPL-2.0-or-later
"""What restore points hold is looked at where hosts' writes or a deletion may have changed it."""

from __future__ import annotations

from sanctl.plan.device.point_sizes import (
    ANY_EVERY_S,
    NEWEST_EVERY_S,
    PointOnDisk,
    SeenSize,
    due_sizes,
    neighbours,
)

A, B, C = (PointOnDisk(letter, "web.u", number) for number, letter in enumerate("abc"))
OTHER = PointOnDisk("x", "db.u", 1)


def seen(*files: PointOnDisk, at_s: float = 0.0) -> dict[str, SeenSize]:
    return {
        token: SeenSize(number, at_s, between)
        for number, (token, between) in enumerate(neighbours(files).items())
    }


def test_neighbours_are_of_the_same_device() -> None:
    assert neighbours((B, OTHER, A)) == {"x": "/", "a": "/b", "b": "a/"}
    assert neighbours(()) == {}


def test_writes_concern_the_newest_alone() -> None:
    files = (A, B, C, OTHER)
    known = seen(*files)
    assert due_sizes(files, {}, 0.0) == ("a", "b", "c", "x")
    assert due_sizes(files, known, NEWEST_EVERY_S - 1) == ()
    assert due_sizes(files, known, NEWEST_EVERY_S) == ("c", "x")
    known["a"] = known["a"]._replace(seen_s=-1.0)
    assert due_sizes(files, known, ANY_EVERY_S) == ("c", "x", "a", "b")


def test_a_neighbour_that_comes_or_goes() -> None:
    assert due_sizes((A, B, C), seen(A, B), 1.0) == ("b", "c")
    assert due_sizes((A, C), seen(A, B, C), 1.0) == ("a", "c")


def test_what_is_remembered_is_read_as_it_was_written() -> None:
    size = SeenSize(4096, 12.5, "/b")
    assert SeenSize.parse(size.line("a")) == ("a", size)
    for wrong in ("", "a", "a 1 2", "a x 2 /", "a 1 x /"):
        assert SeenSize.parse(wrong) is None
