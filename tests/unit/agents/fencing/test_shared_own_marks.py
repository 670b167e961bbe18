# SPDX-License-Identifier: GPL-2.0-or-later
"""A pool fails: one monitor marks all devices that lost their disks here, each under its locks."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Sequence

import pytest

from sanctl.agents.fencing import outdate, own_marks, shared_marks
from sanctl.agents.replica import resource_file
from sanctl.drivers import drbd_kernel, drbdsetup
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.outdated_mark import mark_id
from sanctl.system import state_files
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer, FakeRunner

GOOD = PeerState("peer", "Connected", "Secondary", "Established", "UpToDate", 0)
LOST = ResourceState("vol1", "Primary", "no", "Diskless", 1024, (GOOD,))
UUIDS = {"vol1": "1" * 32, "vol2": "2" * 32, "vol3": "3" * 32}
OTHERS = ("n2",)
SILENCE = CommandError(Problem("SAN-CMD-002", "no answer"))


class Cluster(FakeRunner):
    """The CIB of three devices of n1 and n2, and quorum.

    Attributes:
        marks: device and node of each mark.
        changes: of each change: the devices whose replica here it marks.
        devices: those that the CIB has.
        is_quorate: what corosync says.
        before: called before each program, with its command line.
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.marks: set[tuple[str, str]] = set()
        self.changes: list[list[str]] = []
        self.devices = dict(UUIDS)
        self.is_quorate = True
        self.before: Callable[[Sequence[str]], None] = lambda _: None

    def _answer(self, argv: Sequence[str]) -> Answer:
        self.before(argv)
        if argv[0] == "corosync-quorumtool":
            return f"Quorate: {'Yes' if self.is_quorate else 'No'}\nNodeid Votes Name\n 1 1 n1\n"
        if "--modify" in argv:
            made = [*ET.fromstring(self.calls[-1][1] or "").iter("rsc_location")]
            assert {each.get("node") for each in made} == {"n1"}
            changed = [each.get("rsc", "").removeprefix("sanctl-") for each in made]
            self.changes.append(sorted(changed))
            self.marks.update((name, "n1") for name in changed)
            return ""
        nodes = "".join(f'<node id="{name}" uname="{name}"/>' for name in ("n1", "n2"))
        devices = "".join(
            f'<primitive id="{name}"/><nvpair id="{name}-u" name="uuid" value="{uuid}"/>'
            for name, uuid in self.devices.items()
        )
        marks = "".join(
            f'<rsc_location id="{mark_id(name, node, UUIDS[name])}" node="{node}"/>'
            for name, node in sorted(self.marks)
        )
        return f'<x><cib admin_epoch="2" epoch="7"/>{nodes}{devices}{marks}</x>'

    def asked(self) -> list[str]:
        """Return what was asked and changed, one word each."""
        words = {"--modify": "change", "--query": "marks"}
        return [words.get(argv[1], "quorum") for argv, _ in self.calls]


class Drbd:
    """DRBD of the node: what it says of all devices at once, and how often that was asked."""

    def __init__(self, node: FakeNode) -> None:
        self.node = node
        self.looks = 0
        self.error: CommandError | None = None
        self.on_look: Callable[[], None] = lambda: None

    def observe_all(self, _runner: object, *, timeout_s: float) -> dict[str, ResourceState]:
        assert timeout_s < own_marks._TIME_S
        self.looks += 1
        self.on_look()
        if self.error is not None:
            raise self.error
        return {name: state for name, state in self.node.states.items() if state is not None}

    def count(self) -> int:
        states = self.node.states.values()
        return sum(state is not None and state.disk == "Diskless" for state in states)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture(autouse=True)
