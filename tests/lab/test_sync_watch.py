# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl sync watch` while a resync runs: line by line, on a terminal, until none runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario

pytestmark = pytest.mark.faults

NAME = "watch0"
MIB = 90
NOTHING = "no resync or verify runs"
WATCH_S = 240
#: As docs/howto/sync.md shows it.
ROW = re.compile(
    r"(?P<device>\S+) +(?P<node>n\d) +(?P<state>\w+) +\[(?P<bar>#*\.*)\] +(?P<done>\d+)%"
    r" +(?P<left>[\d.]+ [KMG]?i?B) +[\d.]+ [KMG]?i?B/s +(\?|[\d:]+)$"
)
#: What a terminal is told beside the text.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@pytest.fixture
def behind(scenario: Scenario) -> Iterator[LabSession]:
    """A device whose replica on n2 lacks some MiB, and gets one MiB in a second."""
    bed = scenario.bed
    scenario.create(NAME, "128M", prefer="n1")
    try:
        scenario.sanctl("device", "sync", NAME, "--rate-max", "1M", "--rate-min", "1M")
        bed.sh("n2", f"drbdadm disconnect {NAME}")
        bed.sh(
            "n1",
            f"dd if=/dev/urandom of=/dev/mapper/sanctl-{NAME} bs=1M count={MIB} oflag=direct"
            " conv=nocreat iflag=fullblock",
        )
        yield bed
    finally:
        scenario.delete(NAME)


def rows(text: str) -> list[re.Match[str]]:
    return [found for line in text.splitlines() if (found := ROW.match(line.strip()))]


def test_it_shows_each_second_and_ends_with_the_resync(behind: LabSession) -> None:
    bed = behind
    assert bed.sh("n3", "sanctl sync watch").stdout == f"{NOTHING}\n"
    bed.sh("n2", f"drbdadm connect {NAME}")

    def runs() -> bool:
        first_line = "timeout 15 sh -c 'sanctl sync watch | head -n 1'"
        return f"{NAME} " in bed.sh("n3", first_line, ok=range(256)).stdout

    wait_for("the resync to be reported", runs, within_s=60)
    with ThreadPoolExecutor() as pool:
        plain = pool.submit(bed.sh, "n3", "sanctl sync watch", timeout_s=WATCH_S)
        terminal = pool.submit(
            bed.sh,
            "n1",
            "TERM=xterm script --quiet --return --command"
            " 'stty cols 120; sanctl sync watch' /dev/null",
            timeout_s=WATCH_S,
        )
        said, drawn = plain.result().stdout, _CONTROL.sub("", terminal.result().stdout)
    print(said)
    seen = rows(said)
    assert len(seen) == len(said.splitlines()) - 1
    assert said.splitlines()[-1] == NOTHING
    assert len(seen) >= 3
    assert {(row["device"], row["node"], row["state"]) for row in seen} == {(NAME, "n2", "fast")}
    done = [int(row["done"]) for row in seen]
    assert done == sorted(done) and done[-1] > done[0]
    assert all(len(row["bar"]) == 20 for row in seen)
    # The bar is rounded down, the number to the nearest.
    assert all(-1 <= row["bar"].count("#") * 5 - int(row["done"]) + 5 <= 5 for row in seen)
    head = ["DEVICE", "REPLICA", "ON", "STATE", "DONE", "LEFT", "RATE", "TIME", "LEFT"]
    lines = drawn.splitlines()
    assert any(line.split() == head for line in lines), drawn
    # The bar too: it has to look on a terminal as it does elsewhere.
    assert any(row["bar"].startswith("#") for row in rows(drawn)), drawn
    assert [line for line in lines if line.strip()][-1].strip() == NOTHING
