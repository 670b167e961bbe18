# SPDX-License-Identifier: GPL-2.0-or-later
"""Structured log lines to the systemd journal (SANCTL_DEVICE, SANCTL_ACTION, SANCTL_STEP).

    journalctl SYSLOG_IDENTIFIER=sanctl SANCTL_DEVICE=NAME

An action whose name has changed is written under both names for one release: a journal entry may
hold a field several times, and a query matches each value.

python-systemd is imported with the first message. Where it is missing, or there is no journal,
messages go to standard error: logging never fails an action.
"""

from __future__ import annotations

import os
import sys

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
    try:
        from systemd import journal  # noqa: PLC0415 - see the module's docstring

        # Not `journal.send`, which takes each field once.
        journal.sendv(
            f"MESSAGE={message}",
            f"PRIORITY={priority}",
            "SYSLOG_IDENTIFIER=sanctl",
            *(f"{key}={value}" for key, value in fields if value),
        )
    except (ImportError, OSError):
        sys.stderr.write(f"sanctl: {message}\n")
