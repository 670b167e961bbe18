# SPDX-License-Identifier: GPL-2.0-or-later
"""Handlers of several devices mark one peer in one change of the CIB: leader, followers, deaths."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection

import pytest

from sanctl.agents.fencing import outdate, quorum_overlap, shared_marks
from sanctl.agents.fencing.outdate import OWN_MARKED, mark_outdated
from sanctl.drivers import drbd_kernel
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.outdated_mark import mark_id
from sanctl.plan.failover import fence_rules
from sanctl.plan.failover.shared_marks import ahead, answer_text, keeping
from sanctl.system import process_start, state_files
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer, FakeRunner

UUIDS = {"vol1": "1" * 32, "vol2": "2" * 32, "vol3": "3" * 32}
_HERE = '<node_state uname="n2" in_ccm="9" crmd="9" join="member" expected="member"/>'
_FENCED = '<node_state uname="n2" in_ccm="0" crmd="0" join="down" expected="down"/>'
_QUORUM = "Ring ID: 1.{ring:x}\nQuorate: {quorate}\nNodeid Votes Name\n 1 1 n1 (local)\n 3 1 n3\n"


class Cluster(FakeRunner):
    """A quorate partition without n2, which is fenced; its CIB keeps marks.

    Attributes:
        ring: the number of the membership.
        is_numbered: all nodes go by it.
        is_back: n2 is a member again.
        here: its `node_state` then.
        is_maintained: n2 is in maintenance.
        marks: the device's mark on n2, by device.
        own_marks: the devices whose replica here is marked.
        changes: of each change: the devices that it marks.
        admin_epochs: the number of the CIB after each of them; it was 3.
        before: called before each program, with its command line.
    """

    def __init__(self) -> None:
        super().__init__()
        self.answer = self._answer
        self.marks: set[str] = set()
        self.own_marks: Collection[str] = ()
        self.changes: list[list[str]] = []
        self.admin_epochs: list[int] = []
        self.ring = 0
        self.is_numbered = True
        self.is_quorate = True
        self.is_back = False
        self.here = _HERE
        self.is_maintained = False
        self.devices = dict(UUIDS)
        self.before: Callable[[tuple[str, ...]], None] = lambda _: None

    @property
    def admin_epoch(self) -> int:
        return self.admin_epochs[-1] if self.admin_epochs else 3

    def programs(self) -> list[str]:
        return [argv[0] for argv, _ in self.calls]

    def _answer(self, argv: object) -> Answer:
        call, given = self.calls[-1]
        self.before(call)
        if call[0] == "corosync-quorumtool":
            quorum = _QUORUM.format(ring=self.ring, quorate="Yes" if self.is_quorate else "No")
            return quorum + (" 2 1 n2\n" if self.is_back else "")
        if "--modify" in call:
            change = ET.fromstring(given or "")
            self.admin_epochs.append(int(change.get("admin_epoch", self.admin_epoch)))
            made = change.iter("rsc_location")
            changed = [mark.get("rsc", "").removeprefix("sanctl-") for mark in made]
            self.changes.append(changed)
            self.marks.update(changed)
            return ""
        assert call[0] == "cibadmin"
        marks = "".join(self._mark(name, "n1") for name in self.own_marks)
        marks += "".join(self._mark(name, "n2") for name in sorted(self.marks))
        devices = "".join(
            f'<primitive id="{name}"/><nvpair id="{name}-u" name="uuid" value="{uuid}"/>'
            for name, uuid in self.devices.items()
        )
        maintenance = '<nvpair name="maintenance" value="true"/>' * self.is_maintained
        number = '<cluster_property_set id="p"/><nvpair id="p-n" name="sanctl-cib-number"/>'
        return (
            f'<x><cib admin_epoch="{self.admin_epoch}" epoch="7"/>{number * self.is_numbered}'
            f'<node id="1" uname="n1"/><node id="2" uname="n2"/>{maintenance}{devices}{marks}'
            f"{self.here if self.is_back else _FENCED}</x>"
        )

    @staticmethod
    def _mark(name: str, node: str) -> str:
        return f'<rsc_location id="{mark_id(name, node, UUIDS[name])}" node="{node}"/>'


pytestmark = pytest.mark.usefixtures("fake_node")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def ask(device: str, token: str = "") -> str:
    """Write the request of another device's handler, which is this process unless said."""
    token = token or shared_marks._new_token()
    shared_marks._request(device, "n2").write(token)
    return token


