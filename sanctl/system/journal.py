# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes to the journal with fields, so that one query tells a device's story.

    journalctl SYSLOG_IDENTIFIER=sanctl SANCTL_DEVICE=NAME

python-systemd is imported when the first message is written. Where there is none, or no journal,
messages go to standard error: logging never fails an action.
"""

from __future__ import annotations

import os
import sys

#: syslog priorities (syslog(3))
CRITICAL, ERROR, WARNING, NOTICE, INFO, DEBUG = 2, 3, 4, 5, 6, 7


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

    Args:
        message: one line for people; never holds a secret.
        priority: syslog priority.
        device: the device it is about.
        action: the agent's action, handler or command.
        step: the step of the action.
        duration_ms: how long that took, in milliseconds.
    """
    fields = {
        "SANCTL_DEVICE": device,
        "SANCTL_NODE": os.uname().nodename,
        "SANCTL_ACTION": action,
        "SANCTL_STEP": step,
        "SANCTL_DURATION_MS": "" if duration_ms is None else str(duration_ms),
    }
    try:
        from systemd import journal  # noqa: PLC0415 - see the module's docstring

        journal.send(
            message,
            PRIORITY=str(priority),
            SYSLOG_IDENTIFIER="sanctl",
            **{key: value for key, value in fields.items() if value},
        )
    except (ImportError, OSError):
        sys.stderr.write(f"sanctl: {message}\n")
