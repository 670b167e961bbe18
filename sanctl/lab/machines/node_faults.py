# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults inside one node, over ssh: bad disk, wrong clock, killed daemon, full filesystem.

Each is a short script run on the node. Undoing is safe to repeat, and to run where nothing was
broken: `heal` runs all of it on every node.
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


class DiskBehaviour(StrEnum):
    """How a data disk answers requests."""

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


class FilledFilesystem(StrEnum):
    """A filesystem of a node that `fill_filesystem` can fill."""

    POOL = "pool"
    ROOT = "root"


_FLAKY_UP_S, _FLAKY_DOWN_S = 5, 2
_SLOW_MS = 200
# The average access time of a 7200 rpm disk: seek and half a turn. Every request waits that long,
# however many are in flight; a flush does not wait, as nothing is in the disk's cache.
SPINNING_MS = 16

#: Targets' parameters: dm-flakey.rst, dm-delay.rst, dm-dust.rst of the kernel's documentation.
_TABLES = {
    DiskBehaviour.OK: "0 $size linear $disk 0",
    DiskBehaviour.FAIL: "0 $size error",
    DiskBehaviour.FLAKY: f"0 $size flakey $disk 0 {_FLAKY_UP_S} {_FLAKY_DOWN_S}",
    DiskBehaviour.DUST: "0 $size dust $disk 0 512",
    DiskBehaviour.BAD: "0 $size dust $disk 0 512",
    # Never up; `error_reads` came with Linux 6.4.
    DiskBehaviour.UNREADABLE: "0 $size flakey $disk 0 0 1 1 error_reads",
    DiskBehaviour.SLOW: f"0 $size delay $disk 0 {_SLOW_MS}",
    DiskBehaviour.SPINNING: f"0 $size delay $disk 0 {SPINNING_MS} $disk 0 {SPINNING_MS} $disk 0 0",
}
_MODULES = {
    DiskBehaviour.FLAKY: "dm-flakey",
    DiskBehaviour.DUST: "dm-dust",
    DiskBehaviour.BAD: "dm-dust",
    DiskBehaviour.UNREADABLE: "dm-flakey",
    DiskBehaviour.SLOW: "dm-delay",
    DiskBehaviour.SPINNING: "dm-delay",
}
# The page cache of a loop device over the disk plays the volatile write cache: it is in the node's
# RAM, is written out by a flush, and is lost with the power. Periodic writeback is off, so that a
# power cut loses as much as it may. The change to it loses nothing: sync and flush come first.
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
# Neither flushed nor frozen: on a disk that has failed, or is about to, both would hang.
_SUSPEND = "dmsetup suspend --noflush --nolockfs"

# Root's reserve is filled, too: agents are root.
_FILL = """
at=0
for step in 268435456 67108864 16777216 4194304 1048576 262144 65536 4096; do
    while fallocate -o $at -l $step {place}/{filler} 2>/dev/null; do at=$((at + step)); done
done
[ $at -gt 0 ]
"""


def disk_script(number: int, does: DiskBehaviour, *, sectors: Sequence[int] = ()) -> str:
    """Return the script that gives a data disk a behaviour; `sectors` are the bad ones."""
    name = f"{DISK_PREFIX}{number}"
    if does is DiskBehaviour.HANG:
        return f"{_SUSPEND} {name}"
    disk = f"/dev/ubd{chr(ord('a') + number)}"
    lines = ["set -eu", f"disk={disk}", "size=$(blockdev --getsz $disk)"]
    if does is DiskBehaviour.VOLATILE:
        return "\n".join(lines) + _VOLATILE.format(name=name)
    if does in _MODULES:
        lines.append(f"modprobe {_MODULES[does]}")
    lines += [
        f"{_SUSPEND} {name}",
        *([_NO_LONGER_VOLATILE] if does is DiskBehaviour.OK else []),
        f'dmsetup load {name} --table "{_TABLES[does]}"',
        f"dmsetup resume {name}",
    ]
    if does in {DiskBehaviour.DUST, DiskBehaviour.BAD}:
        # A bad block every 4 MiB of the first 64 MiB: some of them are in use whatever is there.
        bad = (
            " ".join(map(str, sectors)) if does is DiskBehaviour.BAD else "$(seq 8192 8192 131072)"
        )
        lines += [
            f"for block in {bad}; do dmsetup message {name} 0 addbadblock $block >/dev/null; done",
            f"dmsetup message {name} 0 enable",
        ]
    return "\n".join(lines)