def answer_to(device: str) -> str:
    return shared_marks._answer(device, "n2").read()


def files(device: str) -> list[str]:
    return [
        kind
        for kind in ("mark-request.n2", "mark-answer.n2")
        if state_files.of_device(device, kind).exists()
    ]


def test_a_single_handler_asks_no_more_than_it_has_to(cluster: Cluster) -> None:
    """Its pause is the host's."""
    assert mark_outdated(cluster, "vol1", "n2") == "fenced"
    assert cluster.programs() == [
        *("corosync-quorumtool", "cibadmin", "cibadmin"),
        *("corosync-quorumtool", "cibadmin"),
    ]
    assert files("vol1") == []


def test_the_leader_marks_for_all_in_one_change_and_answers_each(cluster: Cluster) -> None:
    tokens = {device: ask(device) for device in ("vol2", "vol3")}
    assert mark_outdated(cluster, "vol1", "n2") == "fenced"
    assert [sorted(changed) for changed in cluster.changes] == [["vol1", "vol2", "vol3"]]
    assert {device: answer_to(device) for device in tokens} == {
        device: answer_text(token, "fenced") for device, token in tokens.items()
    }
    assert cluster.programs().count("corosync-quorumtool") == 2
    assert cluster.programs().count("cibadmin") == 3


def test_the_number_of_the_cib_follows_that_of_the_membership(cluster: Cluster) -> None:
    """Whatever this node writes once it is cut off, a later membership outranks."""
    cluster.ring = 40
    assert [mark_outdated(cluster, device, "n2") for device in UUIDS] == ["fenced"] * 3
    assert cluster.admin_epochs == [40 * 512 + 64, 40 * 512 + 65, 40 * 512 + 66]
    cluster.ring = 44
    assert mark_outdated(cluster, "vol1", "n2") == "fenced"
    assert cluster.admin_epoch == 44 * 512 + 64


def test_while_a_node_may_not_go_by_memberships_none_does(cluster: Cluster) -> None:
    """In an update: what such a node marks could not outrank what this one writes as it is lost."""
    cluster.ring, cluster.is_numbered = 40, False
    assert mark_outdated(cluster, "vol1", "n2") == "fenced"
    assert cluster.admin_epoch == 3 + 64


def test_a_membership_that_is_not_the_one_that_was_asked_about_confirms_nothing(
    cluster: Cluster,
) -> None:
    """A node of that one, which has been lost since, may have given its own CIB this number."""
    cluster.ring = 40

    def lose_n3(call: tuple[str, ...]) -> None:
        if "--modify" in call:
            cluster.ring = 44

    cluster.before = lose_n3
    assert mark_outdated(cluster, "vol1", "n2") == "unknown"
    assert mark_outdated(cluster, "vol1", "n2") == "fenced"
    assert cluster.admin_epochs == [40 * 512 + 64, 44 * 512 + 64]


def test_a_member_is_marked_through_any_change_of_membership(cluster: Cluster) -> None:
    """It has the same CIB."""
    cluster.is_back = True

    def count_on(call: tuple[str, ...]) -> None:
        cluster.ring += 4

    cluster.before = count_on
    assert mark_outdated(cluster, "vol1", "n2") == "member"
    assert cluster.admin_epochs == [3]


