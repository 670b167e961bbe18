# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl bench cache`: fio's IOPS and latency with flash or RAM caches, or none."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sanctl.cli.options import output_option
from sanctl.cli.output import finish, print_table
from sanctl.errors import ExitStatus
from sanctl.lab.bench.bench_lab import lab_option, scenario_without
from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario, require
from sanctl.lab.machines import node_faults
from sanctl.lab.measure import cache_figures, fio_result
from sanctl.lab.measure.cache_figures import FioFigures
from sanctl.model.cache_policy import CacheMode
from sanctl.system.runner import LocalRunner

if TYPE_CHECKING:
    from sanctl.lab.documents import throughput as documents

_DEVICE = "bench-cache"
_DEVICE_SIZE = "192M"
_POOL = "main"
_BLOCK_BYTES = 8192
_WARM_S = 10
_MODE_DEADLINE_S = 600
_GOALS = {CacheMode.WRITE_THROUGH.value: 6.0, CacheMode.WRITE_BACK.value: 18.0}


@dataclass(frozen=True, slots=True)
class FioJob:
    """The parameters of one fio run."""

    seconds: int
    read_percent: int
    depth: int
    region_mib: int


@contextmanager
def slow_disks(bed: LabSession) -> Iterator[None]:
    """Make the first data disk of all storage nodes as slow as a spinning disk, for a while."""
    runner = LocalRunner()
    try:
        for node in bed.storage:
            node_faults.break_disk(bed.lab, node, 1, node_faults.DiskBehaviour.SPINNING, runner)
        yield
    finally:
        for node in bed.storage:
            node_faults.break_disk(bed.lab, node, 1, node_faults.DiskBehaviour.OK, runner)


def set_mode(scenario: Scenario, mode: CacheMode) -> None:
    """Set the mode of the pool's flash; returns when all nodes have it."""
    scenario.sanctl("pool", "cache", _POOL, mode.value, timeout_s=_MODE_DEADLINE_S)


def measure(scenario: Scenario, path: str, mode: str, load: FioJob) -> FioFigures:
    """Fill the cache, if there is one, by reading the region, and run fio on it."""
    host = scenario.host
    if mode != CacheMode.NONE:
        # Random reads: bcache bypasses sequential ones. More than once: it also skips data that
        # comes faster than it allocates buckets.
        host.sh(
            f"fio --name=warm --filename={path} --direct=1 --rw=randread --bs=32k"
            f" --size={load.region_mib}M --loops=4",
            timeout_s=900,
        )
    text = host.sh(
        f"fio --name=mixed --filename={path} --direct=1 --ioengine=libaio --rw=randrw"
        f" --rwmixread={load.read_percent} --bs={_BLOCK_BYTES} --iodepth={load.depth}"
        f" --size={load.region_mib}M --time_based --ramp_time={_WARM_S} --runtime={load.seconds}"
        f" --randrepeat=1 {fio_result.OUTPUT_OPTIONS}",
        timeout_s=load.seconds + _WARM_S + 120,
    )
    hits = ram_hits(scenario) if mode == cache_figures.RAM else flash_hits(scenario)
    return cache_figures.parse_fio(text, mode, hit_percent=hits)


def flash_hits(scenario: Scenario) -> int | None:
    """Return the hit rate of the pool's flash on the active node, in percent of reads."""
    active = collect.active_node(scenario.bed, _DEVICE)
    shown = json.loads(scenario.sanctl("pool", "list", "--output", "json"))["data"]
    pools = {(each["name"], each["node"]): each["cache"] for each in shown}
    found = pools[_POOL, active]["hit_percent"]
    return None if found is None else int(found)


def ram_hits(scenario: Scenario) -> int | None:
    """Return the hit rate of the device's read cache, in percent of reads."""
    found = _read_cache(scenario)["read_hit_percent"]
    return None if found is None else int(found)


def set_read_cache(scenario: Scenario, policy: str, size_mib: int) -> None:
    """Set the device's read cache; returns when the active node has it at that size."""
    scenario.sanctl("device", "cache", _DEVICE, policy, "--read-cache", f"{size_mib}M",
                 timeout_s=_MODE_DEADLINE_S)  # fmt: skip
    wait_for(
        "the read cache", lambda: _read_cache(scenario)["read"] == size_mib << 20, within_s=60.0
    )


def _read_cache(scenario: Scenario) -> dict[str, Any]:
    active = collect.active_node(scenario.bed, _DEVICE)
    shown = json.loads(scenario.sanctl("device", "show", _DEVICE, "--output", "json"))["data"]
    found = {each["node"]: each["cache"] for each in shown["replicas"]}[active]
    assert isinstance(found, dict)
    return found


@click.command("cache")
@lab_option(needs="made with --flash")
@click.option("--seconds", type=click.IntRange(5), default=60, show_default=True,
              help="Time of each mode, after a warm-up.")  # fmt: skip
@click.option("--read", type=click.IntRange(1, 99), default=90, show_default=True,
              metavar="PERCENT", help="Reads among the requests.")  # fmt: skip
@click.option("--depth", type=click.IntRange(1, 64), default=4, show_default=True,
              help="Requests in flight.")  # fmt: skip
@click.option("--region", "region_mib", type=click.IntRange(8, 160), default=64, show_default=True,
              metavar="MIB", help="Size of the region that they go to.")  # fmt: skip
