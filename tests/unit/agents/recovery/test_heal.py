# SPDX-License-Identifier: GPL-2.0-or-later
"""An order of device heal is carried out only on the data generation that the order names."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sanctl.agents import device_monitor
from sanctl.agents.connections import connect_turn, primary_node, reconnect_dropped
from sanctl.agents.fencing import joined_peers
from sanctl.agents.recovery import heal, no_contact
from sanctl.agents.replica import lost_writes, reinitialize
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, drbdsetup, node_attributes, outdated_marks
from sanctl.drivers.outdated_marks import DeviceMarks, SeenMarks
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.failover.promotion import promotion_score
from sanctl.system import state_files
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer, FakeRunner

UUID = "a" * 32
DEVICE = Device("vm1", UUID, 1 << 20, "main", ("n1", "n2"), 3, ())
HELD = "00000000000000B0"
GI = f"{HELD}:00000000000000C0:00000000000000D0:00000000000000E0:1:1:0:0:0:0:0\n"


def state(connection: str, *, role: str = "Secondary", disk: str = "UpToDate") -> ResourceState:
    peer = PeerState("peer", connection, "Unknown", "Off", "DUnknown", 4)
    return ResourceState("vm1", role, "no", disk, 1024, (peer,))


class Node(FakeRunner):
    """A node whose CIB holds orders."""

    def __init__(
        self,
        orders: dict[str, tuple[str, str]],
        gi: str = GI,
        marked: Sequence[str] | None = None,
    ) -> None:
        """Begin with marks as a decision has left them, or with those of `marked`."""
        super().__init__(self._answer)
        self.orders = dict(orders)
        self.gi = gi
        discarding = [node for node, (kind, _) in orders.items() if kind == "discard"]
        self.marked = discarding if marked is None else marked

    def _answer(self, argv: Sequence[str]) -> Answer:
        if argv[0] == "cibadmin" and "--delete-all" in argv:
            for node, (kind, value) in dict(self.orders).items():
                if argv[-1] == node_attributes.permanent_path(node, f"sanctl-{kind}-vm1", value):
                    del self.orders[node]
            return ""
        if argv[0] == "crm_attribute" and "--delete" in argv:
            self.orders.pop(argv[2], None)
            return ""
        if argv[0] == "cibadmin":
            if not self.orders:
                return (105, "", "no such object")
            nodes = "".join(
                f'<node uname="{node}"><instance_attributes><nvpair name="sanctl-{kind}-vm1" '
                f'value="{value}"/></instance_attributes></node>'
                for node, (kind, value) in self.orders.items()
            )
            return f"<xpath-query>{nodes}</xpath-query>"
        if argv[1] == "get-gi":
            return self.gi
        return ""

    @property
    def acts(self) -> list[str]:
        """The commands that change something."""
        looks = ("--query", "get-gi", "events2")
        return [" ".join(argv[:3]) for argv, _ in self.calls if argv[1] not in looks]


@pytest.fixture(autouse=True)
def here(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    def read_device(runner: Node, name: str) -> SeenMarks:
        paths = tuple((node, "/path") for node in runner.marked)
        return SeenMarks(0, 0, None, {name: DeviceMarks(UUID, paths)})

    monkeypatch.setattr(outdated_marks, "read_device", read_device)
    monkeypatch.setattr(primary_node, "find", lambda _runner, _device: "n1")
    fake_node.name = "n2"
    fake_node.states["vm1"] = state("Connecting")
    return fake_node


def order(what: str = f"{UUID} {HELD} bitmap", node: str = "n2") -> dict[str, tuple[str, str]]:
    return {node: ("discard", what)}


def test_orders_are_not_read_while_the_replicas_are_connected() -> None:
    node = Node(order())
    heal.carry_out_order(node, DEVICE, state("Connected"))
    assert node.calls == []


def test_the_permission_to_discard_ends_with_the_attempt() -> None:
    node = Node(order())
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    assert node.acts == [
        "drbdadm disconnect vm1",
        "drbdadm connect --discard-my-data",
        "drbdadm disconnect vm1",
    ]


@pytest.mark.parametrize("found", ["", None])
@pytest.mark.parametrize("how", ["bitmap", "full"])
def test_nothing_is_discarded_while_no_other_node_serves(
    monkeypatch: pytest.MonkeyPatch, found: str | None, how: str
) -> None:
    """The kept replica's node may be lost since the order was given: this one is the last then."""
    reset: list[Device] = []
    logged: list[str] = []
    monkeypatch.setattr(reinitialize, "reset", lambda _runner, device: reset.append(device))
    monkeypatch.setattr(primary_node, "find", lambda _runner, _device: found)
    monkeypatch.setattr(heal, "_log", lambda _name, text, **_more: logged.append(text))
    node = Node(order(f"{UUID} {HELD} {how}"))
    for _ in range(2):
        heal.carry_out_order(node, DEVICE, state("StandAlone"))
    assert (node.acts, reset, set(node.orders)) == ([], [], {"n2"})
    assert not state_files.of_device("vm1", "discard-begun").exists()
    assert len(logged) == 1 and "is discarded once another node serves" in logged[0]
    monkeypatch.setattr(primary_node, "find", lambda _runner, _device: "n1")
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    assert reset or "drbdadm connect --discard-my-data" in node.acts


