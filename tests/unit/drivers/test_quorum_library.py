# SPDX-License-Identifier: GPL-2.0-or-later
"""When corosync's libraries are asked, and when its tool is; what they say: tests/lab."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import pytest

from sanctl.drivers import corosync, quorum_library
from sanctl.errors import CommandError
from sanctl.parse.corosync import Membership
from sanctl.system.runner import DeadlineRunner
from tests.fakes.runner import FakeRunner

_SEEN = Membership(True, frozenset({"n1", "n2"}), frozenset({"2Node", "Quorate"}), 2, 2, 1)
_TOOL = "Quorate: Yes\nNodeid Votes Name\n 3 1 n3 (local)\n"


def _answer(monkeypatch: pytest.MonkeyPatch, ask: Callable[[object], Membership]) -> None:
    monkeypatch.setattr(quorum_library, "load", lambda: "libraries")
    monkeypatch.setattr(quorum_library, "_ask", ask)


def test_no_process_is_started_where_the_libraries_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    _answer(monkeypatch, lambda _: _SEEN)
    runner = FakeRunner(_TOOL)
    assert corosync.membership(runner) == _SEEN
    assert runner.calls == []


def test_where_they_cannot_the_tool_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> Membership:
        raise quorum_library._RefusedError(2)

    assert corosync.membership(FakeRunner(_TOOL)).members == {"n3"}
    _answer(monkeypatch, refuse)
    assert corosync.membership(FakeRunner(_TOOL)).members == {"n3"}


def test_a_corosync_that_does_not_answer_is_no_membership(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(_: object) -> Membership:
        ctypes.CDLL(None).poll(None, 0, 30_000)
        return _SEEN

    _answer(monkeypatch, hang)
    runner = FakeRunner(_TOOL)
    with pytest.raises(CommandError, match=r"no answer within 0\.05 s"):
        quorum_library.membership(within_s=0.05)
    with pytest.raises(CommandError, match="no time was left for corosync"):
        corosync.membership(DeadlineRunner(runner, time.monotonic() - 1))
    assert runner.calls == []


class Cmap:
    """Corosync's map, with what each call is answered; 12: there is no such key."""

    def __init__(self, nodes: list[tuple[int, str]], **codes: int) -> None:
        self.nodes, self.codes = nodes, codes

    def cmap_initialize(self, _handle: object) -> int:
        return 1

    def cmap_finalize(self, _handle: object) -> int:
        return 1

    def cmap_get_uint32(self, _handle: object, key: bytes, found: Any) -> int:
        return self._get(key, lambda node: setattr(found._obj, "value", node[0]))

    def cmap_get_string(self, _handle: object, key: bytes, found: Any) -> int:
        # The caller frees it.
        copy = ctypes.CDLL(None).strdup
        copy.restype = ctypes.c_void_p
        text = ctypes.POINTER(ctypes.c_void_p)
        return self._get(
            key,
            lambda node: setattr(
                ctypes.cast(found, text).contents, "value", copy(node[1].encode())
            ),
        )

    def _get(self, key: bytes, give: Callable[[tuple[int, str]], None]) -> int:
        _, _, number, field = key.decode().split(".")
        code = self.codes.get(f"{field}{number}", 1 if int(number) < len(self.nodes) else 12)
        if code == 1:
            give(self.nodes[int(number)])
        return code


def test_names_are_those_of_the_running_corosync() -> None:
    library: Any = Cmap([(1, "n1"), (7, "n2")])
    assert quorum_library._names(library) == {1: "n1", 7: "n2"}


@pytest.mark.parametrize("codes", [{"nodeid1": 6}, {"nodeid2": 2}, {"name0": 6}, {"name0": 12}])
def test_a_list_that_is_not_known_to_be_whole_is_none(codes: dict[str, int]) -> None:
    """A member without a name would count as a node that is away."""
    library: Any = Cmap([(1, "n1"), (7, "n2")], **codes)
    with pytest.raises(quorum_library._RefusedError):
        quorum_library._names(library)


def test_a_member_that_is_in_no_list_has_the_tool_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_library, "_votes", lambda _: quorum_library._Info())
    monkeypatch.setattr(quorum_library, "_names", lambda _: {1: "n1"})
    monkeypatch.setattr(quorum_library, "_view", lambda _: (True, 44, [1, 7]))
    monkeypatch.setattr(quorum_library, "load", lambda: quorum_library._Libraries(*"abc"))
    assert corosync.membership(FakeRunner(_TOOL)).members == {"n3"}


@pytest.mark.parametrize(
    ("flags", "words", "votes"),
    [
        (2 | 64 | 128 | 256, {"Quorate", "Qdevice", "DeviceVote"}, True),
        # corosync-qnetd is dead; its client is registered, and calls in with no vote.
        (2 | 64 | 128, {"Quorate", "Qdevice"}, False),
        # The client hangs.
        (2 | 64, {"Quorate", "Qdevice"}, False),
        (1 | 2 | 4, {"2Node", "Quorate", "WaitForAll"}, False),
    ],
)
def test_a_registered_device_is_not_one_that_votes(
    monkeypatch: pytest.MonkeyPatch, flags: int, words: set[str], votes: bool
) -> None:
    monkeypatch.setattr(quorum_library, "_votes", lambda _: quorum_library._Info(flags=flags))
    monkeypatch.setattr(quorum_library, "_names", lambda _: {1: "n1"})
    monkeypatch.setattr(quorum_library, "_view", lambda _: (True, 44, [1]))
    monkeypatch.setattr(quorum_library, "load", lambda: quorum_library._Libraries(*"abc"))
    seen = corosync.membership(FakeRunner(_TOOL))
    assert seen.flags == words
    assert seen.has_device_vote is votes
    assert seen.ring == 44