@click.option("--policy", type=click.Choice([CacheMode.NONE.value, CacheMode.WRITE_THROUGH.value]),
              default=CacheMode.NONE.value, show_default=True,
              help="Cache policy of the device, in all runs.")  # fmt: skip
@click.option("--report", type=click.Path(path_type=Path), default=Path("bench-cache"),
              show_default=True, help="Folder for the figures and the picture.")  # fmt: skip
@output_option
def cache_command(
    *,
    name: str,
    seconds: int,
    read: int,
    depth: int,
    region_mib: int,
    policy: str,
    report: Path,
    output: str,
) -> None:
    """Random reads and writes of 8 KiB on slow disks, without a cache and with each.

    One device of two replicas: with the pool's flash in mode none, write-through and write-back,
    then with a read cache in RAM as large as the region. The slow disks are dm-delay: every access
    takes as long as on a spinning disk, however many are in flight. Exits with 0 if write-through
    is 6 times as fast as none, and write-back 18 times.
    """
    scenario = scenario_without(name, _DEVICE)
    bed = scenario.bed
    require(bed.lab.spec.has_flash, f"lab {name} has no flash: sanctl lab up --flash 512M")
    found: list[FioFigures] = []
    try:
        target = scenario.create(_DEVICE, _DEVICE_SIZE, prefer=bed.storage[0].name, cache=policy)
        path = scenario.host.login(target, scenario.portals())
        # Blocks that were never written are holes: reading them would not reach the disk.
        scenario.host.sh(
            f"dd if=/dev/urandom of={path} bs=1M count={region_mib} oflag=direct 2>/dev/null",
            timeout_s=300,
        )
        active = collect.active_node(bed, _DEVICE)
        wait_for(
            "both replicas in sync", lambda: collect.is_in_sync(bed, active, _DEVICE), within_s=120
        )
        load = FioJob(seconds, read, depth, region_mib)
        with slow_disks(bed):
            for mode in (CacheMode.NONE, CacheMode.WRITE_THROUGH, CacheMode.WRITE_BACK):
                click.echo(f"{mode.value} ...", err=True)
                set_mode(scenario, mode)
                found.append(measure(scenario, path, mode.value, load))
            click.echo(f"{cache_figures.RAM} ...", err=True)
            set_mode(scenario, CacheMode.NONE)
            set_read_cache(scenario, policy, region_mib)
            found.append(measure(scenario, path, cache_figures.RAM, load))
        set_mode(scenario, CacheMode.WRITE_THROUGH)
    finally:
        if scenario.exists(_DEVICE):
            scenario.delete(_DEVICE)
    title = (
        f"random {_BLOCK_BYTES // 1024} KiB, {read} % reads, {depth} in flight, two replicas, "
        f"policy {policy}, disks of {node_faults.SPINNING_MS} ms"
    )
    data = _data(found, title, seconds)
    report.mkdir(parents=True, exist_ok=True)
    cache_figures.draw(found, title, report / "cache")
    (report / "cache.json").write_text(json.dumps(data, indent=2) + "\n")

    def text() -> None:
        click.echo(title)
        print_table(_COLUMNS, [_row(each, by) for each, by in _with_factors(found)])
        click.echo("the run for comparison:")
        base = cache_figures.REFERENCE[0][1]
        print_table(
            ("FLASH", "IOPS", "FACTOR", "LATENCY"),
            [
                (mode, f"{iops:.0f}", f"{iops / base:.1f}", f"{mean_s * 1000:.1f} ms")
                for mode, iops, mean_s in cache_figures.REFERENCE
            ],
        )
        click.echo(f"figures and picture: {report}")

    is_reached = all(by >= _GOALS.get(each.mode, 0.0) for each, by in _with_factors(found))
    finish(
        output, data=data, text=text, status=ExitStatus.OK if is_reached else ExitStatus.DEGRADED
    )


_COLUMNS = ("CACHE", "IOPS", "FACTOR", "MEAN", "READS", "WRITES", "50 %", "95 %", "99 %", "HITS")


def _with_factors(found: list[FioFigures]) -> list[tuple[FioFigures, float]]:
    return list(zip(found, cache_figures.factors(found), strict=True))


def _row(each: FioFigures, by: float) -> tuple[str, ...]:
    times = (each.mean_s, each.read_s, each.write_s, *each.percentiles_s.values())
    return (
        each.mode,
        f"{each.iops:.0f}",
        f"{by:.1f}",
        *(f"{seconds * 1000:.1f} ms" for seconds in times),
        "-" if each.hit_percent is None else f"{each.hit_percent} %",
    )


def _data(found: list[FioFigures], title: str, seconds: int) -> documents.CacheBench:
    return {
        "what": title,
        "seconds": seconds,
        "machine": platform.platform(),
        "modes": [
            {
                "mode": each.mode,
                "iops": round(each.iops, 1),
                "factor": round(by, 2),
                "mean_ms": round(each.mean_s * 1000, 3),
                "read_ms": round(each.read_s * 1000, 3),
                "write_ms": round(each.write_s * 1000, 3),
                "p50_ms": round(each.percentiles_s[50.0] * 1000, 3),
                "p95_ms": round(each.percentiles_s[95.0] * 1000, 3),
                "p99_ms": round(each.percentiles_s[99.0] * 1000, 3),
                "hit_percent": each.hit_percent,
            }
            for each, by in _with_factors(found)
        ],
        "reference": [
            {"mode": mode, "iops": iops, "mean_ms": mean_s * 1000}
            for mode, iops, mean_s in cache_figures.REFERENCE
        ],
    }
