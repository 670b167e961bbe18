# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a device has ever been active: the cluster's memory of it, asked as seldom as possible.

The CIB says so by the meta attribute `sanctl-new` of the device's primitive, which `sanctl device
create` sets and the first promotion removes. Pacemaker hands agents no meta attributes but its
own, so it has to be asked; what has lived once has lived, and that is kept on tmpfs.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from sanctl.system.files import exists
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    from sanctl.agents.replica.parts import Device

_TIMEOUT_S = 8.0
#: The first promotion of a device: no host waits yet, and a failure costs a stop and a start.
_FIRST_TIMEOUT_S = 25.0
_ATTRIBUTE = "sanctl-new"
#: crm_resource: no such attribute, no such resource (105), and their number before 2.0 (6).
_NONE = (105, 6)


def is_new(runner: Runner, device: Device) -> bool:
    """Whether the cluster says that the device has never been active.

    Raises:
        CommandError: the cluster did not answer; a device is then not taken for a new one.
    """
    if exists(_mark(device)):
        return False
    answer = runner.run(
        ["crm_resource", "--resource", device.name, "--meta", "--get-parameter", _ATTRIBUTE],
        timeout_s=_TIMEOUT_S,
        ok=(0, *_NONE),
    )
    if answer.status == 0 and answer.stdout.strip() == "true":
        return True
    _remember(device)
    return False


def has_lived(runner: Runner, device: Device) -> None:
    """Make the cluster know that the device has been active.

    Raises:
        CommandError: the cluster did not take it; the device must not become Primary.
    """
    runner.run(
        ["crm_resource", "--resource", device.name, "--meta", "--delete-parameter", _ATTRIBUTE],
        timeout_s=_FIRST_TIMEOUT_S,
    )
    _remember(device)


def forget(device: Device) -> None:
    """Drop what this node remembers of the device."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_mark(device))


def _remember(device: Device) -> None:
    with open(_mark(device), "w", encoding="utf-8"):
        pass


def _mark(device: Device) -> str:
    return f"/run/sanctl/lived-{device.name}.{device.uuid}"
