# SPDX-License-Identifier: GPL-2.0-or-later
"""The devices of a chaos run: some with a ledger of writes, checked per fault, some idle."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import click

from sanctl.errors import CommandError
from sanctl.lab.harness.initiator import Initiator, LedgerRun
from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.measure import ledger_writer
from sanctl.lab.measure.ledger_latency import Pause, find_pause_so_far
from sanctl.lab.measure.ledger_writer import Record
from sanctl.model.cache_policy import CacheMode

_HEAD_BYTES = 512
_RECORD = struct.Struct("<BBHIQqq")
_WRITER = "/usr/local/lib/sanctl-ledger.py"
_CHECK_DEADLINE_S = 180.0
_MIN_REPLICAS, _MAX_REPLICAS = 2, 4
# Acknowledgements after which a device counts as writing again.
_SIGN_OF_LIFE = 3
# Well below what the laboratory can do: the processors are left to the recovery from faults.
_WRITES_PER_S = 40.0
_FULL_RATE_DEVICES = 3
# Commands on nodes, and checks on hosts: their processors are few.
_AT_ONCE = 4
# What `sanctl chaos run` names its devices.
_OF_A_RUN = re.compile(r"(chaos|idle)[0-9]+")


@dataclass(slots=True)
class DeviceLedger:
    """One device and the ledger that a host writes to it, with the records fetched so far."""

    device: str
    host: Initiator
    run: LedgerRun
    target: str
    records: list[Record] = field(default_factory=list)
    read_bytes: int = _HEAD_BYTES
    # No fault touches a host's clock; but this machine's own may be set in the hours of a run, and
    # a guest keeps the time that it has.
    ahead_s: float = 0.0

    def fetch(self) -> list[Record]:
        """Fetch the records added to the log since the last call, with times of this machine."""
        bed = self.host.bed
        script = f"tail -c +{self.read_bytes + 1} {self.run.log} | base64 -w0"
        data = base64.b64decode(bed.sh(self.host.name, script, timeout_s=60).stdout)
        whole = len(data) - len(data) % _RECORD.size
        ahead_ns = round(self.ahead_s * 1e9)
        fresh = []
        for fields in _RECORD.iter_unpack(data[:whole]):
            record = Record(ledger_writer.RecordKind(fields[0]), *fields[1:])
            fresh.append(record._replace(wall_ns=record.wall_ns - ahead_ns))
        self.read_bytes += whole
        self.records += fresh
        return fresh

    def length(self) -> int:
        """Return how many records the whole log has now.

        Raises:
            CommandError: the host does not say.
        """
        told = self.host.sh(f"stat -c %s {self.run.log}", timeout_s=20)
        return (int(told) - _HEAD_BYTES) // _RECORD.size

    def pause_since(self, begin_s: float, end_s: float) -> Pause | None:
        """Return the longest pause that began in a stretch of time; None if nothing was written.

        A pause that has not ended counts with its time so far. The records must have been fetched
        after `end_s`.
        """
        return find_pause_so_far(self.records, begin_s, end_s)

    def forget_before(self, wall_s: float) -> None:
        """Drop records that are older than any later fault."""
        self.records = [record for record in self.records if record.wall_ns / 1e9 >= wall_s]

    def check(self) -> dict[str, Any]:
        """Stop the writer by SIGSTOP, read every block back, continue it; return the result.

        The writer does not end: a write in flight stays unanswered in its log, and either value is
        right for that block.
        """
        out = self.host.sh(
            f"systemctl kill --signal=STOP {self.run.unit};"
            f" python3 {_WRITER} check --device '{self.run.device}' --log {self.run.log};"
            f" systemctl kill --signal=CONT {self.run.unit}",
            timeout_s=_CHECK_DEADLINE_S,
        )
        result = json.loads(out)
        assert isinstance(result, dict)
        return result


def write_rate(devices: int) -> float:
    """Return the writes a second of each ledger: more than three share what three write."""
    return _WRITES_PER_S * min(1.0, _FULL_RATE_DEVICES / devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The host of a device, by its number, and the node that is to serve the device."""

    device: str
    host: int
    prefer: str


def placements(devices: Sequence[str], hosts: int, storage: Sequence[str]) -> list[Placement]:
    """Spread devices over hosts and storage nodes."""
    return [
        Placement(device=device, host=number % hosts, prefer=storage[number % len(storage)])
        for number, device in enumerate(devices)
    ]


def created_together(placed: Sequence[Placement]) -> dict[tuple[int, str], list[str]]:
    """Return the devices that one `device create` makes, by host and preferred node."""
    found: dict[tuple[int, str], list[str]] = {}
    for each in placed:
        found.setdefault((each.host, each.prefer), []).append(each.device)
    return found


