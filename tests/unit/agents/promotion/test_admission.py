# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts stay out of a device that awaits its sites, until this node knows better."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents import device as agent
from sanctl.agents.fencing import cluster_run, joined_peers
from sanctl.agents.node import start_turn
from sanctl.agents.promotion import admission
from sanctl.agents.replica import access_list
from sanctl.agents.replica.parts import Device
from sanctl.agents.restore import closure
from sanctl.drivers import cib, gate, lio, node_attributes
from sanctl.errors import CommandError, Problem
from sanctl.model.packed_states import STATES_ATTRIBUTE, pack
from sanctl.system import journal, state_files
from sanctl.system.runner import CommandResult, LocalRunner

BOOT = "01234567-89ab-4def-8123-456789abcdef\n"
RUN, LATER, OTHER_RUN = "0123456789ab-77", "0123456789ab-78", "fedcba987654-9"
DEVICE = Device(
    name="web", uuid="a" * 32, minor=1, size_bytes=1, pool="main", nodes=("n1", "n2"),
    initiators=("iqn.a",), awaits="far",
)  # fmt: skip


class Node(LocalRunner):
    """This node: its kernel, its cluster software, and what the other node publishes."""

    def __init__(self) -> None:
        self.start_id = "77"
        self.other: str | None = ""
        self.entries: set[str] = set()
        self.table = "error"
        self.asked: list[str] = []
        self.started: list[str] = []

    def query(self, _runner: object, attribute: str, node: str) -> str:
        assert attribute == STATES_ATTRIBUTE
        self.asked.append(node)
        if self.other is None:
            raise CommandError(Problem("SAN-CMD-002", "no answer"))
        return self.other

    def run(self, argv: Sequence[str], **_: object) -> CommandResult:
        self.started.append(argv[-1])
        return CommandResult(tuple(argv), 0, "", "", 0.0)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    state_files.make_folder()
    made = Node()
    (tmp_path / "boot").write_text(BOOT, encoding="ascii")
    monkeypatch.setattr(cluster_run, "_BOOT_ID", str(tmp_path / "boot"))
    monkeypatch.setattr(os, "uname", lambda: type("Name", (), {"nodename": "n1"}))
    monkeypatch.setattr(joined_peers, "cluster_start_id", lambda: made.start_id)
    monkeypatch.setattr(node_attributes, "query", made.query)
    monkeypatch.setattr(lio, "access", lambda _: made.entries)
    monkeypatch.setattr(gate, "gate_table", lambda _: made.table)
    return made


def each(node: Node, device: Device) -> list[Device]:
    return [
        admission.at_start(node, device),
        admission.at_promotion(node, device),
        admission.while_up(node, device),
    ]


def test_a_device_without_the_setting_is_as_before(node: Node) -> None:
    device = DEVICE._replace(awaits="")
    assert each(node, device) == [device] * 3
    assert node.asked == [] and admission.published_field("web") == ""
    assert state_files.device_notes("web") == frozenset()
    admission.ask_if_held(node, device)
    assert node.started == []


def test_nobody_says_that_hosts_are_let_in(node: Node) -> None:
    for device in each(node, DEVICE):
        assert device.held == f"{RUN}:asking" and not device.access and not device.is_let_in
    assert node.asked == ["n2"] * 3
    assert admission.published_field("web") == f" held={RUN}:asking"
    admission.note_reason("web", "SAN-SITE-005")
    assert admission.at_promotion(node, DEVICE).held == f"{RUN}:SAN-SITE-005"
    # No answer is none.
    node.other = None
    assert all(device.held for device in each(node, DEVICE))


