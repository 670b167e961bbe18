# SPDX-License-Identifier: GPL-2.0-or-later
"""A replica whose disk came back beside a peer without one: when it may be promoted."""

from __future__ import annotations

import pytest

from sanctl.agents.promotion import compared_data
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, drbdsetup
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system.runner import LocalRunner

PEER = PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0, node_id=1)
DEVICE = Device("vol1", "c" * 32, 1 << 20, "main", ("n1", "n2"), 3, ())
STATE = ResourceState("vol1", "Secondary", "no", "UpToDate", 1024, (PEER,), 3)
BESIDE_NO_DISK = STATE._replace(peers=(PEER._replace(disk="Diskless"),))
IN_SYNC = "A18B17B52C3C5FFA:0000000000000000:B9B5A3FC2B1A5A1E:0000000000000000:1:1:0:1:0:0:0"
AHEAD = IN_SYNC.replace(":0000000000000000:B9", ":6C5F7D3AA91C2B04:B9", 1)


@pytest.fixture(autouse=True, params=[8, 9])
def _drbd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drbd_kernel, "generation", lambda: request.param)


def candidate(
    monkeypatch: pytest.MonkeyPatch,
    told: str | CommandError | None,
    state: ResourceState = BESIDE_NO_DISK,
    device: Device = DEVICE,
) -> bool:
    def generation_identifiers(_runner: object, *subject: str, timeout_s: float) -> str | None:
        is_9 = drbd_kernel.generation() >= 9
        assert subject == (("vol1", "1", "0") if is_9 else ("3",)) and timeout_s > 0
        if isinstance(told, CommandError):
            raise told
        return told

    monkeypatch.setattr(drbdsetup, "generation_identifiers", generation_identifiers)
    return compared_data.is_candidate(LocalRunner(), device, state)


@pytest.mark.parametrize(
    ("told", "is_candidate"),
    [
        (AHEAD, True),
        (IN_SYNC, False),
        (None, False),
        ("nonsense", False),
        (CommandError(Problem("SAN-CMD-004", "drbdsetup could not be started")), False),
    ],
    ids=["ahead", "in sync when its disk was lost", "refused", "unreadable", "no answer"],
)
def test_beside_a_peer_without_a_disk(
    monkeypatch: pytest.MonkeyPatch, told: str | CommandError | None, is_candidate: bool
) -> None:
    compared_data.forget("vol1")
    assert candidate(monkeypatch, told) is is_candidate


def test_one_that_has_met_the_peers_disk_may_since(monkeypatch: pytest.MonkeyPatch) -> None:
    compared_data.record(DEVICE, STATE)
    compared_data.record(DEVICE, BESIDE_NO_DISK)
    assert candidate(monkeypatch, IN_SYNC)
    # Its own disk is lost, and attached again.
    compared_data.record(DEVICE, BESIDE_NO_DISK._replace(disk="Diskless"))
    compared_data.record(DEVICE, BESIDE_NO_DISK)
    assert not candidate(monkeypatch, IN_SYNC)
    compared_data.record(DEVICE, STATE)
    compared_data.forget("vol1")
    assert not candidate(monkeypatch, IN_SYNC)


def test_a_third_replica_that_was_dropped_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """DRBD 9 lists it, before the other one by its name, until its connection is taken down."""
    compared_data.forget("vol1")
    dropped = PEER._replace(name="n0", node_id=0)
    both = BESIDE_NO_DISK._replace(has_quorum=True, peers=(dropped, *BESIDE_NO_DISK.peers))
    compared_data.record(DEVICE, both)
    if drbd_kernel.generation() >= 9:
        assert candidate(monkeypatch, AHEAD, both), "the bitmap of the one that is left is asked"
        assert not candidate(monkeypatch, IN_SYNC, both)
    broken = CommandError(Problem("SAN-CMD-004", "asked for nothing"))
    assert candidate(monkeypatch, broken, both._replace(peers=(dropped,)))


def test_others_are_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = CommandError(Problem("SAN-CMD-004", "asked for nothing"))
    for state in (STATE, BESIDE_NO_DISK._replace(role="Primary"), STATE._replace(peers=())):
        assert candidate(monkeypatch, broken, state)
    # With three replicas the quorum of DRBD 9 decides.
    three = DEVICE._replace(nodes=("n1", "n2", "n3"))
    assert candidate(monkeypatch, broken, device=three)


def test_a_promotion_that_was_ordered_all_the_same_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared_data.forget("vol1")
    assert not candidate(monkeypatch, IN_SYNC)
    with pytest.raises(CommandError, match="may have newer data"):
        compared_data.refuse_promotion(LocalRunner(), DEVICE, BESIDE_NO_DISK)
