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
from sanctl.agents.converge import Changes, converge
from sanctl.agents.replica import device_files, listed_portals, resource_file, sync_policy
from sanctl.agents.replica.parts import Device
from sanctl.agents.restore import unit as restore_unit
from sanctl.agents.sync import verify
from sanctl.drivers import backing_device, drbdadm, drbdsetup, lio, page_cache
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.restore_point import PointOrder
from sanctl.plan.failover.promotion import NO_DISK
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
    monkeypatch.setattr("sanctl.agents.converge.gate_size.finish_growth", acts("growth", False))
    monkeypatch.setattr(drbdsetup, "observe", lambda *_: None)
    monkeypatch.setattr(journal, "write", lambda text, **_: told.append(text))
    return told


def state(suspended: str = "no") -> ResourceState:
    peer = PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0)
    return ResourceState("vm1", "Primary", suspended, "UpToDate", 1024, (peer,), minor=3)


def run(suspended: str = "no", device: Device = DEVICE) -> None:
    converge(FakeRunner(""), device, ocf.Steps("vm1", "monitor"), state(suspended))


def test_a_flush_that_ends_in_time_keeps_no_other_change_from_its_turn(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes longer than what hangs may, in each monitor until all is on the disk."""

    def flushes(*_: object) -> None:
        raise page_cache.unfinished("vm1 was not flushed within 25 s")

    monkeypatch.setattr("sanctl.agents.cache.write_cache.apply_policy", flushes)
    monkeypatch.setattr("sanctl.agents.converge.SLOW_FAILURE_S", -1.0)
    run()
    assert {"sanctl.drivers.lio.set_initiators", "growth"} <= {*done}
    assert not any("could not be applied" in text for text in done), "leave has said it"


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


@pytest.mark.parametrize("disk", sorted(NO_DISK))
def test_a_changed_sync_policy_attaches_no_disk(
    done: list[str], monkeypatch: pytest.MonkeyPatch, disk: str
) -> None:
    """`adjust` would: unmarked beside a peer without one, and before it is the disk's turn."""
    monkeypatch.setattr(sync_policy, "is_in_force", lambda _: False)

    def rewrite(*_: object) -> bool:
        done.append("written")
        return True

    monkeypatch.setattr(resource_file, "rewrite", rewrite)
    monkeypatch.setattr(drbdadm, "adjust", lambda *_: done.append("adjusted"))
    apply = Changes(DEVICE, ocf.Steps("vm1", "monitor"))
    apply.has_open_nodes = False
    apply.apply_sync_policy(FakeRunner(""), state()._replace(disk=disk))
    recorded = f"{sync_policy.__name__}.record"
    assert not {"written", "adjusted", recorded} & {*done}
    apply.apply_sync_policy(FakeRunner(""), state())
    assert {"written", "adjusted", recorded} <= {*done}, "once it is back"


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


@pytest.fixture
def duties(done: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was applied, and no resource file is written, no copy started but into this list."""

    def acts(name: str) -> Callable[..., bool]:
        def act(*_: object, **__: object) -> bool:
            done.append(name)
            return False

        return act

    for module, function in (
        (resource_file, "rewrite"),
        (restore_unit, "start_if_ordered"),
        (device_files, "grow"),
        (drbdsetup, "resize"),
    ):
        monkeypatch.setattr(module, function, acts(f"{module.__name__}.{function}"))
    return done


def each_by_itself(device: Device, found: ResourceState) -> list[str]:
    """Make the changes as a monitor does; return what those are about that failed."""
    failed = []
    for what, apply in Changes(device, ocf.Steps("vm1", "monitor")).in_order():
        try:
            apply(FakeRunner(""), found)
        except (CommandError, OSError):
            failed.append(what)
    return failed


def refuses(*_: object, **__: object) -> bool:
    raise OSError(27, "File too large")


GROWS = DEVICE._replace(size_bytes=2 << 20)


def test_files_that_cannot_grow_keep_nothing_but_drbd_from_growing(
    duties: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ext4 has no file above 16 TiB, and no order, repair or reconnect was carried out any more."""
    monkeypatch.setattr(device_files, "grow", refuses)
    assert each_by_itself(GROWS, state()) == ["growth"]
    assert "growth" in duties and "sanctl.drivers.drbdsetup.resize" not in duties
    assert "sanctl.agents.cache.read_cache.update_unmap_offer" in duties


@pytest.mark.parametrize("is_frozen", [True, False])
def test_before_the_nodes_are_changed_no_file_has_them_and_drbd_does_not_grow(
    duties: list[str], monkeypatch: pytest.MonkeyPatch, *, is_frozen: bool
) -> None:
    """By a file that has them those would not be disconnected that hold no replica any more."""
    monkeypatch.setattr(peers, "apply_replica_nodes", refuses)
    monkeypatch.setattr(sync_policy, "is_in_force", lambda _: False)
    found = state("user" if is_frozen else "no")
    assert each_by_itself(GROWS, found) == ["replica nodes"] * (not is_frozen)
    assert ("sanctl.agents.replica.resource_file.rewrite" in duties) is is_frozen
    assert "sanctl.drivers.drbdsetup.resize" not in duties
    assert {"sanctl.agents.replica.device_files.grow", "growth"} <= {*duties}
    monkeypatch.setattr(peers, "apply_replica_nodes", lambda *_: False)
    assert not each_by_itself(GROWS, state())
    assert "sanctl.agents.replica.resource_file.rewrite" in duties
    assert "sanctl.drivers.drbdsetup.resize" in duties


def test_no_read_cache_comes_below_a_device_that_may_still_be_unmapped(
    duties: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_cache, "update_unmap_offer", refuses)
    assert each_by_itself(DEVICE, state()) == ["read cache"]
    assert "sanctl.agents.cache.read_cache.apply_policy" not in duties


def test_nothing_that_is_ordered_starts_before_it_is_known_what_keeps_hosts_out(
    duties: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parameters of this monitor may be older than the order."""
    monkeypatch.setattr("sanctl.agents.converge.point_unit.start_if_ordered", refuses)
    monkeypatch.setattr("sanctl.agents.converge.restore_closure.as_known", refuses)
    assert each_by_itself(DEVICE, state()) == ["write-back and access list"]
    assert "sanctl.agents.restore.unit.start_if_ordered" not in duties


@pytest.mark.parametrize("begins", [True, False])
def test_a_verify_that_fails_half_way_is_looked_after(
    duties: list[str], monkeypatch: pytest.MonkeyPatch, *, begins: bool
) -> None:
    monkeypatch.setattr(verify, "begin", refuses)
    monkeypatch.setattr("sanctl.agents.converge.tracking.needs_tracking", lambda *_: begins)
    monkeypatch.setattr("sanctl.agents.converge.unit.start", lambda _: duties.append("looked"))
    assert each_by_itself(DEVICE, state()) == ["a verify"]
    assert ("looked" in duties) is begins
