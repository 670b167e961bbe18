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
def test_a_single_missing_entry_is_added(lacks: str) -> None:
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


def _timeouts(fake: FakePacemaker) -> dict[str, str]:
    return {
        operation.get("id", ""): operation.get("timeout", "")
        for operation in fake.root.iterfind(".//clone[@id='sanctl-vm1']/primitive/operations/op")
    }


def test_shorter_timeouts_become_todays_and_longer_ones_stay() -> None:
    fake = FakePacemaker(golden="one-device")
    session = Session(fake, FakeClock(), FakeReporter())
    before = _timeouts(fake)
    assert before["vm1-start-0s"] == "60s"
    (stop,) = fake.root.iterfind(".//op[@id='vm1-stop-0s']")
    stop.set("timeout", "300s")
    assert complete_devices(session) == ("vm1",)
    after = _timeouts(fake)
    assert after["vm1-start-0s"] == "180s"
    assert after["vm1-monitor-10s"] == "120s"
    assert after["vm1-stop-0s"] == "300s"
    assert complete_devices(session) == ()


def test_a_timeout_in_another_unit_is_an_operators() -> None:
    fake = FakePacemaker(golden="one-device")
    session = Session(fake, FakeClock(), FakeReporter())
    complete_devices(session)
    (start,) = fake.root.iterfind(".//op[@id='vm1-start-0s']")
    start.set("timeout", "1min")
    assert complete_devices(session) == ()
