# SPDX-License-Identifier: GPL-2.0-or-later
"""The inventory's timers for backups: what they do, and what is refused beforehand."""

from __future__ import annotations

import importlib
import shlex
import zlib
from pathlib import Path
from typing import Any

import click
import jinja2
import pytest
import yaml  # type: ignore[import-untyped]

from sanctl.cli.commands.backup import backup
from sanctl.rollout import inventory
from sanctl.rollout.backup_variables import KEYS, SPREAD_S, WAIT_S
from tests.unit.ansible.test_unit_templates import render, values
from tests.unit.rollout.test_inventory import GROUPS, hostvars

_ROLE = Path(__file__).resolve().parents[3] / "ansible/roles/sanctl_backups"
REPOSITORIES = {"nas": {"location": "/nas", "passphrase": "geheim"}}
VM1 = {"device": "vm1", "at": "02:00"}


def survey(entries: Any, repositories: Any = None) -> dict[str, Any]:
    variables = hostvars()
    for name in ("n1", "n2"):
        variables[name] |= {
            "sanctl_backups": entries,
            "sanctl_backup_repositories": REPOSITORIES if repositories is None else repositories,
        }
    return inventory.read_inventory(variables, GROUPS)


def problems(entries: Any, repositories: Any = None) -> list[str]:
    return list(survey(entries, repositories)["problems"])


def test_an_entry_becomes_a_timer() -> None:
    keep = {"weekly": 8, "daily": 2}
    found = survey([VM1, {**VM1, "device": "vm2", "repository": "nas", "wait_s": 60, "keep": keep}])
    assert found["problems"] == [] and "geheim" not in repr(found)
    assert found["backups"] == [
        {
            "unit": "sanctl-backup-vm1",
            "device": "vm1",
            "at": "02:00",
            "arguments": f"vm1 --skip-elsewhere --wait {WAIT_S}",
            "expected": "vm1",
            "delay_s": str(zlib.crc32(b"sanctl-backup-vm1") % SPREAD_S),
        },
        {
            "unit": "sanctl-backup-vm2.nas",
            "device": "vm2",
            "at": "02:00",
            "arguments": "vm2 --skip-elsewhere --wait 60 --repository nas "
            "--keep-daily 2 --keep-weekly 8",
            "expected": "vm2 --repository nas",
            "delay_s": str(zlib.crc32(b"sanctl-backup-vm2.nas") % SPREAD_S),
        },
    ]


def test_without_entries_there_are_no_timers() -> None:
    assert inventory.read_inventory(hostvars(), GROUPS)["backups"] == []
    assert survey([])["backups"] == [] and survey(None, {})["backups"] == []


def test_what_a_timer_starts_is_a_command() -> None:
    keep = dict.fromkeys(("last", "hourly", "daily", "weekly", "monthly", "yearly"), 1)
    entry = {**VM1, "repository": "nas", "keep": keep, "on_active": True}
    (timer,) = survey([entry])["backups"]
    unit = render(
        "sanctl_backups/templates/service.j2", item=timer, sanctl_backups_every={"02:00": 86400}
    )
    assert values(unit, "Type") == ["oneshot"]
    program, group, command, *words = values(unit, "ExecStart")
    assert (program, group, command) == ("/usr/sbin/sanctl", "backup", "run")
    run = backup.get_command(click.Context(backup), command)
    assert run is not None
    given = run.make_context("run", shlex.split(" ".join(words))).params
    assert given["device"] == "vm1" and given["skip_elsewhere"] and given["wait_s"] == WAIT_S
    assert given["on_active"] and given["every_s"] == 86400
    once = render(
        "sanctl_backups/templates/service.j2", item=timer, sanctl_backups_every={"02:00": 0}
    )
    assert "--every" not in once
    assert all(given[f"keep_{unit}"] == 1 for unit in keep)


def test_the_cluster_is_told_how_often_by_a_command() -> None:
    text = (_ROLE / "tasks/main.yml").read_text()
    tasks = [task for task in yaml.safe_load(text) if "backup expect" in str(task)]
    (task,) = tasks
    assert task["when"] == "sanctl_backups_files is changed"
    timers = survey([{**VM1, "repository": "nas"}, {**VM1, "device": "vm2", "at": "once"}])
    script = jinja2.Template(task["ansible.builtin.shell"]["cmd"]).render(
        sanctl_preflight_survey=timers, sanctl_backups_every={"02:00": 86400, "once": 0}
    )
    (line,) = (each for each in script.splitlines() if "expect" in each)
    assert line.endswith(" || :"), "the timer's first run tells of a device that is made later"
    words = shlex.split(line.removesuffix(" || :"))
    command = backup.get_command(click.Context(backup), "expect")
    assert words[:3] == ["/usr/sbin/sanctl", "backup", "expect"] and command is not None
    given = command.make_context("expect", words[3:]).params
    assert (given["device"], given["repository"], given["every_s"]) == ("vm1", "nas", 86400)


