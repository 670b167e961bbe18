# SPDX-License-Identifier: GPL-2.0-or-later
"""Pauses of a device's ledger during a fault, and how devices of a run come and go."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest

from sanctl.lab.chaos import ledgers
from sanctl.lab.chaos.ledgers import _RECORD, DeviceLedger, replica_nodes
from sanctl.lab.harness.initiator import Initiator, LedgerRun
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.measure.ledger_writer import Record, RecordKind
from sanctl.model.cache_policy import CacheMode


def ledger(*acknowledged_s: float) -> DeviceLedger:
    """Return a ledger whose writes were acknowledged at these times."""
    records = [
        Record(kind, 0, 0, 0, number, round(at_s * 1e9), round(at_s * 1e9))
        for number, at_s in enumerate(acknowledged_s)
        for kind in (RecordKind.INTENT, RecordKind.ACK)
    ]
    return DeviceLedger(
        device="vol",
        host=cast(Initiator, None),
        run=cast(LedgerRun, None),
        target="iqn.x:vol",
        records=records,
    )


def test_a_pause_that_ended_counts_as_it_was() -> None:
    pause = ledger(1.0, 1.1, 7.1, 7.2, 8.3).pause_since(0.5, 8.0)
    assert pause is not None
    assert pause.seconds == pytest.approx(6.0)


def test_a_pause_that_has_not_ended_counts_with_its_time_so_far() -> None:
    pause = ledger(1.0, 1.1, 2.0).pause_since(0.5, 302.0)
    assert pause is not None
    assert pause.seconds == pytest.approx(300.0)
    assert pause.gap_began_wall_s == pytest.approx(2.0)


def test_a_clock_that_this_machine_was_given_in_a_run_makes_no_pause() -> None:
    """Each fault after that had a pause of the 14 s by which the clock was set."""
    fresh = [
        _RECORD.pack(kind, 0, 0, 0, number, (1000 + number) * 10**8, (860 + number) * 10**8)
        for number in range(100)
        for kind in (RecordKind.INTENT, RecordKind.ACK)
    ]
    bed = SimpleNamespace(
        sh=lambda *_, **__: SimpleNamespace(stdout=base64.b64encode(b"".join(fresh)).decode())
    )
    load = ledger()
    load.host = cast(Initiator, SimpleNamespace(name="i1", bed=bed))
    load.run = cast(LedgerRun, SimpleNamespace(log="/x"))
    load.ahead_s = -14.0
    load.fetch()
    pause = load.pause_since(95.0, 110.0)
    assert pause is not None and pause.seconds < 1.0


def test_the_length_of_a_log_is_that_of_its_whole_records() -> None:
    load = ledger()
    told = f"{512 + 3 * _RECORD.size + 5}\n"
    load.host = cast(Initiator, SimpleNamespace(sh=lambda *_, **__: told))
    load.run = cast(LedgerRun, SimpleNamespace(log="/x"))
    assert load.length() == 3


def test_no_write_at_all_is_no_pause() -> None:
    assert ledger(1.0, 1.1).pause_since(50, 60) is None


@pytest.mark.parametrize("count", [2, 3, 4])
def test_devices_have_a_replica_on_each_node_that_holds_data(count: int) -> None:
    nodes = [f"n{number}" for number in range(1, count + 1)]
    assert replica_nodes(nodes) == tuple(nodes)


@pytest.mark.parametrize("count", [1, 5])
def test_a_laboratory_with_fewer_or_more_storage_nodes_is_refused(count: int) -> None:
    with pytest.raises(click.UsageError, match=f"which has {count} of them: it takes 2 to 4"):
        replica_nodes(["n"] * count)


class StubHost:
    """A host that notes what it is asked to do with a target."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.done: list[tuple[str, str]] = []
        self.options: list[str] = []

    def sh(self, script: str, **_given: Any) -> str:
        self.done.append(("sh", script))
        return ""

    def login(self, target: str, _portals: list[str]) -> str:
        self.done.append(("login", target))
        return f"/dev/mapper/{target}"

    def logout(self, target: str) -> None:
        self.done.append(("logout", target))

    def start_ledger(self, name: str, device: str, *options: str) -> LedgerRun:
        self.options.append(" ".join(options))
        return LedgerRun(unit=f"ledger-{name}", device=device, log="log")

    def stop_ledger(self, run: LedgerRun) -> None:
        self.done.append(("stop", run.unit))


