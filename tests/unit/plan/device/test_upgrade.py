# SPDX-License-Identifier: GPL-2.0-or-later
"""Devices of older versions get what today's have, and nothing else changes."""

from __future__ import annotations

import pytest

from sanctl.errors import Refused
from sanctl.model.cluster import Cluster
from sanctl.ops.device_complete import complete_devices
from sanctl.ops.session import Session
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.device.upgrade import plan_upgrade
from tests.fakes.pacemaker import FakeClock, FakePacemaker, FakeReporter


def _observe(fake: FakePacemaker) -> Cluster:
    return Cluster(cib=parse_cib(parse_document(fake.query())), mon=parse_crm_mon(fake.monitor()))


def test_an_older_device_gets_the_reach_rule_and_its_priority() -> None:
    """The golden CIB is of the first version, which had neither."""
    fake = FakePacemaker(golden="one-device")
    session = Session(fake, FakeClock(), FakeReporter())
    before = _observe(fake)
    assert complete_devices(session) == ("vm1",)
    after = _observe(fake)
    assert {*after.cib.ids} - {*before.cib.ids} >= {"sanctl-vm1-reach", "sanctl-vm1-meta-priority"}
    assert after.cib.devices == before.cib.devices
    assert complete_devices(session) == ()


@pytest.mark.parametrize("lacks", ["sanctl-vm1-reach", "sanctl-vm1-meta-priority"])
def test_what_one_lacks_alone_is_added(lacks: str) -> None:
    fake = FakePacemaker(golden="one-device")
    session = Session(fake, FakeClock(), FakeReporter())
    complete_devices(session)
    parents = [p for p in fake.root.iter() for child in p if child.get("id") == lacks]
    (parent,) = parents
    parent.remove(next(child for child in parent if child.get("id") == lacks))
    assert complete_devices(session) == ("vm1",)
    assert lacks in _observe(fake).cib.ids


def test_a_clone_without_meta_attributes() -> None:
    fake = FakePacemaker(golden="one-device")
    clone = fake.root.find("configuration/resources/clone[@id='sanctl-vm1']")
    assert clone is not None
    group = clone.find("meta_attributes")
    assert group is not None
    clone.remove(group)
    complete_devices(Session(fake, FakeClock(), FakeReporter()))
    assert "sanctl-vm1-meta-priority" in _observe(fake).cib.ids


def test_without_quorum_nothing_is_changed() -> None:
    fake = FakePacemaker(golden="one-device")
    fake.has_quorum = False
    with pytest.raises(Refused):
        plan_upgrade(_observe(fake))
