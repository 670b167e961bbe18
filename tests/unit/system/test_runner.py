# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs are started, and killed at their timeout."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import time
from typing import Any

import pytest

from sanctl.errors import CommandError
from sanctl.system.runner import LocalRunner


def test_a_program_past_its_timeout_is_killed_and_reaped() -> None:
    """A pipe or a process that is left complains when it is collected, in whatever runs then."""
    with pytest.raises(CommandError, match="no answer within"):
        LocalRunner().run(["sleep", "60"], timeout_s=0.05)
    with pytest.raises(CommandError, match="no answer within"):
        LocalRunner().run(["sleep", "60"], timeout_s=0.05, stdin="what it does not read\n")
    gc.collect()


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.EACCES])
def test_a_program_that_cannot_be_started_is_an_error_of_ours(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(CommandError, match=r"SAN-CMD-004.*true could not be started"):
        LocalRunner().run(["true"], timeout_s=1.0)


def test_a_program_that_cannot_be_started_for_a_moment_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, refusals = subprocess.Popen, [errno.EAGAIN, errno.ENOMEM, errno.EMFILE]

    def refuse(*args: Any, **options: Any) -> object:
        if refusals:
            number = refusals.pop()
            raise OSError(number, os.strerror(number))
        return started(*args, **options)

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert LocalRunner().run(["echo", "there"], timeout_s=5.0).stdout == "there\n"
    assert refusals == []


def test_a_program_that_stays_refused_is_given_up_within_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    begin = time.monotonic()
    with pytest.raises(CommandError, match=r"SAN-CMD-004"):
        LocalRunner().run(["true"], timeout_s=0.3)
    assert time.monotonic() - begin < 1.5
