# SPDX-License-Identifier: GPL-2.0-or-later
"""Progress of a long `sanctl lab` command: a spinner on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape


class Progress:
    """Writes to standard error; standard output is for results."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet, highlight=False)

    def say(self, line: str) -> None:
        """Write one line."""
        self._console.print(line, markup=False)

    @contextmanager
    def step(self, what: str) -> Iterator[Callable[[str], None]]:
        """Show a spinner with the seconds so far; the yielded function shows the current step."""
        begin = time.monotonic()
        if not self._console.is_terminal:
            self.say(f"{what} …")
        with self._console.status(f"{what} …") as status:

            def tick(at: str) -> None:
                status.update(f"{what} … {time.monotonic() - begin:.0f} s [dim]{escape(at)}[/dim]")

            yield tick
        self.say(f"{what}: done in {time.monotonic() - begin:.1f} s")

    @contextmanager
    def nodes(self, what: str, names: Sequence[str]) -> Iterator[Callable[[str, str], None]]:
        """Show the nodes still waited for; the yielded function reports a node as done."""
        begin = time.monotonic()
        waiting = list(names)
        with self._console.status(f"{what}: waiting for {', '.join(waiting)} …") as status:

            def done(name: str, remark: str) -> None:
                waiting.remove(name)
                self.say(f"{what}: {name} after {remark}")
                if waiting:
                    status.update(f"{what}: waiting for {', '.join(waiting)} …")

            yield done
        self.say(f"{what}: all {len(names)} in {time.monotonic() - begin:.1f} s")
