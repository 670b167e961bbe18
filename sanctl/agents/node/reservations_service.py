# SPDX-License-Identifier: GPL-2.0-or-later
"""What the pool agent publishes of sanctl-reservations.service: that it does not listen here.

While it does not, each change of a reservation, on whichever node serves the device, waits for this
one, and hosts wait with it. The journal alone said so.
"""

from __future__ import annotations

import re

from sanctl.model.published_reservations import NOTE_KIND
from sanctl.system import journal, state_files
from sanctl.system.files import read_text

#: TCP port 7798 (drivers/node_channel.py), as the kernel writes it, and the state LISTEN.
_PORT, _LISTEN = f"{7798:04X}", "0A"
# Local address, remote one, state. Many hosts have many connections: not a line is taken apart.
_OURS = re.compile(rf"^ *\d+: [0-9A-F]+:{_PORT} [0-9A-F]+:[0-9A-F]+ {_LISTEN} ", re.MULTILINE)
_SOCKETS = ("/proc/net/tcp", "/proc/net/tcp6")
_DOWN = "down"


def field() -> str:
    """Return what is published, after a blank; empty where the service listens.

    It is published at the second look that finds nobody: systemd starts the service anew at once.
    Without a replica here whose device has reservations the service need not run.
    """
    try:
        note = state_files.of_node("reservations-service")
        was_down = note.read() == _DOWN
        is_down = bool(state_files.devices_with(NOTE_KIND)) and not _listens()
        if is_down is not was_down:
            note.write(_DOWN if is_down else "")
    except OSError as error:
        journal.write(
            f"whether sanctl-reservations.service listens is not known: {error}",
            priority=journal.WARNING,
            action="reservations",
        )
        return ""
    return f" pr-service={_DOWN}" if is_down and was_down else ""


def _listens() -> bool:
    for path in _SOCKETS:
        try:
            text = read_text(path)
        except FileNotFoundError:
            continue  # A kernel without IPv6.
        if _OURS.search(text):
            return True
    return False
