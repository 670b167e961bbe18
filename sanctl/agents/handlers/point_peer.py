# SPDX-License-Identifier: GPL-2.0-or-later
"""Program of sanctl-points@.service: does what another node asks for by a connection.

systemd listens on the sync network and starts one process for each connection, which is its
standard input. It is named after a part in a restore point, the first such request. The other one
is to look at once for deleted devices, which the pool agent's monitor does anyway.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from sanctl.agents.device_log import DeviceLog
from sanctl.drivers.node_channel import LOOK_FOR_DELETED, PREPARE, Channel
from sanctl.errors import SanctlError
from sanctl.system import state_files

_GREETING_S = 10.0
_log = DeviceLog("request")


def main() -> int:
    """Serve the connection on standard input; return the exit status."""
    state_files.make_folder()
    with socket.socket(fileno=os.dup(sys.stdin.fileno())) as connection:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel = Channel(connection, "the other node", is_leader=False)
            channel.greet(within_s=_GREETING_S)
            wanted = channel.expect((PREPARE, LOOK_FOR_DELETED), within_s=_GREETING_S)
        except (SanctlError, OSError, ValueError) as error:
            _log("", f"a connection was not served: {error}")
            return 0
        _serve(channel, wanted)
    return 0


def _serve(channel: Channel, wanted: dict[str, Any]) -> None:
    # Each imported here: hosts wait for the part in a restore point.
    if wanted["kind"] == LOOK_FOR_DELETED:
        from sanctl.agents import pool  # noqa: PLC0415

        pool.delete_files_of_deleted_devices()
    else:
        from sanctl.agents.points import follower  # noqa: PLC0415

        follower.serve(channel, wanted)
