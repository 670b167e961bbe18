# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl bench failover`: numbers as they are typed, rows, the report, the exit status."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner, Result

from sanctl.errors import CommandError, NotConverged, Problem
from sanctl.lab.bench import many_devices
from sanctl.lab.bench.many_devices import failover_command
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.measure.cpu_cost import NodeCpu
from sanctl.lab.measure.failover_figures import Crash
from tests.support.json_contract import breaches

GOOD = Crash(
    pauses_s=(8.0, 9.5, 15.25),
    whole_s=92.4,
    errors=0,
    is_another_fenced=False,
    cib_changes=5,
    cib_cpu_s=3.2,
    cpu={"n1": NodeCpu(92.0, 71.5, 20.0, 31.0), "n3": NodeCpu(92.0, 11.0, 0.0, 7.0)},
    problem="",
)
ONE = dataclasses.replace(GOOD, pauses_s=(8.0,))
DEAD = dataclasses.replace(
    GOOD, cib_changes=None, cib_cpu_s=None, cpu={}, is_another_fenced=True, problem="waited 900 s"
)


def test_numbers_are_read_in_their_order() -> None:
    assert many_devices._counts("1,15,5") == (1, 15, 5)


@pytest.mark.parametrize("text", ["", "1,", "0", "five", "3,-1"])
def test_what_is_no_number_of_devices_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="1,5,15"):
        many_devices._counts(text)


def test_a_row_has_the_first_the_median_and_the_last_pause() -> None:
    row = many_devices._row(GOOD)
    assert row[:5] == ("3", "8.0 s", "9.5 s", "15.2 s", "92 s")
    assert "n1 72 s n3 11 s" in row
    assert len(row) == len(many_devices._COLUMNS)


def test_a_row_says_what_a_node_that_rebooted_does_not_tell() -> None:
    assert many_devices._row(DEAD)[4:9] == ("no", "?", "?", "?", "yes")


@pytest.mark.parametrize(
    ("printed", "limit"), [("23\n", 23), ("", None), ("0\n", None), ("INFINITY\n", None)]
)
def test_the_limit_of_the_cib_is_read(printed: str, limit: int | None) -> None:
    bed = SimpleNamespace(
        storage=[SimpleNamespace(name="n1")],
        sh=lambda *_words, **_given: SimpleNamespace(stdout=printed),
    )
    assert many_devices._action_limit(cast("LabSession", bed)) == limit


class StubDevices:
    """Devices of no laboratory; their ledgers lose nothing."""

    def __init__(self, _scenario: object, count: int, *_nodes: str) -> None:
        self.names = [str(number) for number in range(count)]
        self.created_s = 5.0
        result = {"acknowledged": 100, "lost": 0, "errors": 0}
        self.ledgers = SimpleNamespace(check=lambda: result)

    def create(self) -> None: ...

    def move_home(self) -> None: ...

    def await_whole(self) -> None: ...

    def delete(self) -> None: ...


class Bench:
    """The command with crashes that are given, and a folder for its report."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = folder
        self.crashes: Iterator[Crash | Exception] = iter(())
        nodes = [SimpleNamespace(name="n1"), SimpleNamespace(name="n2")]
        scenario = SimpleNamespace(bed=SimpleNamespace(storage=nodes))
        monkeypatch.setattr(many_devices, "scenario_without", lambda *_words: scenario)
        monkeypatch.setattr(many_devices, "versions", lambda _bed: "kernel 7\n")
        monkeypatch.setattr(many_devices, "_action_limit", lambda _bed: 2)
        monkeypatch.setattr(many_devices, "Devices", StubDevices)
        monkeypatch.setattr(many_devices, "crash", self._crash)

    def _crash(self, *_given: object) -> Crash:
        found = next(self.crashes)
        if isinstance(found, Exception):
            raise found
        return found

    def run(self, counts: str, *crashes: Crash | Exception, repeat: int = 1) -> Result:
        self.crashes = iter(crashes)
        words = ["--devices", counts, "--repeat", str(repeat), "--output", "json"]
        return CliRunner().invoke(failover_command, [*words, "--report", str(self.folder)])

    @property
    def report(self) -> dict[str, Any]:
        found = json.loads((self.folder / "failover.json").read_text())
        assert isinstance(found, dict)
        return found


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    return Bench(monkeypatch, tmp_path / "report")


def test_a_run_that_keeps_its_goals_exits_with_0(bench: Bench) -> None:
    done = bench.run("1,3", ONE, GOOD)
    assert done.exit_code == 0, done.output
    assert breaches("bench failover", done.stdout) == []
    # Told of before anything is created, and on the other stream.
    assert "node-action-limit is 2: of 3 devices 1 fail over in a second step" in done.stderr
    assert {path.name for path in bench.folder.iterdir()} == {
        "failover.json", "failover.svg", "failover.png",
    }  # fmt: skip
    assert bench.report == json.loads(done.stdout)["data"] | {
        "load_average": bench.report["load_average"]
    }
    assert [each["ratio"] for each in bench.report["summary"]] == [1.0, 1.91]


@pytest.mark.parametrize(
    "three",
    [
        dataclasses.replace(GOOD, pauses_s=(8.0, 9.0, 16.1)),
        dataclasses.replace(GOOD, errors=1),
        DEAD,
    ],
    ids=["too slow", "error", "another fenced"],
)
def test_a_goal_that_is_missed_is_an_exit_with_1(bench: Bench, three: Crash) -> None:
    done = bench.run("1,3", ONE, three)
    assert done.exit_code == 1
    assert breaches("bench failover", done.stdout) == []


def test_without_one_device_the_pause_of_the_last_does_not_count(bench: Bench) -> None:
    done = bench.run("3", dataclasses.replace(GOOD, pauses_s=(8.0, 9.0, 500.0)))
    assert done.exit_code == 0
    assert breaches("bench failover", done.stdout) == []
    assert bench.report["summary"][0]["ratio"] is None


@pytest.mark.parametrize("end", [NotConverged(Problem("SAN-X-001", "late")), KeyboardInterrupt()])
def test_a_run_that_is_interrupted_leaves_what_it_has_measured(
    bench: Bench, end: BaseException
) -> None:
    done = bench.run("1,3", ONE, ONE, GOOD, cast("Exception", end), repeat=2)
    assert done.exit_code != 0
    assert [each["devices"] for each in bench.report["crashes"]] == [1, 1, 3]
    assert bench.report["acknowledged"] == 100


def test_a_node_that_gives_no_answer_is_no_end_of_the_run() -> None:
    def sh(*_words: str) -> None:
        raise CommandError(Problem("SAN-X-001", "no answer"))

    bed = cast("LabSession", SimpleNamespace(sh=sh))
    assert many_devices._look(bed, "n1") == ""
    assert many_devices._grown(many_devices._ticks, bed, "n1", 7) is None
