# SPDX-License-Identifier: GPL-2.0-or-later
"""What a monitor imports: it is started every ten seconds for each device."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.doc_samples import ROOT

_LISTS = """
import sys
sys.path.insert(0, sys.argv[1])
import sanctl.agents.device
print(*sys.modules)
"""


def test_a_devices_monitor_imports_nothing_that_it_seldom_needs() -> None:
    """Dataclasses (with `inspect`) cost a third of all other imports; uuid, json, XML a third."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", _LISTS, str(ROOT)], check=True, capture_output=True, text=True
    )
    assert "sanctl.agents.device" in done.stdout.split()
    assert not {"dataclasses", "hashlib", "hmac", "inspect", "json", "uuid", "xml"} & set(
        done.stdout.split()
    )


#: What actions and handlers run, each in a process of its own.
_PACKAGES = ("agents", "drivers", "model", "parse", "system")
#: Only after a program that failed.
_SELDOM = {"sanctl/system/runner.py"}


def compiled_in_functions(source: str) -> Iterator[int]:
    """Find the lines of functions that hand a regular expression's text to `re`."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for each in ast.walk(function):
            if (
                isinstance(each, ast.Call)
                and isinstance(each.func, ast.Attribute)
                and isinstance(each.func.value, ast.Name)
                and each.func.value.id == "re"
                and each.func.attr != "escape"
            ):
                yield each.lineno


@pytest.mark.parametrize("package", _PACKAGES)
def test_patterns_are_compiled_when_a_module_is_imported(package: str) -> None:
    """A forked process would compile those of its functions anew: 0.25 ms of a monitor's 3 ms."""
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "sanctl" / package).rglob("*.py"))
        if str(path.relative_to(ROOT)) not in _SELDOM
        for line in compiled_in_functions(path.read_text())
    ]
    assert not found


def test_a_pattern_within_a_function_is_found() -> None:
    source = Path(__file__).read_text()
    assert not list(compiled_in_functions(source))
    inside = "import re\ndef f(text):\n    return re.search('x', text)\n"
    assert list(compiled_in_functions(inside)) == [3]
    assert not list(compiled_in_functions("import re\nX = re.compile('x')\n"))
