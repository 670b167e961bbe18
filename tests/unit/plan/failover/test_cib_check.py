# SPDX-License-Identifier: GPL-2.0-or-later
"""By the CIB alone: scores that it has lost, and marks that a device served here may clear."""

from __future__ import annotations

import pytest

from sanctl.plan.failover.cib_check import lost_scores, marked_devices, may_clear_mark

SERVED = (
    "disk=UpToDate connection=Connected replication=Established peer-disk=UpToDate"
    " out-of-sync=0 role=Primary size=4096 suspended=no acl=0 policy=default"
)


def test_a_score_that_is_missing_or_another_one_is_lost() -> None:
    published = {"vm1": "10000", "vm2": "9000", "vm3": "None", "vm4": "5", "vm5": "None"}
    in_cib = {
        "master-vm1": "10000",
        "master-vm3": "-INFINITY",
        "master-vm4": "9000",
        "master-vm9": "9000",
        "sanctl-pool-main": "total=1",
    }
    assert lost_scores(published, in_cib) == ["vm2", "vm4", "vm5"]
    assert lost_scores({}, {}) == []


def test_marks_of_either_form_name_their_device() -> None:
    found = {
        "sanctl-outdated-vm-1.n2.0a1b",
        "sanctl-outdated-vm2",
        "sanctl-pool-main",
        "master-vm3",
    }
    assert marked_devices(found) == {"vm-1", "vm2"}


def test_a_primary_in_sync_with_its_only_peer_may_clear_a_mark() -> None:
    assert may_clear_mark(SERVED)


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        ("role=Primary", "role=Secondary"),
        ("connection=Connected", "connection=Connecting"),
        ("peer-disk=UpToDate", "peer-disk=Outdated"),
        ("replication=Established", "replication=SyncSource"),
        ("role=Primary ", ""),
        ("suspended=no", "suspended=no peers=n2"),
        (SERVED, ""),
        (SERVED, "disk"),
    ],
)
def test_any_other_has_nothing_to_clear(part: str, instead: str) -> None:
    """A Primary whose peer is away for days, marked, would have whole monitors all the time."""
    assert part in SERVED
    assert not may_clear_mark(SERVED.replace(part, instead))
