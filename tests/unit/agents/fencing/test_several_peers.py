# SPDX-License-Identifier: GPL-2.0-or-later
"""The fence-peer handler, marks and what is published, with several peers (DRBD 9)."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents.fencing.outdate import (
    AHEAD,
    clear_marks,
    mark_lost_and_without_disk,
    mark_outdated,
)
from sanctl.agents.handlers import drbd_environment, fence_peer
from sanctl.agents.publish import replica_state
from sanctl.agents.publish.replica_state import published_value
from sanctl.agents.replica import resource_file
from sanctl.agents.replica.parts import Device
from sanctl.agents.reservations import hooks
from sanctl.model import promotion_score as scores
from sanctl.model.drbd import ResourceState
from sanctl.parse.drbd import parse_events2
from sanctl.parse.published_state import parse_replica_state
from sanctl.plan.failover.fence_rules import is_certain
from sanctl.plan.failover.promotion import (
    are_all_blank,
    promotion_score,
)
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer, FakeRunner

GOLDEN = Path(__file__).parents[3] / "golden" / "drbd9"
_QUORUM = """\
Quorate:          Yes
Flags:            Quorate {flags}

Membership information
----------------------
    Nodeid      Votes Name
         1          1 n1 (local)
{others}"""
_GONE = '<node_state uname="{peer}" in_ccm="0" crmd="0" join="down" expected="down"/>'
_SILENT = '<node_state uname="{peer}" in_ccm="1" crmd="1" join="member" expected="member"/>'
_CIB = """\
<xpath-query><cib admin_epoch="0" epoch="7"/>
<node id="2" uname="n2"/><node id="3" uname="n3"/><node id="4" uname="n4"/>
<primitive id="vol1"/>
<nvpair id="vol1-params-uuid" name="uuid" value="{uuid}"/>{marks}{gone}</xpath-query>"""
_MARK = '<rsc_location id="sanctl-outdated-vol1.{peer}.{uuid}" node="{peer}"/>'
DEVICE = Device("vol1", "0" * 32, 8192, "main", ("n1", "n2", "n3"), 1, ())


def _events(role: str, quorum: str, **peers: str) -> str:
    """Events of a device whose peers are `good`, `syncing` or `gone`."""
    words = {
        "good": ("Connected", "Established", "UpToDate"),
        "syncing": ("Connected", "SyncSource", "Inconsistent"),
        "bare": ("Connected", "Established", "Diskless"),
        "gone": ("Connecting", "Off", "DUnknown"),
    }
    suspended = "no" if quorum == "yes" else "quorum"
    lines = [
        f"exists resource name:vol1 role:{role} suspended:{suspended}",
        f"exists device name:vol1 volume:0 minor:1 disk:UpToDate client:no quorum:{quorum} size:8",
    ]
    for number, (name, state) in enumerate(peers.items(), 1):
        connection, replication, disk = words[state]
        head = f"name:vol1 peer-node-id:{number} conn-name:{name}"
        lines += [
            f"exists connection {head} connection:{connection} role:Secondary",
            f"exists peer-device {head} volume:0 replication:{replication} peer-disk:{disk}"
            " out-of-sync:0",
        ]
    return "\n".join(lines)


def _state(role: str, quorum: str, **peers: str) -> ResourceState:
    return parse_events2(_events(role, quorum, **peers))["vol1"]


def _node(
    events: str,
    members: Sequence[str] = (),
    flags: str = "",
    *,
    marked: Sequence[str] = (),
    silent: str = "",
) -> FakeRunner:
    others = "".join(f"         {name[1:]}          1 {name}\n" for name in members)
    marks = list(marked)

    def answer(argv: Sequence[str]) -> Answer:
        match argv[0]:
            case "drbdsetup":
                return events
            case "corosync-quorumtool":
                return _QUORUM.format(others=others, flags=flags)
            case "cibadmin" if "--modify" in argv:
                marks.extend(re.findall(r'node="(\w+)"', node.calls[-1][1] or ""))
            case "cibadmin" if "--query" in argv:
                peer = re.findall(r"//node_state\[@uname='(\w*)'\]", argv[-1])[0]
                is_up = peer == silent or peer in members
                gone = (_SILENT if is_up else _GONE).format(peer=peer)
                if "|" not in argv[-1]:
                    return gone
                elements = "".join(_MARK.format(peer=each, uuid=DEVICE.uuid) for each in marks)
                return _CIB.format(marks=elements, uuid=DEVICE.uuid, gone=gone)
        return ""

    node = FakeRunner(answer)
    return node


def _marks(node: FakeRunner) -> list[str]:
    done = []
    for argv, given in node.calls:
        if "--delete-all" in argv:
            done += [f"clear {peer}" for peer in re.findall(r"vol1[.](\w+)[.]", argv[-1])]
        elif "--modify" in argv:
            done += [f"mark {peer}" for peer in re.findall(r'node="(\w+)"', given or "")]
    return done


@pytest.fixture(autouse=True)
def _local(fake_node: FakeNode) -> None:
    fake_node.generation = 9


@pytest.mark.parametrize(
    ("events", "flags", "expected"),
    [
        # The majority of the copies is left: the third is marked while I/O goes on.
        (_events("Primary", "yes", n2="good", n3="gone"), "", "fenced"),
        (_events("Secondary", "yes", n2="good", n3="gone"), "", "fenced"),
        # It is not: who serves may end its freeze by that, nobody may begin to serve.
        (_events("Primary", "no", n2="gone", n3="gone"), "", "fenced"),
        (_events("Primary", "no", n2="gone", n3="gone"), "Qdevice", "unknown"),
        (_events("Secondary", "no", n2="gone", n3="gone"), "", "unknown"),
        # Two copies: DRBD does not count, the cluster decides.
        (_events("Secondary", "yes", n3="gone"), "", "fenced"),
        ("", "", "unknown"),
    ],
)
def test_when_a_lost_peer_is_certain(events: str, flags: str, expected: str) -> None:
    node = _node(events, ["n2"], flags)
    assert mark_outdated(node, "vol1", "n3") == expected
    assert _marks(node) == (["mark n3"] if expected == "fenced" else [])


@pytest.mark.parametrize(
    ("peers", "members", "expected", "marks"),
    [
        ({"n2": "bare", "n3": "gone"}, ["n2"], "fenced", ["mark n3", "mark n2"]),
        # Another one is good: no majority is without every write, and a monitor marks it.
        ({"n2": "bare", "n3": "gone", "n4": "good"}, ["n2", "n4"], "fenced", ["mark n3"]),
        ({"n2": "bare", "n3": "gone", "n4": "gone"}, ["n2"], "fenced", ["mark n3", "mark n2"]),
        ({"n2": "syncing", "n3": "gone"}, ["n2"], "fenced", ["mark n3"]),
        # No member, and not fenced: it is not known what it will do.
        ({"n2": "bare", "n3": "gone"}, [], "unknown", ["mark n3"]),
    ],
)
def test_io_goes_on_once_those_without_a_disk_are_marked_too(
    peers: dict[str, str],
    members: list[str],
    expected: str,
    marks: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the lost peer, the disk that comes back would be a majority without what follows."""
    monkeypatch.setattr(resource_file, "replica_nodes", lambda _: ["n1", *peers])
    node = _node(_events("Primary", "no", **peers), members, silent="" if members else "n2")
    assert mark_lost_and_without_disk(node, "vol1", "n3") == expected
    assert _marks(node) == marks
    marked = [mark.removeprefix("mark ") for mark in marks]
    node = _node(_events("Primary", "no", **peers), members, marked=marked)
    if expected == "fenced":
        mark_lost_and_without_disk(node, "vol1", "n3")
        assert _marks(node) == ["mark n3"], "those that are marked are left as they are"


