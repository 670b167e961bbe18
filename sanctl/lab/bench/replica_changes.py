# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl bench levels`: what adding and dropping replicas costs a host that writes.

`measure_change` measures one `sanctl device replicas` under a running ledger.
"""

from __future__ import annotations

import itertools
import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from sanctl.cli.options import output_option
from sanctl.lab.bench.bench_lab import lab_option, remove_device, scenario_without, start_load
from sanctl.lab.bench.ledger_result import close_load, finish_bench
from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import LedgerLoad, await_writes
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.harness.scenario import Scenario, require
from sanctl.lab.measure import kernel_audit, ledger_latency, timeline
from sanctl.model.names import ByteSize, format_bytes

if TYPE_CHECKING:
    from sanctl.lab.documents import host_pauses as documents
    from sanctl.lab.measure.ledger_latency import Pause

#: The longest pause that is accepted while replicas come and go, in seconds.
PAUSE_GOAL_S = 1.0
_DEADLINE_S = 480.0
_SYNC_COUNTER = "/sys/class/net/sync0/statistics/tx_bytes"
_DEVICE = "bench-levels"
_REGION_BYTES = 64 * 2**20
_WRITES_PER_S = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaChange:
    """One change of a device's replicas under the ledger.

    Attributes:
        before: the nodes that had replicas.
        after: the nodes that have replicas now.
        seconds: the time of the command.
        pause: the longest time the host had no answer, from the command to a little after it.
        sessions_kept: whether each of the host's sessions to a node with a replica before and after
            is still the same.
        written_bytes: distinct blocks that the host wrote meanwhile.
        copied_bytes: the size of the resync in DRBD's log; 0 without a resync.
        sent_bytes: bytes that the active node sent on the sync network meanwhile.
        violations: invariants that the audit of all kernels found broken.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    seconds: float
    pause: Pause
    sessions_kept: bool
    written_bytes: int
    copied_bytes: int
    sent_bytes: int
    violations: tuple[str, ...]

    @property
    def name(self) -> str:
        """The number of replicas before and after."""
        return f"{len(self.before)} -> {len(self.after)}"


def measure_change(load: LedgerLoad, *words: str) -> ReplicaChange:
    """Run `sanctl device replicas NAME WORDS` and measure what it costs the host.

    Raises:
        CommandError: the command failed.
    """
    bed, device = load.bed, load.device
    source = collect.active_node(bed, device)
    before = replica_nodes(bed, source, device)
    ids_before = load.sessions()
    with load.host.watch_ledger(load.run) as states:
        await_writes(load, states)
        sent = _sent_bytes(bed, source)
        began_s = time.time()
        load.print_line(f"device replicas {device} {' '.join(words)}")
        bed.sh(
            source, f"sanctl device replicas {device} {shlex.join(words)}", timeout_s=_DEADLINE_S
        )
        ended_s = time.time()
        sent = _sent_bytes(bed, source) - sent
        violations = kernel_audit.violations(collect.kernel_views(bed))
        await_writes(load, states)
    after = replica_nodes(bed, source, device)
    ids_after = load.sessions()
    stayed = {
        node.name: load_portal
        for node in bed.storage
        if node.name in before and node.name in after
        for load_portal in Scenario(bed, load.host).portals([node.name])
    }
    records = load.host.fetch_log(load.run)[1]
    # With DRBD 9 the source of a new replica's resync may be a Secondary.
    entries = collect.journals(bed, before, began_s - 1.0)
    return ReplicaChange(
        before=before,
        after=after,
        seconds=ended_s - began_s,
        pause=ledger_latency.find_pause(records, began_s, ended_s),
        # A host logs in to the portals of a new replica only after another discovery.
        sessions_kept=all(
            ids_before[portal] == ids_after.get(portal)
            for portal in stayed.values()
            if portal in ids_before
        ),
        written_bytes=ledger_latency.bytes_written(records, began_s, ended_s),
        copied_bytes=timeline.resync_bytes(entries, load.minor, began_s) or 0,
        sent_bytes=sent,
        violations=tuple(violations),
    )


def replica_nodes(bed: LabSession, node: str, device: str) -> tuple[str, ...]:
    """Return the nodes with a replica of a device, as `sanctl device show` lists them."""
    out = bed.sh(node, f"sanctl device show {device} --output json", timeout_s=60).stdout
    return tuple(each["node"] for each in json.loads(out)["data"]["replicas"])


