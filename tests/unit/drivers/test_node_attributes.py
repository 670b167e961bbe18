# SPDX-License-Identifier: GPL-2.0-or-later
"""The arguments of attrd_updater for promotion scores."""

from __future__ import annotations

import pytest

from sanctl.drivers import node_attributes
from tests.fakes.runner import FakeRunner


@pytest.mark.parametrize(("score", "told"), [(9000, "9000"), (None, "-INFINITY")])
def test_minus_infinity_outweighs_any_constraint(score: int | None, told: str) -> None:
    node = FakeRunner("")
    node_attributes.set_promotion_score(node, "vol1", score)
    assert node.calls[0][0] == ("attrd_updater", "--name", "master-vol1", f"--update={told}")


def test_a_stopped_replica_has_no_score() -> None:
    node = FakeRunner("")
    node_attributes.delete_promotion_score(node, "vol1")
    assert node.calls[0][0] == ("attrd_updater", "--name", "master-vol1", "--delete")


def test_a_dampened_value_brings_its_delay_along() -> None:
    """`--update` leaves the delay that another agent has set, or none, as it is."""
    node = FakeRunner("")
    node_attributes.publish_dampened(node, "iscsi-reach", "0", "8s")
    assert node.calls[0][0] == (
        *("attrd_updater", "--name", "iscsi-reach", "--update-both=0", "--delay=8s"),
    )
