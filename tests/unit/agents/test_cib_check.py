# SPDX-License-Identifier: GPL-2.0-or-later
"""The pool agent has a device's next monitor do what the CIB shows to be due, and no other's."""

from __future__ import annotations

import errno
import xml.etree.ElementTree as ET

import pytest

from sanctl.agents import cib_check, pool, pool_attributes
from sanctl.agents.publish import attrd_cache
from sanctl.drivers import cib
from sanctl.errors import CommandError, Problem
from sanctl.system import state_files
from tests.fakes.node import FakeNode

OWN = {"sanctl-pool-main": "total=1"}
SERVED = "connection=Connected replication=Established peer-disk=UpToDate role=Primary"
ALONE = SERVED.replace("=Connected", "=Connecting")
MARK = "sanctl-outdated-vm{}.n2.0a1b"


@pytest.fixture
def node(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    """Two devices, vm1 and vm2, published some minutes ago, whose monitors are short."""
    monkeypatch.setattr(attrd_cache, "attrd_pid", lambda: "7")
    for name in ("vm1", "vm2"):
        state_files.of_device(name, "published").write(SERVED)
        state_files.of_device(name, "fingerprint").write("status\nend\n")
        attrd_cache.record(attrd_cache.of_score(name), "7", "9000")
        attrd_cache.record(attrd_cache.of_device(name), "7", SERVED)
        fake_node.age(name, "attrd-cache.score", 300.0)
        fake_node.age(name, "attrd-cache.state", 300.0)
    return fake_node


def due() -> set[str]:
    """Return which records the next whole monitors write again, `*` behind one that is short."""
    return {
        f"{name} {kind}{'*' * state_files.of_device(name, 'fingerprint').exists()}"
        for name in ("vm1", "vm2")
        for kind in ("score", "state")
        if (state_files.of_device(name, f"attrd-cache.{kind}").age_s() or 0.0) > 1e6
    }


def scores(**changes: str) -> dict[str, str]:
    return {
        f"master-{name}": value
        for name, value in ({"vm1": "9000", "vm2": "9000"} | changes).items()
    }


def test_where_the_cib_has_all_and_no_mark_monitors_stay_short(node: FakeNode) -> None:
    cib_check.have_done(OWN | scores(), has_lost_all=False)
    assert due() == set()
    assert not node.calls and not node.journal


@pytest.mark.parametrize("value", ["", "10000", "-INFINITY"])
def test_a_lost_score_is_published_by_the_next_monitor(node: FakeNode, value: str) -> None:
    cib_check.have_done(OWN | scores(vm2=value), has_lost_all=False)
    assert due() == {"vm2 score"}
    assert [line for line in node.journal if "vm2" in line and "score" in line]
    assert state_files.of_device("vm1", "fingerprint").exists()


@pytest.mark.parametrize(
    ("age_s", "pid"),
    # pacemaker-attrd may not have written it yet; or all monitors publish to the new process.
    [(29.0, "7"), (300.0, "8"), (300.0, "")],
)
def test_a_score_that_may_be_on_its_way_is_not_lost(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, age_s: float, pid: str
) -> None:
    node.age("vm2", "attrd-cache.score", age_s)
    node.age("vm1", "attrd-cache.score", age_s)
    monkeypatch.setattr(attrd_cache, "attrd_pid", lambda: pid)
    cib_check.have_done(OWN, has_lost_all=False)
    assert due() == set()


def test_after_a_restart_of_the_controller_attrd_writes_all(node: FakeNode) -> None:
    """Fifty monitors at once would do nothing for that: attrd takes no value that it has."""
    cib_check.have_done({}, has_lost_all=True)
    assert due() == set()


def test_a_replica_that_stops_meanwhile_is_left_alone(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attrd_cache, "published_fields", lambda _cached: [])
    cib_check.have_done(OWN, has_lost_all=False)
    assert due() == set()


@pytest.mark.parametrize("mark", [MARK.format(1), "sanctl-outdated-vm1"])
def test_a_mark_of_a_peer_in_sync_is_cleared_by_the_next_monitor(node: FakeNode, mark: str) -> None:
    """The connection was lost and made again between two monitors: nothing else has changed."""
    cib_check.have_done(OWN | scores() | {mark: ""}, has_lost_all=False)
    assert due() == {"vm1 state"}


def test_marks_of_peers_that_are_away_make_no_monitor_whole(node: FakeNode) -> None:
    state_files.of_device("vm1", "published").write(ALONE)
    marks = {MARK.format(1): "", MARK.format(9): ""}
    cib_check.have_done(OWN | scores() | marks, has_lost_all=False)
    assert due() == set()
    assert state_files.of_device("vm1", "fingerprint").exists()
    assert not state_files.of_device("vm9", "fingerprint").exists()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        CommandError(Problem("SAN-CMD-002", "Input/output error")),
        ValueError("Input/output error"),
    ],
    ids=repr,
)
def test_what_cannot_be_read_ends_no_monitor_of_the_pools(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(_cached: object) -> None:
        raise error

    monkeypatch.setattr(attrd_cache, "have_published_again", fail)
    cib_check.have_done(OWN, has_lost_all=False)
    assert any("Input/output error" in line for line in node.journal)
    assert state_files.of_device("vm1", "fingerprint").exists()


def test_the_pool_agent_reads_scores_and_marks_with_all_else(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    answer = ET.fromstring(
        "<xpath-query>"
        "<nvpair id='a' name='sanctl-pool-main' value='total=1'/>"
        "<nvpair id='b' name='master-vm1' value='9000'/>"
        f"<rsc_location id='{MARK.format(2)}' rsc='sanctl-vm2' node='n2' score='-INFINITY'/>"
        "<nvpair id='vm1-params-uuid' name='uuid' value='5d4c'/>"
        "<nvpair id='vm2-params-uuid' name='uuid' value='6e5d'/>"
        "</xpath-query>"
    )

    def query(_runner: object, xpath: str) -> ET.Element:
        asked.append(xpath)
        return answer

    monkeypatch.setattr(cib, "query", query)
    found = pool_attributes.read(node)
    placed = {"uuid 5d4c": "5d4c", "uuid 6e5d": "6e5d"}
    own = {"sanctl-pool-main": "total=1", "master-vm1": "9000"}
    assert found == own | {MARK.format(2): ""} | placed
    assert len(asked) == 1
    for part in (
        "node_state[@uname='n1']/transient_attributes//nvpair[",
        "starts-with(@name,'master-')",
        "rsc_location[starts-with(@id,'sanctl-outdated-')][@node!='n1']",
        "node[@uname!='n1']//nvpair[starts-with(@name,'sanctl-outdated-')]",
        "@name='nodes' and contains(concat(' ',normalize-space(@value),' '),' n1 ')",
    ):
        assert part in asked[0]
    cib_check.have_done(found, has_lost_all=False)
    assert due() == {"vm2 score", "vm2 state"}


def test_the_monitor_of_the_pools_looks_and_its_start_does_not(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(pool_attributes, "read", lambda _runner: OWN)
    monkeypatch.setattr(pool, "_pools_here", list)
    monkeypatch.setattr(pool, "_keep_points_up", lambda *_, **__: None)
    monkeypatch.setattr(
        cib_check, "have_done", lambda _found, *, has_lost_all: seen.append(has_lost_all)
    )
    pool._check_pools_or_log(may_mount=False)
    assert seen == []
    pool._check_pools_or_log()
    assert seen == [False]
