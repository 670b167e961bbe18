# SPDX-License-Identifier: GPL-2.0-or-later
"""What goes on beside faults: a thread that acts now and then, and commands that may get no answer.

A node may be down or hang at any moment: every command has a timeout, and no answer is a result.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from sanctl.errors import CommandError, SanctlError
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.measure.attempts import NO_ANSWER, Outcome, read_outcome

#: What an answer that does not come, or cannot be read, ends with.
FAILURES = (SanctlError, OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError)
_POLL_S = 0.5
_ALIVE_S = 15.0
_MORE_S = 30.0

PrintLine = Callable[[str], None]


class Watch(Protocol):
    """What is done beside faults and judged after each."""

    def resume(self) -> None:
        """Begin, or go on: a fault comes."""

    def pause(self) -> None:
        """Begin nothing more; returns when what was begun has ended."""

    def judge(self, restarted: Sequence[str]) -> list[str]:
        """Return what is wrong with what was made, once the cluster has recovered."""

    def finish(self) -> list[str]:
        """Return what keeps one more from being made, and being right, after all faults."""


class PacedThread:
    """Calls `act` at intervals, but for the time in which it is paused.

    Args:
        name: the thread's name.
        intervals_s: the times from one begin to the next.
        act: does one thing; an error is printed, and is no end.
        print_line: prints a line.
    """

    def __init__(
        self,
        name: str,
        intervals_s: Iterator[float],
        act: Callable[[], None],
        print_line: PrintLine,
    ) -> None:
        self._intervals_s = intervals_s
        self._act = act
        self._print_line = print_line
        self._allowed, self._now, self._ended = (threading.Event() for _ in range(3))
        self._busy = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def resume(self) -> None:
        """Let it act; the first call starts it."""
        if self._thread.ident is None:
            self._thread.start()
        self._allowed.set()

    def act_now(self) -> None:
        """Have it act at once, unless it is paused."""
        self._now.set()

    def pause(self, within_s: float) -> bool:
        """Let it begin nothing more; return whether what it does has ended in time."""
        self._allowed.clear()
        if not self._busy.acquire(timeout=within_s):
            return False
        self._busy.release()
        return True

    def has_died(self) -> bool:
        """Whether it has ended by an error of its own."""
        is_begun = self._thread.ident is not None
        return is_begun and not self._ended.is_set() and not self._thread.is_alive()

    def end(self) -> None:
        """Let it end, once what it does has ended."""
        self._allowed.clear()
        self._ended.set()

    def _run(self) -> None:
        left_s = next(self._intervals_s)
        while not self._ended.is_set():
            if not self._allowed.wait(_POLL_S):
                continue
            began_s = time.monotonic()
            is_asked = self._now.wait(max(0.0, min(left_s, _POLL_S)))
            left_s -= time.monotonic() - began_s
            if not is_asked and left_s > 0:
                continue
            with self._busy:
                if not self._allowed.is_set():
                    continue
                self._now.clear()
                began_s = time.monotonic()
                try:
                    self._act()
                except FAILURES as error:
                    self._print_line(f"   {self._thread.name}: {error}")
            left_s = next(self._intervals_s) - (time.monotonic() - began_s)


def run_command(bed: LabSession, node: str, command: str, *, limit_s: float) -> Outcome:
    """Run a command with `--output json` on a node; no answer is an outcome, too.

    It is killed on the node after `limit_s`; a node that hangs is given up a little later.
    """
    script = f"timeout -k 5 {limit_s:g} {command} --output json"
    return run_script(bed, node, script, limit_s=limit_s)


def run_script(bed: LabSession, node: str, script: str, *, limit_s: float) -> Outcome:
    """Run a script that ends with what a command with `--output json` prints; see `run_command`."""
    try:
        done = bed.sh(node, script, timeout_s=limit_s + _MORE_S, ok=range(-64, 256))
    except CommandError as error:
        return Outcome(code=NO_ANSWER, text=str(error))
    return read_outcome(done.status, done.stdout, done.stderr)


def answering_node(bed: LabSession, choose: random.Random) -> str | None:
    """Return a random storage node among those that answer; None: none does."""
    nodes = [node.name for node in bed.storage]
    for node in choose.sample(nodes, len(nodes)):
        try:
            if bed.has_power(node):
                bed.sh(node, "true", timeout_s=_ALIVE_S)
                return node
        except FAILURES:
            continue
    return None
