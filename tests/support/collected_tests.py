# SPDX-License-Identifier: GPL-2.0-or-later
"""The pytest plugin that prints all collected tests with their marks: one line of JSON.

And the shape of the laboratory with which each was chosen for a run.

With TURNS in the environment also in how many runs all have had their turn, at these paces.
"""

from __future__ import annotations

import json
import os

import pytest

HEAD = "tests and marks: "
SHAPES_HEAD = "shapes, and those it was chosen with: "
TURNS = "SANCTL_TEST_TURNS"
TURNS_HEAD = "turns: "


def pytest_collection_finish(session: pytest.Session) -> None:
    """Print the tests in the order in which they would run."""
    marks = {item.nodeid: [mark.name for mark in item.iter_markers()] for item in session.items}
    print(f"\n{HEAD}{json.dumps(marks)}")
    # Plugins, too: pytest loads them after this one.
    from tests.support import rotation, run_recorder, turns  # noqa: PLC0415

    shapes = {test.name: test.shape for test in rotation.lab_tests(session.items)}
    print(f"{SHAPES_HEAD}{json.dumps([shapes, rotation.chosen_shapes(session.config)])}")
    if paces := os.environ.get(TURNS):
        tests, record = rotation.lab_tests(session.items), run_recorder.read()
        for pace in paces.split():
            print(f"{TURNS_HEAD}{turns.describe(tests, record, pace=float(pace))}")
