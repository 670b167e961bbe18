# SPDX-License-Identifier: GPL-2.0-or-later
"""`snapshot schedule --group`: what it gives and shows, and what it refuses without a change."""

from __future__ import annotations

import json
import sys

import pytest

import sanctl.cli.environment
from sanctl.cli.main import main
from sanctl.model.point_hook import PointHook
from sanctl.model.point_schedule import parse_rules
from tests.support.json_contract import breaches
from tests.unit.ops.test_snapshot import Bed, bed_with_device, two_devices

RULES = "1h keep 24, 1d keep 7"


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    made = bed_with_device(monkeypatch)
    monkeypatch.setattr(sanctl.cli.environment, "Environment", lambda: made.env)
    two_devices(made, monkeypatch)
    return made


def typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["sanctl", "snapshot", "schedule", *words])
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr()
    return int(stop.value.code or 0), said.out + said.err


def test_it_is_given_to_all_shown_with_each_and_ended_for_all(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = typed(monkeypatch, capsys, "web", "db", RULES, "--group", "--output", "json")
    assert status == 0 and breaches("snapshot schedule", said) == []
    data = json.loads(said)["data"]
    assert [(each["device"], each["changed"]) for each in data] == [("web", True), ("db", True)]
    assert {tuple(each["schedule"]["group"]) for each in data} == {("db", "web")}
    schedules = bed.seen().cib.schedules
    assert schedules["web"] == schedules["db"] and schedules["web"].rules == parse_rules(RULES)
    assert "at the same moments as db" in typed(monkeypatch, capsys, "web")[1]
    # A part of the group is refused, whatever it is to have.
    for words in (("web", "off"), ("db", RULES), ("db", RULES, "--hook", "freeze")):
        status, said = typed(monkeypatch, capsys, *words)
        assert status == 4 and "SAN-SCHED-006" in said and "schedule db web" in said
    assert bed.seen().cib.schedules == schedules
    status, said = typed(monkeypatch, capsys, "db", "web", "off", "--group")
    assert status == 0 and said.count("none") == 2 and bed.seen().cib.schedules == {}
    status, said = typed(monkeypatch, capsys, "web", RULES)
    assert status == 0 and "same moments" not in said


def test_it_has_a_hook_for_all(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("web", "db", RULES, "--group", "--hook", "freeze", "--hook-limit", "20")
    status, said = typed(monkeypatch, capsys, *words)
    assert status == 0 and "hook freeze for 20 s at most, at the same moments as db" in said
    schedules = bed.seen().cib.schedules
    assert schedules["web"] == schedules["db"]
    assert schedules["web"].hook == PointHook("freeze", 20)
    # Given without a hook it has none.
    status, said = typed(monkeypatch, capsys, "web", "db", RULES, "--group")
    assert status == 0 and "hook" not in said and bed.seen().cib.schedules["db"].hook is None


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("web", "db", RULES), "SAN-SNAP-016"),
        (("web", RULES, "--group"), "SAN-SNAP-016"),
        (("web", "web", RULES, "--group"), "SAN-SNAP-016"),
        (("web", "db", RULES, "--group", "--hook", "../x"), "SAN-HOOK-001"),
        (("web", "db", "off", "--group", "--hook", "freeze"), "SAN-HOOK-001"),
        (("web", "db", "--group"), "SAN-SNAP-016"),
        (("web", "db", "log", "--group"), "SAN-SCHED-001"),
        (("web", "db", "1h", "--group"), "SAN-SCHED-001"),
    ],
)
def test_what_is_typed_wrong_changes_nothing(
    bed: Bed,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: str,
) -> None:
    status, said = typed(monkeypatch, capsys, *words)
    assert status == 2 and code in said
    assert bed.seen().cib.schedules == {}