class StubScenario:
    """A cluster of n1 and n2 that notes each command of `sanctl device`."""

    def __init__(self, host: str, commands: list[tuple[str, ...]], existing: list[str]) -> None:
        self.host = StubHost(host)
        storage = [SimpleNamespace(name=name) for name in ("n1", "n2")]
        self.bed = SimpleNamespace(storage=storage, skew_s=lambda _host: 0.0)
        self.commands = commands
        self.existing = existing

    def device_names(self) -> list[str]:
        return self.existing

    def iqn_prefix(self) -> str:
        return "iqn"

    def portals(self) -> list[str]:
        return ["a", "b"]

    def create_together(self, names: list[str], _size: str, *, prefer: str, **_rest: Any) -> None:
        self.commands.append(("create", self.host.name, prefer, *names))

    def delete_together(self, names: list[str]) -> None:
        self.commands.append(("delete", *names))


class Cluster:
    """Two hosts of one cluster, and all commands in their order."""

    def __init__(self, *existing: str) -> None:
        self.commands: list[tuple[str, ...]] = []
        self.stubs = [StubScenario(host, self.commands, list(existing)) for host in ("i1", "i2")]

    @property
    def scenarios(self) -> list[Scenario]:
        return cast("list[Scenario]", self.stubs)

    def start(self, *devices: str) -> list[DeviceLedger]:
        return ledgers.start(
            self.scenarios, devices, region_bytes=1, size="1M", cache=CacheMode.NONE
        )


def names(count: int) -> tuple[str, ...]:
    return tuple(f"chaos{number}" for number in range(1, count + 1))


@pytest.mark.parametrize(("count", "rate"), [(1, 40.0), (3, 40.0), (6, 20.0), (15, 8.0)])
def test_more_than_three_devices_share_the_writes_of_three(count: int, rate: float) -> None:
    assert ledgers.write_rate(count) == rate


@pytest.mark.parametrize(("hosts", "storage"), [(2, 2), (2, 4), (1, 3), (1, 2)])
def test_fifteen_devices_are_created_by_four_commands_at_most(hosts: int, storage: int) -> None:
    nodes = [f"n{number}" for number in range(1, storage + 1)]
    placed = ledgers.placements(names(15), hosts, nodes)
    found = ledgers.created_together(placed)
    assert len(found) <= 4
    assert {(each.host, each.prefer, each.device) for each in placed} == {
        (host, prefer, device) for (host, prefer), group in found.items() for device in group
    }
    assert [each.device for each in placed] == list(names(15))


def test_each_device_has_its_ledger_on_the_host_it_was_created_for() -> None:
    cluster = Cluster()
    loads = cluster.start(*names(5))
    assert sorted(cluster.commands) == [
        ("create", "i1", "n1", "chaos1", "chaos3", "chaos5"),
        ("create", "i2", "n2", "chaos2", "chaos4"),
    ]
    assert [(load.device, load.host.name) for load in loads] == [
        ("chaos1", "i1"),
        ("chaos2", "i2"),
        ("chaos3", "i1"),
        ("chaos4", "i2"),
        ("chaos5", "i1"),
    ]
    assert [load.target for load in loads] == [f"iqn.{name}" for name in names(5)]
    assert all("--rate 24 " in each for stub in cluster.stubs for each in stub.host.options)


def test_devices_of_a_larger_run_go_before_those_of_this_one_come() -> None:
    cluster = Cluster("chaos1", "chaos12", "idle2", "chaotic", "kind1", "vol1")
    cluster.start("kind1")
    assert cluster.commands == [
        ("delete", "chaos1", "chaos12", "idle2", "kind1"),
        ("create", "i1", "n1", "kind1"),
    ]
    for stub in cluster.stubs:
        gone = [target for what, target in stub.host.done if what == "logout"]
        assert sorted(gone) == ["iqn.chaos1", "iqn.chaos12", "iqn.idle2", "iqn.kind1"]


def test_all_devices_are_deleted_by_one_command_when_no_host_uses_them() -> None:
    cluster = Cluster()
    loads = cluster.start(*names(4))
    cluster.commands.clear()
    ledgers.finish(loads, ["idle1"], cluster.scenarios)
    assert cluster.commands == [("delete", "chaos1", "chaos2", "chaos3", "chaos4", "idle1")]
    for number, stub in enumerate(cluster.stubs, start=1):
        left = [f"iqn.chaos{device}" for device in (number, number + 2)]
        assert sorted(target for what, target in stub.host.done if what == "logout") == left
