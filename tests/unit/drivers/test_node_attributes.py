# SPDX-License-Identifier: GPL-2.0-or-later
"""What agents tell the cluster, as its tools are asked to."""

from __future__ import annotations

import pytest

from sanctl.drivers import node_attributes
from tests.fakes.runner import FakeRunner


@pytest.mark.parametrize(("score", "told"), [(9000, "9000"), (None, "-INFINITY")])
def test_who_may_not_be_promoted_says_so_more_loudly_than_any_constraint(
    score: int | None, told: str
) -> None:
    node = FakeRunner("")
    node_attributes.set_promotion_score(node, "vol1", score)
    assert node.calls[0][0] == ("attrd_updater", "--name", "master-vol1", f"--update={told}")


def test_who_is_stopped_says_nothing() -> None:
    node = FakeRunner("")
    node_attributes.delete_promotion_score(node, "vol1")
    assert node.calls[0][0] == ("attrd_updater", "--name", "master-vol1", "--delete")
