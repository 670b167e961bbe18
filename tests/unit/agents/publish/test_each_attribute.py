# SPDX-License-Identifier: GPL-2.0-or-later
"""A replica's score, which is in the CIB, and its state are written each when it changes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sanctl.agents.connections import reconnect_dropped, standby_first
from sanctl.agents.fencing import outdate, quorum_overlap
from sanctl.agents.promotion import compared_data, first_activation
from sanctl.agents.publish import attrd_cache, replica_state, withheld_note
from sanctl.agents.replica import lost_writes, resync_note
from sanctl.agents.replica.parts import Device
from sanctl.drivers import cib, gate
from sanctl.errors import CommandError, Problem
from sanctl.model import disk_drops
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.hung_io import NOTE_KIND, HungCause, HungIo
from sanctl.model.packed_states import STATES_ATTRIBUTE, unpack
from sanctl.parse.corosync import Membership
from sanctl.parse.published_state import parse_replica_state
from sanctl.plan.device.short_monitor import MINUTE_S, Period
from sanctl.plan.failover.promotion import FirstStep
from sanctl.system import state_files
from tests.fakes.node import FakeNode

DEVICE = Device("vol1", "0" * 32, 8192, "main", ("n1", "n2"), 1, ())
PEER = PeerState("peer", "Connected", "Primary", "Established", "UpToDate", 0)
STANDBY = ResourceState("vol1", "Secondary", "no", "UpToDate", 1024, (PEER,), minor=1)


@pytest.fixture
def node(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    fake_node.start_attrd(monkeypatch)
    fake_node.meet("n2")
    monkeypatch.setattr(compared_data, "is_candidate", lambda *_: True)
    monkeypatch.setattr(cib, "node_state", lambda *_: None)
    fake_node.enter_period_of_vol1()
    return fake_node


def written(node: FakeNode, state: ResourceState) -> list[str]:
    """Publish a state, and return the attributes that were written."""
    before = len(node.calls)
    replica_state.publish(node, DEVICE, state)
    calls = [argv for argv, _ in node.calls[before:] if argv[0] == "attrd_updater"]
    return [argv[argv.index("--name") + 1] for argv in calls]


def test_a_state_of_the_same_score_is_one_change(node: FakeNode) -> None:
    assert written(node, STANDBY) == ["master-vol1", STATES_ATTRIBUTE]
    assert written(node, STANDBY) == []
    syncing = STANDBY._replace(peers=(PEER._replace(role="Secondary", replication="SyncSource"),))
    assert written(node, syncing) == [STATES_ATTRIBUTE]


def test_a_replica_that_waits_for_its_standby_has_no_score(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = STANDBY._replace(disk="Consistent", peers=())
    monkeypatch.setattr(quorum_overlap, "may_try_promotion", lambda *_: True)
    states = [alone, alone, alone._replace(role="Primary", disk="UpToDate")]
    for state, waits in zip(states, [True, False, True], strict=True):
        monkeypatch.setattr(standby_first, "is_noted", lambda _name, waits=waits: waits)
        replica_state.publish(node, DEVICE, state)
    scores = [line for line in node.commands("attrd_updater") if "master-vol1" in line]
    assert ["-INFINITY" in line for line in scores] == [True, False, False], "or it is demoted"


def test_that_it_was_kept_is_taken_back_once_it_is_connected(node: FakeNode) -> None:
    standby_first.keep(node, "vol1")
    assert written(node, STANDBY._replace(peers=())) == ["master-vol1", STATES_ATTRIBUTE]
    assert written(node, STANDBY) == ["master-vol1", STATES_ATTRIBUTE, "kept-vol1"]
    assert written(node, STANDBY) == []


def test_a_score_that_changes_is_written_before_its_state(node: FakeNode) -> None:
    written(node, STANDBY)
    assert written(node, STANDBY._replace(role="Primary")) == ["master-vol1", STATES_ATTRIBUTE]


def test_a_replica_without_a_score_because_of_its_peer_is_noted(node: FakeNode) -> None:
    def is_withheld(state: ResourceState, *flags: str) -> bool:
        node.membership = Membership(True, frozenset({"n1"}), frozenset(flags))
        replica_state.publish(node, DEVICE, state)
        return withheld_note.exists("vol1")

    lost = PEER._replace(connection="Connecting", role="Unknown", disk="DUnknown")
    untried = STANDBY._replace(disk="Consistent", peers=(lost,))
    assert is_withheld(untried, "Qdevice")
    assert not is_withheld(untried)
    assert is_withheld(untried, "Qdevice")
    assert not is_withheld(untried._replace(disk="Outdated"), "Qdevice")


@pytest.mark.parametrize(
    ("disk", "flags", "expected"),
    [
        ("UpToDate", {"Qdevice"}, True),
        ("Consistent", {"Qdevice"}, True),
        # A majority of nodes: Pacemaker may promote it.
        ("Consistent", set(), False),
        ("UpToDate", set(), None),
        ("Outdated", {"Qdevice"}, None),
    ],
)
def test_a_replica_says_that_it_waits_for_a_peer_to_join(
    node: FakeNode, disk: str, flags: set[str], expected: bool | None
) -> None:
    """What broke: `device heal` went by the disk, and refused the UpToDate one."""
    Path(state_files.of_node("joined.n2").path).unlink()
    node.membership = Membership(True, frozenset({"n1"}), frozenset(flags))
    lost = PEER._replace(connection="Connecting", role="Unknown", disk="DUnknown")
    replica_state.publish(node, DEVICE, STANDBY._replace(disk=disk, peers=(lost,)))
    published = unpack(attrd_cache.of_states().read().partition(" ")[2])["vol1"]
    assert parse_replica_state(published).is_withheld is expected


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_score_is_written_once_in_a_period_whatever_the_state_did(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, replicas: int
) -> None:
    asked: list[bool] = []

    def present(_name: str, *, is_in_sync: bool) -> Period:
        asked.append(is_in_sync)
        return Period(passed_s=300.0, left_s=45.0)

    monkeypatch.setattr(attrd_cache, "period_of_device", present)
    device = DEVICE._replace(nodes=("n1", "n2", "n3")[:replicas])
    replica_state.publish(node, device, STANDBY)
    for age_s, times in ((61.0, 0), (299.0, 0), (301.0, 1)):
        node.age("vol1", "attrd-cache.score", age_s)
        before = len(node.commands("attrd_updater"))
        assert replica_state.publish(node, device, STANDBY)
        assert len(node.commands("attrd_updater")) - before == times, age_s
    assert set(asked) == {replicas == 2}, "of three or four each monitor is a whole one"


@pytest.mark.parametrize(
    ("cache", "generation", "disk"),
    [("write-back", 8, "UpToDate"), ("", 9, "UpToDate"), ("", 8, "Outdated")],
)
def test_what_has_whole_monitors_anyway_is_published_each_minute(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, cache: str, generation: int, disk: str
) -> None:
    asked: list[bool] = []

    def present(_name: str, *, is_in_sync: bool) -> Period:
        asked.append(is_in_sync)
        return Period(passed_s=54.0, left_s=1.0)

    monkeypatch.setattr(attrd_cache, "period_of_device", present)
    node.generation = generation
    replica_state.publish(node, DEVICE._replace(cache=cache), STANDBY._replace(disk=disk))
    assert asked == [False]


def test_a_score_that_attrd_has_not_taken_has_the_next_monitor_do_all(node: FakeNode) -> None:
    def refuse(*_: object, **__: object) -> object:
        raise CommandError(Problem("SAN-CMD-002", "no answer"))

    assert replica_state.publish(node, DEVICE, STANDBY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node, "run", refuse)
        assert replica_state.publish(node, DEVICE, STANDBY), "nothing is to be written"
        assert not replica_state.publish(node, DEVICE, STANDBY._replace(disk="Outdated"))
    primary = STANDBY._replace(role="Primary", peers=(PEER._replace(disk="Diskless"),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_state, "mark_without_disk", refuse)
        assert not replica_state.publish(node, DEVICE, primary), "the mark is still to be made"


def test_what_hosts_write_while_a_peer_is_away_is_published_once_a_minute(node: FakeNode) -> None:
    away = PEER._replace(
        connection="Connecting", role="Unknown", replication="Off", disk="Outdated"
    )
    alone = STANDBY._replace(role="Primary", peers=(away,))

    def grown(kib: int | None) -> ResourceState:
        return alone._replace(peers=(away._replace(out_of_sync_kib=kib),))

    written(node, grown(0))
    assert written(node, grown(112)) == [STATES_ATTRIBUTE], "that something differs is told at once"
    assert written(node, grown(388)) == []
    assert written(node, grown(None)) == [STATES_ATTRIBUTE], "not known is another state"
    written(node, grown(388))
    node.age("vol1", "attrd-cache.state", MINUTE_S)
    assert written(node, grown(4000)) == [STATES_ATTRIBUTE]
    in_contact = PEER._replace(role="Secondary", replication="SyncSource", out_of_sync_kib=3000)
    written(node, alone._replace(peers=(in_contact,)))
    resynced = alone._replace(peers=(in_contact._replace(out_of_sync_kib=2000),))
    assert written(node, resynced) == [STATES_ATTRIBUTE], "the progress of a resync is told"


def test_what_hangs_is_published_as_long_as_it_is_noted(node: FakeNode) -> None:
    note = state_files.of_device("vol1", NOTE_KIND)

    def told() -> HungIo | None:
        state = unpack(attrd_cache.of_states().read().partition(" ")[2])["vol1"]
        return parse_replica_state(state).hung

    written(node, STANDBY)
    assert told() is None
    note.write("forgotten:1764150000:vol2")
    assert written(node, STANDBY) == [STATES_ATTRIBUTE]
    assert told() == HungIo(HungCause.FORGOTTEN, 1764150000, ("vol2",))
    note.remove()
    assert written(node, STANDBY) == [STATES_ATTRIBUTE]
    assert told() is None


def test_the_node_that_a_change_of_replicas_waits_for_is_published(node: FakeNode) -> None:
    """What broke: only the journal said that the change waits, and for whom."""
    note = state_files.of_device("vol1", "change-of-nodes")

    def told() -> str:
        state = unpack(attrd_cache.of_states().read().partition(" ")[2])["vol1"]
        return parse_replica_state(state).change_waits_for

    note.write()
    written(node, STANDBY)
    assert told() == "", "it is under way, and waits for nobody"
    note.write("n2")
    assert written(node, STANDBY) == [STATES_ATTRIBUTE]
    assert told() == "n2"
    note.remove()
    assert written(node, STANDBY) == [STATES_ATTRIBUTE]
    assert told() == ""


def test_a_stopped_replica_leaves_no_record(node: FakeNode) -> None:
    written(node, STANDBY)
    replica_state.withdraw(node, DEVICE)
    assert state_files.devices_with("attrd-cache.score") == []
    assert written(node, STANDBY) == ["master-vol1", STATES_ATTRIBUTE]


def test_a_first_promotion_asks_for_no_marks(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def clear(*args: object) -> bool:
        asked.append(args[1:3])
        return True

    monkeypatch.setattr(outdate, "clear_marks", clear)
    primary = STANDBY._replace(role="Primary", peers=(PEER._replace(role="Secondary"),))
    replica_state.publish(node, DEVICE, primary, clears_marks=False)
    assert asked == []
    written(node, primary._replace(size_kib=2048))
    assert asked == [("vol1", ["n2"])]


def test_marks_that_could_not_be_cleared_are_asked_for_by_the_next_monitor(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby that stays marked could not take over until a minute later."""
    answers = [False, True]
    monkeypatch.setattr(outdate, "clear_marks", lambda *_: answers.pop(0))
    primary = STANDBY._replace(role="Primary", peers=(PEER._replace(role="Secondary"),))
    assert not replica_state.publish(node, DEVICE, primary), "the next monitor has to be whole"
    assert replica_state.publish(node, DEVICE, primary)
    assert answers == []
    assert replica_state.publish(node, DEVICE, primary), "a third call would find no answer left"


