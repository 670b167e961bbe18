# SPDX-License-Identifier: GPL-2.0-or-later
"""All replicas are marked and in sync: one node removes its peer's outdated mark."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pytest

from sanctl.agents.fencing import all_marked, outdate, quorum_overlap
from sanctl.agents.replica.parts import Device
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer, FakeRunner

UUID = "c" * 32
VOL = Device("vol1", UUID, 1 << 20, "main", ("n1", "n2"), 3, ())
GOOD = PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0)
IDLE = ResourceState("vol1", "Secondary", "no", "UpToDate", 1024, (GOOD,))
_QUORUM = "Quorate: {quorate}\n    Nodeid      Votes Name\n         1          1 n1\n{others}"


def _node(
    marked: Sequence[str], *, quorate: str = "Yes", members: str = "         2          1 n2\n"
) -> FakeRunner:
    def answer(argv: Sequence[str]) -> Answer:
        if argv[0] == "corosync-quorumtool":
            return _QUORUM.format(quorate=quorate, others=members)
        if "--patch" in argv:
            return ""
        if "--no-children" in argv and argv[-1].startswith("//node_state"):
            return CommandError(Problem("SAN-CMD-003", "No such device or address"))
        nodes = ""
        for number, name in enumerate(("n1", "n2"), 1):
            nodes += f'<node id="{number}" uname="{name}"/><instance_attributes id="s{number}"/>'
            if name in marked:
                nodes += f'<nvpair id="m{number}" name="sanctl-outdated-vol1" value="{UUID}"/>'
        return (
            f'<xpath-query><cib admin_epoch="2" epoch="7" num_updates="5"/>{nodes}'
            f'<primitive id="vol1"/><nvpair id="u" name="uuid" value="{UUID}"/></xpath-query>'
        )

    return FakeRunner(answer)


def _patches(node: FakeRunner) -> list[str]:
    return [given or "" for argv, given in node.calls if "--patch" in argv]


@pytest.fixture(autouse=True)
def _local(fake_node: FakeNode) -> None:
    fake_node.states["vol1"] = IDLE


def test_the_peer_is_unmarked_at_the_version_that_was_read() -> None:
    node = _node(("n1", "n2"))
    assert all_marked.unmark_peer(node, VOL, IDLE, lambda *_: True)
    (patch,) = _patches(node)
    assert '<source admin_epoch="2" epoch="7"' in patch
    assert '<target admin_epoch="2" epoch="8"' in patch
    assert "node[@id='2']/instance_attributes[@id='s2']/nvpair[@id='m2']" in patch
    assert "node[@id='1']" not in patch, "its own mark stays: the peer may go on alone"


def test_a_peer_whose_reservations_are_older_stays_marked() -> None:
    node = _node(("n1", "n2"))
    assert not all_marked.unmark_peer(node, VOL, IDLE, lambda *seen: seen != ("vol1", "n2"))
    assert _patches(node) == []


@pytest.mark.parametrize(
    "node",
    [
        _node(()),
        _node(("n1",)),
        _node(("n2",)),
        _node(("n1", "n2"), quorate="No"),
        _node(("n1", "n2"), members=""),
    ],
    ids=["no mark", "its own alone", "the peer's alone", "no quorum", "the peer is no member"],
)
def test_no_mark_is_removed_otherwise(node: FakeRunner) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quorum_overlap, "is_down", lambda _state: False)
        # The peer is no member, and the cluster may not know it.
        with contextlib.suppress(CommandError):
            assert not all_marked.unmark_peer(node, VOL, IDLE, lambda *_: True)
    assert _patches(node) == []


@pytest.mark.parametrize(
    "state",
    [
        IDLE._replace(role="Primary"),
        IDLE._replace(disk="Outdated"),
        IDLE._replace(peers=()),
        IDLE._replace(peers=(GOOD._replace(role="Primary"),)),
        IDLE._replace(peers=(GOOD._replace(connection="Connecting"),)),
        IDLE._replace(peers=(GOOD._replace(replication="SyncSource", disk="Inconsistent"),)),
    ],
)
def test_nothing_is_asked_for_a_device_that_is_served_or_out_of_sync(state: ResourceState) -> None:
    node = _node(("n1", "n2"))
    assert not all_marked.unmark_peer(node, VOL, state, lambda *_: True)
    assert node.calls == []


def test_the_state_is_read_again_under_the_lock(fake_node: FakeNode) -> None:
    node = _node(("n1", "n2"))
    lost = IDLE._replace(peers=(GOOD._replace(connection="Connecting"),))
    fake_node.states["vol1"] = lost
    assert not all_marked.unmark_peer(node, VOL, IDLE, lambda *_: True)
    fake_node.states["vol1"] = IDLE
    with outdate.locked("vol1", wait_s=0.0) as is_mine:
        assert is_mine
        assert not all_marked.unmark_peer(node, VOL, IDLE, lambda *_: True), "a handler is marking"
    assert _patches(node) == []
