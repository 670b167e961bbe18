# SPDX-License-Identifier: GPL-2.0-or-later
"""Two replicas in contact of which none is good: one is made so by an operator's order alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from sanctl.agents import device_monitor
from sanctl.agents.connections import connect_turn, reconnect_dropped
from sanctl.agents.fencing import joined_peers
from sanctl.agents.recovery import heal, no_contact
from sanctl.drivers import drbdadm, drbdsetup, outdated_marks
from sanctl.drivers.outdated_marks import DeviceMarks, SeenMarks
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer
from tests.unit.agents.recovery.test_heal import DEVICE, GI, HELD, NEXT_GI, UUID, Killed, Node

STEPS = ["drbdadm disconnect vm1", "drbdsetup primary vm1", "drbdsetup secondary vm1"]
REVIVE = {"n2": ("revive", f"{UUID} {HELD}")}


def state(
    disk: str = "Outdated",
    peer_disk: str = "Outdated",
    *,
    connection: str = "Connected",
    replication: str = "Established",
    role: str = "Secondary",
) -> ResourceState:
    peer = PeerState("n1", connection, role, replication, peer_disk, 0, node_id=1)
    return ResourceState("vm1", "Secondary", "no", disk, 1024, (peer,), 3, has_quorum=True)


class Pair(Node):
    """The replica on n2, whose peer goes on looking for it."""

    def __init__(
        self,
        here: FakeNode,
        now: ResourceState,
        orders: dict[str, tuple[str, str]] | None = None,
        marked: Sequence[str] = ("n1",),
    ) -> None:
        super().__init__(REVIVE if orders is None else orders, marked=marked)
        self.here = here
        here.states["vm1"] = now

    @property
    def now(self) -> ResourceState:
        found = self.here.states["vm1"]
        assert found is not None
        return found

    def _answer(self, argv: Sequence[str]) -> Answer:
        now = self.now
        (peer,) = now.peers
        if argv[:2] == ["drbdadm", "disconnect"]:
            apart = peer._replace(connection="StandAlone", replication="Off", disk="DUnknown")
            self.here.states["vm1"] = now._replace(peers=(apart,))
        elif argv[:2] == ["drbdsetup", "primary"]:
            assert not peer.is_connected
            self.gi = NEXT_GI
            self.here.states["vm1"] = now._replace(disk="UpToDate")
        elif argv[:2] == ["drbdadm", "adjust"] and peer.connection == "StandAlone":
            assert self.gi == NEXT_GI, "connected with the generation that both have"
            self.here.states["vm1"] = state("UpToDate", "Inconsistent", replication="SyncSource")
        return super()._answer(argv)

    def settle(self) -> None:
        """Do what one monitor does."""
        device_monitor._settle_connections(self, DEVICE, self.now, limits=False)


@pytest.fixture(autouse=True)
def here(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    def read_device(runner: Node, name: str) -> SeenMarks:
        paths = tuple((node, "/path") for node in runner.marked)
        return SeenMarks(0, 0, None, {name: DeviceMarks(UUID, paths)})

    monkeypatch.setattr(outdated_marks, "read_device", read_device)
    monkeypatch.setattr(connect_turn, "take", lambda *_, **_more: True)
    fake_node.name, fake_node.generation = "n2", 9
    return fake_node


@pytest.mark.parametrize(
    ("disk", "peer_disk"),
    [("Outdated", "Outdated"), ("Consistent", "Consistent"), ("Consistent", "Diskless")],
)
def test_the_kept_replica_fills_the_other_one(here: FakeNode, disk: str, peer_disk: str) -> None:
    pair = Pair(here, state(disk, peer_disk))
    pair.settle()
    assert [act for act in pair.acts if act.startswith("drbd")] == [*STEPS, "drbdadm adjust vm1"]
    assert pair.orders == {} and pair.now.is_connected
    pair.calls.clear()
    pair.settle()
    assert pair.acts == []


BETWEEN: list[tuple[object, str, bool]] = [
    (reconnect_dropped, "write_later", False),
    (reconnect_dropped, "write_later", True),
    (drbdadm, "disconnect", False),
    (drbdadm, "disconnect", True),
    (joined_peers, "record_operator_trust", True),
    (drbdsetup, "force_up_to_date", False),
    (drbdsetup, "force_up_to_date", True),
    (heal, "_delete_order", False),
    (heal, "_delete_order", True),
    (drbdadm, "adjust", False),
    (drbdadm, "adjust", True),
]


@pytest.mark.parametrize("how", [Killed(), CommandError(Problem("SAN-CMD-003", "refused"))])
@pytest.mark.parametrize("step", BETWEEN)
def test_it_goes_on_after_each_step(
    here: FakeNode,
    monkeypatch: pytest.MonkeyPatch,
    step: tuple[object, str, bool],
    how: BaseException,
) -> None:
    module, name, is_done = step
    pair = Pair(here, state())
    real: Callable[..., None] = getattr(module, name)

    def act(*words: object) -> None:
        if is_done:
            real(*words)
        raise how

    with monkeypatch.context() as broken:
        broken.setattr(module, name, act)
        with pytest.raises(type(how)):
            pair.settle()
    pair.settle()
    assert (pair.gi, pair.orders) == (NEXT_GI, {})
    assert pair.now.is_connected and pair.acts.count("drbdadm adjust vm1") == 1


@pytest.mark.parametrize(
    "now",
    [
        state("UpToDate", "Outdated"),
        state("Outdated", "UpToDate"),
        state("Consistent", "Outdated", replication="WFBitMapS"),
        state("Inconsistent", "Outdated"),
        state("Consistent", "Consistent", role="Primary"),
    ],
)
def test_no_contact_is_ended_for_any_other_state(here: FakeNode, now: ResourceState) -> None:
    pair = Pair(here, now)
    pair.settle()
    assert pair.acts == [] and pair.orders == REVIVE


@pytest.mark.parametrize("now", [state("UpToDate"), state("Inconsistent", "UpToDate")])
def test_an_order_that_drbd_has_settled_is_dropped(here: FakeNode, now: ResourceState) -> None:
    """It came while a resync was about to begin; nobody would read it before contact is lost."""
    pair = Pair(here, state("Consistent", "Outdated", replication="WFBitMapS"))
    pair.settle()
    assert pair.orders == REVIVE and pair.acts == []
    here.states["vm1"] = now
    pair.settle()
    assert pair.orders == {} and not any(act.startswith("drbd") for act in pair.acts)
    pair.calls.clear()
    pair.settle()
    assert pair.calls == [], "the CIB is asked once"


def test_nothing_is_made_good_while_the_contact_has_not_ended(
    here: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(here, state())
    monkeypatch.setattr(drbdadm, "disconnect", lambda *_: None)
    pair.settle()
    assert pair.acts == [] and pair.orders == REVIVE


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_orders_to_discard_are_not_for_replicas_in_contact(here: FakeNode, node: str) -> None:
    discard = {node: ("discard", f"{UUID} {HELD} bitmap")}
    pair = Pair(here, state(), discard, marked=(node,))
    pair.settle()
    assert pair.acts == [] and pair.orders == discard


@pytest.mark.parametrize(
    ("words", "marked", "left"),
    [(f"{UUID} {HELD}", ("n1", "n2"), 0), (f"{UUID} 00000000000000AA", ("n1",), 0)],
    ids=["marked since", "another generation"],
)
def test_an_order_that_is_overtaken_ends_no_contact(
    here: FakeNode, words: str, marked: Sequence[str], left: int
) -> None:
    pair = Pair(here, state(), {"n2": ("revive", words)}, marked=marked)
    pair.settle()
    assert len(pair.orders) == left and pair.now.is_connected
    assert not any(act.startswith("drbd") for act in pair.acts)


def test_the_generations_are_published_while_an_operator_is_needed(here: FakeNode) -> None:
    pair = Pair(here, state())
    assert no_contact.published_fields(pair, DEVICE, state()) == f" gi={GI[:67]}"
    assert no_contact.published_fields(pair, DEVICE, state("Consistent", "Consistent")) != ""
    for disk, peer_disk in (
        ("UpToDate", "Outdated"),
        ("Outdated", "UpToDate"),
        ("Inconsistent", "Inconsistent"),
        ("Inconsistent", "UpToDate"),
    ):
        assert no_contact.published_fields(pair, DEVICE, state(disk, peer_disk)) == ""