def test_a_device_that_waits_is_not_marked_with_one_that_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer is unknown: the mark of a device with a majority is no answer for any other."""
    monkeypatch.setattr(
        quorum_overlap, "goes_on_without", lambda _view, device, _peer: device != "vol2"
    )
    monkeypatch.setattr(quorum_overlap, "is_down", lambda _, is_member: False)
    waits = ask("vol2", ahead(shared_marks._new_token(), ""))
    resync = ask("vol3", keeping(shared_marks._new_token()))
    assert mark_outdated(cluster, "vol1", "n2", last="") == outdate.AHEAD
    assert cluster.changes == [["vol1"]]
    assert answer_to("vol2") == answer_text(waits, "unknown")
    assert answer_to("vol3") == answer_text(resync, "unknown")


def test_a_primary_that_is_marked_does_not_go_on_beside_a_member(
    cluster: Cluster, fake_node: FakeNode
) -> None:
    """The member may have been promoted beside it, and have marked it."""
    lost = PeerState("n2", "Connecting", "Unknown", "Off", "DUnknown", 0)
    frozen = ResourceState("vol1", "Primary", "fencing", "UpToDate", 1024, (lost,), minor=1)
    fake_node.states["vol1"] = frozen
    cluster.is_back, cluster.own_marks = True, ["vol1"]
    assert mark_outdated(cluster, "vol1", "n2", last="") == fence_rules.PRIMARY_MARKED
    assert cluster.changes == []
    # A monitor and the source of a resync mark a peer that is connected.
    assert mark_outdated(cluster, "vol1", "n2") == "member"
    cluster.own_marks = ()
    assert mark_outdated(cluster, "vol1", "n2", last="") == "member"


@pytest.mark.parametrize("is_maintained", [True, False])
def test_a_member_without_pacemaker_in_node_maintenance_is_not_known_to_be_fenced(
    cluster: Cluster, is_maintained: bool
) -> None:
    """It may be Primary: of such a node Pacemaker keeps no history (ADR 87)."""
    cluster.is_back = True
    cluster.here = _FENCED
    cluster.is_maintained = is_maintained
    said = mark_outdated(cluster, "vol1", "n2", last="")
    assert said == ("unknown" if is_maintained else "fenced")


def test_a_resync_of_a_member_that_is_marked_changes_nothing(cluster: Cluster) -> None:
    """Of a node that comes back with fifty devices each would change the CIB once, for nothing."""
    cluster.is_back = True
    cluster.marks = {"vol1", "vol2"}
    ask("vol2", keeping(shared_marks._new_token()))
    assert mark_outdated(cluster, "vol1", "n2", keeps_mark=True) == "member"
    assert cluster.changes == []
    assert answer_to("vol2").endswith(" member")
    # Asked twice, as around a change: quorum may have been lost in between.
    assert cluster.programs() == ["corosync-quorumtool", "cibadmin"] * 2


def test_a_mark_that_is_there_is_not_enough_for_fence_peer_or_of_a_fenced_node(
    cluster: Cluster,
) -> None:
    """It may be about to go; and the CIB of a node that was fenced has to be outranked."""
    cluster.is_back = True
    cluster.marks = {"vol1", "vol2"}
    ask("vol2", keeping(shared_marks._new_token()))
    assert mark_outdated(cluster, "vol1", "n2") == "member"
    assert cluster.changes == [["vol1"]]
    assert answer_to("vol2").endswith(" member")
    cluster.is_back = False
    assert mark_outdated(cluster, "vol1", "n2", keeps_mark=True) == "fenced"
    assert cluster.changes[1:] == [["vol1"]]


def test_a_resync_of_a_member_that_is_not_marked_marks_it(cluster: Cluster) -> None:
    cluster.is_back = True
    cluster.marks = {"vol2"}
    ask("vol2", keeping(shared_marks._new_token()))
    assert mark_outdated(cluster, "vol1", "n2", keeps_mark=True) == "member"
    assert cluster.changes == [["vol1"]]
    assert answer_to("vol2").endswith(" member")


@pytest.mark.parametrize("what", ["quorum", "mark"])
def test_a_mark_that_is_gone_when_it_is_read_again_is_not_certain(
    cluster: Cluster, what: str
) -> None:
    cluster.is_back = True
    cluster.marks = {"vol1"}

    def lose(argv: tuple[str, ...]) -> None:
        if cluster.programs().count("corosync-quorumtool") == 2:
            if what == "quorum":
                cluster.is_quorate = False
            else:
                cluster.marks.clear()

    cluster.before = lose
    said = mark_outdated(cluster, "vol1", "n2", keeps_mark=True)
    assert said == {"quorum": "alone", "mark": "unknown"}[what]


def test_a_request_for_another_peer_is_not_this_leaders(cluster: Cluster) -> None:
    shared_marks._request("vol2", "n4").write(shared_marks._new_token())
    mark_outdated(cluster, "vol1", "n2")
    assert cluster.changes == [["vol1"]]


def test_the_request_of_a_dead_handler_is_not_carried_out(cluster: Cluster) -> None:
    """Its device's lock is free: a mark could hit the node that has been promoted since."""
    alive = shared_marks._new_token()
    pid, start, at = alive.split(":")
    for token in (f"{pid}:{int(start) - 1}:{at}", f"0:{start}:{at}", "", "x", pid):
        shared_marks._request("vol2", "n2").write(token)
        mark_outdated(cluster, "vol1", "n2")
        assert answer_to("vol2") == ""
    assert {tuple(changed) for changed in cluster.changes} == {("vol1",)}


