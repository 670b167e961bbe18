# SPDX-License-Identifier: GPL-2.0-or-later
"""What the pool agent publishes of sanctl-reservations.service: that it does not listen here.

While it does not, each change of a reservation, on whichever node serves the device, waits for this
one, and hosts wait with it. The journal alone said so.
"""

from __future__ import annotations

from sanctl.model.published_reservations import NOTE_KIND
from sanctl.system import journal, state_files
from sanctl.system.files import read_text

#: TCP port 7798 (drivers/node_channel.py), as the kernel writes it, and the state LISTEN.
_PORT, _LISTEN = f"{7798:04X}", "0A"
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
        is_down = not _listens() and bool(state_files.devices_with(NOTE_KIND))
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
            lines = read_text(path).splitlines()[1:]
        except FileNotFoundError:
            continue  # A kernel without IPv6.
        for words in map(str.split, lines):
            if words[1].endswith(f":{_PORT}") and words[3] == _LISTEN:
                return True
    return False
