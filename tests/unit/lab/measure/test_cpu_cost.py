# SPDX-License-Identifier: GPL-2.0-or-later
"""Processor time: children count, sleep does not, programs take turns."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sanctl.errors import CommandError
from sanctl.lab.measure import cpu_cost
from sanctl.lab.measure.cpu_cost import Program


def program(text: str, *ok: int) -> Program:
    return Program(argv=(sys.executable, "-c", text), env={}, ok=frozenset(ok or (0,)))


def printed(programs: dict[str, Program], repeat: int) -> str:
    return subprocess.run(
        [sys.executable, "-I", "-", cpu_cost.script_argument(programs, repeat)],
        input=cpu_cost.SCRIPT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_children_count_and_sleep_does_not() -> None:
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    programs = {
        "burns in a child": program(
            f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
        ),
        "sleeps": program("import time; time.sleep(0.3)"),
    }
    found = cpu_cost.parse_costs(programs, printed(programs, 3))
    assert found["burns in a child"].runs == 3
    assert found["burns in a child"].cpu_s >= 0.2
    assert found["sleeps"].cpu_s < 0.15 < found["sleeps"].wall_s


def test_they_take_turns() -> None:
    programs = {"a": program(""), "b": program("")}
    order = [line.split()[0] for line in printed(programs, 2).splitlines()]
    assert order == ["b", "a", "a", "b"]


def test_the_median_is_reported() -> None:
    text = "a 0 1.0 2.0\na 0 9.0 9.0\na 8 2.0 3.0\n"
    found = cpu_cost.parse_costs({"a": program("", 0, 8)}, text)["a"]
    assert (found.cpu_s, found.wall_s, found.runs) == (2.0, 3.0, 3)


def test_what_comes_before_a_run_is_not_measured(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    before = shlex.join([sys.executable, "-c", burn]) + f"; echo x >> {tmp_path}/runs"
    programs = {"a": replace(program(""), before=before)}
    assert cpu_cost.parse_costs(programs, printed(programs, 3))["a"].cpu_s < 0.25
    assert (tmp_path / "runs").read_text() == "x\n" * 4


def test_what_a_node_does_is_the_difference_of_two_looks() -> None:
    found = cpu_cost.cpu_between("10.0\n100\n1000000\n2000000\n", "40.5\n350\n1500000\n5000000\n")
    assert found == (30.5, 2.5, 0.5, 3.0)


def test_a_service_that_a_node_does_not_have_takes_no_time() -> None:
    """As sanctl-actions.service on a witness; here, units that are on no machine."""
    script = cpu_cost.CPU_SCRIPT.replace("$unit.service", "sanctl-no-$unit.service")
    printed = subprocess.run(
        ["sh", "-ec", script], capture_output=True, text=True, check=True
    ).stdout
    assert len(printed.split()) == 4
    assert printed.split()[2:] == ["0", "0"]
    assert cpu_cost.cpu_between(printed, printed) == (0, 0, 0, 0)


def test_a_failure_is_no_price() -> None:
    with pytest.raises(CommandError, match="status 7"):
        cpu_cost.parse_costs({"a b": program("")}, "a b 7 0.1 0.1\n")
