# SPDX-License-Identifier: GPL-2.0-or-later
"""The last look before a node's network goes: takes down replicas that Pacemaker has left up.

Pacemaker stops what it manages, and this finds nothing. It leaves devices up in maintenance mode,
when they are unmanaged, when it has crashed, or when its own stop ran out of time. A replica that
is up while the network goes writes down that it lost its peer, and what that entry means later is
not for a node that is going to decide (LINBIT/drbd issue 145 is such a case).

Run by sanctl-replicas.service, which stops after Pacemaker and Corosync and before the network.
"""

from __future__ import annotations

import os
import re
import sys

from sanctl.agents.device import take_down
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, loop
from sanctl.errors import SanctlError
from sanctl.system import journal
from sanctl.system.files import is_folder, read_text_or
from sanctl.system.runner import LocalRunner, Runner

_MINOR = re.compile(r"^\s*device minor (\d+);", re.MULTILINE)
_RUNNER = LocalRunner()


def stop_remaining() -> int:
    """Take down every replica that is up; return 0 when nothing is left.

    Refuses while the node runs and Pacemaker with it: whatever is up then is Pacemaker's.
    """
    if _is_pacemakers(_RUNNER):
        _tell("Pacemaker runs and this node is not stopping: its devices are left alone")
        return 1
    failed = False
    try:
        devices = remaining_devices()
    except OSError as error:
        _tell(f"it is not known what is still up: {error}")
        return 1
    for device in devices:
        _tell(f"{device.name} is still up: Pacemaker has left it; taking it down")
        try:
            take_down(device)
        except (SanctlError, OSError) as error:
            failed = True
            _tell(f"{device.name} could not be taken down before the network goes: {error}")
    return int(failed)


def remaining_devices() -> list[Device]:
    """Return the devices that were started here and not stopped, by their DRBD resource files.

    A start writes that file before anything of the device is in the kernel, a stop drops it last.
    """
    folder = drbdadm.RESOURCE_FILES
    names = sorted(os.listdir(folder)) if is_folder(folder) else []
    found = []
    for entry in names:
        name, dot, _ = entry.partition(".res")
        minor = _MINOR.search(read_text_or(f"{folder}/{entry}", ""))
        if dot and minor:
            found.append(
                Device(
                    name=name,
                    uuid=_uuid_of(name),
                    size_bytes=0,
                    pool="",
                    nodes=(),
                    minor=int(minor[1]),
                    initiators=(),
                )
            )
    return found


def _uuid_of(name: str) -> str:
    """Read the UUID off the loop devices that stand over the device's files."""
    mark = re.compile(rf"/{re.escape(name)}\.([0-9a-f]{{32}})\.")
    return next((hit[1] for hit in map(mark.search, loop.backing_files()) if hit), "none")


def _is_pacemakers(runner: Runner) -> bool:
    # `is-system-running` says `stopping` from the moment a shutdown has begun (systemctl(1)).
    state = runner.run(["systemctl", "is-system-running"], timeout_s=10.0, ok=range(256))
    if state.stdout.strip() == "stopping":
        return False
    pacemaker = runner.run(
        ["systemctl", "is-active", "pacemaker.service"], timeout_s=10.0, ok=range(256)
    )
    return pacemaker.stdout.strip() in {"active", "deactivating"}


def _tell(text: str) -> None:
    """Say it on the console, through the unit's standard output, and in the journal's fields."""
    sys.stdout.write(f"sanctl: {text}\n")
    journal.write(text, priority=journal.WARNING, action="put-down")
