# SPDX-License-Identifier: GPL-2.0-or-later
"""A Runner that starts no program: prints prepared answers and records each command line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from sanctl.errors import CommandError, Problem
from sanctl.system.runner import CommandResult

Answer = str | CommandError | tuple[int, str, str]
"""What a program prints; or how it fails; or its exit status and both its outputs."""


class FakeRunner:
    """Answers every program alike, or each as a function says."""

    def __init__(self, answer: Answer | Callable[[Sequence[str]], Answer] = "") -> None:
        self.answer = answer
        self.calls: list[tuple[tuple[str, ...], str | None]] = []

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: str | None = None,
        ok: Collection[int] = (0,),
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """See Runner.run; `ok` counts here as it does there."""
        self.calls.append((tuple(argv), stdin))
        answer = self.answer(argv) if callable(self.answer) else self.answer
        if isinstance(answer, CommandError):
            raise answer
        status, stdout, stderr = (0, answer, "") if isinstance(answer, str) else answer
        if status not in ok:
            raise CommandError(Problem("SAN-CMD-003", f"{argv[0]}: exit status {status}"))
        return CommandResult(tuple(argv), status, stdout, stderr, 0.1)
