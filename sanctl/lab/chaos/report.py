# SPDX-License-Identifier: GPL-2.0-or-later
"""What a chaos run writes: summary.md, steps.json, beside.json, timeline.txt, nodes' logs."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sanctl.errors import SanctlError
from sanctl.lab.chaos.fault import as_json, describe
from sanctl.lab.chaos.fault_runner import FaultResult
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.machines.spec import NodeSpec
from sanctl.lab.measure.attempts import Tally

_TIMEOUT_S = 90.0
#: File name -> command whose output is kept in it, for each machine.
_FILES = {
    "journal.txt": "journalctl --no-pager -o short-precise --since=@{since:.0f}",
    "dmesg.txt": "dmesg --time-format iso",
    "drbd.txt": "drbdsetup events2 --now --statistics; cat /proc/drbd; drbdsetup show",
    "cib.xml": "cibadmin -Q; crm_mon -1rA 1>&2",
    "kernel.txt": "dmsetup table; dmsetup info; losetup -a; ps -eo pid,stat,etimes,wchan:32,args",
    "lio.txt": "cd /sys/kernel/config/target 2>/dev/null && grep -rs . --include=udev_path"
    " --include=enable --include=alua_access_state --include=alua_access_type; find . -type l",
    "config.txt": "head -n 200 /etc/corosync/corosync.conf /etc/sanctl/cluster.toml /etc/drbd.d/*"
    " /etc/multipath.conf /etc/multipath/conf.d/* /etc/iscsi/iscsid.conf 2>/dev/null",
    "paths.txt": "multipath -ll; iscsiadm -m session -P 3",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideReport:
    """What a run did beside its faults.

    Attributes:
        points: the restore points; None: none were to be made.
        copies: the copies to the second site; None: there was none.
        worst_age_s: the greatest age that the newest copy had.
    """

    points: Tally | None = None
    copies: Tally | None = None
    worst_age_s: float = 0.0

    def lines(self) -> list[str]:
        """Return the lines of summary.md."""
        found = []
        if self.points is not None:
            found.append(
                f"* restore points made: {self.points.done}, not made:"
                f" {self.points.refused_text()}; judged: {self.points.judged},"
                f" wrong: {len(self.points.wrong)}"
            )
        if self.copies is not None:
            found.append(
                f"* copies proven: {self.copies.done}, failed: {self.copies.refused_text()};"
                f" judged: {self.copies.judged}, wrong: {len(self.copies.wrong)};"
                f" the newest one was {self.worst_age_s:.0f} s old at most"
            )
        return found

    def as_json(self) -> dict[str, Any]:
        """Return beside.json as plain values."""
        found: dict[str, Any] = {}
        if self.points is not None:
            found["points"] = {
                "made": self.points.done,
                "refused": dict(self.points.refused),
                "judged": self.points.judged,
                "wrong": self.points.wrong,
            }
        if self.copies is not None:
            found["copies"] = {
                "proven": self.copies.done,
                "failed": dict(self.copies.refused),
                "judged": self.copies.judged,
                "wrong": self.copies.wrong,
                "worst_age_s": round(self.worst_age_s, 1),
            }
        return found


NOTHING_BESIDE = BesideReport()


def summary(
    results: Sequence[FaultResult],
    *,
    title: str,
    repeat: str,
    wanted: int,
    acknowledged: int,
    beside: BesideReport = NOTHING_BESIDE,
) -> str:
    """Return summary.md: each fault, each host's pause, what was fenced, and every problem."""
    bad = [result for result in results if not result.is_good]
    lost = sum(check.get("lost", 0) for result in results for check in result.checks.values())
    errors = sum(pause.errors for result in results for pause in result.pauses.values())
    pauses = [result.longest_pause_s for result in results if result.pauses]
    took = (results[-1].ended_s - results[0].began_s) if results else 0.0
    lines = [
        f"# {title}",
        "",
        f"Repeat it: `{repeat}`",
        "",
        f"* {len(results)} of {wanted} faults in {took / 60:.1f} min, {len(bad)} with a problem",
        f"* acknowledged writes: {acknowledged}, lost: {lost}; I/O errors at hosts: {errors}",
        f"* devices that need an operator: {sum(len(r.need_operator) for r in results)}",
    ]
    lines += beside.lines()
    if pauses:
        lines.append(
            f"* longest pause at a host: median {statistics.median(pauses):.1f} s,"
            f" worst {max(pauses):.1f} s"
        )
    hosts = sorted({name for result in results for name in result.pauses})
    lines += [
        "",
        f"| # | fault | {' | '.join(f'pause {name}' for name in hosts)} | fenced"
        " | recovered after | |",
        f"| ---: | --- | {' | '.join('---:' for _ in hosts)} | --- | ---: | --- |",
    ]
    for result in results:
        shown = " | ".join(
            f"{result.pauses[name].seconds:.1f} s" if name in result.pauses else "-"
            for name in hosts
        )
        recovered = (
            f"{result.recovered_s - result.undone_s:.0f} s" if result.recovered_s else "never"
        )
        lines.append(
            f"| {result.number} | {describe(result.fault)} | {shown}"
            f" | {' '.join(result.fenced) or '-'} | {recovered}"
            f" | {'ok' if result.is_good else '**problem**'} |"
        )
    if bad:
        lines += ["", "## Problems", ""]
        for result in bad:
            lines.append(f"* {result.number}, {describe(result.fault)}")
            lines += [f"  * {problem}" for problem in result.problems]
            lines += [
                f"  * {device} needs an operator: {why}"
                for device, why in result.need_operator.items()
            ]
    note = "Recovered after: from the end of the fault until no node reported a problem."
    lines += ["", note, ""]
    return "\n".join(lines)


