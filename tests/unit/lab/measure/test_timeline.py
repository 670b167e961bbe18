# SPDX-License-Identifier: GPL-2.0-or-later
"""Journal lines become the milestones of a failover."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sanctl.lab.measure.timeline import (
    Entry,
    Event,
    Milestone,
    agent_steps,
    build_stages,
    find_events,
    parse_journal,
    resync_bytes,
)


def line(at_s: float, identifier: str, message: object, **fields: str) -> str:
    return json.dumps(
        {
            "__REALTIME_TIMESTAMP": str(round(at_s * 1e6)),
            "SYSLOG_IDENTIFIER": identifier,
            "MESSAGE": message,
            **fields,
        }
    )


def marks(text: str) -> list[Milestone]:
    entries = parse_journal(text, "n2")
    return [event.mark for event in find_events(entries, "vol0", 1, "n1")]


@pytest.mark.parametrize(
    ("identifier", "message", "mark"),
    [
        (
            "corosync",
            "[TOTEM ] A processor failed, forming new configuration: "
            "token timed out (1000ms), waiting 1200ms for consensus.",
            Milestone.TOKEN_LOST,
        ),
        (
            "corosync",
            "[TOTEM ] A new membership (2.1f) was formed. Members left: 1",
            Milestone.MEMBERSHIP,
        ),
        (
            "pacemaker-controld",
            "Requesting fencing (reboot) targeting node n1",
            Milestone.FENCING_ASKED,
        ),
        ("pacemaker-controld", "Requesting fencing (reboot) of node n1", Milestone.FENCING_ASKED),
        (
            "pacemaker-fenced",
            "Operation 'reboot' targeting n1 by n2 for pacemaker-controld.412@n3: OK (complete)",
            Milestone.FENCING_DONE,
        ),
        (
            "pacemaker-controld",
            "Peer n1 was terminated (reboot) by n2 on behalf of pacemaker-controld.412@n3: OK",
            Milestone.FENCING_DONE,
        ),
        (
            "pacemaker-controld",
            "Requesting local execution of promote operation for vol0 on n2",
            Milestone.PROMOTE_ASKED,
        ),
        ("kernel", "drbd vol0: PingAck did not arrive in time.", Milestone.DRBD_NOTICE),
        (
            "kernel",
            "drbd vol0: peer( Primary -> Unknown ) conn( Connected -> NetworkFailure ) ",
            Milestone.DRBD_NOTICE,
        ),
        (
            "kernel",
            "drbd vol0: helper command: /sbin/drbdadm fence-peer vol0 exit code 7 (0x700)",
            Milestone.PEER_OUTDATED,
        ),
        (
            "kernel",
            "block drbd1: Began resync as SyncSource (will sync 4096 KB [1024 bits set]).",
            Milestone.RESYNC_BEGIN,
        ),
        (
            "kernel",
            "block drbd1: Resync done (total 1 sec; paused 0 sec; 4096 K/sec)",
            Milestone.RESYNC_END,
        ),
    ],
)
def test_a_message_is_recognised(identifier: str, message: str, mark: Milestone) -> None:
    assert marks(line(5.0, identifier, message)) == [mark]


@pytest.mark.parametrize(
    ("identifier", "message"),
    [
        ("corosync", "[TOTEM ] A new membership (2.1f) was formed. Members joined: 1"),
        ("pacemaker-controld", "Requesting fencing (reboot) targeting node n11"),
        ("pacemaker-fenced", "Operation 'reboot' targeting n1 by n2 for x.1@n3: Timer expired"),
        ("pacemaker-controld", "Requesting local execution of promote operation for vol01 on n2"),
        ("kernel", "drbd vol1: PingAck did not arrive in time."),
        ("kernel", "block drbd11: Resync done (total 1 sec; paused 0 sec; 4096 K/sec)"),
        ("somebody", "[TOTEM ] A processor failed"),
        ("corosync", "[TOTEM ] Token has not been received in 1125 ms"),
        (
            "kernel",
            "drbd vol0: helper command: /sbin/drbdadm unfence-peer vol0 exit code 0 (0x0)",
        ),
    ],
)
def test_what_concerns_others_is_not(identifier: str, message: str) -> None:
    assert marks(line(5.0, identifier, message)) == []


def test_the_agents_steps_tell_when_promote_began_and_ended() -> None:
    fields = {"SANCTL_DEVICE": "vol0", "SANCTL_ACTION": "promote"}
    text = "\n".join(
        [
            line(10.5, "sanctl", "x", SANCTL_STEP="primary", SANCTL_DURATION_MS="500", **fields),
            line(10.7, "sanctl", "x", SANCTL_STEP="alua", SANCTL_DURATION_MS="100", **fields),
            line(10.8, "sanctl", "x", SANCTL_STEP="end", SANCTL_DURATION_MS="800", **fields),
            line(11.0, "sanctl", "x", SANCTL_STEP="end", **{**fields, "SANCTL_DEVICE": "other"}),
        ]
    )
    first: dict[Milestone, float] = {}
    for event in find_events(parse_journal(text, "n2"), "vol0", 1, "n1"):
        first.setdefault(event.mark, event.at_s)
    assert first == {
        Milestone.PROMOTE_BEGIN: pytest.approx(10.0),
        Milestone.ALUA_ACTIVE: pytest.approx(10.7),
        Milestone.PROMOTE_END: pytest.approx(10.8),
    }


@pytest.mark.parametrize(
    ("field", "text"),
    [(None, ""), ([104, 105], "hi"), (["one", "two"], "one"), ("plain", "plain")],
    ids=["null", "bytes", "several", "text"],
)
def test_every_form_a_journal_field_may_have(field: Any, text: str) -> None:
    (entry,) = parse_journal(line(1.0, "kernel", field), "n1")
    assert entry.message == text


def test_what_is_no_entry_is_passed_over_and_the_skew_taken_out() -> None:
    text = "\n".join(["-- No entries --", line(7.0, "a", "b"), "[1]", '{"__REALTIME'])
    assert parse_journal(text, "n1", skew_s=2.0) == [
        Entry(node="n1", at_s=5.0, identifier="a", message="b")
    ]


def test_the_senders_own_time_is_preferred() -> None:
    (entry,) = parse_journal(line(7.0, "a", "b", _SOURCE_REALTIME_TIMESTAMP="6500000"), "n1")
    assert entry.at_s == pytest.approx(6.5)


def test_stages_are_first_occurrences_in_order_of_time() -> None:
    def event(mark: Milestone, at_s: float) -> Event:
        return Event(mark=mark, at_s=at_s, node="n2")

    stages = build_stages(
        [
            event(Milestone.FENCING_DONE, 14.0),
            event(Milestone.MEMBERSHIP, 12.0),
            event(Milestone.MEMBERSHIP, 13.0),
            event(Milestone.MEMBERSHIP, 9.0),  # before the fault
            event(Milestone.RESYNC_END, 30.0),  # after the takeover
        ],
        event(Milestone.POWER_CUT, 10.0),
        event(Milestone.FIRST_WRITE, 16.0),
    )
    assert [(stage.mark, stage.after_s, stage.took_s) for stage in stages] == [
        (Milestone.POWER_CUT, 0.0, 0.0),
        (Milestone.MEMBERSHIP, 2.0, 2.0),
        (Milestone.FENCING_DONE, 4.0, 2.0),
        (Milestone.FIRST_WRITE, 6.0, 2.0),
    ]


def test_the_resyncs_size_is_the_devices_own() -> None:
    text = "\n".join(
        [
            line(1.0, "kernel", "block drbd1: Began resync as SyncSource (will sync 1 KB [1 b"),
            line(5.0, "kernel", "block drbd2: Began resync as SyncSource (will sync 2 KB [1 b"),
            line(6.0, "kernel", "block drbd1: Began resync as SyncSource (will sync 3 KB [1 b"),
        ]
    )
    entries = parse_journal(text, "n2")
    assert resync_bytes(entries, 1, 2.0) == 3 * 1024
    assert resync_bytes(entries, 7, 2.0) is None


def test_a_captured_crash_is_understood() -> None:
    """Journals of n2 and n3 of a lab (Debian 13, DRBD 8.4) whose n1 lost its power.

    Two devices moved, on a machine with much else to do: nothing here is a record.
    """
    cut_s = 1795228415.565
    folder = Path(__file__).parent / "journals"
    entries = [
        entry
        for node in ("n2", "n3")
        for entry in parse_journal((folder / f"{node}.jsonl").read_text(), node)
    ]
    events = find_events(entries, "demo-ledger", 2, "n1")
    stages = build_stages(
        events,
        Event(mark=Milestone.POWER_CUT, at_s=cut_s, node="n1"),
        Event(mark=Milestone.FIRST_WRITE, at_s=cut_s + 25.24, node="i1"),
    )
    wanted = [
        (Milestone.POWER_CUT, 0.0),
        (Milestone.TOKEN_LOST, 1.4),
        (Milestone.MEMBERSHIP, 3.5),
        (Milestone.DRBD_NOTICE, 5.5),
        (Milestone.FENCING_ASKED, 7.6),
        (Milestone.FENCING_DONE, 10.7),
        (Milestone.PROMOTE_ASKED, 18.1),
        (Milestone.PROMOTE_BEGIN, 19.3),
        (Milestone.PEER_OUTDATED, 22.9),
        (Milestone.ALUA_ACTIVE, 23.9),
        (Milestone.PROMOTE_END, 23.9),
        (Milestone.FIRST_WRITE, 25.2),
    ]
    assert [stage.mark for stage in stages] == [mark for mark, _ in wanted]
    assert [stage.after_s for stage in stages] == pytest.approx([at for _, at in wanted], abs=0.1)
    assert [step for _, step, _ in agent_steps(entries, "demo-ledger", "promote")] == [
        "primary",
        "gate",
        "alua",
        "end",
    ]
