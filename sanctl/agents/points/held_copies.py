# SPDX-License-Identifier: GPL-2.0-or-later
"""Has all replicas of a device copied while its gate holds hosts' I/O, and lets that go on in time.

Steps 2 to 5 of `leader`. The alarm of its process ends a hold that takes too long.
"""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Any, NamedTuple

from sanctl.agents import ocf
from sanctl.agents.points import replica_states
from sanctl.agents.points.group_barrier import GroupBarrier
from sanctl.agents.points.local_copy import LocalCopy
from sanctl.agents.points.systemd_notice import notify
from sanctl.drivers import drbd_kernel, gate
from sanctl.drivers.node_channel import Channel
from sanctl.errors import CommandError, Problem
from sanctl.model.device import DeviceSpec
from sanctl.plan.device.hold import HOLD_S

#: How much longer systemd lets this process run after the hold, in microseconds: the flush, the
#: hook after, the change of the CIB; the same of the others of a group.
_EXTENSION_US = 200_000_000


class _HoldOver(Exception):
    """The longest hold has passed."""


class HeldCopies(NamedTuple):
    """All replicas were copied in one hold.

    Attributes:
        pause_s: how long hosts' I/O waited, in seconds.
        size_bytes: the size that the device had for hosts.
    """

    pause_s: float
    size_bytes: int


def make(
    device: DeviceSpec, copy: LocalCopy, channels: dict[str, Channel], barrier: GroupBarrier
) -> HeldCopies:
    """Copy all replicas while the gate holds I/O.

    Raises:
        CommandError: the copies may not be of one moment.
    """
    name = device.name.value
    signal.signal(signal.SIGALRM, _end_hold)
    # systemd counts from here; it has read this before it acts on the end of this process.
    notify("READY=1")
    begin = time.monotonic()
    try:
        size_bytes = _copy_held(device, copy, channels, barrier)
    except (_HoldOver, InterruptedError) as error:
        raise CommandError(
            Problem(
                "SAN-SNAP-007",
                f"the copies were not made within {HOLD_S:g} s, and hosts are not held up longer",
                "a node or a disk may be very busy, or a replica was lost; try again later",
            )
        ) from error
    finally:
        # First: a copy that went on would hold up hosts' writes to the file.
        copy.end_copying()
        gate.release(name)
        pause_s = time.monotonic() - begin
        # On the way out of an error, too, there is more to do than RuntimeMaxSec leaves time for.
        notify(f"EXTEND_TIMEOUT_USEC={_EXTENSION_US}")
    return HeldCopies(pause_s, size_bytes)


def _copy_held(
    device: DeviceSpec, copy: LocalCopy, channels: dict[str, Channel], barrier: GroupBarrier
) -> int:
    """Copy all replicas; return the device's size for hosts in this hold."""
    name = device.name.value
    try:
        end_s = time.monotonic() + HOLD_S
        signal.setitimer(signal.ITIMER_REAL, HOLD_S)
        gate.hold(name)
        before, size_bytes = drbd_kernel.ended_writes(device.minor), gate.size_bytes(name)
        ocf.crash_point("point-held")
        barrier.await_held(within_s=HOLD_S)
        for channel in channels.values():
            channel.send("copy", left_s=max(0.0, end_s - time.monotonic()))
        # In a child: a copy that hangs must not keep this one from letting I/O go on.
        copy.take()
        replica_states.check_active(device, channels)
        for channel in channels.values():
            channel.receive("copied", within_s=HOLD_S)
        ocf.crash_point("point-all-copied")
        if not gate.is_held(name):
            raise CommandError(Problem("SAN-SNAP-005", f"the gate of {name} was opened meanwhile"))
        # Suspended again is not suspended still: two swaps of the gate's table end with a gate that
        # looks the same, and device-mapper counts neither (its event number counts what targets
        # report). No write is in flight now, so one that came through in between has been counted.
        if before is None or drbd_kernel.ended_writes(device.minor) != before:
            raise CommandError(
                Problem(
                    "SAN-SNAP-005",
                    f"{name} was written to while its I/O was held back, as somebody had opened "
                    "its gate for a moment",
                    "a resize or a move of the device may do that; try again",
                )
            )
        # The files grow before the device does, so each copy has all of this size.
        if size_bytes is None or gate.size_bytes(name) != size_bytes:
            raise CommandError(
                Problem("SAN-SNAP-005", f"{name} has grown while it was copied", "try again")
            )
        return size_bytes
    finally:
        # The caller resumes the gate, also where the signal comes just here.
        signal.setitimer(signal.ITIMER_REAL, 0)


def _end_hold(_number: int, _frame: FrameType | None) -> Any:
    raise _HoldOver
