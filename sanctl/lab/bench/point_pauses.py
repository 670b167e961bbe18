# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl bench snapshot`: how long hosts wait for a restore point, by extents.

`measure_point` makes one restore point under a running ledger, and reads it back on each node.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from sanctl.cli.options import output_option
from sanctl.lab.bench.bench_lab import lab_option, remove_device, scenario_without, start_load
from sanctl.lab.bench.ledger_result import close_load, finish_bench
from sanctl.lab.harness import collect, point_copies
from sanctl.lab.harness.failover import LedgerLoad, await_writes
from sanctl.lab.harness.scenario import Scenario, require
from sanctl.lab.measure import ledger_latency
from sanctl.lab.measure.ledger_writer import BLOCK_BYTES
from sanctl.model.names import ByteSize

if TYPE_CHECKING:
    from sanctl.lab.documents import host_pauses as documents

#: The longest pause of a host that is accepted, in seconds: in the median, and at worst.
MEDIAN_GOAL_S, WORST_GOAL_S = 0.1, 0.5
_DEVICE = "bench-snapshot"
_BASE = "base"
_REGION_BYTES = 4 * 2**20
_WRITES_PER_S = 200.0
_COMMAND_S = 180.0
_ROUNDS = 20
_BEFORE_S = 5.0

COUNT_EXTENTS = """
import os, sys
sys.path.insert(0, os.path.realpath("/opt/sanctl/current"))
from sanctl.drivers import reflink
print(reflink.extent_count(sys.argv[1]))
"""
# Writes every second block of a stretch of the device, in random order. Each one parts the file
# there, because its block was shared.
FRAGMENT = """
import os, random, sys
path, first, count = sys.argv[1], *map(int, sys.argv[2:])
blocks = [first + 2 * number for number in range(count)]
random.shuffle(blocks)
handle = os.open(path, os.O_WRONLY)
for block in blocks:
    os.pwrite(handle, os.urandom(4096), block * 4096)
os.fsync(handle)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointTrial:
    """One restore point that was asked for under the ledger.

    Attributes:
        goal_extents: for how many extents it was made.
        extents: the extents of the device's file on the active node just before.
        code: why no restore point was made; empty for one that was.
        hold_s: how long the device's I/O was held, as the restore point says; 0 without one.
        pause: the longest time the host had no answer, from the command to its end.
        before_s: the same, in five seconds just before: what the machine does to it anyway.
        seconds: the time of the command.
        faults: what the copies have against being one state of one moment.
    """

    goal_extents: int
    extents: int
    code: str
    hold_s: float
    pause: ledger_latency.Pause
    before_s: float
    seconds: float
    faults: tuple[str, ...]


def measure_point(load: LedgerLoad, name: str, goal_extents: int) -> PointTrial:
    """Run `sanctl snapshot create` once, and measure what the host sees of it.

    A refusal, or a copy that was not made in time, is a result, too: hosts have to write on.

    Raises:
        CommandError: the command printed no result, or the copies cannot be read.
    """
    bed, device = load.bed, load.device
    node = collect.active_node(bed, device)
    extents = count_extents(load, node)
    with load.host.watch_ledger(load.run) as states:
        await_writes(load, states)
        time.sleep(_BEFORE_S)
        began_s = time.time()
        done = bed.sh(
            node,
            f"sanctl snapshot create {device} --name {name} --output json",
            timeout_s=_COMMAND_S,
            ok=range(256),
        )
        ended_s = time.time()
        await_writes(load, states)
    records = load.host.fetch_log(load.run)[1]
    result = json.loads(done.stdout)
    faults: list[str] = []
    if done.status == 0:
        nodes = [each["node"] for each in result["data"]["nodes"]]
        faults = [f"{where} has no copy" for where in result["data"]["missing_on"]]
        faults += point_copies.find_faults(load, result["data"]["file"], nodes)
    trial = PointTrial(
        goal_extents=goal_extents,
        extents=extents,
        code="" if done.status == 0 else result["problems"][0]["code"],
        hold_s=result["data"]["pause_ms"] / 1000 if done.status == 0 else 0.0,
        pause=ledger_latency.find_pause(records, began_s, ended_s),
        before_s=ledger_latency.find_pause(records, began_s - _BEFORE_S, began_s).seconds,
        seconds=ended_s - began_s,
        faults=tuple(faults),
    )
    load.print_line(
        f"{name}: {extents} extents, "
        + (trial.code or f"held {_ms(trial.hold_s)}")
        + f", longest pause {_ms(trial.pause.seconds)}, {_ms(trial.before_s)} before"
    )
    return trial


def count_extents(load: LedgerLoad, node: str) -> int:
    """Return the extents of the device's file on a node, as the product counts them."""
    file = f"$(ls /srv/sanctl/main/devices/{load.device}.*.data)"
    return int(load.bed.sh(node, f"python3 -I - {file}", stdin=COUNT_EXTENTS).stdout)


