# SPDX-License-Identifier: GPL-2.0-or-later
"""Small steps of laboratory tests: a dead BMC, boot ids, findings, pauses, deaths, points."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import time
from collections.abc import Iterator
from typing import Any

from sanctl.errors import CommandError, NotConverged
from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.machines import network
from sanctl.lab.machines.process import Process
from sanctl.lab.machines.spec import Network
from sanctl.lab.measure import ledger_latency
from sanctl.system.runner import LocalRunner

# To notice a hang: other people's work may share the processors.
PAUSE_DEADLINE_S = 60.0


@contextlib.contextmanager
def dead_bmc(bed: LabSession, node: str) -> Iterator[None]:
    """Stop a node's BMC from answering, and let it answer again."""
    process = Process.load(bed.lab.run_directory / f"bmc-{node}.pid")
    assert process is not None and process.is_alive()
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def findings(bed: LabSession, node: str, command: str) -> dict[str, str]:
    """Return the findings of `sanctl status` or `doctor`: the text by code and subject."""
    text = bed.sh(node, f"sanctl {command} --output json", timeout_s=90, ok=(0, 1)).stdout
    return {f"{f['code']} {f['subject']}": f["what"] for f in json.loads(text)["data"]["findings"]}


def await_no_findings(bed: LabSession, node: str, *, within_s: float) -> None:
    """Wait until nothing is left for an operator in `sanctl status`; say what is."""
    left: dict[str, str] = {}

    def look() -> bool:
        left.clear()
        left.update(findings(bed, node, "status"))
        return not left

    try:
        wait_for("nothing to be left for an operator", look, within_s=within_s, every_s=3.0)
    except NotConverged as error:
        raise AssertionError(f"still there after {within_s:g} s: {left}") from error


def kernel_mode(bed: LabSession, device: str, node: str) -> str:
    """Return the cache mode of the kernel, read from loop and file flags without sanctl's code."""
    out = bed.sh(
        node,
        f"file=$(ls /srv/sanctl/main/devices/{device}.*.data); loop=$(losetup -n -O NAME -j $file);"
        " echo $(cat /sys/block/$(basename $loop)/loop/dio) $(lsattr $file | cut -c1-20)",
    ).stdout
    is_direct, flags = out.split()
    if "S" in flags:
        return "write-through"
    return "none" if is_direct == "1" else "write-back"


def boot_id(bed: LabSession, node: str) -> str:
    """Return the id of a node's present boot."""
    return bed.sh(node, "cat /proc/sys/kernel/random/boot_id", timeout_s=30).stdout.strip()


@contextlib.contextmanager
def unplugged(bed: LabSession, node: str, *cables: Network) -> Iterator[None]:
    """Pull cables of a node, and plug them in again in any case."""
    for cable in cables:
        network.unplug(bed.lab, bed.node(node), cable, LocalRunner())
    try:
        yield
    finally:
        for cable in cables:
            network.plug(bed.lab, bed.node(node), cable, LocalRunner())


def await_writes(load: LedgerLoad, *, within_s: float = 240.0) -> None:
    """Wait until the host's writes are answered."""
    deadline = time.monotonic() + within_s
    with load.host.watch_ledger(load.run) as states:
        for state in states:
            if state["silent_s"] < 0.5 and state["rate"] > 0:
                return
            assert time.monotonic() < deadline, state


def assert_no_error(load: LedgerLoad, since_s: float) -> float:
    """Check that no request of the host failed since a time; return its longest pause."""
    pause = ledger_latency.find_pause(load.host.fetch_log(load.run)[1], since_s, time.time())
    print(f"  longest pause {pause.seconds:.1f} s, {pause.errors} errors")
    assert pause.errors == 0
    return pause.seconds


def assert_not_interrupted(load: LedgerLoad, since_s: float) -> None:
    """Check that no agent has taken the device down or moved it since a time."""
    assert assert_no_error(load, since_s) <= PAUSE_DEADLINE_S
    log = collect.journals(load.bed, [node.name for node in load.bed.storage], since_s)
    assert log, "the journals tell nothing: not read, or not since then"
    changed = {"start", "promote", "demote", "stop"}
    found = [e for e in log if e.device == load.device and e.action in changed]
    # After a reload Pacemaker may promote once more what is promoted already (docs/adr/0087).
    if not any(e.message.endswith("promote: DRBD Primary") for e in found):
        found = [e for e in found if e.action != "promote"]
    assert not found, [e.message for e in found]


def reach_counts(bed: LabSession, asked_of: str) -> dict[str, int]:
    """Return how many addresses of the iscsi network each node reaches (attribute iscsi-reach)."""
    text = bed.sh(asked_of, "attrd_updater --query --all --name iscsi-reach", ok=(0, 6, 105)).stdout
    return {node: int(n) for node, n in re.findall(r'host="(\w+)" value="(\d+)"', text)}


def await_idle(bed: LabSession, node: str) -> None:
    """Wait until Pacemaker has no action left to run."""
    bed.sh(node, "crm_resource --wait --timeout 60s", timeout_s=70)


@contextlib.contextmanager
def dies_each_time(bed: LabSession, node: str, step: str) -> Iterator[None]:
    """Have each process of a node die after a step (`ocf.crash_point`) while the block lasts."""
    folder = "/run/sanctl/die-after"
    script = f"mkdir -p {folder}; while :; do touch {folder}/{step}; sleep 0.1; done"
    try:
        with bed.stream(node, f"timeout 300 bash -c {shlex.quote(script)}"):
            yield
    finally:
        # A node that was switched off meanwhile has nothing of it.
        with contextlib.suppress(CommandError):
            bed.sh(
                node,
                f"pkill -f '[{step[0]}]{step[1:]}; sleep'; rm -f {folder}/{step}",
                ok=range(256),
                timeout_s=20,
            )


def take_point(bed: LabSession, node: str, device: str, name: str) -> Any:
    """Make a restore point by a node's command line; return its JSON's data.

    A busy machine may not make it within half a second (SAN-SNAP-007).
    """

    def once() -> Any:
        words = f"sanctl snapshot create {device} --name {name} --output json"
        done = bed.sh(node, words, timeout_s=120, ok=range(256))
        assert done.status == 0 or "SAN-SNAP-007" in done.stdout, done.stdout + done.stderr
        return json.loads(done.stdout)["data"]

    made = wait_for(f"restore point {name}", once, within_s=180)
    print(f"  {device}@{name}: held {made['pause_ms']} ms")
    return made
