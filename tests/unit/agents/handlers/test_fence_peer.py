# SPDX-License-Identifier: GPL-2.0-or-later
"""Membership of a peer by Pacemaker 2.1.5 and 3.0, outdated marks, the fence-peer handler."""

from __future__ import annotations

import contextlib
import errno
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence

import pytest

from sanctl.agents.fencing import failed_stop_reboot, outdate
from sanctl.agents.fencing.outdate import clear_marks, mark_outdated, peer_membership
from sanctl.agents.handlers import fence_peer
from sanctl.agents.reservations import hooks
from sanctl.errors import CommandError, Problem
from sanctl.system import state_files
from tests.fakes.node import Clock, FakeNode, Rebooted
from tests.fakes.runner import Answer, FakeRunner

_QUORUM = """\
Quorum information
------------------
Quorate:          {quorate}

Membership information
----------------------
    Nodeid      Votes Name
         1          1 n1{others}
         3          1 n3 (local)
"""
_GONE_OLD = {"in_ccm": "false", "crmd": "offline", "join": "down", "expected": "down"}
_GONE_NEW = {"in_ccm": "0", "crmd": "0", "join": "down", "expected": "down"}


def _cluster(
    members: str,
    node: dict[str, str] | None,
    quorate: str = "Yes",
    *,
    history: Sequence[tuple[int, str, int]] = (),
    maintenance: str = "",
) -> FakeRunner:
    """Answers the two questions; the CIB may lag behind corosync."""

    def answer(argv: Sequence[str]) -> Answer:
        if argv[0] == "corosync-quorumtool":
            return _QUORUM.format(quorate=quorate, others=members)
        if node is None:
            return CommandError(Problem("SAN-CMD-003", "No such device or address"))
        pairs = " ".join(f'{key}="{value}"' for key, value in node.items())
        actions = "".join(
            f'<lrm_rsc_op operation="{operation}" call-id="{number}" rc-code="{status}"/>'
            for number, operation, status in history
        )
        return (
            '<xpath-query><cib admin_epoch="0" epoch="7"/><node uname="n2" id="2"/>'
            f'<nvpair name="maintenance" value="{maintenance}"/>'
            '<primitive id="vol1"/><nvpair name="uuid" value="5"/>'
            f'<node_state uname="n2" {pairs}/><lrm_resource id="vol1"/>{actions}</xpath-query>'
        )

    return FakeRunner(answer)


def membership(runner: FakeRunner) -> str:
    return peer_membership(runner, "vol1", "n2")


def test_member() -> None:
    assert membership(_cluster("\n         2          1 n2", None)) == "member"


@pytest.mark.parametrize("state", [_GONE_OLD, _GONE_NEW])
def test_fenced(state: dict[str, str]) -> None:
    assert membership(_cluster("", state)) == "fenced"


@pytest.mark.parametrize("state", [_GONE_OLD, _GONE_NEW])
def test_one_that_is_primary_by_its_history_is_not_known_to_be_fenced(
    state: dict[str, str],
) -> None:
    """Once seen for 20 s of a Primary that was alive: the coordinator was lost with it."""
    serves = [(12, "promote", 0), (13, "monitor", 8)]
    assert membership(_cluster("", state, history=serves)) == "unknown"
    # In maintenance it is fenced for no history.
    assert membership(_cluster("", state, history=serves, maintenance="true")) == "fenced"
    assert membership(_cluster("", state, history=serves, maintenance="false")) == "unknown"
    # Demoted in order; or a standby that was lost.
    assert membership(_cluster("", state, history=[*serves, (14, "demote", 0)])) == "fenced"
    assert membership(_cluster("", state, history=[(12, "start", 0)])) == "fenced"


@pytest.mark.parametrize("gone", [_GONE_OLD, _GONE_NEW])
@pytest.mark.parametrize(
    "change",
    [
        {"expected": "member"},
        {"join": "member"},
        {"in_ccm": "true"},
        {"in_ccm": "1732147200"},
        {"crmd": "online"},
        {"crmd": "1732147200"},
        {"join": "pending"},
    ],
    ids=str,
)
def test_silence_is_not_absence(gone: dict[str, str], change: dict[str, str]) -> None:
    assert membership(_cluster("", {**gone, **change})) == "unknown"


