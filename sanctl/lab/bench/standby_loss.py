# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl bench partner`: the pause in write-back when the standby's power is cut."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from sanctl.cli.options import output_option
from sanctl.lab.bench.bench_lab import lab_option, scenario_without, start_load
from sanctl.lab.bench.cache_throughput import slow_disks
from sanctl.lab.bench.ledger_result import close_load, finish_bench
from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import LedgerLoad, await_healthy, await_writes
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario, require
from sanctl.lab.measure import ledger_latency
from sanctl.lab.measure.ledger_writer import RecordKind
from sanctl.model.cache_policy import CacheMode
from sanctl.model.names import ByteSize, format_bytes

if TYPE_CHECKING:
    from sanctl.lab.documents import host_pauses as documents
    from sanctl.lab.measure.ledger_latency import Pause
    from sanctl.lab.measure.timeline import Entry

_DEVICE = "bench-partner"
_DEVICE_BYTES = 192 * 2**20
_LEDGER_BYTES = 32 * 2**20
_WRITES_PER_S = 20.0
_FILLER = "sanctl-bench-filler"
_FILLED_BLOCK = "4k"
# The standby must be lost within 30 s: after that the kernel writes back what has been dirty for as
# long (vm.dirty_expire_centisecs), and nothing is left to flush.
_FILL_S = 12.0
_MODE_DEADLINE_S = 180.0
_SURVIVED_DEADLINE_S = 180.0
_RETURN_DEADLINE_S = 480.0
# What an agent writes when it has left write-back (sanctl.agents.cache.write_cache_steps).
_FLUSHED = re.compile(r"all that was in RAM is on the disk \((\d+) bytes\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyLoss:
    """The loss of the standby's power, under writes.

    Attributes:
        limit_bytes: the dirty limit; None: write-through, nothing may be dirty.
        at_cut_bytes: dirty and writeback bytes of the survivor's node just before the cut.
        dirty_bytes: bytes that the survivor flushed before it resumed I/O.
        flush_s: the time of that flush.
        pause: the longest time the host had no answer.
    """

    limit_bytes: int | None
    at_cut_bytes: int
    dirty_bytes: int
    flush_s: float
    pause: Pause


def find_flush(entries: Sequence[Entry], device: str, since_s: float) -> tuple[int, float] | None:
    """Return the bytes and seconds of a node's first flush out of write-back since `since_s`.

    None if the node's journal has none.
    """
    for entry in sorted(entries, key=lambda each: each.at_s):
        found = _FLUSHED.search(entry.message)
        if found and entry.device == device and entry.at_s >= since_s:
            return int(found[1]), entry.duration_s
    return None


def lose_standby(load: LedgerLoad, limit: ByteSize | None) -> StandbyLoss:
    """Set the mode, write at full speed, cut the standby's power, wait until it is in sync."""
    bed, device = load.bed, load.device
    active = collect.active_node(bed, device)
    lost = load.peer_of(active)
    scenario = Scenario(bed, load.host)
    mode = CacheMode.WRITE_THROUGH if limit is None else CacheMode.WRITE_BACK
    share = () if limit is None else ("--dirty-limit", str(limit.bytes))
    scenario.sanctl("device", "cache", device, mode.value, *share, timeout_s=_MODE_DEADLINE_S)
    wait_for(f"{mode} on both", lambda: _are_in(scenario, device, mode), within_s=_MODE_DEADLINE_S)
    load.print_line(f"{mode}, {'nothing' if limit is None else limit} may be dirty: writing")
    _start_filler(load)
    try:
        # Until the dirty limit throttles the writer; a fixed time, as a high limit never does.
        time.sleep(_FILL_S)
        with load.host.watch_ledger(load.run) as states:
            await_writes(load, states)
        at_cut_bytes = _dirty_bytes(bed, active)
        cut_s = bed.cut_power(lost)
        load.print_line(f"power of {lost} cut")
        wait_for(
            f"{active} to go on alone",
            lambda: _has_resumed(load, cut_s),
            within_s=_SURVIVED_DEADLINE_S,
            every_s=2.0,
        )
    finally:
        load.host.sh(f"systemctl stop {_FILLER} 2>/dev/null || true", timeout_s=150)
    ended_s = time.time()
    found = find_flush(collect.journals(bed, [active], cut_s - 1.0), device, cut_s - 1.0)
    require((found is None) == (limit is None), f"{active} left {mode} with this flush: {found}")
    flushed, took_s = found or (0, 0.0)
    pause = ledger_latency.find_pause(load.host.fetch_log(load.run)[1], cut_s - 1.0, ended_s)
    bed.ensure_power(lost)
    wait_for(
        f"{lost} to be back and in sync",
        lambda: collect.is_in_sync(bed, active, device),
        within_s=_RETURN_DEADLINE_S,
        every_s=2.0,
    )
    await_healthy(bed, active)
    return StandbyLoss(
        limit_bytes=None if limit is None else limit.bytes,
        at_cut_bytes=at_cut_bytes,
        dirty_bytes=flushed,
        flush_s=took_s,
        pause=pause,
    )


def _dirty_bytes(bed: LabSession, node: str) -> int:
    """Return a node's dirty and writeback bytes, of all devices together (proc_meminfo(5))."""
    kib = bed.sh(node, "awk '/^(Dirty|Writeback):/ {kib += $2} END {print kib}' /proc/meminfo")
    return int(kib.stdout) * 1024


def _start_filler(load: LedgerLoad) -> None:
    """Write random blocks behind the ledger's region, as fast as the device takes them."""
    size = _DEVICE_BYTES - _LEDGER_BYTES
    load.host.sh(
        f"systemctl reset-failed {_FILLER} 2>/dev/null;"
        f" systemd-run --quiet --collect --unit={_FILLER} fio --name=fill"
        f" --filename={load.run.device} --direct=1 --ioengine=libaio --iodepth=32 --rw=randwrite"
        f" --bs={_FILLED_BLOCK} --offset={_LEDGER_BYTES} --size={size} --norandommap"
        " --time_based --runtime=600"
    )


def _are_in(scenario: Scenario, device: str, mode: CacheMode) -> bool:
    shown = json.loads(scenario.sanctl("device", "show", device, "--output", "json"))["data"]
    return {each["cache"]["mode"] for each in shown["replicas"]} == {mode.value}


def _has_resumed(load: LedgerLoad, cut_s: float) -> bool:
    """Whether the ledger has paused since a time, and writes again."""
    records = load.host.fetch_log(load.run)[1]
    acked = [record.wall_ns / 1e9 for record in records if record.kind is RecordKind.ACK]
    return (
        ledger_latency.find_pause(records, cut_s - 1.0, time.time()).longest_gap_s > 1.0
        and acked[-1] > time.time() - 5.0
    )


@click.command("partner")
@lab_option()
@click.option("--dirty", "limits", default="4M,16M,64M", show_default=True, metavar="SIZE,SIZE,…",
              callback=lambda _context, _option, text: _limits(text),
              help="Dirty limits, one after the other.")  # fmt: skip
@output_option
def partner_command(*, name: str, limits: tuple[ByteSize, ...], output: str) -> None:
    """The pause when a device in write-back loses its standby, by dirty limit.

    A host writes random blocks at full speed to one device of two replicas on slow disks, and a
    ledger beside them; the standby's power is cut. First in write-through, which has nothing to
    flush. Exits with 0 if no acknowledged write was lost and no request failed.
    """
    scenario = scenario_without(name, _DEVICE)
    bed = scenario.bed
    found: list[StandbyLoss] = []
    with ExitStack() as stack:
        target = scenario.create(_DEVICE, str(_DEVICE_BYTES), prefer=bed.storage[0].name)
        stack.callback(scenario.delete, _DEVICE)
        path = scenario.host.login(target, scenario.portals())
        # Holes have no extents yet: their first write would measure the filesystem.
        scenario.host.sh(
            f"dd if=/dev/zero of={path} bs=1M count={_DEVICE_BYTES >> 20} oflag=direct 2>/dev/null",
            timeout_s=300,
        )
        load = start_load(
            scenario,
            _DEVICE,
            target,
            path,
            rate=_WRITES_PER_S,
            region_bytes=_LEDGER_BYTES,
            # A flush would empty the cache twenty times a second.
            synced=False,
        )
        for limit in (None, *limits):
            # Set each time: the delay of a node's disk is lost with its power.
            with slow_disks(bed):
                found.append(lose_standby(load, limit))
        check = close_load(load)
    finish_bench(
        output,
        check,
        columns=_COLUMNS,
        rows=[_row(each) for each in found],
        data={"losses": [_data(each) for each in found]},
        is_good=all(not loss.pause.errors for loss in found),
    )


def _limits(text: str) -> tuple[ByteSize, ...]:
    return tuple(ByteSize.parse(word) for word in text.split(","))


_COLUMNS = ("MAY BE DIRTY", "AT THE CUT", "LEFT TO FLUSH", "FLUSH", "LONGEST PAUSE", "ERRORS")


def _row(each: StandbyLoss) -> tuple[str, ...]:
    return (
        "write-through" if each.limit_bytes is None else format_bytes(each.limit_bytes),
        format_bytes(each.at_cut_bytes),
        format_bytes(each.dirty_bytes),
        f"{each.flush_s:.1f} s",
        f"{each.pause.seconds:.1f} s",
        str(each.pause.errors),
    )


def _data(each: StandbyLoss) -> documents.PartnerLoss:
    return {
        "limit_bytes": each.limit_bytes,
        "at_cut_bytes": each.at_cut_bytes,
        "dirty_bytes": each.dirty_bytes,
        "flush_s": round(each.flush_s, 3),
        "pause_s": round(each.pause.seconds, 3),
        "errors": each.pause.errors,
    }
