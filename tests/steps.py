"""Steps that several tests in the laboratory take."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator

from sanctl.demo.bed import Bed
from sanctl.lab.process import Process


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
