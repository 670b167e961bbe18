# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands of the tutorial, run in order, and their output compared with docs/."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support.doc_samples import ROOT, Sample, consoles, is_shown
from tests.support.json_contract import breaches

TUTORIAL = ROOT / "docs" / "tutorial" / "first-failover.md"
#: The laboratory is there already, and other tests need it after this one.
_DONE_BY_THE_FIXTURE = {"make setup", ". .venv/bin/activate", "sanctl lab up", "sanctl lab down"}
#: What only looks may be asked again until it shows what the page shows, as a reader would.
_LOOKS = re.compile(r"sanctl (status|device show|device list)|sanctl lab status|multipath -ll")
_PATIENCE_S = 180.0


@pytest.fixture
def reader(bed: LabSession, scenario: Scenario) -> Iterator[dict[str, str]]:
    """The environment in which the reader types; what the tutorial leaves is taken away."""
    environment = {
        **os.environ,
        "SANCTL_LAB": bed.lab.name,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    yield environment
    scenario.bed.sh(
        "i1",
        "systemctl stop tutorial-clock; umount /mnt",
        ok=range(256),
        timeout_s=60,
    )
    if scenario.exists("vol1"):
        scenario.delete("vol1")


def clock(bed: LabSession) -> str:
    """Return the time that was last written on the device; empty before the first one."""
    return bed.sh("i1", "cat /mnt/clock", timeout_s=60, ok=(0, 1)).stdout.strip()


def await_clock(bed: LabSession) -> None:
    """Wait until a later time was written on the device."""
    stood = clock(bed)
    wait_for("the clock to go on", lambda: clock(bed) > stood, within_s=60)


def type_on_host(bed: LabSession, sample: Sample) -> None:
    """Type at the prompt of i1; a loop goes on beside what follows."""
    command = (
        f"udevadm settle --timeout 10; {sample.command}"  # a reader types slower than this test
    )
    if sample.command.startswith("while "):
        command = f"systemd-run --quiet --collect --unit=tutorial-clock bash -c '{sample.command}'"
    bed.sh(sample.where.removeprefix("root@"), command, timeout_s=60)


def type_here(sample: Sample, environment: dict[str, str], lab: str) -> None:
    """Type a command in the checkout; compare what it prints on standard output."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        done = subprocess.run(
            ["bash", "-c", sample.command],
            check=False,
            capture_output=True,
            text=True,
            timeout=200,
            env=environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
        )
        if sample.output is None:
            assert done.returncode == 0, f"{sample}: {done.stderr}"
            return
        if is_shown(sample.output, done.stdout, lab):
            return
        may_change = _LOOKS.search(sample.command) and time.monotonic() < deadline
        shown = "\n".join(sample.output)
        assert may_change, f"{sample}: shows\n{shown}\nand prints\n{done.stdout}{done.stderr}"
        time.sleep(0.5)


@pytest.mark.quick
def test_the_tutorial(bed: LabSession, reader: dict[str, str]) -> None:
    typed = 0
    for sample in consoles(TUTORIAL):
        if sample.command in _DONE_BY_THE_FIXTURE:
            continue
        if sample.where:
            type_on_host(bed, sample)
        else:
            type_here(sample, reader, bed.lab.name)
        typed += 1
        # Who reads sees it go before the power is cut: "The clock stands still, and goes on."
        if sample.command.startswith(("while ", "sanctl lab power")):
            await_clock(bed)
    assert typed >= 10, "the page has lost its samples"
    await_clock(bed)


@pytest.mark.parametrize(
    "words",
    [
        "lab list",
        "lab status",
        "lab up",
        "lab power",
        pytest.param("bench cost", marks=pytest.mark.faults),
    ],
)
def test_the_laboratory_prints_what_is_documented(
    bed: LabSession, scenario: Scenario, words: str, reader: dict[str, str]
) -> None:
    arguments = {"lab power": ["n3", "status"], "lab up": ["--no-rollout"], "bench cost": []}
    if words == "bench cost":
        scenario.create("vol1", "64M", prefer="n1")
        arguments[words] = ["--name", bed.lab.name, "--device", "vol1", "--repeat", "3"]
    done = subprocess.run(
        ["sanctl", *words.split(), *arguments.get(words, []), "--output", "json"],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env=reader,
        cwd=ROOT,
    )
    # What costs more than what is for `bench cost` to say, by 1; it is no test of the machine.
    expected = (0, 1) if words == "bench cost" else (0,)
    assert done.returncode in expected, done.stderr + done.stdout
    assert breaches(words, done.stdout) == []


@pytest.mark.quick
@pytest.mark.parametrize("words", ["cluster show", "cluster strategy set"])
def test_a_node_prints_what_is_documented(bed: LabSession, words: str) -> None:
    """The strategy set is the one that it has: nothing is changed."""
    argument = " node-majority" if words.endswith("set") else ""
    done = bed.sh("n1", f"sanctl {words}{argument} --output json")
    assert breaches(words, done.stdout) == []
