# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl bench offload`: a copy within a device by the node, and through the host."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from sanctl.cli.options import output_option
from sanctl.cli.output import finish, print_table
from sanctl.errors import ExitStatus
from sanctl.lab.bench import bench_lab
from sanctl.lab.bench.bench_lab import lab_option, scenario_without
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.measure import offload_figures
from sanctl.lab.measure.offload_figures import Method, RangeCopy
from sanctl.model.names import ByteSize

if TYPE_CHECKING:
    from sanctl.lab.documents import throughput as documents

_DEVICE = "bench-offload"
_MIN_BYTES = 16 << 20
_COMMAND_S = 580.0
#: Both copy from the begin of the disk ({0}) to its second half, in requests of 1 MiB, which is
#: what LIO names as optimal: one in flight, so that the same work is compared.
_COPIES = {
    Method.OFFLOAD: "sg_xcopy if={0} of={0} bs=512 count={1} seek={1} bpt=2048",
    Method.HOST: (
        "dd if={0} of={0} bs=1M count={2} seek={2} iflag=direct oflag=direct conv=notrunc"
        " status=none"
    ),
}
_TIMED = "began=$(date +%s%N); {copy} >&2; sg_sync {disk}; echo $(($(date +%s%N) - began))"


def copy_range(scenario: Scenario, disk: str, half_bytes: int, method: Method) -> RangeCopy:
    """Copy the first half of a disk to its second one, after that was filled with zeros.

    Args:
        scenario: the lab; its first storage node serves the device.
        disk: the host's path of the device.
        half_bytes: half of its size.
        method: who copies.
    """
    bed, host = scenario.bed, scenario.host
    mib = half_bytes >> 20
    host.sh(
        # udev reads a disk again once who has written to it closes it.
        f"dd if=/dev/zero of={disk} bs=1M count={mib} seek={mib} oflag=direct conv=fsync"
        " status=none; udevadm settle",
        timeout_s=_COMMAND_S,
    )
    counted = (host.name, "iscsi0"), (bed.storage[0].name, "sync0")
    before = [_network_bytes(scenario, *each) for each in counted]
    copy = _COPIES[method].format(disk, half_bytes // 512, mib)
    nanoseconds = int(host.sh(_TIMED.format(copy=copy, disk=disk), timeout_s=_COMMAND_S))
    iscsi_bytes, sync_bytes = (
        _network_bytes(scenario, *each) - sent for each, sent in zip(counted, before, strict=True)
    )
    read = f"dd if={disk} bs=1M count={mib} iflag=direct status=none"
    halves = host.sh(
        f"{read} | sha256sum; {read} skip={mib} | sha256sum", timeout_s=_COMMAND_S
    ).splitlines()
    return RangeCopy(
        method=method,
        seconds=nanoseconds / 1e9,
        iscsi_bytes=iscsi_bytes,
        sync_bytes=sync_bytes,
        is_equal=len({*halves}) == 1,
    )


def _network_bytes(scenario: Scenario, node: str, interface: str) -> int:
    """Return what an interface has sent and got so far."""
    counters = f"cat /sys/class/net/{interface}/statistics/[rt]x_bytes"
    return sum(map(int, scenario.bed.sh(node, counters).stdout.split()))


@click.command("offload")
@lab_option()
@click.option("--size", default="128M", show_default=True,
              help="Size of the device; half of it is copied.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True,
              help="Copies of each kind, in turns; medians are shown.")  # fmt: skip
@output_option
def offload_command(*, name: str, size: str, repeat: int, output: str) -> None:
    """Copy within a device, by EXTENDED COPY and through the host, in turns.

    Creates a device with two replicas, and copies its first half to the second one, in requests of
    1 MiB, one after the other. Counted are the time until it is flushed, and what crosses the
    network of hosts and that of the replicas. Exits with 0 if each copy is equal to what was
    copied, and next to nothing of those by the node crossed the network of hosts.
    """
    device_bytes = ByteSize.parse(size).bytes
    if device_bytes < _MIN_BYTES or device_bytes % (2 << 20):
        raise click.UsageError(f"--size {size} is none of 16M or more, in whole pairs of MiB")
    scenario = scenario_without(name, _DEVICE)
    half_bytes = device_bytes // 2
    nodes = [node.name for node in scenario.bed.storage][:2]
    try:
        target = scenario.create(_DEVICE, str(device_bytes), prefer=nodes[0], nodes=nodes)
        disk = scenario.host.login(target, scenario.portals(nodes))
        scenario.host.sh(
            f"dd if=/dev/urandom of={disk} bs=1M count={half_bytes >> 20} oflag=direct status=none",
            timeout_s=_COMMAND_S,
        )
        copies = [
            copy_range(scenario, disk, half_bytes, method)
            for _ in range(repeat)
            for method in Method
        ]
    finally:
        if scenario.exists(_DEVICE):
            scenario.delete(_DEVICE)
    data: documents.OffloadBench = {
        "copied_bytes": half_bytes,
        "versions": bench_lab.versions(scenario.bed).splitlines(),
        "load_average": round(os.getloadavg()[2], 1),
        "ratio": round(offload_figures.time_ratio(copies), 3),
        "copies": [
            {
                "method": copy.method.value,
                "took_s": round(copy.seconds, 3),
                "iscsi_bytes": copy.iscsi_bytes,
                "sync_bytes": copy.sync_bytes,
                "is_equal": copy.is_equal,
            }
            for copy in copies
        ],
    }

    def text() -> None:
        print_table(offload_figures.COLUMNS, offload_figures.rows(copies))
        click.echo(f"the node takes {data['ratio']:.2f} of the host's time, by medians")

    is_good = offload_figures.is_good(copies, half_bytes)
    finish(output, data=data, text=text, status=ExitStatus.OK if is_good else ExitStatus.DEGRADED)
