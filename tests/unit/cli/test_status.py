# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl status`: a device's state and its active node, and the second look after a reload."""

from __future__ import annotations

import json

import pytest

from sanctl.model.crm_mon import Role
from tests.unit.cli.test_commands import FakeEnvironment, Run, data_of, env, run

__all__ = ["env", "run"]

_LINKED = "connection=Connected replication=Established peer-disk=UpToDate out-of-sync=0"


@pytest.fixture(autouse=True)
def _device(run: Run) -> None:
    assert run("device", "create", "vm1", "--size", "1G")[0] == 0


def _unknown_role(env: FakeEnvironment) -> None:
    """As after a reload: Pacemaker shows a standby, and the replica says that it serves."""
    env.pacemaker.roles["vm1", "n1"] = Role.UNPROMOTED


@pytest.mark.parametrize(
    ("words", "is_served"),
    [
        ("role=Primary suspended=fencing", True),
        ("role=Primary hung=disk:1764150000:-", True),
        ("role=Secondary", False),
    ],
)
def test_a_device_is_down_only_where_no_node_serves_it(
    run: Run, env: FakeEnvironment, words: str, is_served: bool
) -> None:
    env.pacemaker.attribute("n1", "sanctl-vm1", f"disk=UpToDate {_LINKED} {words}")
    if not is_served:
        _unknown_role(env)
    status, out, _ = run("status", "--output", "json")
    data = data_of(out)
    assert (status, data["summary"].split(":")[0]) == (1, "critical")
    (device,) = data["devices"]
    assert device["state"] == ("degraded" if is_served else "down")
    assert device["active_node"] == ("n1" if is_served else None)


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_role_that_is_shown_again_in_a_moment_degrades_nothing(
    run: Run, env: FakeEnvironment, output: str
) -> None:
    _unknown_role(env)
    status, out, _ = run("status", "--output", output)
    assert (status, "healthy" in out) == (0, True)


def test_a_role_that_stays_unknown_is_degraded_with_the_node_that_says_so(
    run: Run, env: FakeEnvironment
) -> None:
    _unknown_role(env)
    env.pacemaker.is_frozen = True
    began_s = env.clock.now
    status, out, _ = run("status")
    assert (status, "SAN-HLT-149" in out) == (1, True)
    assert 2 <= env.clock.now - began_s <= 3
    assert " ".join(out.split()).endswith("vm1 1 GiB degraded n1 n1 UpToDate, n2 UpToDate")
    status, out, _ = run("device", "show", "vm1")
    assert "active:       n1\n" in out
    for words in (("device", "show", "vm1"), ("target", "show", "vm1")):
        assert data_of(run(*words, "--output", "json")[1])["active_node"] == "n1"


def test_no_second_look_where_it_would_change_nothing(run: Run, env: FakeEnvironment) -> None:
    _unknown_role(env)
    env.pacemaker.crash("n3")
    began_s = env.clock.now
    status, out, _ = run("status", "--output", "json")
    assert (status, env.clock.now) == (1, began_s)
    codes = {finding["code"] for finding in json.loads(out)["data"]["findings"]}
    assert "SAN-HLT-149" in codes


def test_a_node_that_is_being_stopped_is_shown_so(run: Run, env: FakeEnvironment) -> None:
    env.pacemaker.shutting_down.add("n3")
    status, out, _ = run("status")
    assert (status, "n3    shutting down" in out, "node online" in out) == (1, True, False)
    node = data_of(run("status", "--output", "json")[1])["nodes"][2]
    assert (node["state"], node["standby_reason"]) == ("standby", "shutdown")
