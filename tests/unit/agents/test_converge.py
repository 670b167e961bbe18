# SPDX-License-Identifier: GPL-2.0-or-later
"""Converging a replica: a change that fails does not keep the other changes from being applied."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sanctl.agents import ocf
from sanctl.agents.cache import read_cache, write_cache
from sanctl.agents.connections import peers
from sanctl.agents.converge import converge
from sanctl.agents.replica import listed_portals, sync_policy
from sanctl.agents.replica.parts import Device
from sanctl.agents.sync import verify
from sanctl.drivers import backing_device, drbdsetup, lio
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.restore_point import PointOrder
from sanctl.system import journal, state_files
from tests.fakes.runner import FakeRunner

DEVICE = Device("vm1", "a" * 32, 1 << 20, "main", ("n1", "n2"), 3, ("iqn.a",))


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was applied, in order; `lio` and `cache` fail where the test says so."""
    told: list[str] = []

    def acts(name: str, outcome: object = None) -> Callable[..., object]:
        def act(*_: object, **__: object) -> object:
            told.append(name)
            return outcome

        return act

    for module, function, outcome in (
        (backing_device, "resume", None),
        (write_cache, "apply_policy", None),
        (lio, "access", ()),
        (lio, "remove_initiators", None),
        (lio, "set_initiators", ()),
        (listed_portals, "update", False),
        (peers, "apply_replica_nodes", False),
        (sync_policy, "is_in_force", True),
        (sync_policy, "record", None),
        (read_cache, "update_unmap_offer", None),
        (read_cache, "apply_policy", None),
        (verify, "begin", False),
    ):
        monkeypatch.setattr(module, function, acts(f"{module.__name__}.{function}", outcome))
    monkeypatch.setattr("sanctl.agents.converge.tracking.needs_tracking", lambda *_: False)
    monkeypatch.setattr("sanctl.agents.converge.parts.finish_growth", acts("growth", False))
    monkeypatch.setattr(drbdsetup, "observe", lambda *_: None)
    monkeypatch.setattr(journal, "write", lambda text, **_: told.append(text))
    return told


def state(suspended: str = "no") -> ResourceState:
    peer = PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0)
    return ResourceState("vm1", "Primary", suspended, "UpToDate", 1024, (peer,), minor=3)


def run(suspended: str = "no", device: Device = DEVICE) -> None:
    converge(FakeRunner(""), device, ocf.Steps("vm1", "monitor"), state(suspended))


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("sanctl.drivers.lio.set_initiators", "access list"),
        ("sanctl.agents.replica.listed_portals.update", "portals"),
        ("sanctl.agents.cache.write_cache.apply_policy", "cache"),
    ],
)
@pytest.mark.parametrize("error", [CommandError(Problem("SAN-CMD-003", "no")), OSError(5, "EIO")])
def test_a_failed_change_does_not_keep_the_others_from_being_applied(
    done: list[str], monkeypatch: pytest.MonkeyPatch, where: str, what: str, error: Exception
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(where, fails)
    run()
    assert any(what in text and "could not be applied" in text for text in done)
    assert {
        "sanctl.agents.connections.peers.apply_replica_nodes",
        "growth",
        "sanctl.agents.cache.read_cache.apply_policy",
    } <= {*done}
    is_cache = what == "cache"
    assert ("sanctl.agents.cache.write_cache.apply_policy" in done) is not is_cache
    assert ("sanctl.drivers.lio.set_initiators" in done) is (what != "access list")


def test_a_failed_change_of_drbd_ends_the_rest(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> bool:
        raise CommandError(Problem("SAN-CMD-003", "no"))

    monkeypatch.setattr(peers, "apply_replica_nodes", fails)
    with pytest.raises(CommandError):
        run()
    assert "sanctl.agents.cache.write_cache.apply_policy" in done and "growth" not in done


def test_while_io_is_frozen_neither_nodes_nor_access_list_change(done: list[str]) -> None:
    run("user")
    assert not {
        "sanctl.drivers.lio.set_initiators",
        "sanctl.agents.connections.peers.apply_replica_nodes",
    } & {*done}
    assert "sanctl.agents.cache.write_cache.apply_policy" in done


@pytest.mark.parametrize(
    ("role", "peer_role", "connection", "follows"),
    [
        ("Secondary", "Primary", "Connected", True),
        ("Secondary", "Secondary", "Connected", False),  # it may be about to be promoted
        ("Secondary", "Unknown", "Connecting", False),
        ("Primary", "Secondary", "Connected", False),
    ],
)
def test_a_standby_without_a_majority_follows_its_primary(
    done: list[str], role: str, peer_role: str, connection: str, follows: bool
) -> None:
    """It never heard that the replicas which it missed had been dropped."""
    seen = state("quorum")
    lost = PeerState("n3", "Connecting", "Unknown", "Off", "DUnknown", 0)
    peer = seen.peers[0]._replace(role=peer_role, connection=connection)
    seen = seen._replace(role=role, peers=(peer, lost), has_quorum=False)
    converge(FakeRunner(""), DEVICE, ocf.Steps("vm1", "monitor"), seen)
    assert ("sanctl.agents.connections.peers.apply_replica_nodes" in done) is follows
    assert "sanctl.drivers.lio.set_initiators" not in done


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_restore_starts_also_where_hosts_do_not_get_out(
    done: list[str], monkeypatch: pytest.MonkeyPatch, *, is_closed: bool
) -> None:
    """Nobody gave its order up: hosts that were left could not log in again for good."""
    monkeypatch.setattr(lio, "access", lambda _: () if is_closed else ("iqn.a",))
    order = PointOrder("before-restore-1", "5" * 16, int(time.time()))
    device = DEVICE._replace(point=str(order)).closed("some order")
    runner = FakeRunner("")
    converge(runner, device, ocf.Steps("vm1", "monitor"), state())
    started = [argv[-1] for argv, _ in runner.calls if argv[:2] == ("systemctl", "start")]
    # What it keeps is copied once they are out.
    wanted = ["sanctl-point@vm1.service"] if is_closed else []
    assert started == [*wanted, "sanctl-restore@vm1.service"]


def test_an_access_list_of_which_nothing_is_known_stays(
    done: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    left = DEVICE._replace(leaves_list=True)
    run(device=left)
    assert "sanctl.drivers.lio.set_initiators" not in done and "growth" in done
    monkeypatch.setattr(lio, "access", lambda _: ("iqn.a",))
    run(device=left.closed("some order"))
    assert "sanctl.drivers.lio.set_initiators" in done, "a restore closes it all the same"
