"""What the cluster says of a peer, in the words of Pacemaker 2.1.5 and of 3.0."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest

from sanctl.agents import fencing
from sanctl.agents.fencing import clear_marks, peer_standing, secure
from sanctl.drivers import drbd
from sanctl.errors import CommandError, Problem
from sanctl.system.runner import CommandResult

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


class _Cluster:
    """Answers the two questions; the CIB may lag behind corosync."""

    def __init__(self, members: str, node: dict[str, str] | None, quorate: str = "Yes") -> None:
        self._quorum = _QUORUM.format(quorate=quorate, others=members)
        self._node = node

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: str | None = None,
        ok: Collection[int] = (0,),
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        if argv[0] == "corosync-quorumtool":
            return CommandResult(tuple(argv), 0, self._quorum, "", 0.0)
        if self._node is None:
            raise CommandError(Problem("SAN-CMD-003", "No such device or address"))
        pairs = " ".join(f'{key}="{value}"' for key, value in self._node.items())
        return CommandResult(tuple(argv), 0, f'<node_state uname="n2" {pairs}/>', "", 0.0)


def test_member() -> None:
    assert peer_standing(_Cluster("\n         2          1 n2", None), "n2") == "member"


@pytest.mark.parametrize("state", [_GONE_OLD, _GONE_NEW])
def test_fenced(state: dict[str, str]) -> None:
    assert peer_standing(_Cluster("", state), "n2") == "fenced"


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
    assert peer_standing(_Cluster("", {**gone, **change}), "n2") == "unknown"


def test_no_word_of_the_node_is_no_conclusion() -> None:
    with pytest.raises(CommandError):
        peer_standing(_Cluster("", None), "n2")
    assert peer_standing(_Cluster("", {}), "n2") == "unknown"


@pytest.mark.parametrize("members", ["", "\n         2          1 n2"])
@pytest.mark.parametrize("quorate", ["No", ""])
def test_without_quorum_nothing_is_certain(members: str, quorate: str) -> None:
    """The CIB of a node that was just cut off may still say that all is well."""
    assert peer_standing(_Cluster(members, _GONE_NEW, quorate), "n2") == "unknown"


class _Node:
    """A node with DRBD, CIB and corosync; records what is done to marks."""

    def __init__(self, events: str, standing: Sequence[str] = ()) -> None:
        self.events = events
        self.standing = list(standing)
        self.done: list[str] = []

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: str | None = None,
        ok: Collection[int] = (0,),
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        text = ""
        if argv[0] == "drbdsetup":
            text = self.events
        elif argv[0] == "crm_attribute":
            self.done.append(f"{'clear' if '--delete' in argv else 'mark'} {argv[2]}")
        elif argv[0] == "crm_resource":
            text = "0" * 32
        elif argv[0] == "corosync-quorumtool":
            quorate, members = self.standing.pop(0).split("/")
            others = "\n         2          1 n2" if "n2" in members else ""
            text = _QUORUM.format(quorate=quorate, others=others)
        elif argv[0] == "cibadmin":
            text = '<node_state uname="n2" in_ccm="0" crmd="0" join="member" expected="member"/>'
        return CommandResult(tuple(argv), 0, text, "", 0.0)


def _events(role: str, connection: str, peer_disk: str) -> str:
    return (
        f"exists resource name:vol1 role:{role} suspended:no\n"
        f"exists connection name:vol1 conn-name:peer connection:{connection} role:Secondary\n"
        "exists device name:vol1 volume:0 minor:1 disk:UpToDate size:8\n"
        "exists peer-device name:vol1 conn-name:peer volume:0 replication:Established"
        f" peer-disk:{peer_disk}\n"
    )


@pytest.fixture(autouse=True)
def _local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(drbd, "is_loaded", lambda: True)
    monkeypatch.setattr(fencing, "_LOCKS", str(tmp_path))


def test_a_primary_in_sync_clears_its_peers_marks() -> None:
    node = _Node(_events("Primary", "Connected", "UpToDate"), ["Yes/n2"])
    assert clear_marks(node, "vol1", ["n2"])
    assert node.done == ["clear n2"]


@pytest.mark.parametrize("standing", ["No/n1", "No/n2", "Yes/n1"])
def test_a_primary_that_was_cut_off_clears_nothing(standing: str) -> None:
    """Found by the safety model: a lonely mark and its lonely clearing made the newer CIB."""
    node = _Node(_events("Primary", "Connected", "UpToDate"), [standing])
    assert not clear_marks(node, "vol1", ["n2"])
    assert node.done == []


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
def test_nobody_else_clears_a_mark(events: str) -> None:
    """A standby may still believe in a link that its Primary has gone on without."""
    node = _Node(events)
    assert not clear_marks(node, "vol1", ["n2"])
    assert node.done == []


def test_no_mark_is_cleared_while_the_handler_sets_one() -> None:
    node = _Node(_events("Primary", "Connected", "UpToDate"))
    with fencing._locked("vol1"):
        assert not clear_marks(node, "vol1", ["n2"])
    assert node.done == []


def test_without_quorum_nothing_is_marked() -> None:
    node = _Node("", ["No/n1"])
    assert secure(node, "vol1", "n2") == "unknown"
    assert node.done == []


def test_quorum_lost_while_marking_is_not_certain() -> None:
    node = _Node("", ["Yes/n2", "No/n1"])
    assert secure(node, "vol1", "n2") == "unknown"
    assert node.done == ["mark n2"]


def test_a_member_is_marked_and_then_asked_for_again() -> None:
    node = _Node("", ["Yes/n2", "Yes/n2"])
    assert secure(node, "vol1", "n2") == "member"
    assert node.done == ["mark n2"]
