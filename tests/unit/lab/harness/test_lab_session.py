# SPDX-License-Identifier: GPL-2.0-or-later
"""wait_for and the readers of drbdsetup, iscsiadm and journal output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from sanctl.errors import CommandError, NotConverged, Problem
from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.measure.timeline import Event, Milestone
from sanctl.system.runner import CommandResult


class StubBed:
    """Answers every command with the same text."""

    def __init__(self, stdout: str) -> None:
        self.stdout = stdout
        self.asked: list[str] = []

    def sh(
        self, node: str, script: str, *, timeout_s: float = 0, ok: Sequence[int] = (0,)
    ) -> CommandResult:
        self.asked.append(script)
        return CommandResult((node, script), 0, self.stdout, "", 0.0)


def answering(stdout: str) -> LabSession:
    return cast(LabSession, StubBed(stdout))


def test_a_wait_returns_what_it_found() -> None:
    answers = iter([None, "", "there"])
    assert wait_for("it", lambda: next(answers), within_s=5, every_s=0) == "there"


def test_a_wait_that_runs_out_reports_the_last_value() -> None:
    def look() -> Any:
        raise CommandError(Problem("SAN-CMD-003", "ssh: no route"))

    with pytest.raises(NotConverged, match=r"waited 0 s for the node; last seen: .*no route"):
        wait_for("the node", look, within_s=0, every_s=0)


def test_sessions_are_listed_by_portal_and_only_the_targets_own() -> None:
    text = (
        "tcp: [1] 10.77.1.1:3260,1 iqn.2026-11.net.example:lab.vol0 (non-flash)\n"
        "tcp: [4] 10.77.1.2:3260,2 iqn.2026-11.net.example:lab.vol0 (non-flash)\n"
        "tcp: [5] 10.77.1.2:3260,2 iqn.2026-11.net.example:lab.vol01 (non-flash)\n"
    )
    host = Initiator(answering(text), "i1")
    assert host.sessions("iqn.2026-11.net.example:lab.vol0") == {"10.77.1.1": "1", "10.77.1.2": "4"}


@pytest.mark.parametrize(
    ("text", "is_in_sync"),
    [
        (
            "exists resource name:vol0 role:Primary suspended:no\n"
            "exists connection name:vol0 conn-name:n2 connection:Connected role:Secondary\n"
            "exists device name:vol0 volume:0 minor:1 disk:UpToDate size:524288\n"
            "exists peer-device name:vol0 volume:0 replication:Established peer-disk:UpToDate\n",
            True,
        ),
        (
            "exists connection name:vol0 connection:Connected role:Secondary\n"
            "exists device name:vol0 volume:0 minor:1 disk:UpToDate\n"
            "exists peer-device name:vol0 replication:SyncSource peer-disk:Inconsistent\n",
            False,
        ),
        (
            "exists connection name:vol0 connection:Connecting role:Unknown\n"
            "exists device name:vol0 volume:0 minor:1 disk:UpToDate\n"
            "exists peer-device name:vol0 replication:Off peer-disk:Outdated\n",
            False,
        ),
        ("exists device name:vol0 volume:0 minor:1 disk:UpToDate\n", False),
    ],
    ids=["in-sync", "syncing", "away", "alone"],
)
def test_in_sync_takes_both_replicas(text: str, is_in_sync: bool) -> None:
    assert collect.is_in_sync(answering(text), "n1", "vol0") is is_in_sync


def test_the_minor_is_read_from_drbd() -> None:
    text = "exists device name:vol0 volume:0 minor:7 disk:UpToDate\n"
    assert collect.drbd_minor(answering(text), "n1", "vol0") == 7


def test_the_activity_logs_size_is_the_configured_one() -> None:
    assert collect.activity_log_bytes(answering("al-extents 257;"), "n1", "v") == 257 << 22
    assert collect.activity_log_bytes(answering("nothing"), "n1", "v") == 1237 << 22


@pytest.mark.parametrize(
    ("fenced_s", "promoted_s", "is_right"),
    [(14.0, 15.0, True), (16.0, 15.0, False), (None, 15.0, False), (9.0, 15.0, False)],
    ids=["before", "after", "never", "an-earlier-one"],
)
def test_only_a_fencing_before_the_takeover_counts(
    fenced_s: float | None, promoted_s: float, is_right: bool
) -> None:
    events = [Event(mark=Milestone.PROMOTE_END, at_s=promoted_s, node="n2")]
    if fenced_s is not None:
        events.append(Event(mark=Milestone.FENCING_DONE, at_s=fenced_s, node="n2"))
    # The lost node's clock, set anew as it booted.
    events.append(Event(mark=Milestone.PROMOTE_END, at_s=10.5, node="n1"))
    assert failover._was_fenced_first(events, 10.0, "n2") is is_right