_FILLING = _events("Primary", "yes", n2="gone", n3="syncing")


def _epochs(node: FakeRunner) -> list[str]:
    """Return the `admin_epoch` of each change of the CIB, which was 0."""
    changes = [given or "" for argv, given in node.calls if "--modify" in argv]
    return ["".join(re.findall(r'admin_epoch="(\d+)"', change)) for change in changes]


def test_what_io_goes_on_without_is_marked_before_it_is_fenced() -> None:
    """What broke: the last good standby came back unmarked, and served without what came since."""
    node = _node(_FILLING, ["n3"], silent="n2")
    assert mark_lost_and_without_disk(node, "vol1", "n2") == AHEAD
    assert not is_certain(AHEAD)
    assert (_marks(node), _epochs(node)) == (["mark n2"], ["1"])
    # The same handler asks five times in a second.
    assert mark_lost_and_without_disk(node, "vol1", "n2", last=AHEAD) == AHEAD
    assert _marks(node) == ["mark n2"]


def test_a_mark_that_may_not_outrank_the_peers_cib_is_set_anew() -> None:
    """It may have been set while the peer was leaving, or by a process that has died."""
    node = _node(_FILLING, ["n3"], marked=["n2"], silent="n2")
    for last in ("", "member", "unknown"):
        assert mark_lost_and_without_disk(node, "vol1", "n2", last=last) == AHEAD
    assert _epochs(node) == ["1"] * 3
    # Fenced, or back: as ever.
    for members, said, epoch in (["n3"], "fenced", "64"), (["n2", "n3"], "member", ""):
        node = _node(_FILLING, members, marked=["n2"])
        assert mark_lost_and_without_disk(node, "vol1", "n2", last=AHEAD) == said
        assert (_marks(node), _epochs(node)) == (["mark n2"], [epoch])


