# SPDX-License-Identifier: GPL-2.0-or-later
"""A detached disk is attached again at growing intervals, beside good data or where none is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from types import SimpleNamespace

import pytest

from sanctl.agents.fencing import own_marks
from sanctl.agents.recovery import reattach_disk
from sanctl.agents.replica import drop_note, lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import bcache, outdated_marks, pool_notes
from sanctl.errors import CommandError, Problem
from sanctl.model.cache_policy import CacheMode
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.topology import PoolCache
from sanctl.plan.failover.promotion import NO_DISK
from sanctl.system import state_files
from tests.fakes.node import FakeNode

GOOD = PeerState("peer", "Connected", "Primary", "Established", "UpToDate", 0)
DISKLESS = ResourceState("vol", "Secondary", "no", "Diskless", 1024, (GOOD,))
BARE = GOOD._replace(role="Secondary", disk="Diskless")
ALL_LOST = DISKLESS._replace(peers=(BARE,))
DEVICE = Device(
    name="vol", uuid="0" * 32, size_bytes=0, pool="main", nodes=("n1", "n2"), minor=0, initiators=()
)
ADJUST = "drbdadm adjust vol"


@pytest.fixture(autouse=True)
def marked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What marking the own replica returns, each in turn; then it is certain."""
    answers: list[bool] = []
    monkeypatch.setattr(
        own_marks,
        "mark_of_all_lost",
        lambda _runner, _device, *, peers: answers.pop(0) if answers else bool(peers),
    )
    return answers


@pytest.fixture
def node(fake_node: FakeNode) -> FakeNode:
    """A node whose replica has its files, and attaches them when DRBD is asked to."""
    fake_node.attach_files(DEVICE)
    fake_node.states["vol"] = DISKLESS._replace(disk="Inconsistent")
    return fake_node


def reattach(node: FakeNode, state: ResourceState) -> ResourceState:
    return reattach_disk.reattach(node, DEVICE, state)


@pytest.mark.parametrize(
    "state",
    [
        DISKLESS._replace(disk="UpToDate"),
        DISKLESS._replace(peers=()),
        DISKLESS._replace(peers=(GOOD._replace(connection="Connecting", disk="DUnknown"),)),
        DISKLESS._replace(peers=(GOOD._replace(disk="Outdated"),)),
        # It has a disk, and good data or not: DRBD decides once that is known.
        DISKLESS._replace(peers=(BARE._replace(disk="Inconsistent"),)),
        # The peer goes on without a disk, or may, out of contact.
        ALL_LOST._replace(peers=(BARE._replace(role="Primary"),)),
        ALL_LOST._replace(peers=(BARE._replace(role="Unknown"),)),
        ALL_LOST._replace(peers=(BARE._replace(connection="Connecting", disk="DUnknown"),)),
        # A Primary's disk may lack what its peer's had.
        ALL_LOST._replace(role="Primary"),
        # Of two peers one is missing.
        ALL_LOST._replace(peers=(BARE, BARE._replace(connection="StandAlone"))),
    ],
)
def test_no_disk_is_attached_without_a_peer_with_good_data(
    node: FakeNode, state: ResourceState
) -> None:
    assert reattach(node, state) is state
    assert node.calls == []


def test_a_disk_is_attached_where_no_replica_has_one_and_none_is_primary(node: FakeNode) -> None:
    """Both pools were full, and room was made: nothing attached either disk again."""
    assert reattach(node, ALL_LOST).disk == "Inconsistent"
    assert reattach(node, ALL_LOST) is ALL_LOST, "paced as the others"
    assert node.commands() == [ADJUST]


@pytest.mark.parametrize("disk", ["Diskless", "Consistent", "Outdated"])
def test_also_with_drbd_9_whose_quorum_is_off_with_two_replicas(node: FakeNode, disk: str) -> None:
    """It was never attached again; nor was the second one beside the first, which 9 trusts less."""
    lost = ALL_LOST._replace(has_quorum=True, peers=(BARE._replace(disk=disk),))
    assert reattach(node, lost).disk == "Inconsistent"
    assert node.commands() == [ADJUST]


@pytest.mark.parametrize("has_quorum", [True, False])
def test_not_where_the_quorum_of_drbd_9_decides(node: FakeNode, has_quorum: bool) -> None:
    lost = ALL_LOST._replace(has_quorum=has_quorum, peers=(BARE, BARE._replace(name="n3")))
    three = DEVICE._replace(nodes=("n1", "n2", "n3"))
    assert reattach_disk.reattach(node, three, lost) is lost
    assert node.calls == []


