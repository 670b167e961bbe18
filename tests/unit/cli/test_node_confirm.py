# SPDX-License-Identifier: GPL-2.0-or-later
"""A node is confirmed as off only where it is not plainly on, and only by who types its name."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Collection
from types import SimpleNamespace

import pytest

import sanctl.cli.environment
from sanctl.cli.main import main
from sanctl.drivers import corosync
from sanctl.errors import CommandError, ExitStatus, Problem
from sanctl.model.topology import Address, Topology
from sanctl.parse.corosync import Membership
from tests.fakes.runner import FakeRunner
from tests.fakes.stonith import FakeStonith
from tests.fakes.topology import topology
from tests.support.json_contract import breaches
from tests.unit.cli.test_node_drain import Environment

Run = Callable[..., tuple[int, str, str]]


class Lost(Environment):
    """n1 is lost, and nothing could fence it; the command runs on n2."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = FakeRunner(lambda _: "")
        self.stonith = FakeStonith()
        self.stonith.on_confirm = self.pacemaker.crash
        self.host = SimpleNamespace(node_name=lambda: "n2")
        self.members = {"n2", "n3"}
        self.is_quorate = True
        self.answering: set[str] = set()
        self.pinged: set[str] = set()
        self.pacemaker.states["n1"] = "unclean"

    def topology(self) -> Topology:
        return topology()

    def ping(self, addresses: Collection[Address]) -> frozenset[Address]:
        self.pinged = {str(each) for each in addresses}
        return frozenset(each for each in addresses if str(each) in self.answering)

    def membership(self, _: object) -> Membership:
        return Membership(self.is_quorate, frozenset(self.members))


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> Lost:
    fake = Lost()
    monkeypatch.setattr(sanctl.cli.environment, "Environment", lambda: fake)
    monkeypatch.setattr(corosync, "membership", fake.membership)
    return fake


@pytest.fixture
def run(lost: Lost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def typed(*words: str, answer: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        monkeypatch.setattr(sys, "argv", ["sanctl", "node", "confirm-off", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        done = capsys.readouterr()
        return int(stop.value.code or 0), done.out, done.err

    return typed


def test_who_types_its_name_has_it_taken_for_fenced(lost: Lost, run: Run) -> None:
    status, out, err = run("n1", answer="n1\n")
    assert (status, lost.stonith.confirmed) == (ExitStatus.OK, ["n1"]), err
    assert "two nodes serve" in err and "pulled its cords" in err
    assert "n1 counts as fenced" in out and "joins by itself" in out
    assert lost.pinged == {"10.77.1.1", "10.77.2.1", "10.77.3.1"}
    status, out, err = run("n1", "--yes")
    assert (status, lost.stonith.confirmed) == (ExitStatus.OK, ["n1"]), err
    assert "nothing to do" in out


@pytest.mark.parametrize("answer", ["", "\n", "y\n", "yes\n", "n2\n"])
def test_nothing_else_confirms_it(lost: Lost, run: Run, answer: str) -> None:
    status, _, err = run("n1", answer=answer)
    assert status == ExitStatus.USAGE, err
    assert lost.stonith.confirmed == []


def test_a_script_says_yes(lost: Lost, run: Run) -> None:
    status, out, err = run("n1", "--yes", "--output", "json")
    assert (status, lost.stonith.confirmed) == (ExitStatus.OK, ["n1"]), err
    assert breaches("node confirm-off", out) == []


@pytest.mark.parametrize("words", [("n1",), ("n1", "--yes")])
@pytest.mark.parametrize(
    "sign", ["member", "answers", "online", "pending", "corosync", "here", "unknown"]
)
def test_a_node_that_is_plainly_on_is_refused(
    lost: Lost, run: Run, words: tuple[str, ...], sign: str
) -> None:
    code = "SAN-FEN-007"
    if sign == "member":
        lost.members.add("n1")
    elif sign == "answers":
        lost.answering = {"10.77.2.1"}
    elif sign == "here":
        lost.host = SimpleNamespace(node_name=lambda: "n1")
    elif sign == "corosync":
        # As it reads where Corosync could not be asked.
        lost.is_quorate, lost.members, code = False, set(), "SAN-CLU-001"
    elif sign == "unknown":
        words, code = ("n9", *words[1:]), "SAN-NODE-001"
    else:
        lost.pacemaker.states["n1"] = sign
    status, _, err = run(*words, answer="n1\n")
    assert status == ExitStatus.REFUSED and code in err, err
    assert "Type the node's name" not in err
    assert lost.stonith.confirmed == []


def test_a_quorum_that_pacemaker_has_not_heard_of_yet_counts(lost: Lost, run: Run) -> None:
    """What broke: the one node of two that is back has just been given it by the operator."""
    lost.pacemaker.has_quorum = False
    status, _, err = run("n1", "--yes")
    assert (status, lost.stonith.confirmed) == (ExitStatus.OK, ["n1"]), err


def test_it_is_looked_at_again_after_the_answer(
    lost: Lost, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has switched it on meanwhile."""
    seen = iter([Membership(True, frozenset({"n2"})), Membership(True, frozenset({"n1", "n2"}))])
    monkeypatch.setattr(corosync, "membership", lambda _: next(seen))
    status, _, err = run("n1", answer="n1\n")
    assert status == ExitStatus.REFUSED and "member of Corosync" in err
    assert lost.stonith.confirmed == []


def test_nobody_who_was_not_asked_confirms_it(
    lost: Lost, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster begins to wait for the fencing between both looks."""
    lost.pacemaker.states["n1"] = "offline"
    looks: list[None] = []

    def membership(_: object) -> Membership:
        looks.append(None)
        lost.pacemaker.states["n1"] = "unclean"
        return Membership(True, frozenset({"n2", "n3"}))

    monkeypatch.setattr(corosync, "membership", membership)
    status, _, err = run("n1", answer="n1\n")
    assert status == ExitStatus.REFUSED and "SAN-FEN-007" in err
    assert (len(looks), lost.stonith.confirmed) == (2, [])


def test_corosync_that_does_not_answer_is_no_absence(
    lost: Lost, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> Membership:
        raise CommandError(Problem("SAN-CMD-002", "no answer"))

    monkeypatch.setattr(corosync, "membership", fails)
    assert run("n1", "--yes")[0] == ExitStatus.COMMAND
    assert lost.stonith.confirmed == []


def test_what_the_cluster_has_not_taken_is_said(lost: Lost, run: Run) -> None:
    lost.stonith.on_confirm = lambda _: None
    status, _, err = run("n1", "--yes", "--timeout", "5")
    assert status == ExitStatus.NOT_CONVERGED and "n1 is unclean" in err
    lost.stonith.fails = True
    status, _, err = run("n1", "--yes")
    assert status == ExitStatus.COMMAND and "SAN-FEN-008" in err
