#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What a cluster's host does all the while with a disk that it owns, or is to lose.

Standard library only, so that it can be piped into a host's python3:

    python3 - defend LOG NODE=DISK...     READ KEYS and READ RESERVATION, each three seconds
    python3 - write LOG OFFSET DISK...    writes by all paths at once, without a pause

`defend` asks by the path that is ready, as MPIO does, and appends a line of JSON for each round.
`write` has some threads for each path, each with a page of its own that it writes a number to; its
log is the newest state of each thread, in JSON. Both run until they are ended.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

PERIOD_S = 3.0
PAGE_BYTES, THREADS = 4096, 4
#: Of sg3_utils: what another host did is told, and the command was not carried out.
_UNIT_ATTENTION, _TRIES = 6, 4
#: After that the other path is asked: more than a session takes to be given up for lost.
_COMMAND_S = 20
#: TEST UNIT READY. sg_turs of sg3_utils 1.48 sends none, and exits with 0.
_TEST_UNIT_READY = ("00",) * 6
_KEY = re.compile(r"^\s+0x([0-9a-f]+)\s*$", re.M)
_HOLDER = re.compile(r"Key=0x([0-9a-f]+)\s+scope: *\S+ +type: *(.+?)\s*$", re.M)


def ask(*command: str) -> str | None:
    """Return what a command of sg3_utils said; None: it failed, or was not answered in time."""
    for _ in range(_TRIES):
        program = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            said, _ = program.communicate(timeout=_COMMAND_S)
        except subprocess.TimeoutExpired:
            # It ends once the kernel has given the command up: nobody waits for that.
            program.kill()
            return None
        if program.returncode != _UNIT_ATTENTION:
            return None if program.returncode else said
    return None


def read(disk: str) -> dict[str, object] | None:
    """Return what a path that is ready says of registrations and the reservation."""
    if ask("sg_raw", f"--timeout={_COMMAND_S // 2}", disk, *_TEST_UNIT_READY) is None:
        return None
    reading = ("sg_persist", "--no-inquiry", "--in")
    keys = ask(*reading, "--read-keys", disk)
    holder = ask(*reading, "--read-reservation", disk)
    if keys is None or holder is None:
        return None
    found = _HOLDER.search(holder)
    return {
        "keys": sorted(int(each, 16) for each in _KEY.findall(keys)),
        "holder": int(found[1], 16) if found else None,
        "type": found[2] if found else "",
    }


def defend(log: str, *paths: str) -> NoReturn:
    """Read by the path that is ready, and append who said what; nobody, if none was."""
    while True:
        began = time.monotonic()
        line: dict[str, object] = {"node": ""}
        for path in paths:
            node, _, disk = path.partition("=")
            said = read(disk)
            if said is not None:
                line = {"node": node, **said}
                break
        with Path(log).open("a") as file:
            file.write(json.dumps(line) + "\n")
        time.sleep(max(0.0, began + PERIOD_S - time.monotonic()))


class Writer(threading.Thread):
    """Writes numbers to a page of its own: a next one once the one before is acknowledged."""

    def __init__(self, disk: str, offset: int) -> None:
        super().__init__(daemon=True)
        self._disk, self._offset = disk, offset
        self.tried = self.acknowledged = 0
        self.error = ""

    def run(self) -> None:
        """Write for ever."""
        page = mmap.mmap(-1, PAGE_BYTES)
        # Once: udev looks at a disk whenever somebody who could write closes it.
        handle = os.open(self._disk, os.O_WRONLY | os.O_DIRECT)
        while True:
            page[:8] = (self.acknowledged + 1).to_bytes(8, "big")
            try:
                os.pwritev(handle, [page], self._offset)
                self.acknowledged += 1
            except OSError as error:
                self.error = error.strerror or ""
                time.sleep(0.05)
            self.tried += 1


def write(log: str, offset: str, *disks: str) -> NoReturn:
    """Start the threads, and tell of them ten times a second."""
    writers = [
        Writer(disk, int(offset) + PAGE_BYTES * (number * THREADS + thread))
        for number, disk in enumerate(disks)
        for thread in range(THREADS)
    ]
    for writer in writers:
        writer.start()
    while True:
        told = [[each.tried, each.acknowledged, each.error] for each in writers]
        Path(f"{log}.new").write_text(json.dumps(told))
        Path(f"{log}.new").replace(log)
        time.sleep(0.1)


def main(arguments: Sequence[str]) -> NoReturn:
    """Do what the first argument says."""
    what, *rest = arguments
    if what == "defend":
        defend(*rest)
    write(*rest)


if __name__ == "__main__":
    main(sys.argv[1:])