def test_no_disk_is_attached_before_its_replica_is_marked(
    node: FakeNode, marked: list[bool]
) -> None:
    """It may have lost its disk first; the peer with the newer data may leave."""
    marked += [False]
    assert reattach(node, ALL_LOST) is ALL_LOST and node.calls == []
    # That was no attempt.
    assert reattach(node, ALL_LOST).disk == "Inconsistent"
    marked += [False]
    node.age("vol", "reattach-tried", 10**4)
    assert reattach(node, DISKLESS).disk == "Inconsistent", "beside good data none is needed"


@pytest.mark.parametrize("here", ["Primary", "Secondary"])
def test_beside_good_data_nobody_asks_whether_the_peer_is_marked(
    node: FakeNode, marked: list[bool], here: str
) -> None:
    """DRBD compares the two, and a peer that is marked may wait for just this disk.

    A Primary without a disk cannot clear that mark; two standbys, of which the first has attached
    its disk under its own mark, would wait for each other for good.
    """
    marked += [False]
    beside = DISKLESS._replace(role=here, peers=(GOOD._replace(role="Secondary"),))
    assert reattach(node, beside).disk == "Inconsistent"
    assert node.commands() == [ADJUST], "nor is the CIB asked"


@pytest.mark.parametrize("disk", sorted(NO_DISK))
def test_a_peer_that_is_about_to_attach_has_none_yet(node: FakeNode, disk: str) -> None:
    reattach(node, ALL_LOST._replace(peers=(BARE._replace(disk=disk),)))
    assert node.commands() == [ADJUST]


@pytest.mark.parametrize("peers", [(), (BARE,)])
def test_the_disk_of_an_only_replica_is_left_alone(
    node: FakeNode, peers: tuple[PeerState, ...]
) -> None:
    alone = ALL_LOST._replace(peers=peers)
    assert reattach_disk.reattach(node, DEVICE._replace(nodes=("n1",)), alone) is alone
    assert node.calls == []


@pytest.mark.parametrize("state", [DISKLESS, ALL_LOST])
def test_a_suspect_replica_is_left_alone(node: FakeNode, state: ResourceState) -> None:
    lost_writes.record_failed_flush("vol")
    assert reattach(node, state) is state
    assert node.calls == []


def test_a_replica_that_has_released_its_files_is_left_alone(node: FakeNode) -> None:
    node.loops.clear()
    assert reattach(node, DISKLESS) is DISKLESS
    assert node.calls == []
    assert drop_note.published_field("vol") == ""


@pytest.mark.parametrize("state", [DISKLESS, ALL_LOST])
def test_a_replica_whose_pool_is_shut_down_is_left_alone(
    node: FakeNode, state: ResourceState
) -> None:
    pool_notes.write(DEVICE.pool, pool_notes.SHUT_DOWN)
    assert reattach(node, state) is state
    assert node.calls == []


def test_the_first_attempt_is_at_once_and_the_next_ones_at_growing_intervals(
    node: FakeNode,
) -> None:
    assert reattach(node, DISKLESS).disk == "Inconsistent"
    assert reattach(node, DISKLESS) is DISKLESS
    assert node.commands() == [ADJUST]
    node.age("vol", "reattach-tried", reattach_disk.retry_wait_s(1) + 1)
    reattach(node, DISKLESS)
    assert node.commands() == [ADJUST] * 2
    assert reattach_disk.retry_wait_s(2) == 2 * reattach_disk.retry_wait_s(1)
    assert reattach_disk.retry_wait_s(10**6) == 3600
    state_files.remove_device("vol")
    state_files.remove_device("vol")
    reattach(node, DISKLESS)
    assert node.commands() == [ADJUST] * 3