def test_all_nodes_look_at_the_same_moment() -> None:
    """Apart they may each leave the backup to the other, while the device moves."""
    (timer,) = survey([{**VM1, "at": "Mon..Fri 02:00"}])["backups"]
    unit = render("sanctl_backups/templates/timer.j2", item=timer)
    assert values(unit, "OnCalendar") == ["Mon..Fri", "02:00"]
    assert values(unit, "AccuracySec") == ["1s"]
    assert values(unit, "RandomizedDelaySec") == [] and values(unit, "Persistent") == []


def test_many_devices_of_one_moment_do_not_begin_at_once() -> None:
    timers = survey([{**VM1, "device": f"vm{number}"} for number in range(50)])["backups"]
    delays = [
        values(
            render(
                "sanctl_backups/templates/service.j2",
                item=timer,
                sanctl_backups_every={"02:00": 86400},
            ),
            "ExecStartPre",
        )
        for timer in timers
    ]
    assert {program for program, _ in delays} == {"/usr/bin/sleep"}
    waits = [int(wait_s) for _, wait_s in delays]
    assert all(0 <= wait_s < SPREAD_S for wait_s in waits)
    assert max(map(waits.count, waits)) <= 5


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ("vm1", "is no list"),
        ({"vm1": "02:00"}, "is no list"),
        (["vm1"], "no entry with a device"),
        ([{"at": "02:00"}], "no entry with a device"),
        ([{**VM1, "device": "VM 1"}], "VM 1"),
        ([{**VM1, "time": 1}], "time is unknown"),
        ([{"device": "vm1"}], "no calendar event"),
        ([{**VM1, "at": 43200}], "no calendar event in quotes"),
        ([{**VM1, "at": "02:00\nPersistent=true"}], "no calendar event"),
        ([{**VM1, "repository": "tape"}], "no repository 'tape'"),
        ([{**VM1, "repository": "Not/One"}], "no repository 'Not/One'"),
        ([{**VM1, "wait_s": "1h"}], "wait_s"),
        ([{**VM1, "wait_s": True}], "wait_s"),
        ([{**VM1, "keep": 14}], "how many backups"),
        ([{**VM1, "keep": {"day": 14}}], "how many backups"),
        ([{**VM1, "keep": {"daily": 0}}], "how many backups"),
        ([{**VM1, "on_active": "maybe"}], "on_active"),
        ([VM1, VM1], "twice"),
        ([VM1, {**VM1, "repository": "nas"}], "twice"),
    ],
)
def test_what_is_refused(entries: Any, text: str) -> None:
    (problem,) = problems(entries)
    assert problem.startswith("SAN-BKP-026: sanctl_backups: ") and text in problem


@pytest.mark.parametrize("known", [{}, [], {"nas": {}, "far": {}}])
def test_a_repository_is_named_where_there_is_not_one(known: Any) -> None:
    (problem,) = problems([VM1], known)
    assert "repositories, and none is named" in problem


def test_storage_nodes_have_the_same() -> None:
    variables = hostvars()
    variables["n2"]["sanctl_backups"] = [VM1]
    (problem,) = inventory.read_inventory(variables, GROUPS)["problems"]
    assert "is not the same on n2 and on n1" in problem


def test_the_role_states_the_default_that_is_used() -> None:
    yaml: Any = importlib.import_module("yaml")
    specs = yaml.safe_load((_ROLE / "meta/argument_specs.yml").read_text())
    options = specs["argument_specs"]["main"]["options"]["sanctl_backups"]["options"]
    assert options["wait_s"]["default"] == WAIT_S
    assert set(options) == KEYS and options["on_active"]["default"] is False


def test_a_device_is_backed_up_into_several_repositories() -> None:
    entries = [{**VM1, "repository": name} for name in ("nas", "far")]
    found = survey(entries, {"nas": {}, "far": {}})
    assert found["problems"] == []
    units = [each["unit"] for each in found["backups"]]
    assert units == ["sanctl-backup-vm1.nas", "sanctl-backup-vm1.far"]


def test_no_node_waits_for_another_one_that_is_down() -> None:
    assert "run_once" not in (_ROLE / "tasks/main.yml").read_text()
