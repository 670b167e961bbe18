# SPDX-License-Identifier: GPL-2.0-or-later
"""A monitor's answer where drbdsetup could not be run, as plan.failover.unasked_monitor says."""

from __future__ import annotations

from sanctl.agents import ocf
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.fencing import hung_io_reboot
from sanctl.agents.publish import replica_state
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, gate, lio
from sanctl.errors import CommandError
from sanctl.plan.failover.unasked_monitor import KernelRole, kernel_role
from sanctl.system import journal
from sanctl.system.runner import Runner

#: No answer in time: that is DRBD's own silence, and the monitor fails, if it is not explained.
_SILENT = "SAN-CMD-002"
#: There is no such program, which does not pass by itself.
_MISSING = "SAN-CMD-001"
_EXIT = {
    KernelRole.SERVES: ocf.RUNNING_PROMOTED,
    KernelRole.STANDBY: ocf.SUCCESS,
    KernelRole.ABSENT: ocf.NOT_RUNNING,
}
_log = DeviceLog("monitor", priority=journal.ERROR)


def report(runner: Runner, device: Device, error: CommandError) -> int:
    """Return the OCF exit code of a monitor that could not ask DRBD.

    A standby on a node without drbdsetup is no candidate for promotion until it is there again.

    Raises:
        CommandError: `error`, where the kernel does not show without DRBD what the device is.
    """
    codes = {problem.code for problem in error.problems}
    if _SILENT in codes and not _is_explained(runner, device):
        raise error
    role = kernel_role(
        gate=gate.gate_table(device.name),
        alua=lio.alua_state(device.name, device.minor),
        is_exported=lio.is_exported(device.name),
        is_suspended=gate.stays_suspended(device.name),
        has_drbd_device=drbd_kernel.has_device(device.minor),
        is_probe=ocf.is_probe(),
    )
    if role is KernelRole.UNKNOWN or (_SILENT in codes and role is KernelRole.ABSENT):
        raise error
    why = "; requests that hang explain that, and end this node soon" if _SILENT in codes else ""
    _log(
        device.name,
        f"monitor: DRBD could not be asked; the kernel shows without it: {role}: {error}{why}",
        step="unasked",
    )
    if role is KernelRole.STANDBY and _MISSING in codes:
        replica_state.withdraw(runner, device)
    return _EXIT[role]


def _is_explained(runner: Runner, device: Device) -> bool:
    """Whether requests that hang explain DRBD's silence, and are about to end this node."""
    if ocf.is_probe():
        return False
    try:
        return hung_io_reboot.check_unasked(runner, device)
    except Exception as problem:
        # Of whatever kind: the error is then that of DRBD, by which the client may answer.
        _log(
            device.name,
            f"monitor: requests that hang could not be looked for: {problem!r}",
            step="unasked",
        )
        return False