def test_an_order_or_the_other_node_is_noted_for_this_run(node: Node) -> None:
    node.other = pack({"web": f"role=Primary let-in={OTHER_RUN}"})
    assert [device.access for device in each(node, DEVICE)] == [{"iqn.a"}] * 3
    assert node.asked == ["n2"], "noted: a failover asks nobody"
    assert admission.published_field("web") == f" let-in={RUN}"
    node.other = None
    assert admission.at_promotion(node, DEVICE).is_let_in
    # A stop leaves the note, and another device of that name does not have it.
    state_files.remove_device("web")
    assert admission.at_start(node, DEVICE).is_let_in
    assert admission.at_start(node, DEVICE._replace(uuid="b" * 32)).held
    # The cluster software was started anew.
    node.start_id = "78"
    assert admission.at_start(node, DEVICE).held == f"{LATER}:asking"
    assert admission.at_start(node, DEVICE._replace(released=RUN)).held
    assert admission.at_start(node, DEVICE._replace(released=LATER)).is_let_in
    assert admission.at_start(node, DEVICE).is_let_in, "noted"


def test_a_node_that_serves_hosts_goes_on(node: Node) -> None:
    node.table, node.entries = "drbd1", {"iqn.a"}
    assert admission.at_start(node, DEVICE).held, "a start demotes it"
    assert admission.at_promotion(node, DEVICE).is_let_in
    node.start_id = "78"
    assert admission.while_up(node, DEVICE).is_let_in
    # Held, it serves nobody, and that is no reason to let somebody in.
    node.start_id, node.entries = "79", set()
    assert admission.while_up(node, DEVICE).held and admission.at_promotion(node, DEVICE).held


def test_a_standby_whose_list_is_open_closes_it_at_its_promotion(node: Node) -> None:
    node.entries = {"iqn.a"}
    found = admission.while_up(node, DEVICE)
    assert found == DEVICE, "neither let in nor held"
    assert admission.published_field("web") == ""
    assert admission.at_promotion(node, DEVICE).held


def test_without_room_for_the_note_each_action_asks(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: object, _text: str = "") -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(state_files.StateFile, "write", full)
    node.other = pack({"web": f"let-in={OTHER_RUN}"})
    assert all(device.is_let_in for device in each(node, DEVICE))
    assert node.asked == ["n2"] * 3 and admission.published_field("web") == ""
    node.other = ""
    assert all(device.held for device in each(node, DEVICE))
    admission.note_reason("web", "SAN-SITE-005")


