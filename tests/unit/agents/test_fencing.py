"""What the cluster says of a peer, in the words of Pacemaker 2.1.5 and of 3.0."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest

from sanctl.agents.fencing import peer_standing
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
