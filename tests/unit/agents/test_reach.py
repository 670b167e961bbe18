# SPDX-License-Identifier: GPL-2.0-or-later
"""ocf:sanctl:reach: what is published when, and what an error of a look leaves as it is."""

from __future__ import annotations

import errno
import os
import time
from ipaddress import ip_address

import pytest

from sanctl.agents import ocf, reach
from sanctl.agents.publish import attrd_cache
from sanctl.drivers import icmp_echo
from sanctl.errors import CommandError, Problem
from sanctl.model.cib_names import REACH_ATTRIBUTE
from sanctl.plan.device.short_monitor import MINUTE_S
from sanctl.plan.failover.reach import Look, Watch
from tests.fakes.node import FakeNode

HOST, SWITCH = ip_address("192.0.2.1"), ip_address("192.0.2.2")
BOTH = Look(frozenset({HOST, SWITCH}), ())
NONE = Look(frozenset(), ())
UNKNOWN = Look(frozenset(), ((HOST, errno.ENOBUFS), (SWITCH, errno.ENETUNREACH)))


class Watched:
    """A node with the agent's parameters, and what its next look sees."""

    def __init__(self, node: FakeNode) -> None:
        self.node = node
        self.sees = BOTH
        self.looks = 0

    def look(self, watch: Watch) -> Look:
        assert watch == Watch((HOST, SWITCH), 2, 1.0, "8s")
        self.looks += 1
        return self.sees

    def act(self, action: str) -> tuple[int, list[str]]:
        """Carry out an action; return its status, and what attrd_updater was told."""
        before = len(self.node.calls)
        status = reach.main(["reach", action])
        told = [argv for argv, _ in self.node.calls[before:]]
        assert all(argv[:3] == ("attrd_updater", "--name", REACH_ATTRIBUTE) for argv in told)
        return status, [" ".join(argv[3:]) for argv in told]

    def age(self, age_s: float) -> None:
        path = attrd_cache.of_reach().path
        os.utime(path, (time.time() - age_s,) * 2)


