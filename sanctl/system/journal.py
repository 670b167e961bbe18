# SPDX-License-Identifier: GPL-2.0-or-later
"""Structured log lines to the systemd journal (SANCTL_DEVICE, SANCTL_ACTION, SANCTL_STEP).

    journalctl SYSLOG_IDENTIFIER=sanctl SANCTL_DEVICE=NAME

An action whose name has changed is written under both names for one release: a journal entry may
hold a field several times, and a query matches each value.

Sent in journald's own protocol (systemd, docs/JOURNAL_NATIVE_PROTOCOL.md) and never waited for: a
journald that hangs, on a disk that does not answer say, must not keep a handler from its answer,
nor a node from fencing itself. libsystemd's calls wait. A message that it does not take goes to the
kernel log; where there is no journal, to standard error: logging never fails an action.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys

_SOCKET = "/run/systemd/journal/socket"
_KERNEL_LOG = "/dev/kmsg"
#: Of a message too large for a datagram, or for a record of the kernel log, so much is kept.
_MOST_BYTES, _MOST_KERNEL_BYTES = 32 << 10, 800

#: syslog priorities (syslog(3))
CRITICAL, ERROR, WARNING, NOTICE, INFO, DEBUG = 2, 3, 4, 5, 6, 7

#: SANCTL_ACTION: the name and, until the release after 0.1.0, the former name.
FORMER_ACTIONS = {
    "connections": "meeting",
    "delete-files": "reap",
    "failure-cleanup": "retry",
    "fs-shutdown": "aground",
    "hung-io": "stuck",
    "reconnect": "handshake",
    "stop-remaining": "put-down",
}


def write(
    message: str,
    *,
    priority: int = INFO,
    device: str = "",
    action: str = "",
    step: str = "",
    duration_ms: int | None = None,
) -> None:
    """Write one message with its fields; empty ones are left out.

    The message is one line for people and never holds a secret; `device` is what it is about,
    `action` the agent's action, handler or command.
    """
    fields = (
        ("SANCTL_DEVICE", device),
        ("SANCTL_NODE", os.uname().nodename),
        ("SANCTL_ACTION", action),
        ("SANCTL_ACTION", FORMER_ACTIONS.get(action, "")),
        ("SANCTL_STEP", step),
        ("SANCTL_DURATION_MS", "" if duration_ms is None else str(duration_ms)),
    )
    entries = [
        ("MESSAGE", message),
        ("PRIORITY", str(priority)),
        ("SYSLOG_IDENTIFIER", "sanctl"),
        *((key, value) for key, value in fields if value),
    ]
    try:
        try:
            _send(entries)
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                raise
            _send([(key, value[:_MOST_BYTES]) for key, value in entries])
    except BlockingIOError:
        write_to_kernel_log(message, priority=priority)
    # ImportError: the disk that has the module may not answer.
    except (ImportError, OSError):
        if sys.stderr is not None:  # a process of the kernel's may have none
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"sanctl: {message}\n")


def write_to_kernel_log(message: str, *, priority: int) -> None:
    """Write a line to the kernel log, which no process has to take; an error is ignored."""
    line = f"<{priority}>sanctl: {' '.join(message.split())}".encode(errors="replace")
    with contextlib.suppress(OSError):
        handle = os.open(_KERNEL_LOG, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            os.write(handle, line[:_MOST_KERNEL_BYTES] + b"\n")
        finally:
            os.close(handle)


def _send(entries: list[tuple[str, str]]) -> None:
    """Send one entry.

    Raises:
        BlockingIOError: journald takes none now.
        OSError: there is no journald, or the entry is too large.
    """
    import socket  # noqa: PLC0415 - most actions write nothing

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"".join(_field(*each) for each in entries), socket.MSG_DONTWAIT, _SOCKET)


def _field(key: str, value: str) -> bytes:
    data = value.encode(errors="replace")
    if b"\n" not in data:
        return b"%b=%b\n" % (key.encode(), data)
    return b"%b\n%b%b\n" % (key.encode(), len(data).to_bytes(8, "little"), data)
