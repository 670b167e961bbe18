# SPDX-License-Identifier: GPL-2.0-or-later
"""Program of sanctl-points@.service: takes this standby's copy while the active node holds I/O.

systemd listens on the sync network and starts one process for each connection, which is its
standard input. The process may die at any point: the active node then makes no restore point, and
the pool agent removes what is left.
"""

from __future__ import annotations

import os
import socket
import sys

from sanctl.agents import ocf
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.points.local_copy import LocalCopy
from sanctl.agents.points.messages import Channel
from sanctl.drivers import drbd_kernel
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.plan.device.hold import standby_problem
from sanctl.system import state_files

_GREETING_S = 10.0
_STEP_S = 60.0
_log = DeviceLog("snapshot")


def main() -> int:
    """Serve the connection on standard input; return the exit status."""
    state_files.make_folder()
    connection = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel = Channel(connection, "the active node", is_leader=False)
        channel.greet(within_s=_GREETING_S)
        wanted = channel.receive("prepare", within_s=_GREETING_S)
    except (SanctlError, OSError, ValueError) as error:
        _log("", f"a connection was not served: {error}")
        return 0
    name = str(wanted["device"])
    try:
        _follow(channel, name, int(wanted["minor"]), wanted)
    except (SanctlError, OSError, ValueError, LookupError) as error:
        problem = error.problems[0] if isinstance(error, SanctlError) else None
        _log(name, f"restore point: {error}")
        try:
            channel.send(
                "refused",
                code=problem.code if problem else "SAN-SNAP-005",
                text=problem.text if problem else str(error),
            )
        except SanctlError:
            return 0  # The active node has gone, or has refused itself.
    return 0


def _follow(channel: Channel, name: str, minor: int, wanted: dict[str, str]) -> None:
    with LocalCopy(wanted["pool"], name, wanted["uuid"], wanted["token"]) as copy:
        _check_in_sync(name, minor)
        channel.send("ready", extents=copy.prepare())
        ocf.crash_point("point-peer-ready")
        channel.receive("copy", within_s=_STEP_S)
        # The active node holds I/O: what is UpToDate and connected now holds all that hosts wrote.
        _check_in_sync(name, minor)
        channel.send("copied", seconds=copy.take())
        ocf.crash_point("point-peer-copied")
        channel.receive("flush", within_s=_STEP_S)
        copy.make_stable()
        copy.may_be_known = True
        channel.send("flushed")
        ocf.crash_point("point-peer-flushed")
        verdict = channel.expect(("keep", "drop"), within_s=_STEP_S)
        if verdict["kind"] == "drop":
            copy.may_be_known = False
            return
        copy.keep()
        channel.send("kept")


def _check_in_sync(name: str, minor: int) -> None:
    """Check that this replica holds every write that the active node has acknowledged.

    Raises:
        CommandError: it does not, or that is not known.
    """
    why = standby_problem(drbd_kernel.proc_state(minor))
    if why:
        raise CommandError(Problem("SAN-SNAP-005", f"the replica of {name} is not copied: {why}"))
