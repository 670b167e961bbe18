# SPDX-License-Identifier: GPL-2.0-or-later
"""Before a device has one replica the commands say what that means, and ask a person."""

from __future__ import annotations

import click
import pytest

from tests.unit.cli.test_commands import FakeEnvironment, Run, env, run

__all__ = ["env", "run"]
CREATE = ("device", "create", "vm1", "--size", "1G", "--replicas")


def test_a_script_is_told_and_not_asked(run: Run) -> None:
    status, _, err = run(*CREATE, "1")
    assert status == 0
    assert "device vm1 with one replica: hosts wait while its node is away" in err
    assert "with the cache policy write-through it is not" in err


def test_write_through_loses_nothing_with_the_power(run: Run) -> None:
    status, _, err = run(*CREATE, "1", "--cache", "write-through")
    assert status == 0
    assert "with one replica" in err and "power" not in err


def test_two_replicas_need_no_words(run: Run) -> None:
    assert "one replica" not in run(*CREATE, "2")[2]


def test_a_person_who_says_no_changes_nothing(
    run: Run, env: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)

    def refuse(*_words: object, **_options: object) -> None:
        raise click.Abort

    monkeypatch.setattr(click, "confirm", refuse)
    assert run(*CREATE, "1")[0] == 2
    assert env.records == []
    assert run(*CREATE, "1", "--yes")[0] == 0


def test_a_change_to_one_replica_says_it_once(run: Run) -> None:
    assert run(*CREATE, "2")[0] == 0
    assert "with one replica" in run("device", "replicas", "vm1", "1", "--timeout", "0")[2]
