# SPDX-License-Identifier: GPL-2.0-or-later
"""The changes of the CIB by which a restore begins and ends: each is of the order that stands."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from sanctl.errors import CommandError, Refused
from sanctl.model.cib_change import ClearParameter, SetParameter
from sanctl.model.device_restore import COPYING, DONE, GIVEN_UP, RestoreOrder
from sanctl.model.restore_point import PointOrder
from sanctl.plan.device import restore_changes
from tests.unit.plan.device.test_restoring import COPYING_ORDER, GOOD, ORDER, SPEC, cluster


@pytest.mark.parametrize(
    ("plan", "before", "state"),
    [
        (restore_changes.plan_begun, ORDER, COPYING),
        (partial(restore_changes.plan_done, here="n1"), COPYING_ORDER, DONE),
        (restore_changes.plan_given_up, ORDER, GIVEN_UP),
    ],
)
def test_each_change_is_of_the_order_that_stands(
    plan: Any, before: RestoreOrder, state: str
) -> None:
    (change,) = plan(cluster(before), "web", before)
    assert change == SetParameter(
        name=SPEC.name, parameter="restore", value=str(before._replace(state=state))
    )
    for other in (None, before._replace(token="9" * 16), before._replace(state=DONE)):
        with pytest.raises(CommandError, match="SAN-REST-006"):
            plan(cluster(other), "web", before)
    with pytest.raises(CommandError, match="SAN-REST-006"):
        plan(cluster(before), "db", before)
    with pytest.raises(CommandError, match="SAN-CLU-001"):
        plan(cluster(before, has_quorum=False), "web", before)


def test_a_withdrawal_takes_the_order_for_what_was_to_be_kept_with_it() -> None:
    seen = cluster(ORDER, points=(GOOD,))
    given_up = SetParameter(
        name=SPEC.name, parameter="restore", value=str(ORDER._replace(state=GIVEN_UP))
    )
    assert restore_changes.plan_cancelled(seen, SPEC.name) == (given_up,)
    for token, expected in (("3" * 16, True), ("4" * 16, False)):
        (device,) = seen.cib.devices
        device = replace(device, point_order=PointOrder("kept", token, 1000))
        both = restore_changes.plan_cancelled(
            replace(seen, cib=replace(seen.cib, devices=(device,))), SPEC.name
        )
        cleared = ClearParameter(name=SPEC.name, parameter="point")
        assert both == ((given_up, cleared) if expected else (given_up,))


def test_what_is_not_withdrawn() -> None:
    done = ORDER._replace(state=DONE)
    assert restore_changes.plan_cancelled(cluster(done), SPEC.name) == ()
    for seen, code in (
        (cluster(COPYING_ORDER), "SAN-REST-013"),
        (cluster(None), "SAN-REST-010"),
        (cluster(ORDER, has_quorum=False), "SAN-CLU-001"),
    ):
        with pytest.raises(Refused, match=code):
            restore_changes.plan_cancelled(seen, SPEC.name)
