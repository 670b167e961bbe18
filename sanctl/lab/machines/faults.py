# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults inside a node, and their undoing: disks, clock, daemons, full filesystems.

Each is a short script that the node itself runs. Undoing is safe to repeat, and to run where
nothing was broken: `heal` runs all of it on every node that has power.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import StrEnum

from sanctl.errors import CommandError, Problem, UsageError
from sanctl.lab.machines import network, network_cuts, node_power
from sanctl.lab.machines.guest_files import DISK_PREFIX, data_mounts
from sanctl.lab.machines.lab_state import Lab
from sanctl.lab.machines.spec import NodeSpec, Role
from sanctl.system.runner import Runner

_TIMEOUT_S = 60.0
_FILLER = ".lab-filler"
_UBD = 98  # a lab disk's major number (devices.txt)
# What a clock may be off by before `heal` sets it.
_CLOCK_TOLERANCE_S = 2
# Linux keeps 15 characters of a process's name.
_COMM_CHARACTERS = 15


class Disk(StrEnum):
    """What a data disk does with what is asked of it."""

    OK = "ok"
    FAIL = "fail"  # an error, every time
    FLAKY = "flaky"  # works for some seconds, fails for some
    DUST = "dust"  # reads fail in one stretch of sectors until they are written
    BAD = "bad"  # reads of chosen sectors fail until they are written
    UNREADABLE = "unreadable"  # every read fails, writes succeed
    SLOW = "slow"
    HANG = "hang"  # no answer
    SPINNING = "spinning"  # as slow as a disk that turns, its own write cache off
    VOLATILE = "volatile"  # its own write cache forgets at a power cut what was not flushed


class Place(StrEnum):
    """What can be filled."""

    POOL = "pool"
    ROOT = "root"


_FLAKY_UP_S, _FLAKY_DOWN_S = 5, 2
_SLOW_MS = 200
# What an access of a 7200 rpm disk takes on average: seek and half a turn. All that is asked of it
# waits that long, however much is in flight; a flush waits for nothing, as nothing is in its cache.
SPINNING_MS = 16

#: Targets' parameters: dm-flakey.rst, dm-delay.rst, dm-dust.rst of the kernel's documentation.
_TABLES = {
    Disk.OK: "0 $size linear $disk 0",
    Disk.FAIL: "0 $size error",
    Disk.FLAKY: f"0 $size flakey $disk 0 {_FLAKY_UP_S} {_FLAKY_DOWN_S}",
    Disk.DUST: "0 $size dust $disk 0 512",
    Disk.BAD: "0 $size dust $disk 0 512",
    # Never up; `error_reads` came with Linux 6.4.
    Disk.UNREADABLE: "0 $size flakey $disk 0 0 1 1 error_reads",
    Disk.SLOW: f"0 $size delay $disk 0 {_SLOW_MS}",
    Disk.SPINNING: f"0 $size delay $disk 0 {SPINNING_MS} $disk 0 {SPINNING_MS} $disk 0 0",
}
_MODULES = {
    Disk.FLAKY: "dm-flakey",
    Disk.DUST: "dm-dust",
    Disk.BAD: "dm-dust",
    Disk.UNREADABLE: "dm-flakey",
    Disk.SLOW: "dm-delay",
    Disk.SPINNING: "dm-delay",
}
# The page cache over the disk's block device is that write cache: in the node's RAM, emptied by a
# flush, and gone with the power. That nothing is written back by itself makes it forget the most
# it may. It is an order, so nothing is lost by the change to it.
_VOLATILE = """
sync
blockdev --flushbufs $disk
echo 0 >/proc/sys/vm/dirty_writeback_centisecs
loop=$(losetup --find --show --direct-io=off $disk)
dmsetup suspend {name}
dmsetup load {name} --table "0 $size linear $loop 0"
dmsetup resume {name}"""
_NO_LONGER_VOLATILE = """
loop=$(losetup --noheadings --output NAME --associated $disk)
if [ -n "$loop" ]; then
    blockdev --flushbufs $loop; blockdev --flushbufs $disk; losetup --detach $loop
    echo 500 >/proc/sys/vm/dirty_writeback_centisecs
fi"""
# Neither flushed nor frozen: a disk that is about to fail, or has, would never come to an end.
_SUSPEND = "dmsetup suspend --noflush --nolockfs"

# Root's reserve is filled, too: agents are root.
_FILL = """
at=0
for step in 268435456 67108864 16777216 4194304 1048576 262144 65536 4096; do
    while fallocate -o $at -l $step {place}/{filler} 2>/dev/null; do at=$((at + step)); done
done
[ $at -gt 0 ]
"""


def disk_script(number: int, does: Disk, *, sectors: Sequence[int] = ()) -> str:
    """Return the script that makes a data disk behave in a way; `sectors` are the bad ones."""
    name = f"{DISK_PREFIX}{number}"
    if does is Disk.HANG:
        return f"{_SUSPEND} {name}"
    disk = f"/dev/ubd{chr(ord('a') + number)}"
    lines = ["set -eu", f"disk={disk}", "size=$(blockdev --getsz $disk)"]
    if does is Disk.VOLATILE:
        return "\n".join(lines) + _VOLATILE.format(name=name)
    if does in _MODULES:
        lines.append(f"modprobe {_MODULES[does]}")
    lines += [
        f"{_SUSPEND} {name}",
        *([_NO_LONGER_VOLATILE] if does is Disk.OK else []),
        f'dmsetup load {name} --table "{_TABLES[does]}"',
        f"dmsetup resume {name}",
    ]
    if does in {Disk.DUST, Disk.BAD}:
        # A stretch every 4 MiB of the first 64 MiB: whatever lies there, something is hit.
        bad = " ".join(map(str, sectors)) if does is Disk.BAD else "$(seq 8192 8192 131072)"
        lines += [
            f"for block in {bad}; do dmsetup message {name} 0 addbadblock $block >/dev/null; done",
            f"dmsetup message {name} 0 enable",
        ]
    return "\n".join(lines)


