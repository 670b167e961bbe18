# SPDX-License-Identifier: GPL-2.0-or-later
"""A replica that crashed as Primary is not connected before its standby was promoted."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents import device_monitor
from sanctl.agents.connections import crashed_flag, reconnect_dropped, standby_first
from sanctl.agents.recovery import heal, refill_suspect
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import corosync, drbd_kernel, drbd_superblock, outdated_marks
from sanctl.drivers.drbd_superblock import Superblock
from sanctl.drivers.outdated_marks import DeviceMarks, SeenMarks
from sanctl.errors import CommandError, Problem
from sanctl.model import promotion_score as scores
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.parse.corosync import Membership
from sanctl.parse.drbd import ProcState
from sanctl.plan.failover.standby_first import LONGEST_S, WAITS_S
from sanctl.system import state_files
from sanctl.system.runner import Runner
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer

DEVICE = Device("vol1", "a" * 32, 1 << 20, "main", ("n1", "n2"), 3, ())
CRASHED = Superblock(was_primary=True, is_ahead=False)
ALONE = ResourceState("vol1", "Secondary", "no", "Consistent", 0, (), minor=3)
MET = PeerState("n2", "Connected", "Primary", "Established", "UpToDate", 0)
LATER = "connects-later"


class Cluster(FakeNode):
    """n1, whose replica starts; what its CIB says of n2 are attributes."""

    held: Superblock | None = CRASHED
    score: int | str = scores.DISCONNECTED
    kept = ""
    marked = frozenset[str]()
    members = frozenset({"n1", "n2"})
    is_silent = False
    is_known = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.answer = self._answer

    def replacements(self) -> list[tuple[object, str, object]]:
        return [
            *super().replacements(),
            (drbd_superblock, "read", lambda _path: self.held),
            (outdated_marks, "read", self._marks),
            (corosync, "membership", lambda _: Membership(True, self.members)),
        ]

    def _answer(self, argv: Sequence[str]) -> Answer:
        assert argv[0] == "attrd_updater"
        return ""

    def _marks(
        self, _runner: Runner, devices: Sequence[str], peer: str, attributes: Sequence[str]
    ) -> SeenMarks:
        assert (devices, peer, attributes) == (["vol1"], "n2", ["master-vol1", "kept-vol1"])
        if self.is_silent:
            raise CommandError(Problem("SAN-CMD-002", "no answer"))
        paths = tuple((each, each) for each in self.marked)
        pairs = {"master-vol1": str(self.score), "kept-vol1": self.kept}
        return SeenMarks(
            0,
            1,
            None,
            {"vol1": DeviceMarks("a" * 32, paths)} if self.is_known else {},
            attributes={name: value for name, value in pairs.items() if value},
        )


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    return Cluster(tmp_path).install(monkeypatch)


def begin(node: Cluster) -> bool:
    return standby_first.begin(node, DEVICE, "meta")


def still_waits(node: Cluster, state: ResourceState = ALONE) -> bool:
    return standby_first.still_waits(node, DEVICE, state)


def test_it_waits_until_the_standby_serves(node: Cluster) -> None:
    assert not standby_first.is_noted("vol1")
    assert not still_waits(node)
    assert begin(node)
    assert standby_first.is_noted("vol1")
    assert state_files.device_suffixes("vol1", LATER) == [], "no monitor is to connect it"
    assert standby_first.published_field("vol1") == " standby-first=n2"
    assert still_waits(node)
    node.score = scores.PRIMARY
    assert not still_waits(node)
    assert not standby_first.is_noted("vol1")
    assert state_files.device_suffixes("vol1", LATER) == ["n2"], "it is connected by that"
    assert [line.partition(": ")[2] for line in node.journal] == [
        "not connecting yet: this node crashed as Primary, and its disk may lack what hosts had not"
        " flushed: the standby on n2 is to be promoted first",
        "connecting to n2: the standby serves",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"held": None},
        {"held": CRASHED._replace(was_primary=False)},
        {"held": CRASHED._replace(is_ahead=True)},
        {"score": scores.PRIMARY},
        {"score": scores.CONSISTENT},
        {"score": ""},
        {"score": "-INFINITY"},
        {"score": scores.NEW, "kept": "1"},
        {"marked": frozenset({"n2"})},
        {"members": frozenset({"n1", "n3"})},
        {"is_silent": True},
        {"is_known": False},
    ],
    ids=str,
)
def test_it_connects_at_once(node: Cluster, change: dict[str, object]) -> None:
    vars(node).update(change)
    assert not begin(node)
    assert not standby_first.is_noted("vol1")
    assert state_files.device_suffixes("vol1", LATER) == []


def test_three_replicas_have_a_majority_to_go_by(node: Cluster) -> None:
    several = DEVICE._replace(nodes=("n1", "n2", "n3"))
    assert not standby_first.begin(node, several, "meta")


@pytest.mark.parametrize("score", ["", scores.CONSISTENT, "-INFINITY"])
def test_it_waits_for_a_standby_that_was_stopped_whole(node: Cluster, score: int | str) -> None:
    node.score, node.kept = score, "1"
    assert begin(node)
    assert still_waits(node)


def test_it_connects_where_the_standby_is_not_promoted_in_time(node: Cluster) -> None:
    assert begin(node)
    node.clock.now_s += WAITS_S + 1
    assert begin(node), "a start that is tried again"
    assert not still_waits(node)
    assert not standby_first.is_noted("vol1")
    assert standby_first.published_field("vol1") == ""


def test_it_waits_longer_while_the_standby_is_being_promoted(node: Cluster) -> None:
    assert begin(node)
    node.marked = frozenset({"n1"})
    node.clock.now_s += WAITS_S + 1
    assert still_waits(node)
    node.clock.now_s += LONGEST_S - WAITS_S
    node.is_silent = True
    assert not standby_first.is_noted("vol1"), "it has a score again, whatever the monitors do"
    assert not still_waits(node), "nobody is asked"


def test_it_connects_where_the_standby_is_a_candidate_no_more(node: Cluster) -> None:
    assert begin(node)
    node.marked = frozenset({"n2"})
    assert not still_waits(node)


@pytest.mark.parametrize(
    "state", [ALONE._replace(peers=(MET,)), ALONE._replace(role="Primary")], ids=["met", "Primary"]
)
def test_a_replica_that_is_connected_or_serves_waits_no_more(
    node: Cluster, state: ResourceState
) -> None:
    assert begin(node)
    assert not still_waits(node, state)
    assert not standby_first.is_noted("vol1")


def test_a_standby_that_was_dropped_is_not_waited_for(node: Cluster) -> None:
    assert begin(node)
    moved = DEVICE._replace(nodes=("n1", "n3"))
    assert not standby_first.still_waits(node, moved, ALONE)
    assert not standby_first.is_noted("vol1")


def test_what_the_cluster_does_not_say_ends_no_wait(node: Cluster) -> None:
    assert begin(node)
    node.is_silent = True
    with pytest.raises(CommandError):
        still_waits(node)
    assert standby_first.is_noted("vol1")


def test_without_room_for_the_note_it_connects(
    node: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(state_files.StateFile, "write", no_room)
    assert not begin(node)


@pytest.mark.parametrize("still", [True, False])
def test_the_monitor_leaves_it_unconnected(
    node: Cluster, monkeypatch: pytest.MonkeyPatch, still: bool
) -> None:
    asked: list[str] = []

    def reconnect(_runner: Runner, name: str, state: ResourceState) -> ResourceState:
        asked.append(name)
        return state

    monkeypatch.setattr(heal, "carry_out_order", lambda *given: given[-1])
    monkeypatch.setattr(refill_suspect, "refill_if_suspect", lambda *given: given[-1])
    monkeypatch.setattr(reconnect_dropped, "reconnect", reconnect)
    assert begin(node)
    node.score = scores.DISCONNECTED if still else scores.PRIMARY
    device_monitor._settle_connections(node, DEVICE, ALONE, limits=False)
    assert asked == ([] if still else ["vol1"])


STANDBY_ALONE = ProcState("WFConnection", "Secondary", "Unknown", "UpToDate", "DUnknown", False, 0)
DEAD_PRIMARY = STANDBY_ALONE._replace(
    connection="Connected", peer_role="Primary", peer_disk="UpToDate"
)


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        (STANDBY_ALONE, True),
        (STANDBY_ALONE._replace(connection="Connected", peer_disk="UpToDate"), False),
        (DEAD_PRIMARY, False),
        (STANDBY_ALONE._replace(disk="Consistent"), False),
        (STANDBY_ALONE._replace(role="Primary"), False),
    ],
)
def test_which_standby_is_whole_when_it_is_stopped(
    node: Cluster, monkeypatch: pytest.MonkeyPatch, seen: ProcState, wanted: bool
) -> None:
    monkeypatch.setattr(drbd_kernel, "proc_state", lambda _minor: seen)
    monkeypatch.setattr(lost_writes, "is_suspect", lambda *_: False)
    assert standby_first.is_whole(node, DEVICE) is wanted
    monkeypatch.setattr(lost_writes, "is_suspect", lambda *_: True)
    assert not standby_first.is_whole(node, DEVICE)


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        (ALONE._replace(disk="UpToDate"), True),
        (ALONE, False),
        (ALONE._replace(disk="UpToDate", peers=(MET,)), False),
        (None, False),
    ],
)
def test_with_drbd_9_it_is_asked(
    node: Cluster, monkeypatch: pytest.MonkeyPatch, state: ResourceState | None, wanted: bool
) -> None:
    monkeypatch.setattr(drbd_kernel, "proc_state", lambda _minor: None)
    monkeypatch.setattr(lost_writes, "is_suspect", lambda *_: False)
    node.states["vol1"] = state
    assert standby_first.is_whole(node, DEVICE) is wanted
    assert not standby_first.is_whole(node, DEVICE._replace(nodes=("n1", "n2", "n3")))


@pytest.mark.parametrize("notices", [True, False])
def test_without_quorum_drbd_has_the_time_to_notice_a_dead_primary(
    node: Cluster, monkeypatch: pytest.MonkeyPatch, notices: bool
) -> None:
    asked: list[object] = []

    def membership(runner: object) -> Membership:
        asked.append(runner)
        return Membership(False, frozenset({"n1"}))

    monkeypatch.setattr(corosync, "membership", membership)
    monkeypatch.setattr(lost_writes, "is_suspect", lambda *_: False)
    monkeypatch.setattr(
        drbd_kernel,
        "proc_state",
        lambda _: STANDBY_ALONE if notices and node.clock.passed_s > 3 else DEAD_PRIMARY,
    )
    assert standby_first.is_whole(node, DEVICE) is notices
    assert 3 < node.clock.passed_s < 4.6
    assert len(asked) == 1, "fifty devices are stopped at once"


def test_a_planned_stop_beside_a_primary_waits_for_nothing(
    node: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_writes, "is_suspect", lambda *_: False)
    monkeypatch.setattr(drbd_kernel, "proc_state", lambda _: DEAD_PRIMARY)
    assert not standby_first.is_whole(node, DEVICE)
    assert node.clock.passed_s == 0


def test_what_was_told_is_taken_back_once_it_is_connected(node: Cluster) -> None:
    told = ["attrd_updater --name kept-vol1 --update=1"]
    standby_first.keep(node, "vol1")
    assert node.commands("attrd_updater") == told
    state_files.remove_device("vol1")
    for state in (None, ALONE):
        standby_first.forget_kept(node, "vol1", state)
    assert node.commands("attrd_updater") == told
    for _ in range(2):
        standby_first.forget_kept(node, "vol1", ALONE._replace(peers=(MET,)))
    assert node.commands("attrd_updater") == [*told, "attrd_updater --name kept-vol1 --delete"]


@pytest.mark.parametrize("is_ahead", [True, False])
def test_drbd_is_to_forget_each_crash(
    node: Cluster, monkeypatch: pytest.MonkeyPatch, is_ahead: bool
) -> None:
    noted: list[str] = []
    monkeypatch.setattr(crashed_flag, "note", noted.append)
    node.held = CRASHED._replace(is_ahead=is_ahead)
    begin(node)
    assert noted == ["vol1"]
    node.held = CRASHED._replace(was_primary=False)
    begin(node)
    assert noted == ["vol1"]