def test_a_node_without_state_in_the_cib_is_an_error() -> None:
    with pytest.raises(CommandError):
        membership(_cluster("", None))
    assert membership(_cluster("", {})) == "unknown"


@pytest.mark.parametrize("members", ["", "\n         2          1 n2"])
@pytest.mark.parametrize("quorate", ["No", ""])
def test_without_quorum_nothing_is_certain(members: str, quorate: str) -> None:
    """The CIB of a node that was just cut off may still say that all is well."""
    assert membership(_cluster(members, _GONE_NEW, quorate)) == "alone"


_UUID = "0" * 32
_HERE = {"in_ccm": "1", "crmd": "1", "join": "member", "expected": "member"}
_AWAY = {"in_ccm": "0", "crmd": "0", "join": "member", "expected": "member"}


class _Cib:
    """What a node's CIB says of vol1 and n2; takes marks, and forgets them when told to."""

    def __init__(self, state: dict[str, str], *, keeps: bool = True) -> None:
        self.state = state
        self.keeps = keeps
        self.admin_epoch = 3
        self.mark = ""
        self.own_mark = ""
        self.after_mark: dict[str, str] | None = None

    def answer(self, argv: Sequence[str], stdin: str | None = None) -> Answer:
        if "--modify" in argv:
            change = ET.fromstring(stdin or "")
            self.admin_epoch = int(change.get("admin_epoch", self.admin_epoch))
            made = change.find("configuration/constraints/rsc_location[@node='n2']")
            assert made is not None
            self.mark = made.get("id", "").rpartition(".")[2] if self.keeps else ""
            self.state = self.after_mark or self.state
            return ""
        pairs = " ".join(f'{key}="{value}"' for key, value in self.state.items())
        mark = f'<rsc_location id="sanctl-outdated-vol1.n2.{self.mark}" node="n2"/>'
        return (
            f'<xpath-query><cib admin_epoch="{self.admin_epoch}" epoch="7"/>'
            f'<node id="1" uname="n1"/>'
            f'<nvpair id="y" name="sanctl-outdated-vol1" value="{self.own_mark}"/>'
            '<node id="2" uname="n2"/>'
            '<primitive id="vol1"/>'
            f'<nvpair id="vol1-params-uuid" name="uuid" value="{_UUID}"/>'
            f"{mark if self.mark else ''}"
            f'<node_state id="2" uname="n2" {pairs}/></xpath-query>'
        )


class _Node(FakeRunner):
    """A node with DRBD, CIB and corosync, which answers for each of `standing` in turn."""

    def __init__(self, events: str, standing: Sequence[str], cib: _Cib) -> None:
        super().__init__("")
        self.cib = cib
        left = list(standing)

        def answer(argv: Sequence[str]) -> Answer:
            match argv[0]:
                case "drbdsetup":
                    return events
                case "corosync-quorumtool":
                    quorate, members = left.pop(0).split("/")
                    others = "\n         2          1 n2" if "n2" in members else ""
                    return _QUORUM.format(quorate=quorate, others=others)
                case "cibadmin" if "/cib" in argv[-1] or "--modify" in argv:
                    return cib.answer(argv, self.calls[-1][1])
                case "cibadmin":
                    pairs = " ".join(f'{key}="{value}"' for key, value in cib.state.items())
                    return f'<node_state uname="n2" {pairs}/>'
            return ""

        self.answer = answer


def _node(events: str, standing: Sequence[str] = (), cib: _Cib | None = None) -> _Node:
    return _Node(events, standing, cib or _Cib(_HERE))


def _marked_node(events: str, standing: Sequence[str] = ()) -> _Node:
    """A node on which n2 is marked."""
    cib = _Cib(_HERE)
    cib.mark = _UUID
    return _node(events, standing, cib)


def _done(node: FakeRunner) -> list[str]:
    """Return what was done to marks."""
    return [
        "mark n2" if "--modify" in argv else f"clear {argv[-1].split('.')[1]}"
        for argv, _ in node.calls
        if "--modify" in argv or "--delete-all" in argv
    ]


