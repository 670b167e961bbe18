#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs tests of libiscsi's iscsi-test-cu, each as a process of its own with a deadline.

Standard library only, so that it can be piped into a host's python3:

    python3 - URL INITIATOR SECOND DEADLINE_S [TEST...]

Without tests it runs all. Each test's result is one line of JSON on standard output.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time

# "tests" of CUnit's summary: total, ran, passed, failed, inactive.
_SUMMARY = re.compile(r"^\s+tests\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)$", re.MULTILINE)
_BEGIN = "CUnit - A unit testing framework"
# What the tool does between a test and the summary: it looks for keys to remove.
_CLEAN_UP = re.compile(r"Send PRIN/READ_KEYS\s+\[SKIPPED\].*\s+(?=Run Summary)")
_SAID = re.compile(r"\[(?:SKIPPED|FAILED)\].*")
_ENDED_BY_ITSELF_S = 5.0


def list_tests() -> list[str]:
    """Return the names of all tests, such as `ALL.Read10.Simple`."""
    out = subprocess.run(
        ["iscsi-test-cu", "--list"], check=True, capture_output=True, text=True
    ).stdout
    return [line for line in out.splitlines() if re.fullmatch(r"ALL\.[^.]+\..+", line)]


def run(test: str, url: str, initiator: str, second: str, deadline_s: float) -> dict[str, object]:
    """Run one test and return what came of it.

    Its result is `passed`, `failed`, `skipped`, `hangs`, or `not begun`, where the target is not
    ready. CUnit counts a test that was skipped as passed, or as failed after a refusal.
    """
    command = ["iscsi-test-cu", "--dataloss", "--allow-sanitize", "--normal", "--Verbose-scsi"]
    command += ["--initiator-name", initiator, "--initiator-name-2", second, "--test", test, url]
    began = time.monotonic()
    process = subprocess.Popen(
        ["timeout", "--kill-after", f"{_ENDED_BY_ITSELF_S:g}", f"{deadline_s:g}", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    output = process.communicate()[0]
    # Before CUnit begins the tool asks for keys and pages; not all targets have them all.
    _, _, tested = output.partition(_BEGIN)
    said = [line.strip() for line in _SAID.findall(_CLEAN_UP.sub("", tested))]
    summary = _SUMMARY.search(tested)
    if process.returncode in {124, 137}:
        result, said = "hangs", output.strip().splitlines()[-3:]
    elif summary is None or summary[2] == "0":
        result, said = "not begun", output.strip().splitlines()[-2:]
    elif any(line.startswith("[SKIPPED]") for line in said):
        result = "skipped"
    else:
        result = "passed" if summary[4] == "0" and process.returncode == 0 else "failed"
    return {
        "test": test.removeprefix("ALL."),
        "result": result,
        "said": said[:3],
        "seconds": round(time.monotonic() - began, 2),
    }


def main(arguments: list[str]) -> None:
    """Run the tests that are named, or all; one that the tool does not have is `absent`."""
    url, initiator, second, deadline_s, *tests = arguments
    there = list_tests()
    for test in [f"ALL.{each}" for each in tests] or there:
        if test in there:
            found = run(test, url, initiator, second, float(deadline_s))
        else:
            found = {"test": test.removeprefix("ALL."), "result": "absent"}
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