@pytest.mark.parametrize("is_renewed", [False, True])
def test_a_handler_that_ends_before_the_change_is_left_out(
    cluster: Cluster, is_renewed: bool
) -> None:
    ask("vol2")

    def end(argv: tuple[str, ...]) -> None:
        if "--query" in argv and not cluster.changes:
            shared_marks._request("vol2", "n2").remove()
            if is_renewed:
                ask("vol2")

    cluster.before = end
    assert mark_outdated(cluster, "vol1", "n2") == "fenced"
    assert cluster.changes == [["vol1"]]
    assert answer_to("vol2") == ""


def test_the_other_devices_are_not_demoted_during_the_change(cluster: Cluster) -> None:
    """However long the leader is paused before it: their handlers may have ended meanwhile."""
    ask("vol2")
    held: list[bool] = []

    def demote(argv: tuple[str, ...]) -> None:
        if "--modify" in argv:
            with outdate.locked_against_marks("vol2", wait_s=0.0) as is_mine:
                held.append(not is_mine)

    cluster.before = demote
    assert mark_outdated(cluster, "vol1", "n2") == "fenced"
    assert held == [True]
    assert [sorted(changed) for changed in cluster.changes] == [["vol1", "vol2"]]
    with outdate.locked_against_marks("vol2", wait_s=0.0) as is_mine:
        assert is_mine


def test_a_device_that_is_being_demoted_is_left_out(cluster: Cluster) -> None:
    ask("vol2")
    with outdate.locked_against_marks("vol2", wait_s=0.0):
        assert mark_outdated(cluster, "vol1", "n2") == "fenced"
    assert cluster.changes == [["vol1"]]
    assert answer_to("vol2") == ""


def test_each_device_is_judged_by_its_own_rules(cluster: Cluster) -> None:
    token, gone = ask("vol2"), ask("vol3")
    cluster.own_marks = ["vol2"]
    del cluster.devices["vol3"]
    with outdate.promoting("vol2"):
        assert mark_outdated(cluster, "vol1", "n2") == "fenced"
    assert cluster.changes == [["vol1"]]
    assert answer_to("vol2") == answer_text(token, OWN_MARKED)
    assert answer_to("vol3") == answer_text(gone, "error the CIB has no device vol3")


def test_quorum_lost_meanwhile_is_certain_for_nobody(cluster: Cluster) -> None:
    token = ask("vol2")

    def lose(argv: tuple[str, ...]) -> None:
        cluster.is_quorate = not cluster.changes

    cluster.before = lose
    assert mark_outdated(cluster, "vol1", "n2") == "alone"
    assert answer_to("vol2") == answer_text(token, "alone")


