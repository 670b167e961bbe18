# SPDX-License-Identifier: GPL-2.0-or-later
"""Brings the record of green runs in line with the tests that there are, and writes its page.

python -m tests.support.test_runs             after tests were added, renamed or removed
python -m tests.support.test_runs merge FILE...  also take the runs of reports, such as CI's
python -m tests.support.test_runs stale       say which families have not run green for long
python -m tests.support.test_runs turns [N]   say in how many runs of `make test` all have had their
                                              turn, at N times the recorded durations
"""

from __future__ import annotations

import json
import os
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
    _, _, rest = _collect().partition(collected_tests.HEAD)
    found: dict[str, list[str]] = json.loads(rest.partition("\n")[0])
    return found


def _collect(**environment: str) -> str:
    """Return what pytest prints that collects the tests of the laboratory."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "--slice", "-q",
         "-p", "no:cacheprovider", "-p", collected_tests.__name__,
         "-o", "addopts=--import-mode=importlib", *LAB_FOLDERS],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | environment,
    )  # fmt: skip
    if done.returncode or collected_tests.HEAD not in done.stdout:
        raise RuntimeError(f"the tests are not collected: {done.stdout}{done.stderr}")
    return done.stdout


def main(arguments: list[str]) -> int:
    """Do what the arguments say."""
    record = run_recorder.read()
    match arguments:
        case ["stale"]:
            number = run_recorder.commit_number()
            for line in last_green.stale(record, number) if number else ():
                print(f"warning {line}")
            return 0
        case ["turns", *paces]:
            told = _collect(**{collected_tests.TURNS: " ".join(paces or ["1"])})
            for line in told.splitlines():
                if line.startswith(collected_tests.TURNS_HEAD):
                    print(line.removeprefix(collected_tests.TURNS_HEAD))
            return 0
        case ["merge", _, *_]:
            for path in arguments[1:]:
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