def _events(role: str, connection: str, peer_disk: str) -> str:
    return (
        f"exists resource name:vol1 role:{role} suspended:no\n"
        f"exists connection name:vol1 conn-name:peer connection:{connection} role:Secondary\n"
        "exists device name:vol1 volume:0 minor:1 disk:UpToDate size:8\n"
        "exists peer-device name:vol1 conn-name:peer volume:0 replication:Established"
        f" peer-disk:{peer_disk}\n"
    )


pytestmark = pytest.mark.usefixtures("fake_node")


def test_a_primary_in_sync_clears_its_peers_marks() -> None:
    node = _marked_node(_events("Primary", "Connected", "UpToDate"), ["Yes/n2"])
    assert clear_marks(node, "vol1", ["n2"], hooks.has_current)
    assert _done(node) == ["clear n2"]


def test_a_peer_without_the_reservations_stays_marked() -> None:
    node = _marked_node(_events("Primary", "Connected", "UpToDate"), ["Yes/n2"])
    asked: list[tuple[str, str]] = []

    @contextlib.contextmanager
    def has_not(_: object, device: str, peer: str) -> Iterator[bool]:
        asked.append((device, peer))
        yield False

    assert not clear_marks(node, "vol1", ["n2"], has_not)
    assert (_done(node), asked) == ([], [("vol1", "n2")])


def test_a_mark_goes_while_the_reservations_are_held() -> None:
    node = _marked_node(_events("Primary", "Connected", "UpToDate"), ["Yes/n2"])
    seen: list[list[str]] = []

    @contextlib.contextmanager
    def has(*_: object) -> Iterator[bool]:
        seen.append(_done(node))
        yield True
        seen.append(_done(node))

    assert clear_marks(node, "vol1", ["n2"], has)
    assert seen == [[], ["clear n2"]]


def test_where_there_is_no_mark_nothing_is_changed_or_asked() -> None:
    """A monitor of a device that is served looks once a minute."""
    node = _node(_events("Primary", "Connected", "UpToDate"))
    assert clear_marks(node, "vol1", ["n2"], hooks.has_current)
    assert [argv[0] for argv, _ in node.calls] == ["cibadmin"]


@pytest.mark.parametrize("standing", ["No/n1", "No/n2", "Yes/n1"])
def test_a_primary_that_was_cut_off_clears_nothing(standing: str) -> None:
    """Found by the safety model: a mark and its clearing without quorum made the newer CIB."""
    node = _marked_node(_events("Primary", "Connected", "UpToDate"), [standing])
    assert not clear_marks(node, "vol1", ["n2"], hooks.has_current)
    assert _done(node) == []


@pytest.mark.parametrize(
    "events",
    [
        _events("Secondary", "Connected", "UpToDate"),
        _events("Primary", "Connecting", "DUnknown"),
        _events("Primary", "Connected", "Inconsistent"),
        "",
    ],
    ids=["standby", "link-lost", "peer-behind", "down"],
)
def test_only_a_primary_in_sync_clears_a_mark(events: str) -> None:
    """A standby may not have noticed yet that its Primary has gone on without it."""
    node = _marked_node(events)
    assert not clear_marks(node, "vol1", ["n2"], hooks.has_current)
    assert _done(node) == []


def test_a_primary_marks_a_connected_peer_that_has_no_disk() -> None:
    """DRBD calls no handler, and nothing on the peer's disk says that it is behind."""
    node = _node(_events("Primary", "Connected", "Diskless"), ["Yes/n2"] * 2)
    outdate.mark_without_disk(node, "vol1", ["n2"], others=["n2"])
    assert _done(node) == ["mark n2"]
    outdate.mark_without_disk(node, "vol1", ["n2"], others=["n2"])
    assert _done(node) == ["mark n2"]


