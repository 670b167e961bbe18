# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a device has ever been active: the cluster's memory of it, asked as seldom as possible.

The CIB says so by the meta attribute `sanctl-new` of the device's primitive, which `sanctl device
create` sets and the first promotion removes. Pacemaker hands agents no meta attributes but its
own, so it has to be asked; what has lived once has lived, and that is kept on tmpfs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sanctl.drivers import crm_resource
from sanctl.system import state_files
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    from sanctl.agents.replica.parts import Device

_TIMEOUT_S = 8.0
#: The first promotion of a device: no host waits yet, and a failure costs a stop and a start.
_FIRST_TIMEOUT_S = 25.0
_ATTRIBUTE = "sanctl-new"


def is_new(runner: Runner, device: Device) -> bool:
    """Whether the cluster says that the device has never been active.

    Raises:
        CommandError: the cluster did not answer; a device is then not taken for a new one.
    """
    if _mark(device).exists():
        return False
    value = crm_resource.meta_attribute(runner, device.name, _ATTRIBUTE, timeout_s=_TIMEOUT_S)
    if value == "true":
        return True
    _remember(device)
    return False


def record_promotion(runner: Runner, device: Device) -> None:
    """Make the cluster know that the device has been active.

    Raises:
        CommandError: the cluster did not take it; the device must not become Primary.
    """
    crm_resource.delete_meta_attribute(runner, device.name, _ATTRIBUTE, timeout_s=_FIRST_TIMEOUT_S)
    _remember(device)


def _remember(device: Device) -> None:
    _mark(device).write()


def _mark(device: Device) -> state_files.StateFile:
    return state_files.of_device(device.name, f"was-active.{device.uuid}")
