# SPDX-License-Identifier: GPL-2.0-or-later
"""A first promotion declares replicas good, and then says that the device has been active."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from sanctl.agents import ocf
from sanctl.agents.promotion import first_activation
from sanctl.agents.replica.parts import Device
from sanctl.drivers import crm_resource, drbdsetup
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.failover.promotion import FirstStep
from tests.fakes.node import FakeNode

HERE = os.uname().nodename
DEVICE = Device("vol1", "a" * 32, 8192, "main", (HERE, "n2"), 3, ())
PEER = PeerState("n2", "Connected", "Secondary", "Established", "Inconsistent", 0)
BLANK = ResourceState("vol1", "Secondary", "no", "Inconsistent", 8, (PEER,), minor=3)
APART = BLANK._replace(peers=(PEER._replace(connection="Connecting", disk="DUnknown"),))
GOOD = BLANK._replace(disk="UpToDate")


class Effects:
    """What the activation has done, in its order; `fails` names what does not succeed."""

    def __init__(self, node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node, self.monkeypatch = node, monkeypatch
        self.done: list[str] = []
        self.fails = ""

    def activate(self, state: ResourceState, step: FirstStep, device: Device = DEVICE) -> None:
        self.monkeypatch.setattr(first_activation, "step_here", lambda *_: step)
        steps = ocf.Steps(device.name, "promote")
        first_activation.activate(self.node, device, state, steps)

    def named(self, name: str) -> Callable[..., None]:
        def effect(*_: object, **__: object) -> None:
            if name == self.fails:
                raise CommandError(Problem("SAN-CMD-002", "no answer within 8 s"))
            self.done.append(name)

        return effect


@pytest.fixture
def effects(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> Effects:
    made = Effects(fake_node, monkeypatch)
    monkeypatch.setattr(drbdsetup, "skip_initial_sync", made.named("all good"))
    monkeypatch.setattr(drbdsetup, "force_up_to_date", made.named("this one good"))
    monkeypatch.setattr(crm_resource, "delete_meta_attribute", made.named("not new"))
    return made


@pytest.mark.parametrize(
    ("step", "nodes", "wanted"),
    [
        (FirstStep.DECLARE_EQUAL, (HERE, "n2"), "all good"),
        (FirstStep.DECLARE_EQUAL, (HERE,), "this one good"),
        (FirstStep.DECLARE_OWN, (HERE, "n2"), "this one good"),
    ],
    ids=["pair", "only replica", "only this one is a copy"],
)
def test_the_data_are_declared_good_before_the_device_is_called_active(
    effects: Effects, step: FirstStep, nodes: tuple[str, ...], wanted: str
) -> None:
    effects.activate(BLANK, step, DEVICE._replace(nodes=nodes))
    assert effects.done == [wanted, "not new"]


def test_replicas_that_were_declared_good_before_are_not_again(effects: Effects) -> None:
    effects.activate(GOOD, FirstStep.NONE)
    assert effects.done == ["not new"]


def test_replicas_that_lost_contact_stay_new(effects: Effects) -> None:
    with pytest.raises(CommandError) as refused:
        effects.activate(APART, FirstStep.NONE)
    assert (refused.value.problems[0].code, effects.done) == ("SAN-AGENT-008", [])


def test_a_device_that_drbd_does_not_take_stays_new(effects: Effects) -> None:
    effects.fails = "all good"
    with pytest.raises(CommandError):
        effects.activate(BLANK, FirstStep.DECLARE_EQUAL)
    assert effects.done == []


def test_a_promotion_ends_where_the_cluster_does_not_call_it_active(effects: Effects) -> None:
    effects.fails = "not new"
    with pytest.raises(CommandError):
        effects.activate(BLANK, FirstStep.DECLARE_EQUAL)
    assert effects.done == ["all good"]