@pytest.mark.parametrize(
    ("events", "standing"),
    [
        (_events("Secondary", "Connected", "Diskless"), "Yes/n2"),
        (_events("Primary", "Connecting", "Diskless"), "Yes/n2"),
        (_events("Primary", "Connected", "Inconsistent"), "Yes/n2"),
        (_events("Primary", "Connected", "Diskless"), "No/n2"),
        (
            _events("Primary", "Connected", "Diskless").replace(
                "minor:1 disk:UpToDate", "minor:1 disk:Failed"
            ),
            "Yes/n2",
        ),
        ("", "Yes/n2"),
    ],
    ids=["standby", "link-lost", "has-a-disk", "no-quorum", "own-disk-lost", "down"],
)
def test_no_other_peer_is_marked_by_a_monitor(events: str, standing: str) -> None:
    node = _node(events, [standing])
    outdate.mark_without_disk(node, "vol1", ["n2"], others=["n2"])
    assert _done(node) == []


def test_no_mark_is_cleared_while_the_handler_sets_one() -> None:
    node = _marked_node(_events("Primary", "Connected", "UpToDate"))
    with outdate.locked("vol1", wait_s=0.0):
        assert not clear_marks(node, "vol1", ["n2"], hooks.has_current)
    assert _done(node) == []


def test_without_quorum_nothing_is_marked() -> None:
    node = _node("", ["No/n1"])
    assert mark_outdated(node, "vol1", "n2") == "alone"
    assert _done(node) == []


@pytest.mark.parametrize("suspended", ["no", "fencing"])
def test_with_drbd_8_a_lost_peer_is_asked_for_and_no_more_until_it_is_fenced(
    suspended: str, fake_node: FakeNode
) -> None:
    """With three replicas of DRBD 9 a Primary marks before; here its I/O waits."""
    fake_node.generation = 8
    events = _LOST.replace("suspended:no", f"suspended:{suspended}")
    for last in ("", "unknown", outdate.AHEAD):
        node = _node(events, ["Yes/n1"], _Cib(_AWAY))
        assert outdate.mark_lost_and_without_disk(node, "vol1", "n2", last=last) == "unknown"
        assert [argv[0] for argv, _ in node.calls] == ["corosync-quorumtool", "cibadmin"]
        assert _done(node) == []


def test_quorum_lost_while_marking_is_not_certain() -> None:
    node = _node("", ["Yes/n2", "No/n1"])
    assert mark_outdated(node, "vol1", "n2") == "alone"
    assert _done(node) == ["mark n2"]


def test_a_member_is_marked_and_then_asked_for_again() -> None:
    node = _node("", ["Yes/n2", "Yes/n2"])
    assert mark_outdated(node, "vol1", "n2") == "member"
    assert _done(node) == ["mark n2"]


def test_no_promotion_begins_where_its_own_replica_is_marked() -> None:
    """Found by the safety model: a node that joins brings the mark, after the order was given."""
    for own_mark, is_promoting, outcome in (
        (_UUID, True, "marked"),
        # Of a device that had the name before.
        ("beef", True, "member"),
        ("", True, "member"),
        # A Primary that is marked has gone on; the node that marked it has waited for that.
        (_UUID, False, "member"),
    ):
        node = _node("", ["Yes/n2", "Yes/n2"])
        node.cib.own_mark = own_mark
        with outdate.promoting("vol1") if is_promoting else contextlib.nullcontext():
            assert mark_outdated(node, "vol1", "n2") == outcome
        assert _done(node) == ([] if outcome == "marked" else ["mark n2"])


_LOST = _events("Primary", "Connecting", "DUnknown")


def test_the_mark_of_a_fenced_peer_makes_this_cib_the_newest() -> None:
    """Newer than any change the peer made to its own CIB while alone; a member shares this CIB."""
    node = _node(_LOST, ["Yes/n1", "Yes/n1"], _Cib(_GONE_NEW))
    assert mark_outdated(node, "vol1", "n2") == "fenced"
    assert (node.cib.mark, node.cib.admin_epoch) == (_UUID, 3 + 64)
    node = _node(_LOST, ["Yes/n2", "Yes/n2"])
    assert mark_outdated(node, "vol1", "n2") == "member"
    assert (node.cib.mark, node.cib.admin_epoch) == (_UUID, 3)


