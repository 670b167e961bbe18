# SPDX-License-Identifier: GPL-2.0-or-later
"""Logs which host has failed to authenticate, at most once a minute for each target.

The kernel logs each such login by lines of its own, which name no host, and without a limit.
"""

from __future__ import annotations

import contextlib
import time
from typing import NamedTuple

from sanctl.drivers import lio_login_stats
from sanctl.drivers.lio_login_stats import FailedLogins
from sanctl.system import journal, state_files

_EVERY_S = 60.0
_KIND = "failed-logins"


class _Logged(NamedTuple):
    """What of a target's failures has been logged: how many, and when, by the node's uptime."""

    failures: int
    at_s: float


def log() -> None:
    """Log the failed logins of the last minute; an error is logged, and the next monitor tries."""
    try:
        note, now_s = state_files.of_node(_KIND), time.monotonic()
        before, after = _read(note.read()), dict[str, _Logged]()
        for found in lio_login_stats.failed_logins():
            logged = before.get(found.served, _Logged(0, now_s - _EVERY_S))
            if found.failures < logged.failures:
                # The target was made anew.
                logged = logged._replace(failures=0)
            if found.failures > logged.failures and now_s - logged.at_s >= _EVERY_S:
                _log(found, found.failures - logged.failures)
                logged = _Logged(found.failures, now_s)
            after[found.served] = logged
        if after != before:
            # Without room for it they are logged by each monitor; nothing depends on it.
            with contextlib.suppress(OSError):
                note.write(_text(after))
    except OSError as error:
        journal.write(
            f"failed logins could not be read: {error}; the next monitor tries again",
            priority=journal.WARNING,
            action="failed-logins",
        )


def _log(found: FailedLogins, count: int) -> None:
    last = (
        f"the last login that failed, for whatever reason, was {found.initiator} from"
        f" {found.address}"
        if found.initiator and found.address
        else "by which initiator is not known"
    )
    journal.write(
        f"{found.served}: {count} login{'' if count == 1 else 's'} refused here, "
        f"without CHAP or with a wrong secret: {last} (SAN-HOST-021)",
        priority=journal.WARNING,
        device=found.device,
        action="failed-logins",
    )


def _read(text: str) -> dict[str, _Logged]:
    """Read the note; a line is the count, the moment, and what the target stands for."""
    found = {}
    # Of a note that is none the failures are logged once more.
    with contextlib.suppress(ValueError):
        for line in text.splitlines():
            count, at_s, served = line.split(" ", 2)
            found[served] = _Logged(int(count), float(at_s))
    return found


def _text(logged: dict[str, _Logged]) -> str:
    return "".join(f"{each.failures} {each.at_s:.3f} {served}\n" for served, each in logged.items())