def results_json(results: Sequence[FaultResult]) -> list[dict[str, Any]]:
    """Return the steps as plain values."""
    return [
        {
            "number": result.number,
            "fault": as_json(result.fault),
            "text": describe(result.fault),
            "began_s": result.began_s,
            "undone_s": result.undone_s,
            "whole_s": result.recovered_s,
            "ended_s": result.ended_s,
            "pauses": {name: asdict(pause) for name, pause in result.pauses.items()},
            "checks": result.checks,
            "fenced": result.fenced,
            "restarted": result.restarted,
            "serving_before": result.serving_before,
            "serving_after": result.serving_after,
            "problems": result.problems,
            "need_operator": result.need_operator,
        }
        for result in results
    ]


def timeline(results: Sequence[FaultResult]) -> str:
    """Return timeline.txt: one line for each fault, its undoing, the recovery and each problem."""
    lines: list[tuple[float, str]] = []
    for result in results:
        name = f"{result.number}: {describe(result.fault)}"
        lines.append((result.began_s, f"{name}; served: {result.serving_before}"))
        if result.undone_s:
            lines.append((result.undone_s, f"{result.number}: undone"))
        if result.recovered_s:
            lines.append(
                (result.recovered_s, f"{result.number}: recovered; served: {result.serving_after}")
            )
        lines += [(result.ended_s, f"{result.number}: PROBLEM {text}") for text in result.problems]
    return "".join(
        f"{time.strftime('%H:%M:%S', time.localtime(at_s))}.{int(at_s % 1 * 1000):03d} {text}\n"
        for at_s, text in sorted(lines)
    )


def write(
    folder: Path,
    results: Sequence[FaultResult],
    page: str,
    beside: BesideReport = NOTHING_BESIDE,
) -> None:
    """Write what is known so far; called after every fault, as the run may die in the next one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.md").write_text(page)
    (folder / "steps.json").write_text(json.dumps(results_json(results), indent=1) + "\n")
    (folder / "timeline.txt").write_text(timeline(results))
    if told := beside.as_json():
        (folder / "beside.json").write_text(json.dumps(told, indent=1) + "\n")


def collect_logs(bed: LabSession, folder: Path, since_s: float) -> None:
    """Keep logs and state of every machine; of one that does not answer only its console."""
    with ThreadPoolExecutor(max_workers=len(bed.lab.machines)) as pool:
        list(pool.map(lambda node: _collect_logs_of(bed, node, folder / node.name, since_s),
                      bed.lab.machines))  # fmt: skip


def _collect_logs_of(bed: LabSession, node: NodeSpec, folder: Path, since_s: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    console = bed.lab.console_log(node)
    for log in (console, console.with_suffix(".previous.log")):
        if log.exists():
            (folder / log.name).write_bytes(log.read_bytes())
    for name, command in _FILES.items():
        try:
            done = bed.sh(
                node.name, command.format(since=since_s), timeout_s=_TIMEOUT_S, ok=range(256)
            )
        except SanctlError as error:
            (folder / name).write_text(f"{error}\n")
            break
        (folder / name).write_text(done.stdout + done.stderr)