def drbd(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> Drbd:
    fake_node.states |= {name: LOST._replace(name=name) for name in UUIDS}
    found = Drbd(fake_node)
    monkeypatch.setattr(drbdsetup, "observe_all", found.observe_all)
    monkeypatch.setattr(drbd_kernel, "count_primaries_without_disk", found.count)
    monkeypatch.setattr(resource_file, "replica_nodes", lambda _: ["n1", "n2"])
    return found


def monitor(cluster: Cluster, *devices: str) -> None:
    for device in devices:
        own_marks.mark_served_from_peer(cluster, device, OTHERS)


def marked(devices: Iterable[str]) -> set[tuple[str, str]]:
    return {(name, "n1") for name in devices}


def test_all_are_marked_in_one_change_and_their_own_monitors_change_nothing(
    cluster: Cluster, fake_node: FakeNode
) -> None:
    """Fifty changes within seconds ended the transition that moves the devices, again and again."""
    monitor(cluster, *UUIDS)
    assert cluster.changes == [sorted(UUIDS)]
    assert cluster.marks == marked(UUIDS)
    said = [line for line in fake_node.journal if "is marked as outdated" in line]
    assert [line.partition(":")[0] for line in said] == [*UUIDS]


def test_with_drbd_9_too_which_counts_them_in_no_file(
    cluster: Cluster, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a device with two other good replicas no majority is without every write."""
    fake_node.generation = 9
    lost = LOST._replace(
        has_quorum=True, peers=tuple(LOST.peers[0]._replace(name=name) for name in ("n2", "n3"))
    )
    fake_node.states |= {name: lost._replace(name=name) for name in UUIDS}
    monkeypatch.setattr(drbd_kernel, "count_primaries_without_disk", lambda: 0)
    nodes = {"vol2": ["n1", "n2", "n3"]}
    monkeypatch.setattr(resource_file, "replica_nodes", lambda name: nodes.get(name, ["n1", "n2"]))
    monitor(cluster, "vol1")
    assert cluster.changes == [["vol1", "vol3"]]


def test_what_is_looked_at_for_all_is_what_is_looked_at_for_one(cluster: Cluster) -> None:
    """Quorum and marks under the locks, the change, quorum and marks again."""
    monitor(cluster, "vol1")
    own = ["quorum", "marks"]
    assert cluster.asked() == [*own, "quorum", "marks", "change", "quorum", "marks"]


def test_a_single_device_asks_no_more_than_it_has_to(
    cluster: Cluster, fake_node: FakeNode, drbd: Drbd
) -> None:
    for name in ("vol2", "vol3"):
        fake_node.states[name] = LOST._replace(name=name, disk="UpToDate")
    monitor(cluster, "vol1")
    assert cluster.asked() == ["quorum", "marks", "change", "quorum", "marks"]
    assert cluster.changes == [["vol1"]] and drbd.looks == 0


@pytest.mark.parametrize(
    "state",
    [
        LOST._replace(role="Secondary"),
        LOST._replace(disk="UpToDate"),
        LOST._replace(disk="Inconsistent"),
        LOST._replace(peers=()),
        LOST._replace(peers=(GOOD._replace(disk="Diskless"),)),
        None,
    ],
    ids=str,
)
@pytest.mark.parametrize("is_late", [False, True])
def test_a_device_that_is_not_served_from_its_peer_is_not_marked(
    cluster: Cluster, fake_node: FakeNode, drbd: Drbd, state: ResourceState | None, is_late: bool
) -> None:
    """Nor one that got its disk back after the first look: what counts is seen under the locks."""

    def change() -> None:
        if drbd.looks == 1 + is_late:
            fake_node.states["vol2"] = state

    drbd.on_look = change
    monitor(cluster, "vol1")
    assert cluster.changes == [["vol1", "vol3"]]


def test_the_own_device_is_looked_at_again_with_the_others(
    cluster: Cluster, fake_node: FakeNode, drbd: Drbd
) -> None:
    """Its disk may be back by now, too; the others are marked all the same."""

    def attach() -> None:
        fake_node.states["vol1"] = LOST._replace(disk="UpToDate")

    drbd.on_look = attach
    monitor(cluster, "vol1")
    assert cluster.changes == [["vol2", "vol3"]]


def test_no_change_is_made_where_nothing_is_left_to_mark(
    cluster: Cluster, fake_node: FakeNode, drbd: Drbd
) -> None:
    def attach() -> None:
        if drbd.looks == 2:
            fake_node.states |= {name: LOST._replace(name=name, disk="UpToDate") for name in UUIDS}

    drbd.on_look = attach
    monitor(cluster, "vol1")
    assert cluster.changes == []


@pytest.mark.parametrize("node", ["n1", "n2", "n9"])
def test_another_device_with_a_mark_is_left_to_its_own_monitor(cluster: Cluster, node: str) -> None:
    """Its peer may be behind, and the replica here the only good one."""
    cluster.marks = {("vol2", node)}
    monitor(cluster, "vol1")
    assert cluster.changes == [["vol1", "vol3"]]


def test_a_mark_of_a_node_without_a_replica_is_none_of_the_own_device(cluster: Cluster) -> None:
    cluster.marks = {("vol1", "n9")}
    monitor(cluster, "vol1")
    assert cluster.changes == [sorted(UUIDS)]


def test_a_resource_of_somebody_else_is_left_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"vol1": ["n1", "n2"], "vol2": []}
    monkeypatch.setattr(resource_file, "replica_nodes", lambda name: found.get(name, ["n2", "n3"]))
    monitor(cluster, "vol1")
    assert cluster.changes == [["vol1"]]


def test_a_device_that_the_cib_no_longer_has_is_left_out(cluster: Cluster) -> None:
    del cluster.devices["vol2"]
    monitor(cluster, "vol1")
    assert cluster.changes == [["vol1", "vol3"]]


@pytest.mark.parametrize("kind", ["fence", "mark"])
def test_a_device_whose_locks_are_taken_is_left_out(cluster: Cluster, kind: str) -> None:
    """By a handler, a demotion, or the handler of another device that marks its peer, too."""
    with state_files.locked(state_files.device_lock("vol2", kind), wait_s=0.0):
        monitor(cluster, "vol1")
    assert cluster.changes == [["vol1", "vol3"]]


def test_one_lock_of_a_device_that_is_left_out_is_not_kept(cluster: Cluster) -> None:
    """Its handler would wait for it while I/O is frozen."""
    free: set[bool] = set()

    def try_lock(argv: Sequence[str]) -> None:
        if "--modify" in argv:
            with outdate.locked("vol2", wait_s=0.0) as is_free:
                free.add(is_free)

    cluster.before = try_lock
    with state_files.locked(state_files.device_lock("vol2", "mark"), wait_s=0.0):
        monitor(cluster, "vol1")
    assert free == {True}


def test_a_lock_that_is_given_back_in_a_moment_is_waited_for(
    cluster: Cluster, fake_node: FakeNode
) -> None:
    """The device's own monitor looks for itself just then."""
    busy = outdate.locked("vol2", wait_s=0.0)
    busy.__enter__()

    def end() -> None:
        fake_node.clock.on_sleep = lambda: None
        busy.__exit__(None, None, None)

    fake_node.clock.on_sleep = end
    monitor(cluster, "vol1")
    assert cluster.changes == [sorted(UUIDS)]


def test_no_device_is_demoted_and_no_handler_marks_meanwhile(cluster: Cluster) -> None:
    """Until the marks have been read back: the peer would serve, and then be marked against."""
    held: set[bool] = set()

    def try_locks(argv: Sequence[str]) -> None:
        if len(cluster.calls) <= 2:
            return  # only the own device was looked at
        for name in UUIDS:
            with outdate.locked(name, wait_s=0.0) as is_fence_free:
                held.add(not is_fence_free)
            with shared_marks.change_lock(name, wait_s=0.0) as is_change_free:
                held.add(not is_change_free)

    cluster.before = try_locks
    monitor(cluster, "vol1")
    assert held == {True}
    for name in UUIDS:
        with outdate.locked_against_marks(name, wait_s=0.0) as is_free:
            assert is_free


def test_the_locks_go_with_a_monitor_that_dies(cluster: Cluster) -> None:
    """Before its change or after it; the next monitor of each device finds out what is there."""

    def die(argv: Sequence[str]) -> None:
        if "--modify" in argv:
            raise KeyboardInterrupt

    cluster.before = die
    with pytest.raises(KeyboardInterrupt):
        monitor(cluster, "vol1")
    cluster.before = lambda _: None
    monitor(cluster, "vol2")
    assert cluster.changes == [sorted(UUIDS)]


def test_without_quorum_nothing_is_marked(cluster: Cluster) -> None:
    def lose(argv: Sequence[str]) -> None:
        cluster.is_quorate = len(cluster.calls) < 3

    cluster.before = lose
    monitor(cluster, "vol1")
    assert cluster.changes == []


@pytest.mark.parametrize("what", ["quorum", "marks", "device"])
def test_what_is_gone_when_it_is_read_again_is_not_certain(
    cluster: Cluster, fake_node: FakeNode, what: str
) -> None:
    """Of each device by itself; it is asked for again."""

    def lose(argv: Sequence[str]) -> None:
        if cluster.changes and what == "quorum":
            cluster.is_quorate = False
        elif cluster.changes and what == "marks":
            cluster.marks.discard(("vol2", "n1"))
        elif cluster.changes:
            cluster.devices.pop("vol2", None)

    cluster.before = lose
    monitor(cluster, "vol1")
    uncertain = [line for line in fake_node.journal if "is not certain to be marked" in line]
    assert len(uncertain) == (3 if what == "quorum" else 1)
    assert any(line.startswith("vol2") for line in uncertain)


def test_a_change_that_is_refused_for_another_device_is_made_for_the_own(cluster: Cluster) -> None:
    def refuse(argv: Sequence[str]) -> None:
        if "--modify" in argv and "vol2" in (cluster.calls[-1][1] or ""):
            raise CommandError(Problem("SAN-CMD-003", "the schema has no such resource"))

    cluster.before = refuse
    monitor(cluster, "vol1")
    assert cluster.changes == [["vol1"]]
    with pytest.raises(CommandError, match="the schema"):
        monitor(cluster, "vol2")


def test_a_change_without_an_answer_is_not_repeated(cluster: Cluster) -> None:
    """A cluster that is silent is silent for each."""

    def fall_silent(argv: Sequence[str]) -> None:
        if "--modify" in argv:
            raise SILENCE

    cluster.before = fall_silent
    with pytest.raises(CommandError, match="no answer"):
        monitor(cluster, "vol1")
    assert cluster.asked().count("change") == 1


def test_what_cannot_be_seen_of_the_others_keeps_no_mark_from_the_own(
    cluster: Cluster, drbd: Drbd
) -> None:
    drbd.error = SILENCE
    monitor(cluster, "vol1")
    assert cluster.changes == [["vol1"]]


def test_nor_does_a_lock_that_has_no_room(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_kind: str) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state_files, "node_lock", refuse)
    monitor(cluster, "vol1")
    assert cluster.changes == [["vol1"]]


def follow(cluster: Cluster, node: FakeNode, lead: Callable[[], None]) -> float:
    """Run vol1's monitor while another one marks, until `lead`, a moment later; return the wait."""
    turn = own_marks._turn(wait_s=0.0)
    turn.__enter__()

    def end() -> None:
        if node.clock.passed_s > 1.0:
            node.clock.on_sleep = lambda: None
            lead()
            turn.__exit__(None, None, None)

    node.clock.on_sleep = end
    monitor(cluster, "vol1")
    return node.clock.passed_s


def test_a_monitor_beside_one_that_marks_finds_its_mark(
    cluster: Cluster, fake_node: FakeNode
) -> None:
    """It has given its own locks back meanwhile, so the other one can mark for it."""

    def lead() -> None:
        with outdate.locked_against_marks("vol1", wait_s=0.0) as is_free:
            assert is_free
        cluster.marks.add(("vol1", "n1"))

    assert follow(cluster, fake_node, lead) < 2.0
    assert cluster.changes == []


def test_a_monitor_whose_device_the_other_left_out_marks_itself(
    cluster: Cluster, fake_node: FakeNode
) -> None:
    assert follow(cluster, fake_node, lambda: None) < 2.0
    assert cluster.changes == [sorted(UUIDS)]


def test_a_monitor_whose_locks_the_other_one_holds_waits_for_it(
    cluster: Cluster, fake_node: FakeNode
) -> None:
    """The disk is not attached before the mark is there."""
    busy = outdate.locked_against_marks("vol1", wait_s=0.0)
    busy.__enter__()

    def lead() -> None:
        cluster.marks.add(("vol1", "n1"))
        busy.__exit__(None, None, None)

    assert follow(cluster, fake_node, lead) > 1.0
    assert cluster.changes == [] and cluster.asked() == ["quorum", "marks"]


def test_one_that_hangs_is_not_waited_for_long(cluster: Cluster, fake_node: FakeNode) -> None:
    """Nor does each go on alone: the next monitors ask again."""
    with own_marks._turn(wait_s=0.0), pytest.raises(CommandError, match="is slow"):
        monitor(cluster, "vol1")
    assert cluster.changes == []
    assert own_marks._WAIT_S <= fake_node.clock.passed_s < own_marks._WAIT_S + 1.0


def test_monitors_that_take_the_turn_from_each_other_end(
    cluster: Cluster, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time this one has looked, another one marks, and is over a moment later."""

    def settle(*_: object) -> bool:
        fake_node.clock.now_s += 1.0
        return False

    monkeypatch.setattr(own_marks, "_is_settled", settle)
    with pytest.raises(CommandError, match="is slow"):
        monitor(cluster, "vol1")
    assert fake_node.clock.passed_s <= own_marks._WAIT_S + 1.0