def test_a_peer_that_was_fenced_while_it_was_marked_is_marked_again() -> None:
    cib = _Cib(_HERE)
    node = _node(_LOST, ["Yes/n2", "Yes/n1"], cib)
    cib.after_mark = _GONE_NEW
    assert mark_outdated(node, "vol1", "n2") == "unknown"
    assert (node.cib.mark, node.cib.admin_epoch) == (_UUID, 3)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        # Corosync has it as a member some second before it joins Pacemaker, and its CIB is its own.
        ({"in_ccm": "9", "crmd": "9", "join": "down", "expected": "down"}, "unknown"),
        ({"in_ccm": "9", "crmd": "9"}, "unknown"),
        # The controller has died there: the node will be fenced.
        ({"in_ccm": "9", "crmd": "0", "join": "down", "expected": "member"}, "unknown"),
        # Pacemaker was stopped there, in order, and Corosync was not.
        ({"in_ccm": "9", "crmd": "0", "join": "down", "expected": "down"}, "fenced"),
        ({"in_ccm": "9", "crmd": "9", "join": "member", "expected": "member"}, "member"),
    ],
)
def test_a_member_of_corosync_is_one_once_it_has_joined_pacemaker(
    state: dict[str, str], expected: str
) -> None:
    """What broke: a node that was fenced as it marked this one brings a CIB that outranks."""
    cib = _Cib(state)
    node = _node(_LOST, ["Yes/n2"] * 2, cib)
    assert mark_outdated(node, "vol1", "n2") == expected
    assert (cib.mark, cib.admin_epoch) == {
        "unknown": ("", 3), "fenced": (_UUID, 67), "member": (_UUID, 3)
    }[expected]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "is_noted"),
    [
        (_GONE_NEW, False),
        ({"in_ccm": "9", "crmd": "9"}, False),
        # Lost, and not fenced: it is expected to be up from the first step of its join on.
        ({"in_ccm": "0", "crmd": "0", "join": "down", "expected": "member"}, False),
        ({"in_ccm": "9", "crmd": "9", "join": "member", "expected": "member"}, True),
    ],
)
def test_a_handler_notes_that_its_peer_has_joined(
    state: dict[str, str], is_noted: bool, fake_node: FakeNode
) -> None:
    mark_outdated(_node(_LOST, ["Yes/n1"] * 2, _Cib(state)), "vol1", "n2")
    assert state_files.of_node("joined.n2").exists() is is_noted


def test_a_mark_that_did_not_last_does_not_count() -> None:
    """Partitions that join keep one of their CIBs, which may be the other partition's."""
    node = _node("", ["Yes/n2", "Yes/n2"], _Cib(_HERE, keeps=False))
    assert mark_outdated(node, "vol1", "n2") == "unknown"
    assert _done(node) == ["mark n2"]


