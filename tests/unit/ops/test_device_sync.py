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
ON_8 = "8.4.11"


def test_a_policy_is_stored_until_it_is_the_default_again() -> None:
    bench = Bench()
    bench.create(sync={"priority": "70"})
    assert bench.cluster.devices()["vm1"]["sync"] == "priority=70"
    outcome = change_sync_policy(
        bench.session, VM1, {"full-above": "30"}, drbd_version=ON_8, timeout_s=60
    )
    assert outcome.changed
    assert str(outcome.device.sync) == "full-above=30 priority=70"
    assert not change_sync_policy(
        bench.session, VM1, {"full-above": "30"}, drbd_version=ON_8, timeout_s=60
    ).changed
    back = change_sync_policy(
        bench.session,
        VM1,
        {"full-above": "never", "priority": "50"},
        drbd_version="8.4.11",
        timeout_s=60,
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
        change_sync_policy(bench.session, VM1, {"rate-max": "1M"}, drbd_version=ON_8, timeout_s=60)
    with pytest.raises(Refused):
        change_sync_policy(
            bench.session, DeviceName.parse("vm9"), {}, drbd_version=ON_8, timeout_s=60
        )
    bench.cluster.has_quorum = False
    with pytest.raises(Refused):
        change_sync_policy(bench.session, VM1, {"csums": "on"}, drbd_version=ON_8, timeout_s=60)


def test_drbd_9_refuses_a_full_resync_above_some_percent() -> None:
    """DRBD 9 would take the option and do nothing; `never` takes back what 8.4 was given."""
    bench = Bench()
    bench.create(sync={"full-above": "30"})

    def change(values: dict[str, str]) -> bool:
        return change_sync_policy(
            bench.session, VM1, values, drbd_version="9.3.3", timeout_s=60
        ).changed

    with pytest.raises(Refused) as caught:
        change({"full-above": "40", "priority": "70"})
    assert codes(caught.value) == ["SAN-SYNC-006"]
    assert bench.cluster.devices()["vm1"]["sync"] == "full-above=30"
    assert change({"priority": "70"})
    assert change({"full-above": "never"})
