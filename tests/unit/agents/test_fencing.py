"""What the cluster says of a peer, in the words of Pacemaker 2.1.5 and of 3.0."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest

from sanctl.agents.fencing import clear_own_mark, peer_standing
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


class _Replica:
    """Answers for DRBD and the CIB, and remembers what was done to the mark."""

    def __init__(self, events: str) -> None:
        self.events = events
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
            self.done.append("clear" if "--delete" in argv else "mark")
        elif argv[0] == "crm_resource":
            text = "0" * 32
        return CommandResult(tuple(argv), 0, text, "", 0.0)


def _events(connection: str, peer_disk: str) -> str:
    return (
        "exists resource name:vol1 role:Secondary suspended:no\n"
        f"exists connection name:vol1 conn-name:peer connection:{connection} role:Primary\n"
        "exists device name:vol1 volume:0 minor:1 disk:UpToDate size:8\n"
        "exists peer-device name:vol1 conn-name:peer volume:0 replication:Established"
        f" peer-disk:{peer_disk}\n"
    )


def test_the_mark_is_taken_off_a_replica_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drbd, "is_loaded", lambda: True)
    replica = _Replica(_events("Connected", "UpToDate"))
    clear_own_mark(replica, "vol1")
    assert replica.done == ["clear"]


@pytest.mark.parametrize(
    "events",
    [_events("Connecting", "DUnknown"), _events("Connected", "Inconsistent"), ""],
    ids=["link-lost", "peer-behind", "down"],
)
def test_a_link_lost_meanwhile_sets_the_mark_again(
    monkeypatch: pytest.MonkeyPatch, events: str
) -> None:
    """The peer may have set it in between, and gone on: cleared, it would allow old data."""
    monkeypatch.setattr(drbd, "is_loaded", lambda: True)
    replica = _Replica(events)
    with pytest.raises(CommandError, match="SAN-AGENT-008"):
        clear_own_mark(replica, "vol1")
    assert replica.done == ["clear", "mark"]