def _sent_bytes(bed: LabSession, node: str) -> int:
    return int(bed.sh(node, f"cat {_SYNC_COUNTER}").stdout)


def open_load(
    scenario: Scenario, device: str, size: str, nodes: Sequence[str], *, cache: str = "none"
) -> LedgerLoad:
    """Create a device with replicas on these nodes, and start a ledger on it."""
    target = scenario.create(device, size, prefer=nodes[0], nodes=nodes, cache=cache)
    path = scenario.host.login(target, scenario.portals(nodes))
    return start_load(
        scenario,
        device,
        target,
        path,
        rate=_WRITES_PER_S,
        region_bytes=_REGION_BYTES,
    )


@click.command("levels")
@lab_option()
@click.option("--size", default="256M", show_default=True, help="Size of the device.")
@click.option("--levels", "course", default="2,1,2", show_default=True, metavar="N,N,…",
              callback=lambda _context, _option, text: _course(text),
              help="Numbers of replicas, one after the other; 3 and 4 need DRBD 9.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True,
              help="How often the list is gone through.")  # fmt: skip
@output_option
def levels_command(
    *, name: str, size: str, course: tuple[int, ...], repeat: int, output: str
) -> None:
    """Add and drop replicas of a device while a host writes to it.

    Creates a device, writes 4 KiB blocks through iSCSI all the time, changes the number of
    replicas, and reads every acknowledged block back. Exits with 0 if nothing was lost, no request
    failed, no session ended, and no pause was longer than a second.
    """
    scenario = scenario_without(name, _DEVICE)
    nodes = [node.name for node in scenario.bed.storage]
    require(max(course) <= len(nodes), f"the lab has {len(nodes)} storage nodes")
    trials: list[ReplicaChange] = []
    try:
        load = open_load(scenario, _DEVICE, size, nodes[: course[0]])
        for before, after in itertools.pairwise(course * repeat):
            trials += [measure_change(load, *words) for words in _words(nodes, before, after)]
        check = close_load(load)
    finally:
        remove_device(scenario, _DEVICE)
    finish_bench(
        output,
        check,
        columns=_COLUMNS,
        rows=[_row(trial) for trial in trials],
        data={
            "device_bytes": ByteSize.parse(size).bytes,
            "changes": [_data(trial) for trial in trials],
        },
        is_good=all(
            trial.sessions_kept
            and not trial.violations
            and trial.pause.errors == 0
            and trial.pause.seconds < PAUSE_GOAL_S
            for trial in trials
        ),
    )


def _course(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if len(words) < 2 or not all(word in {"1", "2", "3", "4"} for word in words):
        raise click.BadParameter("two or more of 1, 2, 3 and 4, as in 2,1,2")
    return tuple(map(int, words))


def _words(nodes: Sequence[str], before: int, after: int) -> list[tuple[str, ...]]:
    """Return the arguments of the command that changes one number of replicas into another."""
    if before == after:
        return []
    option = "--add" if after > before else "--drop"
    named = nodes[min(before, after) : max(before, after)]
    return [(str(after), *(word for node in named for word in (option, node)))]


_COLUMNS = (
    "CHANGE", "LONGEST PAUSE", "ERRORS", "LOGOUTS", "WRITTEN", "TO COPY", "SENT (SYNC)", "TOOK",
)  # fmt: skip


def _row(trial: ReplicaChange) -> tuple[str, ...]:
    return (
        trial.name,
        f"{trial.pause.seconds:.2f} s",
        str(trial.pause.errors),
        "0" if trial.sessions_kept else "1 or more",
        format_bytes(trial.written_bytes),
        format_bytes(trial.copied_bytes),
        format_bytes(trial.sent_bytes),
        f"{trial.seconds:.0f} s",
    )


def _data(trial: ReplicaChange) -> documents.LevelChange:
    return {
        "before": list(trial.before),
        "after": list(trial.after),
        "took_s": round(trial.seconds, 1),
        "pause_s": round(trial.pause.seconds, 3),
        "errors": trial.pause.errors,
        "sessions_kept": trial.sessions_kept,
        "written_bytes": trial.written_bytes,
        "copied_bytes": trial.copied_bytes,
        "sent_bytes": trial.sent_bytes,
        "violations": list(trial.violations),
    }
