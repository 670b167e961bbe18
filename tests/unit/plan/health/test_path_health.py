# SPDX-License-Identifier: GPL-2.0-or-later
"""A host that lacks a path is said while the others still work, and not during a failover."""

from __future__ import annotations

import pytest

from sanctl.model.findings import Finding, Severity
from sanctl.model.host_session import SESSIONS_ATTRIBUTE, HostSession, format_sessions
from sanctl.ops.path_look import host_path_findings
from sanctl.ops.session import Session
from tests.fakes.pacemaker import FakeClock, FakePacemaker, FakeReporter

IQN, OTHER = "iqn.2026-11.net.example:host1", "iqn.2026-11.net.example:host2"


@pytest.fixture
def fake() -> FakePacemaker:
    """n1 serves vm1 to two initiators; both nodes have the list; all is some hours old."""
    fake = FakePacemaker(golden="one-device")
    for pair in fake.root.iter("nvpair"):
        if pair.get("name") == "initiators":
            pair.set("value", f"{IQN} {OTHER}")
    fake.tick()
    fake.tick()
    for operation in fake.root.iter("lrm_rsc_op"):
        operation.set("last-rc-change", "1799990000")
    say(fake, n1=[IQN, OTHER], n2=[IQN, OTHER])
    return fake


def say(fake: FakePacemaker, **nodes: list[str] | None) -> None:
    for node, iqns in nodes.items():
        text = "?" if iqns is None else format_sessions(HostSession("vm1", i, ()) for i in iqns)
        fake.private_attributes[node, SESSIONS_ATTRIBUTE] = text


def found(fake: FakePacemaker) -> list[Finding]:
    session = Session(fake, FakeClock(), FakeReporter())
    return list(host_path_findings(session, session.observe()))


def test_one_that_is_logged_in_through_one_node_is_named(fake: FakePacemaker) -> None:
    assert found(fake) == []
    say(fake, n2=[OTHER])
    (finding,) = found(fake)
    assert (finding.code, finding.severity) == ("SAN-HLT-146", Severity.NOTE)
    assert finding.subject == f"host {IQN}"
    assert "logged in to vm1 through n1, and not through n2" in finding.what


def test_one_that_is_logged_in_nowhere_is_off(fake: FakePacemaker) -> None:
    say(fake, n1=[OTHER], n2=[OTHER])
    assert found(fake) == []


def test_a_node_that_does_not_say_lacks_nothing(fake: FakePacemaker) -> None:
    say(fake, n2=None)
    assert found(fake) == []


@pytest.mark.parametrize(
    "how", ["away", "standby", "drained", "unserved", "just-started", "no-history", "list"]
)
def test_a_failover_and_what_follows_it_are_no_reason(fake: FakePacemaker, how: str) -> None:
    say(fake, n2=[])
    if how == "away":
        fake.crash("n2")
    elif how == "standby":
        fake.set_permanent("n2", "standby", "on")
        fake.tick()
    elif how == "drained":
        fake.attribute("n2", "sanctl.drained", "true")
    elif how == "unserved":
        del fake.roles["vm1", "n1"]
    elif how == "list":
        for pair in fake.root.iter("nvpair"):
            if pair.get("name") == "initiators":
                pair.set("value", f"{IQN}")
    else:
        when = "1799999800" if how == "just-started" else "?"
        for operation in fake.root.iter("lrm_rsc_op"):
            operation.set("last-rc-change", when)
    assert found(fake) == []
