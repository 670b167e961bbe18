#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Heartbeats of a host as ESXi sends them: COMPARE AND WRITE of the host's slot, one block.

Runs on a host, beside offload_runner in a folder tests/support:

    python3 -m tests.support.heartbeat_runner OWNER BLOCK PERIOD_S FILE DISK...

The test image of a heartbeat is the image of the one before. What a path has left unanswered is
sent again by the next one; if the slot has the new image then, the first one was done. Any other
miscompare ends the heartbeats: somebody else has the slot. FILE has the state after each one, in
JSON; a file FILE.stop ends them.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support import offload_runner

#: Far more than ESXi's 8 s: a heartbeat that is lost is what is looked for, not a late one.
DEADLINE_S = 300.0
#: Sense keys of a command that was not carried out: NOT READY (a standby), UNIT ATTENTION.
_NOT_DONE = ("sense 02/", "sense 06/")


@dataclasses.dataclass
class State:
    """What a host knows of its heartbeats."""

    counter: int = 0
    acknowledged: int = 0
    #: Done, as the slot showed, though the command was not answered.
    unanswered: int = 0
    #: What ended without GOOD, and how often.
    again: dict[str, int] = dataclasses.field(default_factory=dict)
    #: How many each path has acknowledged, in the order of the arguments.
    by_path: list[int] = dataclasses.field(default_factory=list)
    #: What a slot had that somebody else has changed.
    taken: str = ""
    longest_s: float = 0.0


def image(owner: str, counter: int) -> bytes:
    """Return the block of a slot."""
    return f"{owner} {counter:012d}".encode().ljust(offload_runner.BLOCK_BYTES, b"\0")


class Slot:
    """A host's slot, by all its paths: the one that was good last is asked first."""

    def __init__(self, owner: str, block: int, disks: Sequence[offload_runner.Disk]) -> None:
        self.owner, self.block, self.disks = owner, block, disks
        self.path = 0

    def read(self) -> bytes:
        """Read the slot by the first path that answers."""
        ends = time.monotonic() + DEADLINE_S
        while True:
            try:
                where = self.block * offload_runner.BLOCK_BYTES
                return self.disks[self.path].read(where, offload_runner.BLOCK_BYTES)
            except OSError:
                self._wait(ends)

    def write(self, data: bytes) -> None:
        """Write the slot by the first path that takes it."""
        ends = time.monotonic() + DEADLINE_S
        while True:
            try:
                self.disks[self.path].write(self.block * offload_runner.BLOCK_BYTES, data)
            except OSError:
                self._wait(ends)
            else:
                return

    def _wait(self, ends: float) -> None:
        if time.monotonic() > ends:
            raise TimeoutError(f"block {self.block}: no path has answered for {DEADLINE_S:g} s")
        self.path = (self.path + 1) % len(self.disks)
        time.sleep(0.2)

    def beat(self, state: State) -> None:
        """Send one heartbeat until its outcome is known."""
        began = time.monotonic()
        old, new = (image(self.owner, state.counter + more) for more in (0, 1))
        is_unsure = False
        while True:
            outcome = self.disks[self.path].command(
                *offload_runner.compare_and_write(self.block, old, new)
            )
            if outcome == "good":
                state.acknowledged += 1
                state.by_path[self.path] += 1
                break
            state.again[outcome] = state.again.get(outcome, 0) + 1
            if outcome == "miscompare":
                found = self.read()
                if not (is_unsure and found == new):
                    state.taken = found.rstrip(b"\0").decode(errors="replace")
                    return
                state.unanswered += 1
                break
            is_unsure = is_unsure or not any(each in outcome for each in _NOT_DONE)
            self._wait(began + DEADLINE_S)
        state.counter += 1
        state.longest_s = max(state.longest_s, round(time.monotonic() - began, 1))


def main(owner: str, block: str, period_s: str, file: str, *paths: str) -> None:
    """Take the slot, and send heartbeats until the stop file is there."""
    slot = Slot(owner, int(block), [offload_runner.Disk(path) for path in paths])
    state = State(by_path=[0] * len(paths))
    slot.write(image(owner, 0))
    while not (os.path.exists(f"{file}.stop") or state.taken):
        slot.beat(state)
        Path(f"{file}.new").write_text(json.dumps(dataclasses.asdict(state)))
        Path(f"{file}.new").replace(file)
        time.sleep(float(period_s))


if __name__ == "__main__":
    main(*sys.argv[1:])
