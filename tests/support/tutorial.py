# SPDX-License-Identifier: GPL-2.0-or-later
"""Types the commands of a tutorial, as its reader would, and compares what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from sanctl.lab.harness.lab_session import LabSession
from tests.support.doc_samples import ROOT, Sample, is_shown

#: What only looks may be asked again until it shows what the page shows, as a reader would.
_LOOKS = re.compile(r"sanctl (status|device show|device list)|sanctl lab status|multipath -ll")
_PATIENCE_S = 180.0


def environment_of(bed: LabSession) -> dict[str, str]:
    """Return the environment in which the reader types."""
    return {
        **os.environ,
        "SANCTL_LAB": bed.lab.name,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


def type_on_host(bed: LabSession, sample: Sample) -> None:
    """Type at the prompt of i1; a loop goes on beside what follows."""
    command = (
        f"udevadm settle --timeout 10; {sample.command}"  # a reader types slower than this test
    )
    if sample.command.startswith("while "):
        command = f"systemd-run --quiet --collect --unit=tutorial-clock bash -c '{sample.command}'"
    bed.sh(sample.where.removeprefix("root@"), command, timeout_s=60)


def type_here(
    sample: Sample,
    environment: Mapping[str, str],
    lab: str,
    *,
    patience_s: float = _PATIENCE_S,
    again_for: Collection[str] = (),
) -> None:
    """Type a command in the checkout; compare what it prints on standard output.

    Args:
        sample: the command, and what the page shows of it.
        environment: see `environment_of`.
        lab: the laboratory's name, which the page calls `default`.
        patience_s: for how long it is asked again.
        again_for: the codes of the problems for which any command is typed again.
    """
    deadline = time.monotonic() + patience_s
    command = sample.command.replace(":default.", f":{lab}.")
    while True:
        done = subprocess.run(
            ["bash", "-c", command],
            check=False,
            capture_output=True,
            text=True,
            timeout=400,
            env=dict(environment),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
        )
        said = done.stdout + done.stderr
        has_time = time.monotonic() < deadline
        if done.returncode and has_time and any(code in said for code in again_for):
            time.sleep(0.5)
            continue
        if sample.output is None:
            assert done.returncode == 0, f"{sample}: {said}"
            return
        if is_shown(sample.output, done.stdout, lab):
            return
        may_change = _LOOKS.search(sample.command) and has_time
        shown = "\n".join(sample.output)
        assert may_change, f"{sample}: shows\n{shown}\nand prints\n{said}"
        time.sleep(0.5)
