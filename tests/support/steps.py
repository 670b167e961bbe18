# SPDX-License-Identifier: GPL-2.0-or-later
"""Steps that several tests in the laboratory take."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import Load
from sanctl.lab.harness.lab_session import Bed
from sanctl.lab.machines.process import Process
from sanctl.lab.measure import ledger_latency

# To notice a hang: other people's work may share the processors.
PAUSE_DEADLINE_S = 60.0


@contextlib.contextmanager
def dead_bmc(bed: Bed, node: str) -> Iterator[None]:
    """Stop a node's BMC from answering, and let it answer again."""
    process = Process.load(bed.lab.run_directory / f"bmc-{node}.pid")
    assert process is not None and process.is_alive()
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def findings(bed: Bed, node: str, command: str) -> dict[str, str]:
    """What a command of sanctl complains about: what is said, by code and subject."""
    text = bed.sh(node, f"sanctl {command} --output json", timeout_s=90, ok=(0, 1)).stdout
    return {f"{f['code']} {f['subject']}": f["what"] for f in json.loads(text)["data"]["findings"]}


def kernel_mode(bed: Bed, device: str, node: str) -> str:
    """The cache mode that the kernel is in, told without a line of sanctl."""
    out = bed.sh(
        node,
        f"file=$(ls /srv/sanctl/main/devices/{device}.*.data); loop=$(losetup -n -O NAME -j $file);"
        " echo $(cat /sys/block/$(basename $loop)/loop/dio) $(lsattr $file | cut -c1-20)",
    ).stdout
    is_direct, flags = out.split()
    if "S" in flags:
        return "write-through"
    return "none" if is_direct == "1" else "write-back"


def boot_id(bed: Bed, node: str) -> str:
    """What a node's kernel calls its present life."""
    return bed.sh(node, "cat /proc/sys/kernel/random/boot_id", timeout_s=10).stdout.strip()


def await_writes(load: Load) -> None:
    """Wait until the host's writes are answered."""
    with load.host.watch_ledger(load.run) as states:
        failover.await_writes(load, states)


def assert_no_error(load: Load, since_s: float) -> float:
    """Check that the host was refused nothing since a time; return how long it waited at most."""
    pause = ledger_latency.find_pause(load.host.fetch_log(load.run)[1], since_s, time.time())
    print(f"  longest pause {pause.seconds:.1f} s, {pause.errors} errors")
    assert pause.errors == 0
    return pause.seconds


def assert_not_interrupted(load: Load, since_s: float) -> None:
    """Check that no agent has taken the device down or moved it since a time."""
    assert assert_no_error(load, since_s) <= PAUSE_DEADLINE_S
    log = collect.journals(load.bed, [node.name for node in load.bed.storage], since_s)
    assert log, "the journals tell nothing: not read, or not since then"
    changed = {"start", "promote", "demote", "stop"}
    assert [e.message for e in log if e.device == load.device and e.action in changed] == []
