# SPDX-License-Identifier: GPL-2.0-or-later
"""The sessions of hosts as nodes publish them, and the paths that a host has or lacks."""

from __future__ import annotations

import pytest

from sanctl.model.host import Host, HostName
from sanctl.model.host_session import HostSession, format_sessions, parse_sessions
from sanctl.model.names import Iqn
from sanctl.plan.host.access import plan_allow_host
from sanctl.plan.host.definition import plan_host_creation
from sanctl.plan.host.paths import host_paths
from tests.unit.ops.test_device import VM1, Bench

A, B = (f"iqn.2026-11.net.example:{each}" for each in "ab")


@pytest.mark.parametrize(
    "sessions",
    [
        (),
        (HostSession("vm1", A, ("10.0.0.7",)),),
        (
            HostSession("vm1", A, ("10.0.0.7", "[fd00::7]")),
            HostSession("vm1", B, ()),
            HostSession("vm2", A, ("10.0.0.7",)),
        ),
    ],
)
def test_sessions_are_read_as_they_are_published(sessions: tuple[HostSession, ...]) -> None:
    assert parse_sessions(format_sessions(sessions)) == sessions


def test_an_initiator_is_named_once_for_all_its_devices() -> None:
    text = format_sessions(HostSession(f"vm{number}", A, ("10.0.0.7",)) for number in range(3))
    assert text == f"{A},10.0.0.7=vm0,vm1,vm2"


def test_more_than_an_attribute_holds_is_not_known() -> None:
    many = [HostSession("vm1", f"{A}{number:0200}", ()) for number in range(999)]
    assert parse_sessions(format_sessions(many)) is None


@pytest.mark.parametrize("text", ["?", "=vm1", f"{A},10.0.0.7", f"{A},10.0.0.7="])
def test_what_cannot_be_read_is_not_known(text: str) -> None:
    assert parse_sessions(text) is None


def test_a_host_sees_which_paths_it_lacks() -> None:
    bench = Bench()
    bench.create()
    web = Host(name=HostName(value="web1"), iqns=(Iqn(value=A), Iqn(value=B)))
    bench.session.change(lambda seen: plan_host_creation(seen, web))
    bench.session.change(lambda seen: plan_allow_host(seen, VM1, web.name))
    cluster = bench.session.observe()
    active = cluster.active_node(VM1)
    (standby,) = {"n1", "n2"} - {str(active)}
    name = "sanctl.sessions"
    bench.cluster.private_attributes[str(active), name] = f"{A},10.0.0.7=vm1,vm2"
    del bench.cluster.private_attributes[standby, name]
    said = bench.session.host_sessions()
    assert {
        (path.node.value, path.iqn.value): (path.state, path.addresses)
        for path in host_paths(cluster, web, said)
    } == {
        (active, A): ("active", ("10.0.0.7",)),
        (active, B): ("active", ()),
        # It has not said anything: that is not a missing session.
        (standby, A): ("standby", None),
        (standby, B): ("standby", None),
    }
