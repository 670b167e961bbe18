# SPDX-License-Identifier: GPL-2.0-or-later
"""Waits for a repository that others use, and says so after some seconds, with who they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sanctl.drivers import backup_notes
from sanctl.drivers.borg import SAY_AFTER_S, Borg
from sanctl.ops.session import Session
from sanctl.plan.device.repository_wait import waiting_text


def say_waits(session: Session, borg: Borg, *, has_turn: bool = False) -> None:
    """Have borg's commands say what they wait for, where that takes more than some seconds.

    With `has_turn` they run in this node's turn: no other backup of this node has the repository.
    """
    borg.on_wait = lambda left_s: _say(
        session, borg, left_s, borg.lock_holder(), is_elsewhere=has_turn
    )


@contextlib.contextmanager
def turn_or_word(session: Session, borg: Borg) -> Iterator[bool]:
    """Hold the lock of this node's backups into a repository, as `backup_notes.turn` does.

    It waits for as long as borg's commands do, and says so.
    """
    into, first_s = borg.repository.name, min(SAY_AFTER_S, borg.lock_s)
    with contextlib.ExitStack() as locks:
        is_next = locks.enter_context(backup_notes.turn(into, wait_s=first_s))
        left_s = borg.lock_s - first_s
        if not is_next and left_s:
            _say(session, borg, left_s, "")
            is_next = locks.enter_context(backup_notes.turn(into, wait_s=left_s))
        yield is_next


def _say(
    session: Session, borg: Borg, left_s: int, holder: str, *, is_elsewhere: bool = False
) -> None:
    devices: tuple[str, ...] = ()
    with contextlib.suppress(OSError):
        devices = () if is_elsewhere else backup_notes.begun_into(borg.repository.name)
    session.reporter.update(waiting_text(borg.repository.name, left_s, holder, devices))
