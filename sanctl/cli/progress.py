# SPDX-License-Identifier: GPL-2.0-or-later
"""Shows on standard error what a command waits for: a spinner for people, lines for logs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sanctl.ops.session import Reporter

if TYPE_CHECKING:
    from rich.status import Status


class _Lines:
    """One line for each new state."""

    def __init__(self) -> None:
        self._last = ""

    def update(self, text: str) -> None:
        """See Reporter.update."""
        if text != self._last:
            self._last = text
            print(text, file=sys.stderr, flush=True)


class _Spinner:
    """A line that is rewritten in place; appears with the first update."""

    def __init__(self) -> None:
        self._status: Status | None = None

    def update(self, text: str) -> None:
        """See Reporter.update."""
        from rich.markup import escape  # noqa: PLC0415 - only when there is something to wait for

        if self._status is None:
            from rich.console import Console  # noqa: PLC0415

            self._status = Console(stderr=True).status(escape(text))
            self._status.start()
        self._status.update(escape(text))

    def stop(self) -> None:
        """Take the line away."""
        if self._status is not None:
            self._status.stop()


@contextmanager
def make_reporter() -> Iterator[Reporter]:
    """Return where progress is shown, for as long as the command runs."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    spinner = _Spinner()
    try:
        yield spinner
    finally:
        spinner.stop()
