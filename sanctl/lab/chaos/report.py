# SPDX-License-Identifier: GPL-2.0-or-later
"""The folder a run leaves: one page for people, everything else for whoever has to find a cause."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sanctl.errors import SanctlError
from sanctl.lab.chaos.fault import as_json, describe
from sanctl.lab.chaos.run import Step
from sanctl.lab.harness.lab_session import Bed
from sanctl.lab.machines.spec import NodeSpec

_TIMEOUT_S = 90.0
#: What is kept of each machine: file name -> command.
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


def summary(
    steps: Sequence[Step], *, title: str, repeat: str, wanted: int, acknowledged: int
) -> str:
    """Return the one page: what was done, what held, and each pause at each initiator."""
    bad = [step for step in steps if not step.is_good]
    lost = sum(check.get("lost", 0) for step in steps for check in step.checks.values())
    errors = sum(pause.errors for step in steps for pause in step.pauses.values())
    pauses = [step.longest_pause_s for step in steps if step.pauses]
    took = (steps[-1].ended_s - steps[0].began_s) if steps else 0.0
    lines = [
        f"# {title}",
        "",
        f"Repeat it: `{repeat}`",
        "",
        f"* {len(steps)} of {wanted} faults in {took / 60:.1f} min, {len(bad)} with a problem",
        f"* acknowledged writes: {acknowledged}, lost: {lost}; I/O errors at hosts: {errors}",
    ]
    if pauses:
        lines.append(
            f"* longest pause at a host: median {statistics.median(pauses):.1f} s,"
            f" worst {max(pauses):.1f} s"
        )
    hosts = sorted({name for step in steps for name in step.pauses})
    lines += [
        "",
        f"| # | fault | {' | '.join(f'pause {name}' for name in hosts)} | fenced | whole after | |",
        f"| ---: | --- | {' | '.join('---:' for _ in hosts)} | --- | ---: | --- |",
    ]
    for step in steps:
        shown = " | ".join(
            f"{step.pauses[name].seconds:.1f} s" if name in step.pauses else "-" for name in hosts
        )
        whole = f"{step.whole_s - step.undone_s:.0f} s" if step.whole_s else "never"
        lines.append(
            f"| {step.number} | {describe(step.fault)} | {shown} | {' '.join(step.fenced) or '-'} "
            f"| {whole} | {'ok' if step.is_good else '**problem**'} |"
        )
    if bad:
        lines += ["", "## Problems", ""]
        for step in bad:
            lines.append(f"* {step.number}, {describe(step.fault)}")
            lines += [f"  * {problem}" for problem in step.problems]
    lines += ["", "Whole after: from the end of the fault until every node's kernel had nothing to"
              " complain about.", ""]  # fmt: skip
    return "\n".join(lines)


def steps_json(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return the steps as plain values."""
    return [
        {
            "number": step.number,
            "fault": as_json(step.fault),
            "text": describe(step.fault),
            "began_s": step.began_s,
            "undone_s": step.undone_s,
            "whole_s": step.whole_s,
            "ended_s": step.ended_s,
            "pauses": {name: asdict(pause) for name, pause in step.pauses.items()},
            "checks": step.checks,
            "fenced": step.fenced,
            "restarted": step.restarted,
            "serving_before": step.serving_before,
            "serving_after": step.serving_after,
            "problems": step.problems,
        }
        for step in steps
    ]


def timeline(steps: Sequence[Step]) -> str:
    """Return what was done when, one line each, in the order of time."""
    lines: list[tuple[float, str]] = []
    for step in steps:
        name = f"{step.number}: {describe(step.fault)}"
        lines.append((step.began_s, f"{name}; served: {step.serving_before}"))
        if step.undone_s:
            lines.append((step.undone_s, f"{step.number}: undone"))
        if step.whole_s:
            lines.append((step.whole_s, f"{step.number}: whole; served: {step.serving_after}"))
        lines += [(step.ended_s, f"{step.number}: PROBLEM {text}") for text in step.problems]
    return "".join(
        f"{time.strftime('%H:%M:%S', time.localtime(at_s))}.{int(at_s % 1 * 1000):03d} {text}\n"
        for at_s, text in sorted(lines)
    )


def write(folder: Path, steps: Sequence[Step], page: str) -> None:
    """Write what is known so far; called after every step, as the next may be the last."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.md").write_text(page)
    (folder / "steps.json").write_text(json.dumps(steps_json(steps), indent=1) + "\n")
    (folder / "timeline.txt").write_text(timeline(steps))


def collect(bed: Bed, folder: Path, since_s: float) -> None:
    """Keep what every machine knows; one that does not answer leaves its console."""
    with ThreadPoolExecutor(max_workers=len(bed.lab.machines)) as pool:
        list(pool.map(lambda node: _collect(bed, node, folder / node.name, since_s),
                      bed.lab.machines))  # fmt: skip


def _collect(bed: Bed, node: NodeSpec, folder: Path, since_s: float) -> None:
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