def test_each_drop_is_published_for_a_day(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two errors of a dying disk nothing said so."""
    moment = [1_790_000_000.9]
    monkeypatch.setattr(time, "time", lambda: moment[0])
    assert drop_note.published_field("vol") == ""
    reattach(node, DISKLESS)
    assert drop_note.published_field("vol") == " disk-drops=1:1790000000:1790000000"
    moment[0] += 86000
    state_files.of_device("vol", "reattach-tried").remove()
    reattach(node, DISKLESS)
    assert drop_note.published_field("vol") == " disk-drops=2:1790000000:1790086000"
    moment[0] -= 100  # The clock was put back.
    assert drop_note.published_field("vol") == " disk-drops=2:1790000000:1790086000"
    moment[0] += 86500
    assert drop_note.published_field("vol") == ""
    state_files.of_device("vol", "reattach-tried").remove()
    reattach(node, DISKLESS)
    assert drop_note.published_field("vol") == " disk-drops=1:1790172400:1790172400"


def test_a_drop_that_cannot_be_noted_keeps_no_disk_detached(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = state_files.StateFile.write

    def full(file: state_files.StateFile, text: str = "") -> None:
        if file.path.endswith("disk-drops"):
            raise OSError(28, "No space left on device")
        write(file, text)

    monkeypatch.setattr(state_files.StateFile, "write", full)
    assert reattach(node, DISKLESS).disk == "Inconsistent"
    assert drop_note.published_field("vol") == ""


def test_old_attempts_do_not_count(node: FakeNode) -> None:
    tries = state_files.of_device("vol", "reattach-tried")
    tries.write("16")
    node.age("vol", "reattach-tried", 7201)
    reattach(node, DISKLESS)
    assert node.commands() == [ADJUST]
    assert tries.read() == "1"


def test_a_disk_that_still_fails_is_only_logged(node: FakeNode) -> None:
    node.answer = CommandError(Problem("SAN-CMD-003", "I/O error"))
    assert reattach(node, DISKLESS) is DISKLESS
    assert node.commands() == [ADJUST] and len(node.journal) == 1


MISSING_FLASH = bcache.OriginState("bcache0", False, CacheMode.NONE, True, 0, 0, 0)
ATTACHED_FLASH = MISSING_FLASH._replace(has_flash=True, mode=CacheMode.WRITE_BACK)


@pytest.fixture
def noted(node: FakeNode) -> list[bool]:
    """Whether what is on flash is noted to be right, each time that DRBD attaches."""
    found: list[bool] = []
    pool_notes.write(DEVICE.pool, pool_notes.WRITE_BACK)
    cache = PoolCache(origin=PurePosixPath("/dev/slow"), flash=PurePosixPath("/dev/flash"))
    pools = tuple(replace(pool, cache=cache) for pool in node.topology.pools)
    node.topology = replace(node.topology, pools=pools)

    def answer(_argv: Sequence[str]) -> str:
        found.append(pool_notes.exists(DEVICE.pool, pool_notes.WRITE_BACK))
        return ""

    node.answer = answer
    return found


@pytest.mark.parametrize(
    ("seen", "is_kept"),
    [
        (MISSING_FLASH, False),
        (ATTACHED_FLASH, True),
        (MISSING_FLASH._replace(disk=""), True),
        (None, True),
    ],
)
def test_the_note_of_valid_flash_is_cleared_before_a_resync_without_the_flash(
    node: FakeNode, noted: list[bool], seen: bcache.OriginState | None, is_kept: bool
) -> None:
    node.flash_cache = seen
    assert reattach(node, DISKLESS).disk == "Inconsistent"
    assert noted == [is_kept] and node.commands() == [ADJUST]


def refuse(*_args: object, **_kwargs: object) -> None:
    raise OSError(30, "Read-only file system")


def test_no_disk_is_attached_where_the_note_cannot_be_cleared(
    node: FakeNode, noted: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    node.flash_cache = MISSING_FLASH
    monkeypatch.setattr(pool_notes, "clear", refuse)
    assert reattach(node, DISKLESS) is DISKLESS
    assert node.calls == []


@pytest.mark.parametrize(("nodes", "is_attached"), [((), False), (("n2",), False), (("n1",), True)])
def test_beside_a_primary_that_is_called_consistent_under_its_own_mark_alone(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, nodes: tuple[str, ...], is_attached: bool
) -> None:
    """DRBD 9 with three replicas: without a mark one that is behind might be promoted."""
    seen = SimpleNamespace(devices={"vol": SimpleNamespace(nodes=lambda: frozenset(nodes))})
    monkeypatch.setattr(outdated_marks, "read_device", lambda *_: seen)
    primary = GOOD._replace(name="n2", disk="Consistent")
    state = DISKLESS._replace(
        peers=(primary, primary._replace(name="n3", role="Secondary")), has_quorum=True
    )
    reattach_disk.reattach(node, DEVICE._replace(nodes=("n1", "n2", "n3")), state)
    assert (ADJUST in [" ".join(argv) for argv, _ in node.calls]) is is_attached