def test_a_cluster_that_does_not_answer_is_everybodys_error(cluster: Cluster) -> None:
    """Each asks again by itself, and all share that round, too."""
    token = ask("vol2")

    def fall_silent(argv: tuple[str, ...]) -> None:
        if "--modify" in argv:
            raise CommandError(Problem("SAN-CMD-002", "no answer"))

    cluster.before = fall_silent
    with pytest.raises(CommandError, match="no answer"):
        mark_outdated(cluster, "vol1", "n2")
    assert answer_to("vol2") == answer_text(token, "error SAN-CMD-002: no answer")


def follow(fake_node: FakeNode, cluster: Cluster, answer: Callable[[str], str]) -> str:
    """Mark vol1 while another process leads, which writes this answer to the request's token."""

    def lead() -> None:
        token = shared_marks._request("vol1", "n2").read()
        shared_marks._answer("vol1", "n2").write(answer(token))

    fake_node.clock.on_sleep = lead
    with state_files.locked(state_files.node_lock("marks-n2"), wait_s=0.0):
        return mark_outdated(cluster, "vol1", "n2")


def to_its_request(said: str) -> Callable[[str], str]:
    return lambda token: answer_text(token, said)


def always(text: str) -> Callable[[str], str]:
    return lambda _: text


def test_a_follower_takes_its_answer_and_asks_nothing(
    fake_node: FakeNode, cluster: Cluster
) -> None:
    for said in ("fenced", "member", "unknown", "alone", OWN_MARKED):
        assert follow(fake_node, cluster, to_its_request(said)) == said
    assert cluster.calls == []
    assert files("vol1") == []
    with pytest.raises(CommandError, match="SAN-AGENT-014: the cluster is silent"):
        follow(fake_node, cluster, to_its_request("error the cluster is silent"))


def test_an_answer_to_an_earlier_request_is_none(fake_node: FakeNode, cluster: Cluster) -> None:
    """It says what was true before: the mark may have been cleared since, or quorum lost."""
    for stale in ("1:2:3 fenced", "fenced", ""):
        before_s = fake_node.clock.passed_s
        cluster.is_quorate = False
        assert follow(fake_node, cluster, always(stale)) == "alone"
        # A leader that hangs is not waited for: it asks by itself, for itself.
        waited_s = fake_node.clock.passed_s - before_s
        assert shared_marks.WAIT_S <= waited_s < shared_marks.WAIT_S + 1


def test_who_goes_on_alone_marks_for_itself(fake_node: FakeNode, cluster: Cluster) -> None:
    ask("vol2")
    assert follow(fake_node, cluster, always("")) == "fenced"
    assert cluster.changes == [["vol1"]]


@pytest.mark.parametrize("is_lock_refused", [False, True])
def test_without_a_place_for_files_a_handler_leads_itself(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, is_lock_refused: bool
) -> None:
    def refuse(*_: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state_files.StateFile, "write", refuse)
    if is_lock_refused:
        monkeypatch.setattr(state_files, "locked", refuse)
    assert mark_outdated(cluster, "vol1", "n2") == "fenced"
    assert cluster.changes == [["vol1"]]


def test_a_process_that_was_killed_is_not_alive() -> None:
    """Also before its parent has collected its status: its locks are free by then."""
    import subprocess  # noqa: PLC0415 - no other test here starts a process

    child = subprocess.Popen(["sleep", "60"])
    token = f"{child.pid}:{process_start.ticks(child.pid)}:1"
    assert shared_marks._is_alive(token)
    child.kill()
    while process_start.ticks(child.pid):
        pass
    assert not shared_marks._is_alive(token)
    child.wait()
    assert not shared_marks._is_alive(token)