@pytest.mark.parametrize(
    "events",
    [
        _events("Primary", "no", n2="gone", n3="gone"),
        _events("Secondary", "yes", n2="gone", n3="syncing"),
        _events("Primary", "yes", n2="good", n3="syncing"),
        # Two replicas: I/O is frozen until it is certain.
        _events("Primary", "yes", n2="gone"),
        _FILLING.replace("suspended:no", "suspended:fencing"),
        # Nothing is acknowledged without it.
        _FILLING.replace("suspended:no", "suspended:no-data"),
        _FILLING.replace("disk:UpToDate client", "disk:Diskless client"),
        "",
    ],
    ids=["frozen", "promotion", "back", "two", "fencing", "no-data", "no-disk", "down"],
)
def test_no_other_peer_is_marked_before_it_is_fenced(events: str) -> None:
    node = _node(events, ["n3"], silent="n2")
    for last in ("", AHEAD):
        assert mark_lost_and_without_disk(node, "vol1", "n2", last=last) == "unknown"
    assert _marks(node) == []


def test_nor_by_any_but_fence_peer() -> None:
    """A resync's source, and who stores reservations, ask again and again, and remember nothing."""
    node = _node(_FILLING, ["n3"], silent="n2")
    assert mark_outdated(node, "vol1", "n2") == "unknown"
    assert _marks(node) == []


def test_one_that_is_fenced_meanwhile_is_marked_anew() -> None:
    """Its node may have raised the number of its own CIB by as much, before it noticed."""
    node = _node(_FILLING, ["n3"], silent="n2")
    silent, fenced = node.answer, _node(_FILLING, ["n3"], marked=["n2"])
    assert callable(silent) and callable(fenced.answer)

    def answer(argv: Sequence[str]) -> Answer:
        assert callable(silent) and callable(fenced.answer)
        is_fenced = bool(_marks(node)) and "--modify" not in argv
        return fenced.answer(argv) if is_fenced else silent(argv)

    node.answer = answer
    assert mark_lost_and_without_disk(node, "vol1", "n2") == "unknown"
    assert mark_lost_and_without_disk(node, "vol1", "n2", last="unknown") == "fenced"
    assert _epochs(node) == ["1", "64"]


@pytest.mark.parametrize(("look", "marks"), [(1, []), (2, ["mark n2"])])
def test_nor_is_it_without_quorum(look: int, marks: list[str]) -> None:
    node = _node(_FILLING, ["n3"], silent="n2")
    answer = node.answer

    def lose(argv: Sequence[str]) -> Answer:
        asked = [call[0] for call, _ in node.calls].count("corosync-quorumtool")
        if argv[0] == "corosync-quorumtool" and asked >= look:
            return "Quorate: No\n"
        assert callable(answer)
        return answer(argv)

    node.answer = lose
    assert mark_lost_and_without_disk(node, "vol1", "n2") == "alone"
    assert _marks(node) == marks


def test_beside_it_one_without_a_disk_is_marked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_file, "replica_nodes", lambda _: ["n1", "n2", "n3"])
    node = _node(_events("Primary", "yes", n2="gone", n3="bare"), ["n3"], silent="n2")
    assert mark_lost_and_without_disk(node, "vol1", "n2") == AHEAD
    assert _marks(node) == ["mark n2", "mark n3"]