def break_disk(
    lab: Lab,
    node: NodeSpec,
    number: int,
    does: Disk,
    runner: Runner,
    *,
    sectors: Sequence[int] = (),
) -> None:
    """Make a data disk of a node behave in a way, at once and beneath a mounted filesystem.

    Args:
        lab: the laboratory.
        node: one of its storage nodes.
        number: which of its data disks; the flash is the last one.
        does: what it does from now on.
        runner: starts programs.
        sectors: with `Disk.BAD`, those of 512 bytes that cannot be read.

    Raises:
        UsageError: the node has no such disk, or sectors are named or missing against `does`.
        CommandError: the node did not do it (labs made before this existed cannot).
    """
    if node.role is not Role.STORAGE or not 1 <= number <= lab.spec.all_disks:
        raise UsageError(Problem("SAN-LAB-007", f"{node.name} has no data disk {number}"))
    if bool(sectors) is not (does is Disk.BAD):
        raise UsageError(
            Problem("SAN-LAB-007", f"--sector and {does.value}", "bad has --sector, no other has")
        )
    _run(lab, node, disk_script(number, does, sectors=sectors), runner)


def jump_clock(lab: Lab, node: NodeSpec, seconds: int, runner: Runner) -> None:
    """Set a node's clock to this machine's, plus some seconds."""
    _run(lab, node, f"date -s @{time.time() + seconds:.3f} >/dev/null", runner)


def kill_daemon(lab: Lab, node: NodeSpec, daemon: str, runner: Runner) -> None:
    """Kill a daemon with SIGKILL; what happens then is up to systemd and the cluster.

    Raises:
        CommandError: it does not run there.
    """
    _run(lab, node, f"pkill -9 -x {daemon[:_COMM_CHARACTERS]}", runner)


def fill(lab: Lab, node: NodeSpec, place: Place, runner: Runner) -> None:
    """Leave no free block on a filesystem of a node."""
    _run(lab, node, _FILL.format(place=_path(lab, node, place), filler=_FILLER), runner)


def empty(lab: Lab, node: NodeSpec, place: Place, runner: Runner) -> None:
    """Give back what `fill` took."""
    _run(lab, node, f"rm -f {_path(lab, node, place)}/{_FILLER}", runner)


def heal(lab: Lab, runner: Runner, *, nodes: Iterable[NodeSpec] | None = None) -> tuple[str, ...]:
    """Undo everything that can have been done to nodes, in the order in which it can be undone.

    Cables and cuts first, then what has no power gets it, then each node's disks, clock and
    filesystems. With `nodes` only these are healed, and cuts between nodes stay.

    Returns:
        A sentence for each node that could not be healed: it hangs, or is booting just now.
    """
    if nodes is None:
        network_cuts.change(lab, runner, remove=network_cuts.load(lab))
    left = []
    for node in lab.machines if nodes is None else nodes:
        has_power = node_power.power(lab, node) is node_power.Power.ON
        for cable in node.networks:
            # An impairment ended with the power, and its marker with it.
            with suppress(CommandError):
                network.plug(lab, node, cable, runner)
        if not has_power:
            node_power.power_on(lab, node, post_delay_s=0)
        try:
            _run(lab, node, heal_script(lab, node), runner, patience_s=5 if has_power else 90)
        except CommandError as error:
            left.append(f"{node.name}: {error}")
    return tuple(left)


def heal_script(lab: Lab, node: NodeSpec) -> str:
    """Return the script that undoes every fault inside a node."""
    lines = [f"rm -f /{_FILLER}"]
    if node.role is Role.STORAGE:
        lines += [f"rm -f {mount}/{_FILLER}" for _, mount in data_mounts(lab.spec)]
        for number in range(1, lab.spec.all_disks + 1):
            name, table = f"{DISK_PREFIX}{number}", f"*'linear {_UBD}:'*"
            lines += [
                f'case "$(dmsetup table {name}) $(cat /sys/block/$(basename $(readlink -f '
                f'/dev/mapper/{name}))/dm/suspended)" in',
                f"{table}' 0') ;;",
                f"*) {disk_script(number, Disk.OK)} ;;",
                "esac",
            ]
    lines += [
        f"ahead=$(( $(date +%s) - {round(time.time())} ))",
        f"[ ${{ahead#-}} -le {_CLOCK_TOLERANCE_S} ] || date -s @{round(time.time())} >/dev/null",
    ]
    return "\n".join(lines)


def _path(lab: Lab, node: NodeSpec, place: Place) -> str:
    if place is Place.ROOT:
        return "/"
    if node.role is not Role.STORAGE or not lab.spec.disks:
        raise UsageError(Problem("SAN-LAB-007", f"{node.name} has no pool"))
    return data_mounts(lab.spec)[0][1]


def _run(lab: Lab, node: NodeSpec, script: str, runner: Runner, *, patience_s: float = 0.0) -> None:
    """Run a script on a node, again while it does not answer and there is patience left."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            runner.run(lab.ssh_argv(node, script), timeout_s=_TIMEOUT_S)
        except CommandError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1.0)
        else:
            return