def test_a_device_whose_mark_is_refused_stops_no_other(cluster: Cluster) -> None:
    """Its handler asks again and again: each round with it would fail for all."""
    ask("vol2")

    def refuse(call: tuple[str, ...]) -> None:
        if "--modify" in call and "vol2" in (cluster.calls[-1][1] or ""):
            raise CommandError(Problem("SAN-CMD-003", "the schema has no such resource"))

    cluster.before = refuse
    assert mark_outdated(cluster, "vol1", "n2") == "fenced"
    assert cluster.changes == [["vol1"]]


def test_an_answer_that_cannot_be_read_leaves_no_request_open(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **_options: object) -> None:
        raise ValueError("no such word")

    monkeypatch.setattr(shared_marks, "_transact", fail)
    with pytest.raises(CommandError, match="no such word"):
        mark_outdated(cluster, "vol1", "n2")


def test_a_cluster_that_is_silent_is_not_asked_twice(cluster: Cluster) -> None:
    ask("vol2")

    def refuse(call: tuple[str, ...]) -> None:
        raise CommandError(Problem("SAN-CMD-002", f"no answer of {call[0]}"))

    cluster.before = refuse
    with pytest.raises(CommandError, match="SAN-AGENT-014"):
        mark_outdated(cluster, "vol1", "n2")
    assert len(cluster.calls) == 1


def test_a_monitor_makes_no_change_beside_the_process_that_leads(
    fake_node: FakeNode, cluster: Cluster
) -> None:
    with (
        state_files.locked(state_files.node_lock("marks-n2"), wait_s=0.0),
        pytest.raises(CommandError, match="is slow"),
    ):
        mark_outdated(cluster, "vol1", "n2", wait_s=5.0, may_lead_alone=False)
    assert cluster.calls == []
    assert fake_node.clock.passed_s >= 5.0


def begin_other(device: str, token: str = "") -> state_files.StateFile:
    """Note that another promotion has begun here, by this process unless said."""
    note = shared_marks._begun(device)
    note.write(token or shared_marks._new_token())
    return note


def ask_promoting(device: str) -> None:
    """Write the request of a handler that is called for a promotion."""
    outdate._promotion_note(device).write()
    ask(device)


def promote_vol1(cluster: Cluster) -> str:
    with shared_marks.promotion_begun("vol1"), outdate.promoting("vol1"):
        return mark_outdated(cluster, "vol1", "n2")


def test_a_promotion_waits_for_the_others_that_have_begun(
    fake_node: FakeNode, cluster: Cluster
) -> None:
    """Each change of the CIB ends the transition; one for all costs no more than the first."""
    begin_other("vol2")
    gone = begin_other("vol3")

    def go_on() -> None:
        if fake_node.clock.passed_s > 1.0:
            ask_promoting("vol2")
        if fake_node.clock.passed_s > 2.0:
            gone.remove()  # its peer is in contact, or it has failed

    fake_node.clock.on_sleep = go_on
    assert promote_vol1(cluster) == "fenced"
    assert [sorted(changed) for changed in cluster.changes] == [["vol1", "vol2"]]
    assert 2.0 < fake_node.clock.passed_s < 3.0