class Fragmenter:
    """Breaks the device's file into pieces, by writes of the host behind the ledger's blocks."""

    def __init__(self, load: LedgerLoad, device_bytes: int) -> None:
        self._load = load
        self._at = _REGION_BYTES // BLOCK_BYTES
        self._end = device_bytes // BLOCK_BYTES - 1

    def reach(self, node: str, extents: int) -> None:
        """Write until the file on this node has about as many extents, within a fiftieth.

        Raises:
            CommandError: the device is too small.
        """
        for _ in range(_ROUNDS):
            missing = extents - count_extents(self._load, node)
            if missing <= extents // 50:
                return
            # Each write makes two of one extent, or three.
            count = max(1, min(missing // 2, (self._end - self._at) // 2))
            require(self._at < self._end, f"the device is too small for {extents} extents")
            self._load.bed.sh(
                self._load.host.name,
                f"python3 - {self._load.run.device} {self._at} {count}",
                stdin=FRAGMENT,
                timeout_s=580,
            )
            self._at += 2 * count
        require(False, f"{node}: {_ROUNDS} rounds of writes made no {extents} extents")


@click.command("snapshot")
@lab_option(needs="its pools are XFS")
@click.option("--size", default="256M", show_default=True, help="Size of the device.")
@click.option("--extents", "counts", default="1000,4000,7000", show_default=True, metavar="N,N,…",
              callback=lambda _context, _option, text: parse_counts(text),
              help="Extents of the device's file, rising.")  # fmt: skip
@click.option("--points", type=click.IntRange(1, 100), default=5, show_default=True,
              help="Restore points with each number of extents.")  # fmt: skip
@output_option
def snapshot_command(
    *, name: str, size: str, counts: tuple[int, ...], points: int, output: str
) -> None:
    """Make restore points of a device while a host writes to it.

    Creates a device, breaks its file into extents by random writes of 4 KiB, and makes restore
    points while a host writes through iSCSI all the time. Each one is read on each node: the same
    everywhere, and a state that the host's log allows. Exits with 0 if all were made, nothing was
    lost, no request failed, and with each number of extents the host's pause was 100 ms at most in
    the median and 500 ms at worst.
    """
    device_bytes = ByteSize.parse(size).bytes
    room = (device_bytes - _REGION_BYTES) // BLOCK_BYTES
    if counts[-1] > room // 2:
        raise click.UsageError(f"a device of {size} has room for {max(0, room // 2)} extents here")
    scenario = scenario_without(name, _DEVICE)
    trials: list[PointTrial] = []
    try:
        load = _open_load(scenario, size)
        fragmenter = Fragmenter(load, device_bytes)
        for count in counts:
            fragmenter.reach(collect.active_node(load.bed, _DEVICE), count)
            for number in range(points):
                trial = measure_point(load, f"p{number}", count)
                trials.append(trial)
                if not trial.code:
                    _snapshot(scenario, "delete", f"{_DEVICE}@p{number}", "--yes")
        check = close_load(load)
    finally:
        remove_device(scenario, _DEVICE)
    series = [[each for each in trials if each.goal_extents == count] for count in counts]
    finish_bench(
        output,
        check,
        columns=_COLUMNS,
        rows=[summary_row(each) for each in series],
        data={"device_bytes": device_bytes, "points": [_data(trial) for trial in trials]},
        is_good=all(is_good(each) for each in series),
    )


def _open_load(scenario: Scenario, size: str) -> LedgerLoad:
    nodes = [node.name for node in scenario.bed.storage]
    target = scenario.create(_DEVICE, size, prefer=nodes[0])
    path = scenario.host.login(target, scenario.portals())
    # Blocks that are shared from here on: only a write to such a one parts the file.
    scenario.host.sh(
        f"dd if=/dev/urandom of={path} bs=1M count={ByteSize.parse(size).bytes // 2**20}"
        " oflag=direct status=none",
        timeout_s=580,
    )
    _snapshot(scenario, "create", _DEVICE, "--name", _BASE)
    return start_load(
        scenario,
        _DEVICE,
        target,
        path,
        rate=_WRITES_PER_S,
        region_bytes=_REGION_BYTES,
    )


def _snapshot(scenario: Scenario, *words: str) -> None:
    scenario.sanctl("snapshot", *words, timeout_s=_COMMAND_S)


def parse_counts(text: str) -> tuple[int, ...]:
    """Return numbers of extents, as the option has them.

    Raises:
        BadParameter: they are no rising list of whole numbers above 0.
    """
    words = text.split(",")
    if all(word.isascii() and word.isdecimal() and int(word) > 0 for word in words):
        counts = tuple(map(int, words))
        if list(counts) == sorted(set(counts)):
            return counts
    raise click.BadParameter("rising numbers above 0, as in 1000,4000,7000")


def is_good(series: Sequence[PointTrial]) -> bool:
    """Whether restore points with one number of extents were all made, sound and soon enough."""
    pauses = [trial.pause.seconds for trial in series]
    return (
        not any(trial.code or trial.faults or trial.pause.errors for trial in series)
        and statistics.median(pauses) <= MEDIAN_GOAL_S
        and max(pauses) <= WORST_GOAL_S
    )


_COLUMNS = (
    "EXTENTS", "POINTS", "HELD (MEDIAN, WORST)", "HOST'S PAUSE (MEDIAN, WORST)",
    "WITHOUT (MEDIAN, WORST)", "ERRORS", "FAULTS", "TOOK",
)  # fmt: skip


def summary_row(series: Sequence[PointTrial]) -> tuple[str, ...]:
    """Return the table's row for restore points with one number of extents."""
    made = [trial for trial in series if not trial.code]
    codes = sorted({trial.code for trial in series if trial.code})
    low, high = min(each.extents for each in series), max(each.extents for each in series)
    return (
        f"{low}-{high}" if low != high else str(low),
        " ".join([f"{len(made)} of {len(series)}", *codes]),
        _median_and_worst([trial.hold_s for trial in made]),
        _median_and_worst([trial.pause.seconds for trial in series]),
        _median_and_worst([trial.before_s for trial in series]),
        str(sum(trial.pause.errors for trial in series)),
        str(sum(len(trial.faults) for trial in series)),
        f"{statistics.median(trial.seconds for trial in series):.1f} s",
    )


def _median_and_worst(seconds: Sequence[float]) -> str:
    return f"{_ms(statistics.median(seconds))}, {_ms(max(seconds))}" if seconds else "-"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def _data(trial: PointTrial) -> documents.PointPause:
    return {
        "goal_extents": trial.goal_extents,
        "extents": trial.extents,
        "code": trial.code or None,
        "hold_s": round(trial.hold_s, 3),
        "pause_s": round(trial.pause.seconds, 3),
        "before_s": round(trial.before_s, 3),
        "errors": trial.pause.errors,
        "took_s": round(trial.seconds, 1),
        "faults": list(trial.faults),
    }
