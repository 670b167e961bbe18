# SPDX-License-Identifier: GPL-2.0-or-later
"""Tells systemd, which has started this process, of its state, and waits until it has read that."""

from __future__ import annotations

import os
import select
import socket

from sanctl.errors import CommandError, Problem

_SYSTEMD_S = 5.0


def notify(text: str) -> None:
    """Tell systemd, and return when it has read that (sd_notify(3), BARRIER=1).

    Raises:
        CommandError: systemd has not started this process, or does not answer.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        raise CommandError(Problem("SAN-SNAP-005", "systemd, which ends a hold, is not there"))
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect(address.replace("@", "\0", 1) if address[0] == "@" else address)
            channel.sendall(text.encode())
            socket.send_fds(channel, [b"BARRIER=1"], [write_end])
        os.close(write_end)
        write_end = -1
        waiting = select.poll()
        waiting.register(read_end, select.POLLHUP)
        if not waiting.poll(_SYSTEMD_S * 1000):
            raise CommandError(Problem("SAN-SNAP-005", "systemd does not answer"))
    finally:
        for handle in (read_end, write_end):
            if handle >= 0:
                os.close(handle)
