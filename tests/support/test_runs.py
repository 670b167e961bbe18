# SPDX-License-Identifier: GPL-2.0-or-later
"""Brings the record of green runs in line with the tests that there are, and writes its page.

python -m tests.support.test_runs             after tests were added, renamed or removed
python -m tests.support.test_runs merge FILE  also take the runs of a report, such as CI's
python -m tests.support.test_runs stale       say which families have not run green for long
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.support import collected_tests, last_green, run_recorder
from tests.support.doc_samples import ROOT

LAB_FOLDERS = ("tests/lab", "tests/chaos")


@cache
def collected() -> dict[str, list[str]]:
    """Return the node id of every test of the laboratory, with its marks, in the order they run.

    With `slice` among the marks of those that `make test` would run as its slice.
    """
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "--slice", "-q",
         "-p", "no:cacheprovider", "-p", collected_tests.__name__,
         "-o", "addopts=--import-mode=importlib", *LAB_FOLDERS],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    _, head, rest = done.stdout.partition(collected_tests.HEAD)
    if done.returncode or not head:
        raise RuntimeError(f"the tests are not collected: {done.stdout}{done.stderr}")
    found: dict[str, list[str]] = json.loads(rest.partition("\n")[0])
    return found


def main(arguments: list[str]) -> int:
    """Do what the arguments say."""
    record = run_recorder.read()
    match arguments:
        case ["stale"]:
            number = run_recorder.commit_number()
            for line in last_green.stale(record, number) if number else ():
                print(f"warning {line}")
            return 0
        case ["merge", path]:
            runs = last_green.parse(Path(path).read_text(encoding="utf-8")).runs
            record = last_green.merge(record, runs.values())
        case []:
            pass
        case _:
            sys.stderr.write(f"{__doc__}\n")
            return 2
    record = last_green.of_tests(record, collected())
    run_recorder.write(record)
    run_recorder.write_page(record)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
