# SPDX-License-Identifier: GPL-2.0-or-later
"""The pytest plugin that prints all collected tests with their marks: one line of JSON."""

from __future__ import annotations

import json

import pytest

HEAD = "tests and marks: "


def pytest_collection_finish(session: pytest.Session) -> None:
    """Print the tests in the order in which they would run."""
    marks = {item.nodeid: [mark.name for mark in item.iter_markers()] for item in session.items}
    print(f"\n{HEAD}{json.dumps(marks)}")
