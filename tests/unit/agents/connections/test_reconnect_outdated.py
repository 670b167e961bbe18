# SPDX-License-Identifier: GPL-2.0-or-later
"""A replica that DRBD 9 calls behind, and that is not, meets the node that serves once more."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sanctl.agents.connections import reconnect_outdated
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, drbdsetup, outdated_marks
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system import state_files
from sanctl.system.runner import LocalRunner

SERVING = PeerState("n1", "Connected", "Primary", "Established", "UpToDate", 0, node_id=0)
OTHER = PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0, node_id=1)
OVERLOOKED = ResourceState("vol", "Secondary", "no", "Outdated", 1024, (OTHER, SERVING))
GOOD = OVERLOOKED._replace(disk="UpToDate")
DEVICE = Device(
    name="vol",
    uuid="0" * 32,
    size_bytes=0,
    pool="main",
    nodes=("n1", "n2", "n3"),
    minor=0,
    initiators=(),
)


class _Marked:
    is_marked = True


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[object]:
    """What DRBD was told: the peer to leave, then the resource to bring in line."""
    found: list[object] = []
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(outdated_marks, "read", lambda *_: _Marked())
    monkeypatch.setattr(drbdsetup, "generation", lambda: 9)
    monkeypatch.setattr(
        drbdsetup, "disconnect_peer", lambda _runner, _name, peer: found.append(peer)
    )
    monkeypatch.setattr(drbdadm, "adjust", lambda _runner, name: found.append(name))
    monkeypatch.setattr(drbdsetup, "observe", lambda _runner, _name: GOOD)
    return found


def look(state: ResourceState) -> ResourceState:
    return reconnect_outdated.reconnect(LocalRunner(), DEVICE, state)


def age(folder: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(folder / "devices/vol/outdated-since", (then, then))


def test_the_second_look_connects_to_the_node_that_serves(
    told: list[object], tmp_path: Path
) -> None:
    assert look(OVERLOOKED) is OVERLOOKED
    age(tmp_path, 10)
    assert look(OVERLOOKED) is OVERLOOKED
    assert told == []
    age(tmp_path, 16)
    assert look(OVERLOOKED) is GOOD
    assert told == [0, "vol"]
    # What did not help is tried ever more rarely.
    age(tmp_path, 16)
    assert look(OVERLOOKED) is OVERLOOKED
    age(tmp_path, 31)
    assert look(OVERLOOKED) is GOOD
    assert told == [0, "vol"] * 2


def test_one_that_stops_half_way_is_connected_again_by_the_next_monitor(
    told: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_runner: object, _name: str) -> None:
        raise CommandError(Problem("SAN-CMD-002", "no answer"))

    look(OVERLOOKED)
    age(tmp_path, 16)
    monkeypatch.setattr(drbdadm, "adjust", refuse)
    with pytest.raises(CommandError):
        look(OVERLOOKED)
    assert told == [0]
    assert (tmp_path / "devices/vol/outdated-unmarked.n1").exists()


def test_who_is_not_marked_could_be_promoted_by_a_mistake_and_is_left_alone(
    told: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Marked, "is_marked", False)
    look(OVERLOOKED)
    age(tmp_path, 16)
    assert look(OVERLOOKED) is OVERLOOKED
    assert told == []


def test_a_clock_put_right_does_not_hold_it_up(told: list[object], tmp_path: Path) -> None:
    look(OVERLOOKED)
    age(tmp_path, -3600)
    look(OVERLOOKED)
    assert told == [0, "vol"]


def test_what_was_interrupted_has_not_lasted(told: list[object], tmp_path: Path) -> None:
    look(OVERLOOKED)
    age(tmp_path, 60)
    look(OVERLOOKED._replace(peers=(OTHER, SERVING._replace(replication="SyncTarget"))))
    assert look(OVERLOOKED) is OVERLOOKED
    assert told == []


def test_what_passes_is_forgotten(told: list[object], tmp_path: Path) -> None:
    look(OVERLOOKED)
    age(tmp_path, 60)
    assert look(GOOD) is GOOD
    assert look(OVERLOOKED) is OVERLOOKED
    assert told == []


@pytest.mark.parametrize(
    "state",
    [
        GOOD,
        OVERLOOKED._replace(peers=(OTHER._replace(replication="Off"), SERVING)),
        OVERLOOKED._replace(peers=(OTHER._replace(out_of_sync_kib=4), SERVING)),
        OVERLOOKED._replace(role="Primary"),
        OVERLOOKED._replace(disk="Inconsistent"),
        OVERLOOKED._replace(peers=(OTHER,)),
        OVERLOOKED._replace(peers=(OTHER._replace(replication="WFBitMapT"), SERVING)),
        OVERLOOKED._replace(peers=(OTHER, SERVING._replace(replication="SyncTarget"))),
        OVERLOOKED._replace(peers=(OTHER, SERVING._replace(out_of_sync_kib=4))),
        OVERLOOKED._replace(peers=(OTHER, SERVING._replace(out_of_sync_kib=None))),
        OVERLOOKED._replace(peers=(OTHER, SERVING._replace(disk="Inconsistent"))),
        OVERLOOKED._replace(peers=(OTHER, SERVING._replace(connection="Connecting", role="?"))),
    ],
)
def test_who_is_behind_or_busy_is_left_alone(
    told: list[object], tmp_path: Path, state: ResourceState
) -> None:
    for _ in range(2):
        assert look(state) is state
        assert not (tmp_path / "devices/vol/outdated-since").exists()
    assert told == []


def test_8_4_knows_no_such_state(told: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drbdsetup, "generation", lambda: 8)
    for _ in range(2):
        assert look(OVERLOOKED) is OVERLOOKED
    assert told == []
