# SPDX-License-Identifier: GPL-2.0-or-later
"""Which marks count for reservations: read with quorum before and after, set under the lock."""

from __future__ import annotations

import pytest

from sanctl.agents.fencing import outdate
from sanctl.agents.reservations import peer_marks
from sanctl.drivers import corosync, outdated_marks
from sanctl.drivers.outdated_marks import DeviceMarks, SeenMarks
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.parse.corosync import Membership
from sanctl.system import state_files
from tests.fakes.node import FakeNode

GONE = PeerState("n2", "Connecting", "Unknown", "Off", "DUnknown", None)
PRIMARY = ResourceState("vol1", "Primary", "no", "UpToDate", 1024, (GONE,))


@pytest.mark.parametrize(
    ("quorum", "found"),
    [([True, True], {"n2"}), ([False, True], set()), ([True, False], set())],
)
def test_a_mark_counts_that_was_read_with_quorum(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch, quorum: list[bool], found: set[str]
) -> None:
    marks = DeviceMarks("a" * 32, (("n2", "path"),))
    monkeypatch.setattr(
        outdated_marks, "read_device", lambda *_: SeenMarks(1, 1, None, {"vol1": marks})
    )
    left = list(quorum)
    monkeypatch.setattr(
        corosync,
        "membership",
        lambda _: Membership(is_quorate=left.pop(0), members=frozenset({"n1"})),
    )
    assert peer_marks.read(fake_node, "vol1") == found


@pytest.mark.parametrize(
    ("membership", "is_certain"), [("fenced", True), ("member", True), ("unknown", False)]
)
def test_a_mark_is_set_anew_and_ends_the_note_of_a_removal(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch, membership: str, *, is_certain: bool
) -> None:
    fake_node.states["vol1"] = PRIMARY
    monkeypatch.setattr(outdate, "mark_outdated", lambda *_, **__: membership)
    with pytest.raises(CommandError), peer_marks.removing("vol1", "n2"):
        raise CommandError(Problem("SAN-CMD-002", "no answer"))
    assert peer_marks.mark(fake_node, "vol1", "n2") is is_certain
    assert peer_marks.is_clearing("vol1", "n2") is not is_certain


def test_a_peer_in_contact_is_not_marked_nor_while_a_handler_has_the_lock(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outdate, "mark_outdated", lambda *_, **__: pytest.fail("marked"))
    for state in (None, PRIMARY._replace(peers=(GONE._replace(connection="Connected"),))):
        fake_node.states["vol1"] = state
        assert not peer_marks.mark(fake_node, "vol1", "n2")
    fake_node.states["vol1"] = PRIMARY
    with outdate.locked("vol1", wait_s=0.0):
        assert not peer_marks.mark(fake_node, "vol1", "n2")


def test_a_note_that_cannot_be_looked_for_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: state_files.StateFile) -> bool:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(state_files.StateFile, "exists", refuse)
    assert peer_marks.is_clearing("vol1", "n2")
