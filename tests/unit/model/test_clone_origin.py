# SPDX-License-Identifier: GPL-2.0-or-later
"""The parameter `origin` of a clone: read as it was written, and nothing else is."""

from __future__ import annotations

import pytest

from sanctl.model.clone_origin import CloneOrigin
from sanctl.model.restore_point import RestorePoint

TOKEN, UUID = "1" * 16, "a" * 32
ORIGIN = CloneOrigin("web", "one", TOKEN, UUID, 2, ("n1", "n2"))


def test_it_is_read_as_it_was_written() -> None:
    point = RestorePoint("web", "one", TOKEN, UUID, "main", 1, 2, 3, ("n1", "n2"))
    assert CloneOrigin.of(point) == ORIGIN
    assert CloneOrigin.parse(str(ORIGIN)) == ORIGIN
    assert ORIGIN.name == "web@one"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "web@one",
        f"web one {TOKEN} {UUID}",
        f"web one {TOKEN} {UUID} 2 n1,n2 more",
        f"web one {TOKEN[1:]} {UUID} 2 n1,n2",
        f"web one {TOKEN} {UUID[1:]} 2 n1,n2",
        f" one {TOKEN} {UUID} 2 n1,n2",
        f"web  {TOKEN} {UUID} 2 n1,n2",
        f"web one {TOKEN} {UUID} 2 ",
        f"web one {TOKEN} {UUID} x n1,n2",
    ],
)
def test_what_is_none(text: str) -> None:
    assert CloneOrigin.parse(text) is None