@pytest.fixture
def clock(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of a node on which DRBD starts the handler; it moves when the handler sleeps."""
    monkeypatch.setenv("DRBD_RESOURCE", "vol1")
    monkeypatch.setenv("DRBD_PEER", "n2")
    return fake_node.clock


def _frozen(clock: Clock, standing: Callable[[float], str], role: str = "Primary") -> FakeRunner:
    """A node that answers as long as it is asked: a standing for each second that passes."""
    silence = CommandError(Problem("SAN-CMD-002", "no answer"))

    def answer(argv: Sequence[str]) -> Answer:
        told = standing(clock.passed_s)
        if argv[0] == "corosync-quorumtool" and told == "silent":
            return silence
        if argv[0] == "cibadmin" and told == "Yes/mute":
            return silence
        return node.inner(argv, told)

    node = _Frozen(answer, _events(role, "Connecting", "DUnknown"))
    return node


class _Frozen(FakeRunner):
    """A CIB that keeps the marks that were set."""

    def __init__(self, answer: Callable[[Sequence[str]], Answer], events: str) -> None:
        super().__init__(answer)
        self.events = events
        self.cib = _Cib(_AWAY)

    def inner(self, argv: Sequence[str], told: str) -> Answer:
        self.cib.state = _HERE if "n2" in told else _AWAY
        node = _node(self.events, [told], self.cib)
        node.calls.append(self.calls[-1])
        assert callable(node.answer)
        return node.answer(argv)


@pytest.mark.parametrize("told", ["No/n1", "silent"])
def test_a_frozen_primary_without_quorum_reboots_after_its_time(
    told: str, clock: Clock, fake_node: FakeNode
) -> None:
    fake_node.programs = _frozen(clock, lambda _passed: told)
    with pytest.raises(Rebooted, match="no quorum for 60 s"):
        fence_peer.main()
    assert 60.0 <= clock.passed_s < 62.0


def test_an_error_of_the_kernel_does_not_end_the_handler(
    clock: Clock, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DRBD calls the handler once: I/O would stay frozen for good."""
    fake_node.programs = _frozen(clock, lambda _passed: "Yes/n1")
    looks = iter([OSError(errno.ENOMEM, "Cannot allocate memory")] * 3)

    def exists(_file: state_files.StateFile) -> bool:
        for error in looks:
            raise error
        raise Rebooted("asked again")

    monkeypatch.setattr(state_files.StateFile, "exists", exists)
    with pytest.raises(Rebooted, match="asked again"):
        fence_peer.main()


@pytest.mark.parametrize("told", ["Yes/n1", "Yes/mute"])
def test_a_frozen_primary_with_quorum_waits_as_long_as_necessary(
    told: str, clock: Clock, fake_node: FakeNode
) -> None:
    """Also when Pacemaker does not answer: only corosync says who is the majority."""
    fake_node.programs = _frozen(clock, lambda passed: "Yes/n2" if passed > 200 else told)
    assert fence_peer.main() == 4
    assert clock.passed_s > 200


def test_quorum_that_comes_back_restarts_the_time(clock: Clock, fake_node: FakeNode) -> None:
    def told(passed: float) -> str:
        return "Yes/n1" if 50 <= passed < 51 else "No/n1"

    fake_node.programs = _frozen(clock, told)
    with pytest.raises(Rebooted):
        fence_peer.main()
    assert clock.passed_s > 110


def test_a_promotion_never_ends_in_a_reboot(clock: Clock, fake_node: FakeNode) -> None:
    fake_node.programs = _frozen(clock, lambda _passed: "No/n1", "Secondary")
    with outdate.promoting("vol1"):
        assert fence_peer.main() == 1
    assert clock.passed_s > 30


def test_a_promotion_that_is_certain_may_go_on(clock: Clock, fake_node: FakeNode) -> None:
    fake_node.programs = _frozen(clock, lambda _passed: "Yes/n2", "Secondary")
    with outdate.promoting("vol1"):
        assert fence_peer.main() == 4


@pytest.mark.parametrize(
    "events",
    [
        _events("Secondary", "Connecting", "DUnknown"),
        _events("Primary", "Connected", "UpToDate"),
        "",
    ],
    ids=["demoted", "link-back", "down"],
)
def test_a_late_handler_sets_no_mark(events: str, clock: Clock, fake_node: FakeNode) -> None:
    """The peer may have been promoted meanwhile: then no replica could be promoted any more."""
    node = _node(events, ["Yes/n2", "Yes/n2"])
    fake_node.programs = node
    assert fence_peer.main() == 1
    assert _done(node) == []


def test_a_cancelled_promotion_sets_no_mark(clock: Clock, fake_node: FakeNode) -> None:
    node = _node(_events("Secondary", "Connecting", "DUnknown"), ["Yes/n2", "Yes/n2"])
    fake_node.programs = node
    with outdate.promoting("vol1"):
        outdate.cancel_promotion("vol1")
        assert fence_peer.main() == 1
    assert _done(node) == []


@pytest.mark.parametrize(("told", "reboots"), [("No/n1", True), ("Yes/n1", False), ("", False)])
def test_a_failed_stop_without_quorum_reboots_the_node(
    told: str, reboots: bool, clock: Clock
) -> None:
    node = _frozen(clock, lambda _passed: told or "silent")
    if reboots:
        with pytest.raises(Rebooted, match="could not be stopped"):
            failed_stop_reboot.reboot_after_failed_stop(node, "vol1", "it hangs")
    else:
        failed_stop_reboot.reboot_after_failed_stop(node, "vol1", "it hangs")
