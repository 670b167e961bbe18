# SPDX-License-Identifier: GPL-2.0-or-later
"""The fence-peer handler of a frozen Primary outlives every error: DRBD calls it only once."""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence

import pytest

from sanctl.agents.fencing import outdate
from sanctl.agents.handlers import drbd_environment, fence_peer
from sanctl.drivers import drbd_kernel, drbdsetup
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.failover import fence_rules
from sanctl.system import journal, state_files
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer, FakeRunner

_LOST = PeerState("n2", "Connecting", "Unknown", "Off", "DUnknown", None)
_FROZEN = ResourceState("vol1", "Primary", "fencing", "UpToDate", 1024, (_LOST,))
_QUORUM = "Quorate: Yes\n    Nodeid      Votes Name\n         1          1 n1\n"


class _Ended(Exception):
    """The test has seen enough."""


@pytest.mark.parametrize(
    "broken",
    ["", "<cib", "<cib/>", "\0", OSError(errno.EAGAIN, "fork"), MemoryError(), KeyError("id")],
    ids=repr,
)
def test_the_handler_asks_again_after_any_error(
    broken: Answer | BaseException, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    asked = 0

    def answer(argv: Sequence[str]) -> Answer:
        nonlocal asked
        if argv[0] == "corosync-quorumtool":
            return _QUORUM
        asked += 1
        if isinstance(broken, BaseException):
            raise broken
        return broken

    def sleep(_duration_s: float) -> None:
        if asked > 3:
            raise _Ended

    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(drbd_environment, "resource", lambda: "vol1")
    monkeypatch.setattr(drbd_environment, "peer", lambda: "n2")
    monkeypatch.setattr(fence_peer, "_RUNNER", FakeRunner(answer))
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(drbdsetup, "observe", lambda *_: _FROZEN)
    monkeypatch.setattr(drbd_kernel, "is_loaded", lambda: True)
    monkeypatch.setattr(journal, "write", lambda *_, **__: None)
    with pytest.raises(_Ended):
        fence_peer.main()


@pytest.mark.parametrize(
    ("membership", "said"),
    [
        ("unknown", "n2 is unknown"),
        ("alone", "this node has no quorum"),
        (fence_rules.PRIMARY_MARKED, "this node's replica is marked as outdated"),
    ],
)
def test_the_handler_says_what_it_waits_for(
    membership: str, said: str, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: of a Primary that was marked itself it said that n2 was unknown."""

    def sleep(_duration_s: float) -> None:
        raise _Ended

    monkeypatch.setenv("DRBD_RESOURCE", "vol1")
    monkeypatch.setenv("DRBD_PEER", "n2")
    monkeypatch.setattr(time, "sleep", sleep)
    fake_node.states["vol1"] = _FROZEN
    monkeypatch.setattr(outdate, "mark_lost_and_without_disk", lambda *_, **__: membership)
    monkeypatch.setattr(fence_peer, "_LOG_EVERY_S", -1.0)
    with pytest.raises(_Ended):
        fence_peer.main()
    (line,) = [line for line in fake_node.journal if "I/O is frozen" in line]
    assert said in line and ("unknown" in line) is (membership == "unknown")