def break_disk(
    lab: Lab,
    node: NodeSpec,
    number: int,
    does: DiskBehaviour,
    runner: Runner,
    *,
    sectors: Sequence[int] = (),
) -> None:
    """Give a data disk of a node a behaviour, at once and beneath a mounted filesystem.

    Args:
        lab: the laboratory.
        node: one of its storage nodes.
        number: which of its data disks; the flash is the last one.
        does: what it does from now on.
        runner: starts programs.
        sectors: with `DiskBehaviour.BAD`, those of 512 bytes that cannot be read.

    Raises:
        UsageError: the node has no such disk, or sectors are named or missing against `does`.
        CommandError: the script failed on the node.
    """
    if node.role is not Role.STORAGE or not 1 <= number <= lab.spec.all_disks:
        raise UsageError(Problem("SAN-LAB-007", f"{node.name} has no data disk {number}"))
    if bool(sectors) is not (does is DiskBehaviour.BAD):
        raise UsageError(
            Problem("SAN-LAB-007", f"--sector and {does.value}", "bad has --sector, no other has")
        )
    _run(lab, node, disk_script(number, does, sectors=sectors), runner)


def jump_clock(lab: Lab, node: NodeSpec, seconds: int, runner: Runner) -> None:
    """Set a node's clock to this machine's, plus some seconds."""
    _run(lab, node, f"date -s @{time.time() + seconds:.3f} >/dev/null", runner)


def kill_daemon(lab: Lab, node: NodeSpec, daemon: str, runner: Runner) -> None:
    """Kill a daemon with SIGKILL; systemd and the cluster react to that.

    Raises:
        CommandError: the daemon does not run on the node.
    """
    _run(lab, node, f"pkill -9 -x {daemon[:_COMM_CHARACTERS]}", runner)


def fill_filesystem(lab: Lab, node: NodeSpec, place: FilledFilesystem, runner: Runner) -> None:
    """Allocate every free block of a filesystem of a node."""
    _run(lab, node, fill_script(_path(lab, node, place)), runner)


def free_filesystem(lab: Lab, node: NodeSpec, place: FilledFilesystem, runner: Runner) -> None:
    """Free the blocks that `fill_filesystem` allocated."""
    _run(lab, node, free_script(_path(lab, node, place)), runner)


def fill_script(place: str) -> str:
    """Return the script that allocates every free block of the filesystem at a path."""
    return _FILL.format(place=place, filler=_FILLER)


def free_script(place: str) -> str:
    """Return the script that frees what `fill_script` allocated."""
    return f"rm -f {place}/{_FILLER}"


def heal(lab: Lab, runner: Runner, *, nodes: Iterable[NodeSpec] | None = None) -> tuple[str, ...]:
    """Undo every fault of nodes, in the order in which they can be undone.

    Cables and cuts first, then nodes without power are switched on, then each node's disks, clock
    and filesystems. With `nodes` only these are healed, and cuts between nodes stay.

    Returns:
        A sentence for each node that could not be healed: it hangs, or is still booting.
    """
    if nodes is None:
        network_cuts.change(lab, runner, remove=network_cuts.load(lab))
    left = []
    for node in lab.machines if nodes is None else nodes:
        has_power = node_power.power(lab, node) is node_power.Power.ON
        for cable in node.networks:
            # A delay or loss ends with the node's power, and so does its marker file.
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
                f"*) {disk_script(number, DiskBehaviour.OK)} ;;",
                "esac",
            ]
    lines += [
        f"ahead=$(( $(date +%s) - {round(time.time())} ))",
        f"[ ${{ahead#-}} -le {_CLOCK_TOLERANCE_S} ] || date -s @{round(time.time())} >/dev/null",
    ]
    return "\n".join(lines)


def _path(lab: Lab, node: NodeSpec, place: FilledFilesystem) -> str:
    if place is FilledFilesystem.ROOT:
        return "/"
    if node.role is not Role.STORAGE or not lab.spec.disks:
        raise UsageError(Problem("SAN-LAB-007", f"{node.name} has no pool"))
    return data_mounts(lab.spec)[0][1]


def _run(lab: Lab, node: NodeSpec, script: str, runner: Runner, *, patience_s: float = 0.0) -> None:
    """Run a script on a node; while it fails, run it again for up to `patience_s`."""
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
