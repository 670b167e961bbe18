# SPDX-License-Identifier: GPL-2.0-or-later
"""At shutdown, takes down replicas that Pacemaker has left up, before the network stops.

Pacemaker stops the resources that it manages, and then no replica is up. Pacemaker leaves devices
up in maintenance mode, when they are unmanaged, when it has crashed, or when its own stop ran out
of time. A replica that is up while the network stops records in its metadata that it lost its peer,
and a node that is shutting down must not decide what that record means later (LINBIT/drbd issue 145
is such a case).

Run by sanctl-replicas.service, which stops after Pacemaker and Corosync and before the network.
Several replicas are taken down at a time, each in a process of its own (sanctl/plan/device/
stop_pace.py): one that waits for I/O in flight, or for a disk that hangs, keeps no other up. A
process that is killed leaves its replica with some parts down, as a stop that is killed does, and
the node's end is a power cut for that one.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from functools import partial

from sanctl.agents.device_stop import take_down
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, lio_export, loop
from sanctl.errors import SanctlError
from sanctl.plan.device import stop_pace
from sanctl.system import journal, parallel_calls
from sanctl.system.files import is_folder, read_text_or
from sanctl.system.runner import LocalRunner, Runner

_MINOR = re.compile(r"^\s*device minor (\d+);", re.MULTILINE)
_DEVICE_FILE = re.compile(r"/devices/([^/]+)\.([0-9a-f]{32})\.")
_RUNNER = LocalRunner()


def main() -> int:
    """Take down every replica that is up; return 0 when none is left.

    Refuses while the node is not stopping and Pacemaker runs: Pacemaker manages the replicas then.
    """
    if _is_pacemaker_in_charge(_RUNNER):
        _report("Pacemaker runs and this node is not stopping: its devices are left alone")
        return 1
    failed = False
    try:
        devices = remaining_devices()
    except OSError as error:
        _report(f"it is not known which replicas are still up: {error}")
        return 1
    for device in devices:
        _report(f"{device.name} is still up, left by Pacemaker: taking it down")
    calls = {device.name: partial(take_down, _RUNNER, device) for device in devices}
    for name, failure in parallel_calls.run_all(
        calls, within_s=stop_pace.ALL_WITHIN_S, may_begin=stop_pace.may_begin
    ):
        if failure:
            failed = True
            _report(f"{name} could not be taken down before the network goes: {failure}")
    try:
        # Their loop devices would keep the pools mounted.
        lio_export.remove_below("")
    except (SanctlError, OSError) as error:
        failed = True
        _report(f"the export of a restore point could not be ended: {error}")
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
    """Return the device's UUID by the names of its files below loop devices; `none` without any."""
    found = map(_DEVICE_FILE.search, loop.backing_files())
    return next((hit[2] for hit in found if hit is not None and hit[1] == name), "none")


def _is_pacemaker_in_charge(runner: Runner) -> bool:
    # `is-system-running` says `stopping` from the moment a shutdown has begun (systemctl(1)).
    state = runner.run(["systemctl", "is-system-running"], timeout_s=10.0, ok=range(256))
    if state.stdout.strip() == "stopping":
        return False
    pacemaker = runner.run(
        ["systemctl", "is-active", "pacemaker.service"], timeout_s=10.0, ok=range(256)
    )
    return pacemaker.stdout.strip() in {"active", "deactivating"}


def _report(text: str) -> None:
    """Print to the console, through the unit's standard output, and write to the journal."""
    # At once, lest it be lost if systemd ends this process; and no console, no reason to stop here.
    with contextlib.suppress(OSError):
        sys.stdout.write(f"sanctl: {text}\n")
        sys.stdout.flush()
    journal.write(text, priority=journal.WARNING, action="stop-remaining")