@pytest.fixture
def watched(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> Watched:
    made = Watched(fake_node)
    monkeypatch.setattr(icmp_echo, "look", made.look)
    monkeypatch.setattr(attrd_cache, "attrd_pid", lambda: "7")
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_interval", "5000")
    values = {"host_list": "192.0.2.1 192.0.2.2", "dampen": "8s", "attempts": "2", "timeout": "1"}
    for name, value in {"name": REACH_ATTRIBUTE, **values}.items():
        monkeypatch.setenv(f"OCF_RESKEY_{name}", value)
    return made


TWO = ["--update-both=2 --delay=8s"]
ZERO = ["--update-both=0 --delay=8s"]


def test_a_start_publishes_and_a_stop_deletes(watched: Watched) -> None:
    assert watched.act("monitor") == (ocf.NOT_RUNNING, [])
    assert watched.act("start") == (ocf.SUCCESS, TWO)
    assert watched.act("stop") == (ocf.SUCCESS, ["--delete"])
    assert watched.act("monitor") == (ocf.NOT_RUNNING, [])
    assert watched.act("stop") == (ocf.SUCCESS, ["--delete"]), "a second stop is one, too"
    assert watched.act("start") == (ocf.SUCCESS, TWO), "what was published before has gone"


def test_a_start_publishes_whatever_is_noted(watched: Watched) -> None:
    """A node that was killed has a note of what the cluster has forgotten meanwhile."""
    watched.act("start")
    assert watched.act("start") == (ocf.SUCCESS, TWO)


def test_the_same_count_is_given_once_a_minute_and_another_at_once(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.act("start")
    assert watched.act("monitor") == (ocf.SUCCESS, [])
    watched.age(MINUTE_S - 2.0)
    assert watched.act("monitor") == (ocf.SUCCESS, [])
    watched.age(MINUTE_S + 1.0)
    assert watched.act("monitor") == (ocf.SUCCESS, TWO)
    assert watched.act("monitor") == (ocf.SUCCESS, [])
    watched.sees = NONE
    assert watched.act("monitor") == (ocf.SUCCESS, ZERO), "none that answers is no failure"
    assert watched.act("monitor") == (ocf.SUCCESS, [])
    monkeypatch.setattr(attrd_cache, "attrd_pid", lambda: "8")
    assert watched.act("monitor") == (ocf.SUCCESS, ZERO), "a new attrd has nothing"
    attrd_cache.have_published_again(attrd_cache.of_reach())
    assert watched.act("monitor") == (ocf.SUCCESS, ZERO)
    watched.sees = BOTH
    assert watched.act("monitor") == (ocf.SUCCESS, TWO)
    assert watched.looks == 10, "each monitor looks"


def test_another_dampening_is_given_at_once(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.act("start")
    monkeypatch.setattr(icmp_echo, "look", lambda _watch: BOTH)
    monkeypatch.setenv("OCF_RESKEY_dampen", "20s")
    assert watched.act("monitor") == (ocf.SUCCESS, ["--update-both=2 --delay=20s"])


def test_changes_are_logged_with_what_is_silent(watched: Watched) -> None:
    watched.act("start")
    watched.age(MINUTE_S + 1.0)
    watched.act("monitor")
    watched.sees = Look(frozenset({SWITCH}), ())
    watched.act("monitor")
    watched.act("monitor")
    assert watched.node.journal == [
        "2 of 2 addresses of the iscsi network answer",
        "1 of 2 addresses of the iscsi network answer, not 192.0.2.1",
    ]


def test_a_probe_looks_at_nothing(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_interval", "0")
    assert watched.act("monitor") == (ocf.NOT_RUNNING, [])
    watched.act("start")
    watched.sees = NONE
    assert watched.act("monitor") == (ocf.SUCCESS, [])
    assert watched.looks == 1


def test_a_look_that_could_not_be_made_publishes_nothing(
    watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 would have devices leave a node that is short of memory."""
    watched.act("start")
    watched.sees = UNKNOWN
    watched.age(119.0)
    assert watched.act("monitor") == (ocf.SUCCESS, [])
    assert "192.0.2.1: ENOBUFS" in watched.node.journal[-1]
    assert "192.0.2.2" not in watched.node.journal[-1]
    assert capsys.readouterr().err == ""
    watched.age(121.0)
    assert watched.act("monitor") == (ocf.ERR_GENERIC, []), "an old value does not stand for ever"
    assert "ocf-exit-reason:SAN-AGENT-019" in capsys.readouterr().err
    watched.sees = BOTH
    assert watched.act("monitor") == (ocf.SUCCESS, TWO)


def test_a_start_without_a_look_fails(watched: Watched) -> None:
    watched.sees = UNKNOWN
    assert watched.act("start") == (ocf.ERR_GENERIC, [])
    assert watched.act("monitor") == (ocf.ERR_GENERIC, []), "nothing was published that could stand"


def test_what_attrd_has_not_taken_is_given_by_the_next_monitor(watched: Watched) -> None:
    watched.act("start")
    watched.sees = NONE
    watched.node.answer = CommandError(Problem("SAN-CMD-002", "no answer"))
    assert watched.act("monitor") == (ocf.SUCCESS, ZERO)
    watched.node.answer = ""
    assert watched.act("monitor") == (ocf.SUCCESS, ZERO)
    watched.node.answer = CommandError(Problem("SAN-CMD-002", "no answer"))
    watched.age(121.0)
    assert watched.act("monitor")[0] == ocf.ERR_GENERIC
    status, called = watched.act("stop")
    assert status == ocf.ERR_GENERIC
    assert set(called) == {"--delete"}
    assert len(called) > 1, "nobody deletes it later"
    assert watched.act("monitor") == (ocf.NOT_RUNNING, []), "stopped all the same"


@pytest.mark.parametrize("name", ["name", "host_list", "dampen", "attempts", "timeout"])
def test_each_parameter_is_needed_and_checked_before_anything_is_done(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert watched.act("validate-all") == (ocf.SUCCESS, [])
    if name != "name":
        monkeypatch.setenv(f"OCF_RESKEY_{name}", "?")
        assert watched.act("validate-all") == (ocf.ERR_GENERIC, [])
        assert watched.act("start") == (ocf.ERR_GENERIC, [])
        assert watched.act("monitor") == (ocf.NOT_RUNNING, [])
    monkeypatch.delenv(f"OCF_RESKEY_{name}")
    assert watched.act("validate-all") == (ocf.ERR_CONFIGURED, [])