NEXT_GI = GI.replace(HELD, "00000000000000B2")


def in_contact(
    replication: str, *, disk: str = "Outdated", peer_disk: str = "UpToDate"
) -> ResourceState:
    peer = PeerState("peer", "Connected", "Primary", replication, peer_disk, 4)
    return ResourceState("vm1", "Secondary", "no", disk, 1024, (peer,))


@pytest.mark.parametrize("disk", ["Inconsistent", "UpToDate"])
def test_the_resync_completes_the_order(here: FakeNode, disk: str) -> None:
    node = Node(order())

    def resync() -> None:
        # Another generation, or, where both have the same data, none, and in sync.
        node.gi = GI if disk == "UpToDate" else NEXT_GI
        is_whole = disk == "UpToDate"
        here.states["vm1"] = in_contact("Established" if is_whole else "SyncTarget", disk=disk)

    here.states["vm1"] = in_contact("WFBitMapT")
    here.clock.on_sleep = resync
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    assert node.acts[-1].startswith("crm_attribute") and node.orders == {}
    assert "drbdadm disconnect vm1" not in node.acts[1:]
    before = len(node.calls)
    heal.carry_out_order(node, DEVICE, in_contact("SyncTarget", disk="Inconsistent"))
    assert len(node.calls) == before


@pytest.mark.parametrize("gi", [GI, ""], ids=["same", "not known"])
def test_contact_alone_completes_no_order(here: FakeNode, gi: str) -> None:
    """The source's handler refuses, and the replicas have diverged as before."""
    exchanging = in_contact("WFBitMapT")
    here.states["vm1"] = exchanging
    node = Node(order())
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    attempt = ["drbdadm disconnect vm1", "drbdadm connect --discard-my-data"]
    assert node.acts == attempt, "the connection stays: the handshake has used the permission"
    node.gi = gi
    heal.carry_out_order(node, DEVICE, exchanging)
    assert node.acts == attempt and set(node.orders) == {"n2"}
    # It was dropped: a second attempt, which the handler lets begin.
    node.gi = GI
    here.clock.on_sleep = lambda: setattr(node, "gi", NEXT_GI)
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    assert node.acts[2:4] == attempt and node.orders == {}


def test_a_begun_discard_is_completed_by_a_later_monitor(here: FakeNode) -> None:
    here.states["vm1"] = in_contact("WFBitMapT")
    node = Node(order())
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    node.gi = NEXT_GI
    heal.carry_out_order(node, DEVICE, in_contact("SyncTarget", disk="Inconsistent"))
    assert node.orders == {}
    assert not state_files.of_device("vm1", "discard-begun").exists()


def test_a_permission_that_no_handshake_has_used_ends_with_the_attempt(here: FakeNode) -> None:
    here.states["vm1"] = in_contact("Off")
    node = Node(order())
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    assert node.acts[-1] == "drbdadm disconnect vm1" and set(node.orders) == {"n2"}


