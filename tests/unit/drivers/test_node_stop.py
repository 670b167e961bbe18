# SPDX-License-Identifier: GPL-2.0-or-later
"""A node stops while systemd has a job to start shutdown.target, and then alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest

from sanctl.drivers import node_stop
from sanctl.errors import CommandError, Problem
from sanctl.system.runner import CommandResult


class OneAnswer:
    """Prints a text for each command; None: it fails."""

    def __init__(self, text: str | None) -> None:
        self._text = text

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: str | None = None,
        ok: Collection[int] = (0,),
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        del timeout_s, stdin, ok, env
        if self._text is None:
            raise CommandError(Problem("SAN-CMD-002", "systemctl failed"))
        return CommandResult(tuple(argv), 0, self._text, "", 0.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1204 shutdown.target start waiting\n", True),
        ("No jobs running.\n", False),
        ("No jobs listed.\n", False),
        ("", False),
        ("17 shutdown.target stop waiting\n", False),
        ("17 sanctl-logins.service restart running\n", False),
        (None, False),
    ],
)
def test_the_job_of_shutdown_target(text: str | None, expected: bool) -> None:
    assert node_stop.is_stopping(OneAnswer(text)) is expected
