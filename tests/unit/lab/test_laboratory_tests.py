# SPDX-License-Identifier: GPL-2.0-or-later
"""The laboratory's tests ask for fixtures that exist: mypy sees no fixture, a laboratory costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import laboratory
from tests.support.doc_samples import ROOT


def test_every_fixture_exists() -> None:
    planned = subprocess.run(
        [sys.executable, "-m", "pytest", "--setup-plan", "-q", "-p", "no:cacheprovider", "-o",
         "addopts=--import-mode=importlib", "tests/lab", "tests/chaos"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "ERROR" not in planned.stdout, planned.stdout[-2000:]
    assert planned.returncode == 0, planned.stdout[-2000:] + planned.stderr[-2000:]


def test_a_deadline_of_a_module_holds(request: pytest.FixtureRequest) -> None:
    module = pytest.Module.from_parent(request.session, path=ROOT / "tests" / "lab" / "test_x.py")
    module.add_marker(pytest.mark.timeout(1200))
    item = pytest.Function.from_parent(module, name="test_y", callobj=lambda: None)
    laboratory.pytest_collection_modifyitems([item])
    deadline = item.get_closest_marker("timeout")
    assert deadline is not None and deadline.args == (1200,)