def test_a_resync_cut_off_by_the_end_of_an_attempt_needs_no_permission_to_go_on() -> None:
    node = Node(order())
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    # Contact came between the last look and the end of the attempt: the resync had begun.
    cut_off = Node(order(), NEXT_GI)
    heal.carry_out_order(cut_off, DEVICE, state("StandAlone", disk="Inconsistent"))
    assert cut_off.acts[:2] == ["drbdadm disconnect vm1", "drbdadm adjust vm1"]
    assert cut_off.acts[2].startswith("crm_attribute")
    assert len(cut_off.acts) == 3


def test_a_stale_order_is_dropped_also_after_another_one_was_begun() -> None:
    heal.carry_out_order(Node(order()), DEVICE, state("StandAlone"))
    stale = Node(order(f"{UUID} 00000000000000AA bitmap"))
    heal.carry_out_order(stale, DEVICE, state("StandAlone"))
    assert [act.split()[0] for act in stale.acts] == ["cibadmin"]


@pytest.mark.parametrize(
    ("what", "gi", "role"),
    [
        pytest.param(f"{UUID} 00000000000000AA bitmap", GI, "Secondary", id="stale"),
        pytest.param(f"{'b' * 32} {HELD} bitmap", GI, "Secondary", id="another device"),
        pytest.param(f"{UUID} {HELD}", GI, "Secondary", id="half an order"),
        pytest.param(f"{UUID} {HELD} bitmap", "", "Secondary", id="generation not known"),
        pytest.param(f"{UUID} {HELD} bitmap", GI, "Primary", id="still serving"),
    ],
)
def test_any_other_order_discards_nothing(what: str, gi: str, role: str) -> None:
    node = Node(order(what), gi)
    heal.carry_out_order(node, DEVICE, state("StandAlone", role=role))
    assert not [act for act in node.acts if act.startswith(("drbdadm", "drbdsetup"))]


def test_a_stale_order_is_deleted() -> None:
    node = Node(order(f"{UUID} 00000000000000AA bitmap"))
    heal.carry_out_order(node, DEVICE, state("Connecting"))
    assert [act.split()[0] for act in node.acts] == ["cibadmin"]


@pytest.mark.parametrize("role", ["Primary", "Secondary"])
@pytest.mark.parametrize(("kind", "marked"), [("discard", ()), ("revive", ("n2",))])
def test_an_order_that_a_later_decision_has_overtaken_is_dropped(
    kind: str, marked: tuple[str, ...], role: str
) -> None:
    """The operator keeps this replica after all, or gives it up: its generation is the same."""
    words = f"{UUID} {HELD}" + (" bitmap" if kind == "discard" else "")
    node = Node({"n2": (kind, words)}, marked=marked)
    heal.carry_out_order(node, DEVICE, state("StandAlone", role=role, disk="Consistent"))
    assert [act.split()[0] for act in node.acts] == ["cibadmin"]
    assert node.orders == {}


@pytest.mark.parametrize(("kind", "marked"), [("discard", ()), ("revive", ("n2",))])
def test_an_order_that_was_given_since_is_not_dropped_with_the_former(
    kind: str, marked: tuple[str, ...]
) -> None:
    """It was deleted by its name alone: the operator's third decision was never carried out."""
    words = f"{UUID} {HELD}" + (" bitmap" if kind == "discard" else "")
    newer = (kind, f"{words} again")

    class Deciding(Node):
        def _answer(self, argv: Sequence[str]) -> Answer:
            if argv[1] not in {"--query", "get-gi"}:
                self.orders["n2"] = newer
            return super()._answer(argv)

    node = Deciding({"n2": (kind, words)}, marked=marked)
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    assert len(node.acts) == 1 and node.orders == {"n2": newer}


def test_an_attribute_that_no_command_has_written_is_no_order() -> None:
    node = Node(order(f"{UUID} 00000000000000AA' bitmap"))
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    assert node.acts == []


def test_a_begun_attempt_discards_no_more_once_the_replica_is_kept() -> None:
    heal.carry_out_order(Node(order()), DEVICE, state("StandAlone"))
    node = Node(order(), marked=())
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    assert [act.split()[0] for act in node.acts] == ["cibadmin"]