def test_what_cannot_be_read_keeps_hosts_out_unless_they_are_served(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable() -> str:
        raise OSError(errno.ENOMEM, "no memory")

    monkeypatch.setattr(joined_peers, "cluster_start_id", unreadable)
    assert [device.held for device in each(node, DEVICE)] == ["?:asking"] * 3
    node.table, node.entries = "drbd1", {"iqn.a"}
    assert admission.at_promotion(node, DEVICE).is_let_in
    assert admission.while_up(node, DEVICE).is_let_in


def test_no_node_serves_while_the_kernel_lets_hosts_in(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_list, "update", lambda _: False)
    device = admission.at_promotion(node, DEVICE)
    closure.close_before_promotion(device)
    node.entries = {"iqn.a"}
    with pytest.raises(CommandError, match=r"SAN-AGENT-016.*awaits its second site"):
        closure.close_before_promotion(device)


def test_the_sites_are_asked_once_for_all_devices(node: Node) -> None:
    device = admission.at_start(node, DEVICE)
    admission.ask_if_held(node, device)
    admission.ask_if_held(node, device._replace(name="db"))
    assert node.started == ["sanctl-sites.service"]
    os.utime(state_files.of_node("sites-asked-held").path, (0, 0))
    admission.ask_if_held(node, device)
    assert len(node.started) == 2


def test_another_node_is_not_believed_where_it_does_not_know_its_run(node: Node) -> None:
    node.other = pack({"web": "role=Primary let-in=?"})
    assert all(device.held for device in each(node, DEVICE))
    # Nor does this one claim more.
    node.start_id, node.table, node.entries = "", "drbd1", {"iqn.a"}
    assert admission.while_up(node, DEVICE).is_let_in
    assert admission.published_field("web") == " let-in=?"


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOMEM, "no memory"), CommandError(Problem("", ""))]
)
def test_a_list_that_cannot_be_read_stays_as_it_is(
    node: Node, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def unreadable(_: str) -> str:
        raise error

    written: list[str] = []
    monkeypatch.setattr(journal, "write", lambda text, **_: written.append(text))
    node.entries = {"iqn.a"}
    for module, function in ((lio, "access"), (gate, "gate_table")):
        with monkeypatch.context() as patched:
            patched.setattr(module, function, unreadable)
            found = admission.while_up(node, DEVICE)
            assert found == DEVICE._replace(leaves_list=True), "a monitor and a reload"
            assert admission.published_field("web") == ""
            assert admission.at_promotion(node, DEVICE).held, "nobody serves by what is not known"
            # By a note or an order it is known what the list is to be.
            found = admission.while_up(node, DEVICE._replace(released=RUN))
            assert found.is_let_in and not found.leaves_list
            state_files.of_node(f"let-in.web.{'a' * 32}").remove()
    assert len(written) == 6 and "could not be read" in written[0]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Make a second of a start's wait pass at once; return how long each one was."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "monotonic", lambda: sum(slept))
    return slept


def joined(monkeypatch: pytest.MonkeyPatch, *, is_member: bool) -> None:
    monkeypatch.setattr(cib, "node_state", lambda _runner, _node: None)
    monkeypatch.setattr(joined_peers, "has_joined", lambda _state: is_member)


def test_a_start_waits_for_a_member_that_has_said_nothing_yet(
    node: Node, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    joined(monkeypatch, is_member=True)
    node.other = None
    admission.wait_for_others(node, DEVICE)
    assert 3 <= sum(clock) <= 5, "not for good"
    # Not again for the next device, which starts later.
    then = time.time() - 5
    os.utime(state_files.of_node("admission-begun").path, (then, then))
    del clock[:]
    admission.wait_for_others(node, DEVICE._replace(name="db"))
    assert clock == []

    node.start_id = "78"
    answers = iter(["", "-", pack({"web": f"let-in={OTHER_RUN}"})])
    monkeypatch.setattr(node_attributes, "query", lambda *_: next(answers))
    admission.wait_for_others(node, DEVICE)
    assert len(clock) == 2


@pytest.mark.parametrize("said", [f"let-in={OTHER_RUN}", f"held={OTHER_RUN}:asking"])
def test_a_start_waits_for_nobody_who_has_spoken(
    node: Node, clock: list[float], monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    joined(monkeypatch, is_member=True)
    node.other = pack({"web": said})
    admission.wait_for_others(node, DEVICE)
    assert clock == [] and node.asked == ["n2"]


def test_a_start_waits_for_no_node_that_is_away_and_not_where_it_knows(
    node: Node, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    joined(monkeypatch, is_member=False)
    admission.wait_for_others(node, DEVICE)
    joined(monkeypatch, is_member=True)
    del node.asked[:]
    for device in (DEVICE._replace(awaits=""), DEVICE._replace(released=RUN)):
        admission.wait_for_others(node, device)
    assert node.asked == []

    def unreadable() -> str:
        raise OSError(errno.ENOMEM, "no memory")

    monkeypatch.setattr(joined_peers, "cluster_start_id", unreadable)
    admission.wait_for_others(node, DEVICE)
    assert clock == [] == node.asked


def test_a_start_waits_for_others_before_it_takes_its_turn(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def refuse(*_: object) -> None:
        told.append("turn")
        raise CommandError(Problem("SAN-CMD-002", "enough"))

    monkeypatch.setattr(agent, "_device", lambda: DEVICE)
    monkeypatch.setattr(admission, "wait_for_others", lambda *_: told.append("waits"))
    monkeypatch.setattr(start_turn, "taken", refuse)
    with pytest.raises(CommandError, match="enough"):
        agent.start()
    assert told == ["waits", "turn"]