def test_the_handler_marks_ahead_once_and_answers_when_it_is_fenced(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRBD_RESOURCE", "vol1")
    monkeypatch.setenv("DRBD_PEER", "n2")
    monkeypatch.setattr(resource_file, "replica_nodes", lambda _: ["n1", "n2", "n3"])
    node = fake_node.programs = _node(_FILLING, ["n3"], silent="n2")
    silent = node.answer
    assert callable(silent)
    fenced = _node(_FILLING, ["n3"], marked=["n2"])

    def answer(argv: Sequence[str]) -> Answer:
        is_fenced = fake_node.clock.passed_s > 45.0
        assert callable(fenced.answer)
        return fenced.answer(argv) if is_fenced and "--modify" not in argv else silent(argv)

    node.answer = answer
    assert fence_peer.main() == 7
    assert 45.0 < fake_node.clock.passed_s < 47.0
    looks = [argv for argv, _ in node.calls if argv[0] == "corosync-quorumtool"]
    assert 40 < len(looks) < 60, "nobody waits for the answer: fewer than five times in a second"
    assert (_marks(node), _epochs(node)) == (["mark n2"] * 2, ["1", "64"])
    (line,) = [line for line in fake_node.journal if "is not known to be gone" in line]
    assert "I/O goes on" in line


@pytest.mark.parametrize(("fails", "said"), [(False, "stays marked"), (True, "is not marked")])
def test_the_handler_says_what_it_leaves_when_the_peer_is_back(
    fails: bool, said: str, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRBD_RESOURCE", "vol1")
    monkeypatch.setenv("DRBD_PEER", "n2")
    monkeypatch.setattr(resource_file, "replica_nodes", lambda _: ["n1", "n2", "n3"])
    node = fake_node.programs = _node(_FILLING, ["n3"], silent="n2")
    silent = node.answer
    assert callable(silent)
    back = _events("Primary", "yes", n2="syncing", n3="syncing")

    def answer(argv: Sequence[str]) -> Answer:
        assert callable(silent)
        if argv[0] == "drbdsetup" and fake_node.clock.passed_s > 5.0:
            return back
        if argv[0] == "corosync-quorumtool" and fails:
            return "Quorate: No\n"
        return silent(argv)

    node.answer = answer
    assert fence_peer.main() == 1
    assert _marks(node) == ([] if fails else ["mark n2"])
    assert said in fake_node.journal[-1]


def test_the_handler_does_that(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRBD_RESOURCE", "vol1")
    monkeypatch.setenv("DRBD_PEER", "n3")
    monkeypatch.setattr(resource_file, "replica_nodes", lambda _: ["n1", "n2", "n3"])
    node = fake_node.programs = _node(_events("Primary", "no", n2="bare", n3="gone"), ["n2"])
    assert fence_peer.main() == 7
    assert _marks(node) == ["mark n3", "mark n2"]


@pytest.mark.parametrize(
    ("generation", "role", "nodes"),
    [
        (9, "Secondary", ["n1", "n2", "n3"]),
        (9, "Primary", ["n1", "n3"]),
        (8, "Primary", ["n1", "n2", "n3"]),
    ],
    ids=["promotion", "two replicas", "8.4"],
)
def test_no_other_handler_looks_for_disks(
    fake_node: FakeNode,
    monkeypatch: pytest.MonkeyPatch,
    generation: int,
    role: str,
    nodes: list[str],
) -> None:
    fake_node.generation = generation
    monkeypatch.setattr(resource_file, "replica_nodes", lambda _: nodes)
    node = _node(_events(role, "yes", n2="bare", n3="gone"), ["n2"])
    assert mark_lost_and_without_disk(node, "vol1", "n3") == "fenced"
    assert _marks(node) == ["mark n3"]


def test_beside_no_other_peer_nothing_more_can_fail(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lost peer is certain and marked: an error of the root disk must not keep I/O frozen."""

    def fails(_: str) -> list[str]:
        raise OSError(errno.EIO, "a read error")

    fake_node.generation = 9
    monkeypatch.setattr(resource_file, "replica_nodes", fails)
    for others in ({}, {"n2": "gone"}):
        node = _node(_events("Primary", "yes", n3="gone", **others), ["n2"])
        expected = mark_outdated(node, "vol1", "n3")
        node = _node(_events("Primary", "yes", n3="gone", **others), ["n2"])
        assert mark_lost_and_without_disk(node, "vol1", "n3") == expected == "fenced"


def test_only_the_mark_of_a_peer_in_sync_is_cleared() -> None:
    node = _node(
        _events("Primary", "yes", n2="good", n3="syncing"),
        ["n2", "n3"],
        marked=["n2", "n3", "n4"],
    )
    assert clear_marks(node, "vol1", ["n2"], hooks.has_current)
    assert not clear_marks(node, "vol1", ["n3"], hooks.has_current)
    assert not clear_marks(node, "vol1", ["n4"], hooks.has_current)
    assert _marks(node) == ["clear n2"]


def test_after_a_change_the_primary_clears_the_marks_that_it_may() -> None:
    state = _state("Primary", "yes", n2="gone", n3="good")
    node = _node(_events("Primary", "yes", n2="gone", n3="good"), ["n2", "n3"], marked=["n2", "n3"])
    replica_state.publish(node, DEVICE, state)
    assert _marks(node) == ["clear n3"]


@pytest.mark.parametrize(
    ("quorum", "n3", "frozen"),
    [("no", "gone", True), ("yes", "gone", False), ("no", "good", False)],
)
def test_only_frozen_io_leads_to_a_reboot(
    quorum: str, n3: str, frozen: bool, fake_node: FakeNode
) -> None:
    """With a majority of the replicas a node goes on; without one I/O is frozen."""
    fake_node.programs = _node(_events("Primary", quorum, n2="gone", n3=n3))
    assert fence_peer._is_frozen("vol1", "n3") is frozen
    assert fence_peer._is_primary_without_peer("vol1", "n3") is (n3 == "gone")


def test_the_published_state_names_each_peer() -> None:
    text = published_value(_state("Primary", "yes", n2="good", n3="gone"), nodes=3)
    assert "connection=Connected,Connecting" in text
    assert "peers=n2,n3" in text
    state = parse_replica_state(text)
    assert [(link.node, link.is_in_sync) for link in state.peers] == [("n2", True), ("n3", False)]
    assert not state.is_connected and not state.is_in_sync
    assert state.brief() == "UpToDate n3 Connecting"


def test_a_single_peer_is_published_in_the_old_form() -> None:
    assert "peers=" not in published_value(_state("Primary", "yes", n2="good"), nodes=2)


RENDERED = GOLDEN / "rendered"


@pytest.mark.parametrize(
    ("name", "score", "frozen"),
    [
        ("uptodate-primary.n1", scores.PRIMARY, False),
        ("peer-lost.n1", scores.PRIMARY, False),
        ("peer-outdated.n1", scores.PRIMARY, False),
        ("quorum-lost.n1", scores.PRIMARY, True),
        ("goes-on-alone.n1", scores.PRIMARY, False),
        ("two-frozen.n1", scores.PRIMARY, True),
        # The others of the three, when it has lost them, or died.
        ("quorum-lost.n2", scores.UP_TO_DATE, False),
        ("primary-crashed.n2", scores.UP_TO_DATE, False),
        # Good by its own word, but the only one of three: DRBD would refuse it.
        ("left-alone.n3", None, False),
        ("two-crashed.n2", scores.DISCONNECTED, False),
        ("two-alone-after-start.n1", scores.CONSISTENT, False),
        ("blank.n1", None, False),
    ],
)
def test_scores_of_captured_states(name: str, score: int | None, frozen: bool) -> None:
    state = parse_events2((RENDERED / f"{name}.txt").read_text())["vol1"]
    assert promotion_score(state, is_new=False) == score
    assert parse_replica_state(published_value(state, nodes=3)).is_frozen is frozen
    assert are_all_blank(state, replicas=3) is (name == "blank.n1")


def test_the_handler_finds_its_peer_in_the_captured_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (RENDERED / "fence-peer.environment.txt").read_text()
    for line in text.splitlines():
        name, _, value = line.partition("=")
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DRBD_PEER", raising=False)
    assert (drbd_environment.resource(), drbd_environment.peer()) == ("vol1", "n3")


def test_captured_states_are_published_and_read() -> None:
    for name, disks in {
        "uptodate-primary.m1": ["UpToDate", "UpToDate"],
        "peer-lost.m1": ["UpToDate", None],
        "quorum-lost-suspended.m1": [None, None],
    }.items():
        state = parse_events2((GOLDEN / f"{name}.txt").read_text())["r0"]
        assert [
            link.disk for link in parse_replica_state(published_value(state, nodes=3)).peers
        ] == disks