def test_a_resync_that_ended_with_the_attempt_is_connected_again() -> None:
    """The Primary has taken the mark off meanwhile: nothing is discarded any more."""
    heal.carry_out_order(Node(order()), DEVICE, state("StandAlone"))
    ended = Node(order(), NEXT_GI, marked=())
    heal.carry_out_order(ended, DEVICE, state("StandAlone"))
    assert ended.acts[:2] == ["drbdadm disconnect vm1", "drbdadm adjust vm1"]


def test_the_next_order_is_carried_out_in_the_same_monitor() -> None:
    """The replica that is kept now had an order to discard: the other one's is about it."""
    node = Node({"n2": ("discard", f"{UUID} {HELD} bitmap")}, marked=())
    node.orders["n1"] = ("discard", f"{UUID} {HELD} bitmap")
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    assert [" ".join(act.split()[:2]) for act in node.acts][1:] == ["drbdadm adjust"]


def test_a_suspect_replica_is_never_resynced_by_bitmap(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    lost_writes.record_failed_flush("vm1")
    monkeypatch.setattr(reinitialize, "reset", lambda _, device: begun.append(device.name))
    node = Node(order())
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    assert begun == ["vm1"] and node.acts == []
    other = Node(order(node="n1"))
    heal.carry_out_order(other, DEVICE, state("StandAlone"))
    assert other.acts == []


def test_the_kept_replica_reconnects_and_discards_nothing() -> None:
    node = Node(order(node="n1"))
    heal.carry_out_order(node, DEVICE, state("StandAlone"))
    assert node.acts == ["drbdadm adjust vm1"]
    forgotten = Node(order(node="n1"))
    heal.carry_out_order(forgotten, DEVICE, state("Connecting")._replace(peers=()))
    assert forgotten.acts == ["drbdadm adjust vm1"]
    diskless = Node(order(node="n1"))
    heal.carry_out_order(diskless, DEVICE, state("StandAlone", disk="Diskless"))
    assert diskless.acts == ["drbdadm connect vm1"], "its disk has rules of its own"
    waiting = Node(order(node="n1"))
    heal.carry_out_order(waiting, DEVICE, state("Connecting"))
    assert waiting.acts == []


def test_only_an_outdated_standby_is_revived() -> None:
    wish = {"n2": ("revive", f"{UUID} {HELD}")}
    node = Node(wish)
    heal.carry_out_order(node, DEVICE, state("Connecting", disk="Outdated"))
    assert any("primary" in act for act in node.acts)
    assert node.acts[-1].startswith("crm_attribute")
    trust = Path(state_files.of_device("vm1", "operator-trust").path)
    assert trust.exists()
    trust.unlink()
    # The one that is UpToDate is a candidate without that.
    state_files.of_device("vm1", "connected").write(joined_peers.cluster_start_id())
    for disk, role, gi in (
        ("Inconsistent", "Secondary", GI),
        ("UpToDate", "Secondary", GI),
        ("Outdated", "Primary", GI),
        ("Outdated", "Secondary", GI.replace("B0", "B8")),
    ):
        other = Node(wish, gi)
        heal.carry_out_order(other, DEVICE, state("Connecting", disk=disk, role=role))
        assert [act.split()[0] for act in other.acts] == ["crm_attribute"], (disk, role)
        assert not trust.exists(), (disk, role)


@pytest.mark.parametrize("gi", [GI, GI.replace("B0", "B8")])
def test_one_that_is_good_and_waits_for_its_peer_to_join_is_trusted_as_it_is(gi: str) -> None:
    node = Node({"n2": ("revive", f"{UUID} {HELD}")}, gi)
    heal.carry_out_order(node, DEVICE, state("Connecting", disk="UpToDate"))
    assert [act.split()[0] for act in node.acts] == ["crm_attribute"]
    assert state_files.of_device("vm1", "operator-trust").exists() is (gi == GI)


def test_without_room_for_the_trust_the_order_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """What broke: where /run was full the order was deleted, and the replica was not trusted."""
    node = Node({"n2": ("revive", f"{UUID} {HELD}")})
    with monkeypatch.context() as full:

        def no_room(_note: object, _text: str = "") -> None:
            raise OSError(errno.ENOSPC, "no room")

        full.setattr(state_files.StateFile, "write", no_room)
        heal.carry_out_order(node, DEVICE, state("Connecting", disk="UpToDate"))
    assert node.acts == [] and set(node.orders) == {"n2"}
    heal.carry_out_order(node, DEVICE, state("Connecting", disk="UpToDate"))
    assert state_files.of_device("vm1", "operator-trust").exists()


def test_an_order_that_was_carried_out_and_not_deleted_ends_with_the_next_contact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The trust ends with a connection, and the peer may go on without this replica after that."""

    def no_answer(*_: object) -> None:
        raise CommandError(Problem("SAN-CMD-002", "no answer"))

    node = Node({"n2": ("revive", f"{UUID} {HELD}")})
    with monkeypatch.context() as silent:
        silent.setattr(heal, "_delete_order", no_answer)
        with pytest.raises(CommandError):
            heal.carry_out_order(node, DEVICE, state("Connecting", disk="UpToDate"))
    assert state_files.of_device("vm1", "operator-trust").exists() and node.orders
    heal.carry_out_order(node, DEVICE, in_contact("Established", disk="UpToDate"))
    assert node.orders == {}
    # Of one that was deleted nothing is noted: with that each monitor would be a whole one.
    node = Node({"n2": ("revive", f"{UUID} {HELD}")})
    heal.carry_out_order(node, DEVICE, state("Connecting", disk="UpToDate"))
    assert node.orders == {} and state_files.device_suffixes("vm1", "unsure") == []
    assert not state_files.of_device("vm1", "unsure").exists()


def test_a_suspect_one_that_is_good_otherwise_is_trusted_without_its_peer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What broke: it was suspect no more, and still no candidate: its order was gone."""
    attach(monkeypatch, tmp_path)
    path = lost_writes.data_file("vm1")
    assert path is not None
    monkeypatch.setattr(lost_writes, "is_suspect", lambda *_: True)
    node = Node({"n2": ("revive", f"{UUID} {HELD}")})
    heal.carry_out_order(node, DEVICE, state("Connecting", disk="UpToDate"))
    assert state_files.of_device("vm1", "operator-trust").exists()


def test_the_operators_trust_is_recorded_before_drbd_calls_its_handler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[bool] = []
    trust = Path(state_files.of_device("vm1", "operator-trust").path)
    monkeypatch.setattr(drbdsetup, "force_up_to_date", lambda *_: seen.append(trust.exists()))
    wish = {"n2": ("revive", f"{UUID} {HELD}")}
    heal.carry_out_order(Node(wish), DEVICE, state("Connecting", disk="Consistent"))
    assert seen == [True]

    def refused(*_: object) -> None:
        raise CommandError(Problem("SAN-CMD-003", "killed"))

    monkeypatch.setattr(drbdsetup, "force_up_to_date", refused)
    node = Node(wish)
    with pytest.raises(CommandError):
        heal.carry_out_order(node, DEVICE, state("Connecting", disk="Consistent"))
    assert not trust.exists() and not any("crm_attribute" in act for act in node.acts)


THREE = DEVICE._replace(nodes=("n1", "n2", "n3"))


def of_three(*, disk: str = "Outdated", has_quorum: bool = False) -> ResourceState:
    """The replica on n2, with DRBD 9, alone."""
    peers = tuple(
        PeerState(name, "Connecting", "Unknown", "Off", "DUnknown", 4, node_id=nr)
        for nr, name in enumerate(("n1", "n3"), start=1)
    )
    return ResourceState("vm1", "Secondary", "quorum", disk, 1024, peers, has_quorum=has_quorum)


def attach(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(lost_writes, "data_file", lambda name: f"{folder}/{name}.{UUID}.data")


def test_the_only_replica_is_accepted_as_it_is(
    here: FakeNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """DRBD 9 has no generation of it, and there is none to mistake it for."""
    attach(monkeypatch, tmp_path)
    only, alone = DEVICE._replace(nodes=("n2",)), state("StandAlone")._replace(peers=())
    here.states["vm1"] = alone
    accept = {"n2": ("revive", f"{UUID} only")}
    healthy = Node(accept)
    heal.carry_out_order(healthy, only, alone)
    assert healthy.calls == [], "the CIB is not asked"
    lost_writes.record_failed_flush("vm1")
    for orders, marked, role in (
        ({}, (), "Secondary"),
        ({"n2": ("revive", f"{UUID} {HELD}")}, (), "Secondary"),
        ({"n2": ("revive", f"{'b' * 32} only")}, (), "Secondary"),
        (accept, ("n2",), "Secondary"),
        (accept, (), "Primary"),
    ):
        node = Node(orders, marked=marked)
        heal.carry_out_order(node, only, alone._replace(role=role))
        assert node.acts == [] and lost_writes.has_flush_failed("vm1")
    node = Node(accept)
    heal.carry_out_order(node, only, alone)
    assert node.orders == {} and not lost_writes.has_flush_failed("vm1")
    # A late or a second one does nothing to a device that has got a second replica.
    lost_writes.record_failed_flush("vm1")
    heal.carry_out_order(Node(accept), DEVICE, state("Connecting"))
    assert lost_writes.has_flush_failed("vm1")


def test_the_order_for_the_only_replica_goes_before_anything_is_accepted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One that was left would accept the next loss, too."""
    attach(monkeypatch, tmp_path)
    only, alone = DEVICE._replace(nodes=("n2",)), state("StandAlone")._replace(peers=())
    lost_writes.record_failed_flush("vm1")

    def refuse(*_: object, **_more: object) -> None:
        raise CommandError(Problem("SAN-CMD-001", "no answer"))

    monkeypatch.setattr(node_attributes, "delete_permanent", refuse)
    with pytest.raises(CommandError):
        heal.carry_out_order(Node({"n2": ("revive", f"{UUID} only")}), only, alone)
    assert lost_writes.has_flush_failed("vm1")


def test_of_several_peers_each_ones_bitmap_is_published(here: FakeNode) -> None:
    here.generation = 9
    node = Node({})
    text = no_contact.published_fields(node, THREE, of_three())
    assert f" gi={GI[:67]} bitmaps=n1:00000000000000C0,n3:00000000000000C0" in text
    asked = [tuple(argv[2:]) for argv, _ in node.calls if argv[1] == "get-gi"]
    assert {("vm1", "1", "0"), ("vm1", "2", "0")} == {*asked}
    node.gi = ""
    assert "gi=" not in no_contact.published_fields(node, THREE, of_three())


def test_a_replica_that_was_dropped_is_not_compared_with(here: FakeNode) -> None:
    """Of two replicas `gi` is all that heal compares by."""
    here.generation = 9
    node = Node({})
    two = DEVICE._replace(nodes=("n2", "n3"))
    assert "gi=" in no_contact.published_fields(node, two, of_three())
    asked = [tuple(argv[2:]) for argv, _ in node.calls if argv[1] == "get-gi"]
    assert asked == [("vm1", "2", "0")]


def test_a_suspect_replica_of_drbd_9_is_attached_alone_and_publishes_its_generations(
    here: FakeNode,
) -> None:
    """What was refused for ever: a decision about two of them, of which neither was known."""
    here.generation = 9
    alone = of_three(disk="UpToDate")._replace(peers=())
    here.states["vm1"] = of_three(disk="UpToDate")
    node = Node({})
    assert "gi=" not in no_contact.published_fields(node, THREE, alone), (
        "it is about to be connected"
    )
    assert node.acts == []
    lost_writes.record_failed_flush("vm1")
    assert "gi=" not in no_contact.published_fields(node, THREE, alone._replace(disk="Diskless"))
    assert node.acts == []
    for device in (THREE, DEVICE._replace(nodes=("n2", "n3"))):
        node = Node({})
        text = no_contact.published_fields(node, device, alone)
        assert f" gi={GI[:67]}" in text and ("bitmaps=" in text) == (device is THREE)
        assert node.acts == ["drbdadm new-peer vm1", "drbdadm new-path vm1"]
    known = Node({})
    no_contact.published_fields(known, THREE, of_three(disk="UpToDate"))
    assert known.acts == []


def test_peers_that_drbd_does_not_take_are_not_told_in_each_monitor(here: FakeNode) -> None:
    here.generation = 9
    here.states["vm1"] = alone = of_three(disk="UpToDate")._replace(peers=())
    lost_writes.record_failed_flush("vm1")
    node = Node({})
    for _ in range(3):
        assert "gi=" not in no_contact.published_fields(node, THREE, alone)
    assert node.acts == ["drbdadm new-peer vm1", "drbdadm new-path vm1"]
    assert len([each for each in here.journal if "knows none of its peers" in each]) == 1


@pytest.mark.parametrize(
    ("disk", "has_quorum", "is_revived"),
    [("Outdated", False, True), ("UpToDate", False, True), ("UpToDate", True, False)],
)
def test_one_of_three_is_revived_without_a_majority(
    here: FakeNode, disk: str, has_quorum: bool, is_revived: bool
) -> None:
    here.generation = 9
    node = Node({"n2": ("revive", f"{UUID} {HELD}")})
    heal.carry_out_order(node, THREE, of_three(disk=disk, has_quorum=has_quorum))
    assert ("drbdsetup primary vm1" in node.acts) is is_revived
    assert node.acts[-1].startswith("crm_attribute")


@pytest.mark.parametrize("disk", ["UpToDate", "Consistent", "Outdated"])
def test_one_of_two_that_missed_the_drop_of_a_third_is_revived_without_a_majority(
    here: FakeNode, disk: str
) -> None:
    """DRBD counts the dropped one, n3. Forced, it takes all that it misses for Outdated.

    It has quorum then (drbd_nl.c, drbd_set_role: SS_NO_QUORUM), so the replica gets a score, and
    is promoted; and the drop is carried out, as its I/O is frozen no more.
    """
    here.generation = 9
    stuck = of_three(disk=disk)
    text = no_contact.published_fields(Node({}), DEVICE, stuck)
    assert f" gi={GI[:67]}" in text and "bitmaps=" not in text
    node = Node({"n2": ("revive", f"{UUID} {HELD}")})
    here.states["vm1"] = freed = of_three(disk="UpToDate", has_quorum=True)
    assert heal.carry_out_order(node, DEVICE, stuck) == freed and node.orders == {}
    assert [act for act in node.acts if "drbdsetup" in act] == [
        "drbdsetup primary vm1",
        "drbdsetup secondary vm1",
    ]
    assert promotion_score(stuck, is_new=False) is None
    assert promotion_score(freed, is_new=False) is not None


def test_none_of_several_is_discarded(here: FakeNode) -> None:
    here.generation = 9
    node = Node(order())
    heal.carry_out_order(node, THREE, of_three(disk="UpToDate"))
    assert node.acts == []


def test_the_time_without_contact_outlives_the_process(here: FakeNode, tmp_path: Path) -> None:
    devices = tmp_path / "devices"
    devices.mkdir()
    here.attach(f"{devices}/vm1.{UUID}.data")
    node = Node({})
    first = no_contact.published_fields(node, DEVICE, state("Connecting"))
    (devices / f"vm1.{UUID}.apart").write_text("1800000000\n")
    assert " apart=" in first
    assert no_contact.published_fields(node, DEVICE, state("StandAlone")) == (
        f" apart=1800000000 gi={GI[:67]}"
    )
    assert no_contact.published_fields(node, DEVICE, state("Connected")) == ""
    assert not (tmp_path / f"vm1.{UUID}.apart").exists()


class Killed(BaseException):
    """The agent's process is killed."""


@pytest.fixture
def suspect(
    here: FakeNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> tuple[Node, ResourceState]:
    """A suspect replica that a start has connected to none, and an operator has accepted."""
    attach(monkeypatch, tmp_path)
    monkeypatch.setattr(connect_turn, "take", lambda *_, **_more: True)
    lost_writes.record_failed_flush("vm1")
    apart = state("StandAlone", disk="Outdated")._replace(peers=())
    here.states["vm1"] = apart
    return Node({"n2": ("revive", f"{UUID} {HELD}")}), apart


def settle(node: Node, now: ResourceState) -> None:
    device_monitor._settle_connections(node, DEVICE, now, limits=False)


def fail_once(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, how: BaseException
) -> None:
    real: Callable[..., None] = getattr(module, name)
    failed: list[BaseException] = []

    def act(*words: object) -> None:
        if not failed:
            failed.append(how)
            raise how
        real(*words)

    monkeypatch.setattr(module, name, act)


REFUSED = CommandError(Problem("SAN-CMD-003", "refused"))


def test_an_accepted_suspect_replica_is_connected(
    suspect: tuple[Node, ResourceState],
) -> None:
    node, apart = suspect
    settle(node, apart)
    assert node.acts[-1] == "drbdadm adjust vm1" and node.orders == {}
    assert not lost_writes.has_flush_failed("vm1")
    before = len(node.acts)
    settle(node, apart)
    assert node.acts[before:] == [], "one attempt that DRBD has taken is all"


@pytest.mark.parametrize("how", [REFUSED, Killed()], ids=["refused", "killed"])
def test_an_accepted_suspect_replica_is_connected_by_a_later_monitor(
    suspect: tuple[Node, ResourceState], monkeypatch: pytest.MonkeyPatch, how: BaseException
) -> None:
    """It is suspect no more when it is to be made UpToDate again."""
    node, apart = suspect
    fail_once(monkeypatch, drbdsetup, "force_up_to_date", how)
    with pytest.raises(type(how)):
        settle(node, apart)
    assert not lost_writes.has_flush_failed("vm1") and "drbdadm adjust vm1" not in node.acts
    settle(node, apart)
    assert any("primary" in act for act in node.acts)
    assert node.acts[-1] == "drbdadm adjust vm1" and node.orders == {}


@pytest.mark.parametrize("how", [REFUSED, Killed()], ids=["refused", "killed"])
@pytest.mark.parametrize("generation", [8, 9])
def test_a_connection_of_an_accepted_replica_is_tried_until_drbd_takes_it(
    suspect: tuple[Node, ResourceState],
    monkeypatch: pytest.MonkeyPatch,
    here: FakeNode,
    how: BaseException,
    generation: int,
) -> None:
    """It has got another generation by then: no order is about it any more."""
    node, apart = suspect
    fail_once(monkeypatch, drbdadm, "adjust", how)
    with pytest.raises(type(how)):
        settle(node, apart)
    here.generation = generation
    node.gi = NEXT_GI
    settle(node, apart._replace(disk="UpToDate"))
    assert node.acts[-1] == "drbdadm adjust vm1"


def test_an_order_whose_deletion_fails_is_followed_by_the_connection(
    suspect: tuple[Node, ResourceState], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, apart = suspect
    with monkeypatch.context() as broken:
        broken.setattr(heal, "_delete_order", lambda *_: (_ for _ in ()).throw(REFUSED))
        with pytest.raises(CommandError):
            settle(node, apart)
    node.gi = NEXT_GI
    settle(node, apart._replace(disk="UpToDate"))
    assert node.acts[-1] == "drbdadm adjust vm1" and node.orders == {}


def test_nothing_is_accepted_where_the_note_of_it_finds_no_room(
    suspect: tuple[Node, ResourceState], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, apart = suspect
    full = OSError("no room")
    fail_once(monkeypatch, reconnect_dropped, "write_later", full)
    with pytest.raises(OSError, match="no room"):
        settle(node, apart)
    assert lost_writes.has_flush_failed("vm1") and node.orders
    settle(node, apart)
    assert node.acts[-1] == "drbdadm adjust vm1"


def test_an_order_to_revive_stays_while_the_generation_is_not_known() -> None:
    node = Node({"n2": ("revive", f"{UUID} {HELD}")}, "")
    heal.carry_out_order(node, DEVICE, state("Connecting", disk="Outdated"))
    assert node.acts == [] and node.orders
