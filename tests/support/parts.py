# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs `make test` as two parts side by side, each a pytest with laboratories of its own.

A laboratory waits more than it works: for timeouts, for a node that boots, for a resync. So the
two parts together take little longer than the longer one. What a part has follows from the shape
of the laboratory that a test needs: see `part_of`.

python -m tests.support.parts    with the options of pytest that both parts have
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import IO

PARTS = (1, 2)
#: The tests that need no laboratory, of each part: they take as long as each other.
_PATHS = {
    1: ("tests/unit", "--ignore=tests/unit/agents", "--ignore=tests/unit/safety"),
    2: ("tests/unit/agents", "tests/unit/safety"),
}
_LAB = ("tests/lab", "tests/chaos")
_REPORT = Path("test-report")
_END_S = 120
_COUNT = re.compile(r"(\d+) ([a-z]+)")
_SUMMARY = re.compile(r"^=+ (?P<counts>\d+ .*) in [\d.]+s\b.*=+$")


def part_of(shape: str) -> int:
    """Return the part that has the tests of a laboratory's shape (see `LabTest.shape`).

    One has the laboratory that most modules share, the other all that need another one: by the
    record both take as long.
    """
    return 2 if shape else 1


def summary(outputs: Iterable[Sequence[str]], seconds: float) -> str:
    """Return the line with which pytest would have ended, had all parts been one run.

    `outputs` has the lines of each part. After its summary a part may say which laboratories it
    has ended.

    Raises:
        ValueError: a part has no such line, so that nothing is known of its tests.
    """
    counts = Counter[str]()
    for lines in outputs:
        found = next(filter(None, map(_SUMMARY.match, reversed(lines))), None)
        if found is None:
            raise ValueError("\n".join(lines[-1:]))
        for number, what in _COUNT.findall(found["counts"]):
            one = what.removesuffix("s") if what in {"errors", "warnings"} else what
            counts[one] += int(number)
    told = ", ".join(f"{number} {_of(what, number)}" for what, number in counts.items())
    return f" {told} in {seconds:.2f}s ".center(100, "=")


def _of(what: str, number: int) -> str:
    return f"{what}s" if what in {"error", "warning"} and number != 1 else what


class _Part:
    """One pytest, whose output is kept, and shown line by line if it is the first one's."""

    def __init__(self, number: int, options: Sequence[str]) -> None:
        self.is_shown = number == PARTS[0]
        self.lines: list[str] = []
        self._number = number
        # The program of that name: click shows what it was called by in each usage line.
        pytest = Path(sys.executable).with_name("pytest")
        argv = [
            str(pytest), "--slice", f"--part={number}", *options,
            *_PATHS[number], *_LAB,
        ]  # fmt: skip
        self._run = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace",
        )  # fmt: skip
        assert self._run.stdout is not None
        self._reader = Thread(target=self._read, args=[self._run.stdout], daemon=True)
        self._reader.start()

    def _read(self, output: IO[str]) -> None:
        with (_REPORT / f"part-{self._number}.log").open("w", encoding="utf-8") as log:
            for line in output:
                log.write(line)
                log.flush()
                self.lines.append(line.rstrip("\n"))
                if self.is_shown:
                    print(line, end="", flush=True)

    def ask_to_end(self) -> None:
        """Have pytest end its tests, and its laboratories."""
        if self._run.poll() is None:
            self._run.send_signal(signal.SIGINT)

    def await_end(self) -> None:
        """Wait until it has; a run that does not is killed."""
        try:
            self._run.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._run.kill()

    def status(self) -> int:
        """Wait for the end; return pytest's exit status."""
        status = self._run.wait()
        # A process that a test left behind may hold the pipe: what pytest said is there by then.
        self._reader.join(timeout=_END_S)
        return status


def main(options: Sequence[str]) -> int:
    """Run both parts; return the exit status of the first that failed, else 0."""
    began_s = time.monotonic()
    _REPORT.mkdir(exist_ok=True)
    parts = [_Part(number, options) for number in PARTS]

    def end(number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGINT:  # which a terminal has sent to all of its processes
            for part in parts:
                part.ask_to_end()
        for part in parts:
            part.await_end()
        _show(parts)
        sys.exit(143)

    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, end)
    statuses = [part.status() for part in parts]
    _show(parts)
    for part in parts:  # again, so that what failed stands beside the summary
        for line in part.lines:
            if line.startswith(("ERROR ", "FAILED ")):
                print(line[:400])
    try:
        print(summary((part.lines for part in parts), time.monotonic() - began_s))
    except ValueError as error:
        print(f"FAILED: a part ended without a summary, with: {error}")
        return next((status for status in statuses if status), 1)
    return next((status for status in statuses if status), 0)


def _show(parts: Iterable[_Part]) -> None:
    """Print what the parts said that were not shown while they ran."""
    for part in parts:
        if not part.is_shown:
            print(*part.lines, sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