def start(
    scenarios: Sequence[Scenario],
    devices: Sequence[str],
    *,
    region_bytes: int,
    size: str,
    cache: CacheMode,
) -> list[DeviceLedger]:
    """Create the devices, spread over nodes and hosts, log the hosts in and start the ledgers.

    With any cache policy but `none` hosts flush nothing: the policy's promise is about writes that
    were only acknowledged.
    """
    bed = scenarios[0].bed
    storage = [node.name for node in bed.storage]
    nodes = replica_nodes(storage)
    rate = write_rate(len(devices))
    options = ["--rate", f"{rate:g}", "--region", str(region_bytes), "--depth", "2"]
    if cache is not CacheMode.NONE:
        options.append("--unsynced")
    delete_leftovers(scenarios, devices)
    placed = placements(devices, len(scenarios), storage)

    def create(group: tuple[tuple[int, str], list[str]]) -> None:
        (host, prefer), names = group
        scenarios[host].create_together(names, size, prefer=prefer, nodes=nodes, cache=cache.value)

    # All of one command are one change of the CIB. Commands that run at the same time compete for
    # it: each that loses reads the cluster's state and plans anew.
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        list(pool.map(create, created_together(placed).items()))
    prefix, portals = scenarios[0].iqn_prefix(), scenarios[0].portals()

    def start_on(number: int) -> list[DeviceLedger]:
        host = scenarios[number].host
        ahead_s = bed.skew_s(host.name)
        loads = []
        # One after the other: a discovery rewrites the records by which others log in.
        for device in (each.device for each in placed if each.host == number):
            target = f"{prefix}.{device}"
            run = host.start_ledger(device, host.login(target, portals), *options)
            loads.append(
                DeviceLedger(device=device, host=host, run=run, target=target, ahead_s=ahead_s)
            )
        return loads

    with ThreadPoolExecutor(max_workers=len(scenarios)) as pool:
        by_host = pool.map(start_on, range(len(scenarios)))
        started = {load.device: load for loads in by_host for load in loads}
    return [started[device] for device in devices]


def leftovers(existing: Sequence[str], devices: Sequence[str]) -> list[str]:
    """Return which of the existing devices are of an earlier run, whatever its `--devices` was."""
    return [name for name in existing if name in devices or _OF_A_RUN.fullmatch(name)]


def delete_leftovers(scenarios: Sequence[Scenario], devices: Sequence[str]) -> None:
    """End the ledgers that an earlier run left, and delete its devices."""
    names = leftovers(scenarios[0].device_names(), devices)
    if not names:
        return
    prefix = scenarios[0].iqn_prefix()

    def end(at: tuple[Scenario, str]) -> None:
        scenario, name = at
        stop_leftover(scenario.host, name)
        scenario.host.logout(f"{prefix}.{name}")

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        list(pool.map(end, [(scenario, name) for scenario in scenarios for name in names]))
    scenarios[0].delete_together(names)


def create_idle(
    scenarios: Sequence[Scenario], devices: Sequence[str], *, size: str, cache: CacheMode
) -> None:
    """Create devices that no host writes to, spread over the nodes; no host logs in to them.

    A mark, a missing replica or a failed promotion of a busy device shows at its host's writes. On
    an idle device only the audit sees them, and no write makes DRBD or an agent act.
    """
    for number, device in enumerate(devices):
        scenario = scenarios[number % len(scenarios)]
        if scenario.exists(device):
            scenario.delete(device)
        prefer = scenario.bed.storage[-1 - number % len(scenario.bed.storage)].name
        nodes = replica_nodes([node.name for node in scenario.bed.storage])
        scenario.create(device, size, prefer=prefer, nodes=nodes, cache=cache.value)


def replica_nodes(storage: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes on which the devices of a run have replicas: all that hold data.

    Raises:
        click.UsageError: no device can have as many.
    """
    if not _MIN_REPLICAS <= len(storage) <= _MAX_REPLICAS:
        raise click.UsageError(
            "devices of a run have a replica on each storage node of the laboratory, which has "
            f"{len(storage)} of them: it takes {_MIN_REPLICAS} to {_MAX_REPLICAS}"
        )
    return tuple(storage)


def stop_leftover(host: Initiator, device: str) -> None:
    """End the ledger that an earlier run left on a host."""
    host.sh(f"systemctl kill --signal=CONT ledger-{device}; systemctl stop ledger-{device}; true",
            timeout_s=150)  # fmt: skip


def finish(
    loads: Sequence[DeviceLedger], idle: Sequence[str], scenarios: Sequence[Scenario]
) -> None:
    """End the ledgers and delete all devices."""

    def end(load: DeviceLedger) -> None:
        load.host.stop_ledger(load.run)
        load.host.logout(load.target)

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        list(pool.map(end, loads))
    scenarios[0].delete_together([*(load.device for load in loads), *idle])


def await_writing(loads: Sequence[DeviceLedger], *, within_s: float) -> None:
    """Wait until every ledger writes.

    Raises:
        NotConverged: one did not get enough acknowledgements in time.
    """
    for load in loads:

        def has_grown(load: DeviceLedger = load) -> bool:
            fresh = load.fetch()
            return (
                sum(record.kind is ledger_writer.RecordKind.ACK for record in fresh)
                >= _SIGN_OF_LIFE
            )

        # Acknowledgements from before this call do not count.
        load.fetch()
        wait_for(f"writes of {load.host.name} on {load.device}", has_grown, within_s=within_s)


def check_all(loads: Sequence[DeviceLedger]) -> dict[str, dict[str, Any]]:
    """Check all ledgers, some side by side; return the findings by device."""
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        found = pool.map(_check, loads)
        return {load.device: result for load, result in zip(loads, found, strict=True)}


def _check(load: DeviceLedger) -> dict[str, Any]:
    try:
        return load.check()
    except CommandError as error:
        return {"lost": 0, "acknowledged": 0, "errors": 0, "findings": [], "failed": str(error)}
