# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands that `sanctl bench levels` makes of its course of replica counts."""

from __future__ import annotations

import click
import pytest

from sanctl.lab.bench import replica_changes

NODES = ["n1", "n2", "n3", "n4"]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (1, 2, [("2", "--add", "n2")]),
        (2, 1, [("1", "--drop", "n2")]),
        (4, 2, [("2", "--drop", "n3", "--drop", "n4")]),
        (2, 2, []),
    ],
)
def test_nodes_come_and_go_in_their_order(
    before: int, after: int, words: list[tuple[str, ...]]
) -> None:
    assert replica_changes._words(NODES, before, after) == words


def test_a_course_names_levels() -> None:
    assert replica_changes._course("2,3,4,2") == (2, 3, 4, 2)
    for text in ("2", "2,5", "0,1", "", "2,,1"):
        with pytest.raises(click.BadParameter):
            replica_changes._course(text)