def test_what_a_resync_wrote_is_published_as_unstable_until_it_is_flushed(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A drop of its source waits for that, and so for the publication.

    A link that breaks for a second leaves a resync between two monitors, and the same state.
    """
    data = tmp_path / "vol1.data"
    monkeypatch.setattr(lost_writes, "data_file", lambda _: str(data))
    note = Path(resync_note.path_of(str(data)))
    assert resync_note.published_field(None) == resync_note.published_field(str(data)) == ""
    monkeypatch.setattr(lost_writes, "is_suspect", lambda *_: False)
    written(node, STANDBY)
    assert not replica_state.has_changed(DEVICE, STANDBY)
    note.write_text("of a resync\n")
    assert replica_state.has_changed(DEVICE, STANDBY)
    assert STATES_ATTRIBUTE in written(node, STANDBY)
    assert "unflushed=1" in attrd_cache.published_fields(attrd_cache.of_device("vol1"))
    assert not replica_state.has_changed(DEVICE, STANDBY)
    note.unlink()
    assert replica_state.has_changed(DEVICE, STANDBY)
    assert STATES_ATTRIBUTE in written(node, STANDBY)
    assert "unflushed=1" not in attrd_cache.published_fields(attrd_cache.of_device("vol1"))
    # The disk does not answer.
    note.mkdir()
    assert resync_note.published_field(str(data)) == " unflushed=1"
    assert parse_replica_state("disk=UpToDate unflushed=1").is_settling
    assert not parse_replica_state("disk=UpToDate").is_settling


def test_a_record_that_is_made_old_is_written_again_and_handlers_still_compare_with_it(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mark was seen in the CIB: the state is the same, and its publication clears the mark."""
    asked: list[object] = []

    def clear(*args: object) -> bool:
        asked.append(args[1:3])
        return True

    monkeypatch.setattr(outdate, "clear_marks", clear)
    primary = STANDBY._replace(role="Primary", peers=(PEER._replace(role="Secondary"),))
    written(node, primary)
    written(node, primary)
    attrd_cache.have_published_again(attrd_cache.of_device("vol1"))
    assert len(asked) == 1
    assert replica_state.has_changed(DEVICE, primary._replace(disk="Failed"))
    assert not replica_state.has_changed(DEVICE, primary)
    written(node, primary)
    written(node, primary)
    assert len(asked) == 2


@pytest.mark.parametrize("is_new", [True, False])
def test_the_score_alone_of_a_new_device_leaves_the_state_to_the_next_call(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    """Of one that has been active, that of its lost files may still be published: UpToDate."""
    monkeypatch.setattr(first_activation, "step_here", lambda *_: FirstStep.DECLARE_EQUAL)
    monkeypatch.setattr(first_activation, "is_new", lambda *_: is_new)
    replica_state.publish(node, DEVICE, STANDBY, score_alone=True)
    names = [argv[2] for argv, _ in node.calls if argv[0] == "attrd_updater"]
    assert names == ["master-vol1"] + [STATES_ATTRIBUTE] * (not is_new)
    assert written(node, STANDBY)[-1:] == [STATES_ATTRIBUTE] * is_new


def test_a_replica_that_waits_for_its_turn_to_connect_says_so(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = STANDBY._replace(peers=())
    monkeypatch.setattr(reconnect_dropped, "published_field", lambda *_: " connects-later=17")
    assert STATES_ATTRIBUTE in written(node, alone)
    text = state_files.of_device("vol1", "published").read()
    assert parse_replica_state(text).waits_to_connect_since_s == 17
    monkeypatch.setattr(reconnect_dropped, "published_field", lambda *_: "")
    assert written(node, alone) == [STATES_ATTRIBUTE], "the end of the wait is published at once"


def test_a_disk_that_was_dropped_is_published_with_the_state(node: FakeNode) -> None:
    written(node, STANDBY)
    state_files.of_device("vol1", disk_drops.NOTE_KIND).write(
        disk_drops.with_one_more(None, int(time.time())).word
    )
    assert written(node, STANDBY) == [STATES_ATTRIBUTE]
    drops = parse_replica_state(state_files.of_device("vol1", "published").read()).drops
    assert drops is not None and drops.times == 1
    assert written(node, STANDBY) == [], "and once"


def test_a_replica_has_grown_once_its_lun_has(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`device resize` said that all was done, and a standby's LUN had the old size."""
    files = node.attach_files(DEVICE)
    Path(files.data).parent.mkdir(parents=True)
    Path(files.data).write_bytes(b"d" * 512)
    device = DEVICE._replace(size_bytes=1 << 20)

    def published(lun_bytes: int | None) -> tuple[int | None, int | None]:
        monkeypatch.setattr(gate, "size_bytes", lambda _name: lun_bytes)
        replica_state.publish(node, device, STANDBY)
        told = unpack(attrd_cache.of_states().read().partition(" ")[2])["vol1"]
        state = parse_replica_state(told)
        return state.size_bytes, state.file_bytes

    assert published(4096) == (4096, 512)
    assert published(1 << 20) == (1 << 20, None)
    assert published(None) == (1 << 20, None)
    assert published(1 << 21) == (1 << 20, None)