def test_promotions_whose_processes_are_not_there_yet_are_waited_for(
    fake_node: FakeNode, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: of twelve the first two asked alone, before the others' processes had begun."""
    monkeypatch.setattr(drbd_kernel, "count_standbys_without_peer", lambda: 4)

    def go_on() -> None:
        if fake_node.clock.passed_s > 0.8 and not shared_marks._begun("vol2").exists():
            begin_other("vol2")
        if fake_node.clock.passed_s > 2.5:
            ask_promoting("vol2")

    fake_node.clock.on_sleep = go_on
    assert promote_vol1(cluster) == "fenced"
    assert [sorted(changed) for changed in cluster.changes] == [["vol1", "vol2"]]
    # Of the other two nothing comes: nobody promotes them.
    assert 3.5 <= fake_node.clock.passed_s < 3.8


def test_a_promotion_that_hangs_is_not_waited_for(fake_node: FakeNode, cluster: Cluster) -> None:
    begin_other("vol2")
    assert promote_vol1(cluster) == "fenced"
    assert cluster.changes == [["vol1"]]
    assert 0.0 <= fake_node.clock.passed_s - shared_marks.GATHER_S < 1.0


def test_promotions_that_go_on_asking_are_waited_for_longer(
    fake_node: FakeNode, cluster: Cluster
) -> None:
    """What broke: of twenty the last two asked after the 5 s, and waited 18 s for their change."""
    begin_other("vol2")
    begin_other("vol3")

    def go_on() -> None:
        if fake_node.clock.passed_s > 4.6:
            ask_promoting("vol2")
        if fake_node.clock.passed_s > 5.4:
            ask_promoting("vol3")

    fake_node.clock.on_sleep = go_on
    assert promote_vol1(cluster) == "fenced"
    assert [sorted(changed) for changed in cluster.changes] == [["vol1", "vol2", "vol3"]]
    assert shared_marks.GATHER_S < fake_node.clock.passed_s < shared_marks.GATHER_AT_MOST_S


def test_a_promotion_that_was_killed_is_not_waited_for(
    fake_node: FakeNode, cluster: Cluster
) -> None:
    begin_other("vol2", "0:1:2")
    shared_marks._begun("vol3").write("")
    assert promote_vol1(cluster) == "fenced"
    assert fake_node.clock.passed_s == 0.0


def test_a_frozen_primary_and_a_resync_wait_for_no_promotion(
    fake_node: FakeNode, cluster: Cluster
) -> None:
    begin_other("vol2")
    assert mark_outdated(cluster, "vol1", "n2") == "fenced"
    assert fake_node.clock.passed_s == 0.0


def test_a_promotion_that_waits_goes_on_when_another_handler_asks(
    fake_node: FakeNode, cluster: Cluster
) -> None:
    """A Primary's I/O is frozen until it is answered."""
    begin_other("vol2")
    with outdate.promoting("vol2"):
        ask("vol3")
        assert promote_vol1(cluster) == "fenced"
    assert [sorted(changed) for changed in cluster.changes] == [["vol1", "vol3"]]
    assert fake_node.clock.passed_s == 0.0


def test_a_promotion_whose_handler_asks_of_another_peer_is_not_waited_for(
    fake_node: FakeNode, cluster: Cluster
) -> None:
    begin_other("vol2")
    shared_marks._request("vol2", "n4").write(shared_marks._new_token())
    assert promote_vol1(cluster) == "fenced"
    assert fake_node.clock.passed_s == 0.0


def test_a_promotion_is_under_way_until_it_has_its_answer(cluster: Cluster) -> None:
    note = shared_marks._begun("vol1")
    with shared_marks.promotion_begun("vol1"):
        assert note.exists()
        mark_outdated(cluster, "vol1", "n2")
        assert not note.exists()
    with shared_marks.promotion_begun("vol1") as begun:
        begun.close()  # DRBD is Primary without a handler: the peer is connected
        assert not note.exists()
    with pytest.raises(OSError, match="disk"), shared_marks.promotion_begun("vol1"):
        raise OSError("no disk")
    assert not note.exists()


def test_without_room_for_notes_nothing_is_waited_for(
    fake_node: FakeNode, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_other("vol2")

    def refuse(*_: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state_files, "node_suffixes", refuse)
    assert promote_vol1(cluster) == "fenced"
    assert fake_node.clock.passed_s == 0.0


def test_without_room_for_the_own_request_nothing_is_waited_for(
    fake_node: FakeNode, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_other("vol2")

    def refuse(*_: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state_files.StateFile, "write", refuse)
    assert promote_vol1(cluster) == "fenced"
    assert fake_node.clock.passed_s == 0.0
    monkeypatch.setattr(state_files.StateFile, "remove", refuse)
    with shared_marks.promotion_begun("vol1"):
        pass
