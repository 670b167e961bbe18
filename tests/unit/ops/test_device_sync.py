# SPDX-License-Identifier: GPL-2.0-or-later
"""Changing how a device is synced."""

from __future__ import annotations

import pytest

from sanctl.errors import Refused, UsageError
from sanctl.model.names import DeviceName
from sanctl.model.sync_policy import DEFAULT_SYNC_POLICY
from sanctl.ops.device_sync import change_sync_policy
from tests.unit.ops.test_device import Bench, codes

VM1 = DeviceName.parse("vm1")


def test_a_policy_is_stored_until_it_is_the_default_again() -> None:
    bench = Bench()
    bench.create(sync={"priority": "70"})
    assert bench.cluster.devices()["vm1"]["sync"] == "priority=70"
    outcome = change_sync_policy(bench.session, VM1, {"full-above": "30"}, timeout_s=60)
    assert outcome.changed
    assert str(outcome.device.sync) == "full-above=30 priority=70"
    assert not change_sync_policy(bench.session, VM1, {"full-above": "30"}, timeout_s=60).changed
    back = change_sync_policy(
        bench.session, VM1, {"full-above": "never", "priority": "50"}, timeout_s=60
    )
    assert back.device.sync == DEFAULT_SYNC_POLICY
    assert "sync" not in bench.cluster.devices()["vm1"]


def test_a_policy_without_meaning_changes_nothing() -> None:
    bench = Bench()
    with pytest.raises(UsageError) as caught:
        bench.create(sync={"csums": "maybe"}, size="1")
    assert set(codes(caught.value)) == {"SAN-SYNC-003", "SAN-NAME-006"}
    bench.create()
    with pytest.raises(UsageError):
        change_sync_policy(bench.session, VM1, {"rate-max": "1M"}, timeout_s=60)
    with pytest.raises(Refused):
        change_sync_policy(bench.session, DeviceName.parse("vm9"), {}, timeout_s=60)
    bench.cluster.has_quorum = False
    with pytest.raises(Refused):
        change_sync_policy(bench.session, VM1, {"csums": "on"}, timeout_s=60)
