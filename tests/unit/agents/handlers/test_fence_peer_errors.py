# SPDX-License-Identifier: GPL-2.0-or-later
"""The fence-peer handler of a frozen Primary outlives every error: DRBD calls it only once."""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence

import pytest

from sanctl.agents.handlers import drbd_environment, fence_peer
from sanctl.drivers import drbd_kernel, drbdsetup
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system import journal, state_files
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
