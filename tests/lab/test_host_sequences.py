# SPDX-License-Identifier: GPL-2.0-or-later
"""What clusters of Windows and of ESXi send to a disk that they share, replayed.

Neither runs in the laboratory. Two initiators, each with a path to both nodes, send what those
systems send by descriptions, not by traces: a clustered disk's arbitration by persistent
reservations, with the owner's reads each three seconds and the six that a challenger waits, and
VMFS' heartbeats by COMPARE AND WRITE. Meanwhile the disk moves, and nodes lose their power.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import heartbeat_runner
from tests.support.cluster_host import (
    BACK_S,
    CHALLENGER_WAITS_S,
    KEYS,
    SERVED_S,
    TYPE,
    TYPE_TEXT,
    WHERE,
    ClusterHosts,
    other,
    owner,
)

pytestmark = [pytest.mark.in_order]

NAME = "replay0"
#: ESXi sends one each three seconds; more of them are under way at a fault here.
BEAT_S = 0.5
MISCOMPARE = 14
#: After which a host gives up a command that is not answered (sg_persist), and resets the disk.
GIVEN_UP_S = 60.0


@pytest.fixture(scope="module")
def hosts(scenario: Scenario) -> Iterator[ClusterHosts]:
    """A device with reservations on, served by n1, at which both hosts are logged in."""
    with ClusterHosts(scenario, NAME).sharing(where=WHERE) as found:
        yield found


def test_both_register_by_every_path(hosts: ClusterHosts) -> None:
    """MPIO sends a registration by all paths; the standby's is asked first here."""
    for host in (0, 1):
        hosts.register_by_every_path(host)
    hosts.await_whole()
    for host in (0, 1):
        for node in ("n1", "n2"):
            assert hosts.keys(host, node) == sorted(KEYS)
            assert hosts.holder(host, node) is None


@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_the_owner_defends_through_a_move_and_a_power_cut(hosts: ClusterHosts) -> None:
    """Each three seconds it reads the same, by whichever path; nothing is registered anew."""
    hosts.await_whole()
    first = hosts.active
    assert hosts.out(0, first, f"--reserve --param-rk={KEYS[0]:x} {TYPE}") == 0
    hosts.start_arbitration(0, "defend")
    try:
        hosts.await_rounds(0, first)
        second = hosts.move()
        hosts.await_rounds(0, second)
        hosts.scenario.bed.cut_power(second)
        try:
            hosts.await_rounds(0, first)
        finally:
            hosts.scenario.bed.ensure_power(second)
        hosts.await_whole()
        hosts.await_rounds(0, hosts.active)
    finally:
        hosts.stop_arbitration(0)
    rounds = hosts.rounds(0)
    answered = [each for each in rounds if each["node"]]
    print(f"{len(rounds)} rounds, {len(answered)} answered")
    assert {each["node"] for each in answered} == {"n1", "n2"}
    wanted = {"keys": sorted(KEYS), "holder": KEYS[0], "type": TYPE_TEXT}
    assert [each for each in answered if {**each, "node": ""} != {**wanted, "node": ""}] == []
    for host in (0, 1):
        assert hosts.write(host, hosts.active) == "written", "registrants write"


def test_a_challenger_gives_up_while_the_owner_defends(hosts: ClusterHosts) -> None:
    """The owner takes each key that is not its own away; the challenger finds its own gone.

    The owner's PREEMPT comes once the challenger was answered: what happens if it comes while
    that registration is being stored is an open point of ADR 83.
    """
    hosts.await_whole()
    node = hosts.active
    if hosts.holder(0, node) is None:
        assert hosts.out(0, node, f"--reserve --param-rk={KEYS[0]:x} {TYPE}") == 0
    hosts.preempt(0)
    hosts.assert_shut_out(1)
    hosts.register_by_every_path(1)
    assert hosts.keys(0, node) == sorted(KEYS)
    hosts.preempt(0)
    time.sleep(CHALLENGER_WAITS_S)
    assert hosts.keys(1, node) == [KEYS[0]]
    assert hosts.holder(1, node) == KEYS[0]
    hosts.assert_shut_out(1)


def test_a_challenger_takes_over_when_the_owner_has_stopped(hosts: ClusterHosts) -> None:
    """The loser gets RESERVATION CONFLICT by each path, once that is of the node that serves."""
    hosts.register_by_every_path(1)
    node = hosts.active
    time.sleep(CHALLENGER_WAITS_S)
    assert hosts.keys(1, node) == sorted(KEYS)
    assert hosts.holder(1, node) == KEYS[0]
    hosts.preempt(1)
    assert hosts.keys(1, node) == [KEYS[1]]
    assert hosts.holder(0, node) == KEYS[1]
    hosts.assert_shut_out(0)
    hosts.await_whole()
    assert hosts.move() == other(node)
    hosts.assert_shut_out(0)
    assert hosts.keys(0, other(node)) == [KEYS[1]]
    assert hosts.holder(0, other(node)) == KEYS[1]


def test_a_preempted_host_registers_anew_by_a_standby_that_has_not_followed(
    hosts: ClusterHosts,
) -> None:
    """It sends no pings, as Windows by default: of its command nothing but the standby says more.

    The standby has its key, and not yet who holds the disk: its next monitor would wait for the
    command, and the command for that.
    """
    hosts.register_by_every_path(0)
    hosts.await_whole()
    standby = hosts.standby
    hosts.log_in_anew(1, standby, ping_s=0)
    try:
        assert hosts.holder(1, standby) == KEYS[1]
        hosts.preempt(0)
        began = time.monotonic()
        hosts.register_by_every_path(1)
        took_s = time.monotonic() - began
        print(f"registered after {took_s:.0f} s")
        assert took_s < GIVEN_UP_S
        hosts.await_whole()
        assert hosts.keys(1, standby) == sorted(KEYS)
    finally:
        hosts.log_in_anew(1, standby, ping_s=2)


def test_preempt_and_abort_while_the_owner_writes(hosts: ClusterHosts) -> None:
    """Once it is answered no write of the loser's reaches the disk; what was acknowledged is there.

    The loser holds the reservation, as a clustered disk's owner does: LIO finds commands to abort
    by the key that held it when they came.
    """
    hosts.await_whole()
    node = hosts.active
    assert hosts.holder(1, node) == KEYS[0]
    hosts.start_arbitration(0, "write")
    try:
        wait_for(
            "the owner's writes",
            lambda: all(made > 20 for _, made, _ in hosts.in_flight(0, node)),
            within_s=60,
        )
        hosts.preempt(1, how="preempt-abort")
        pages = hosts.pages(1, node)
        before = hosts.in_flight(0, node)
        wait_for(
            "later tries of all threads",
            lambda: all(
                now[0] > then[0] + 10
                for now, then in zip(hosts.in_flight(0, node), before, strict=True)
            ),
            within_s=120,
        )
        later = hosts.in_flight(0, node)
        print(pages, before, later)
        assert hosts.pages(1, node) == pages
        for (_, acknowledged, error), page in zip(later, pages, strict=True):
            assert acknowledged <= page <= acknowledged + 1
            assert error == "Invalid exchange", "that is how Linux says RESERVATION CONFLICT"
    finally:
        hosts.stop_arbitration(0)
    assert hosts.holder(0, node) == KEYS[1]
    hosts.assert_shut_out(0)


def test_the_owner_clears(hosts: ClusterHosts) -> None:
    """The disk is taken out of the cluster: nobody is registered, by no path."""
    node = hosts.active
    assert hosts.out(1, node, f"--clear --param-rk={KEYS[1]:x}") == 0 or not hosts.keys(1, node)
    hosts.await_whole()
    for host in (0, 1):
        for path in ("n1", "n2"):
            assert hosts.keys(host, path) == []
            assert hosts.holder(host, path) is None
        assert hosts.write(host, node) == "written"


@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_heartbeats_through_a_move_and_a_power_cut(hosts: ClusterHosts) -> None:
    """None that was acknowledged is lost, none is found changed, and all paths say the same."""
    hosts.await_whole()
    first, before = hosts.active, hosts.offers()
    assert len(before) == 1, before
    assert "Maximum compare and write length: 0x1\n" in min(before)
    assert "LBPU=1\n" in min(before)
    for host in (0, 1):
        hosts.start_heartbeats(host, period_s=BEAT_S)
    second = hosts.move()
    for host in (0, 1):
        hosts.await_heartbeats(host, second)
    wait_for("the same after a move", lambda: hosts.offers() == before, within_s=SERVED_S)
    hosts.scenario.bed.cut_power(second)
    try:
        for host in (0, 1):
            hosts.await_heartbeats(host, first)
    finally:
        hosts.scenario.bed.ensure_power(second)
    hosts.await_whole()
    wait_for("the same after a crash", lambda: hosts.offers() == before, within_s=BACK_S)
    for host in (0, 1):
        hosts.stop_heartbeats(host)
        state = hosts.heartbeats(host)
        print(f"host {host}: {state}")
        assert state.taken == ""
        assert state.counter == state.acknowledged + state.unanswered
        assert hosts.slot(host) == image(host, state.counter).rstrip(b"\0").decode()
        assert all(state.by_path), "by the paths of both nodes"


def test_a_miscompare_only_where_the_slot_was_changed(hosts: ClusterHosts) -> None:
    """A host that hangs loses its slot to another one; returned, it finds that, and writes nothing.

    The other's heartbeats, in the block beside it, notice nothing.
    """
    for host in (0, 1):
        hosts.start_heartbeats(host, period_s=BEAT_S)
    hosts.stop_heartbeats(1)
    counter = hosts.heartbeats(1).counter
    known, free = image(1, counter), heartbeat_runner.image("free", 0)
    assert hosts.compare_and_write(0, 1, known, free) == 0
    assert hosts.compare_and_write(1, 1, known, image(1, counter + 1)) == MISCOMPARE
    assert hosts.slot(1) == free.rstrip(b"\0").decode()
    hosts.await_heartbeats(0)
    hosts.stop_heartbeats(0)
    state = hosts.heartbeats(0)
    print(state)
    assert state.taken == ""
    assert state.counter == state.acknowledged + state.unanswered
    wait_for(
        "the slot",
        lambda: hosts.slot(0) == image(0, state.counter).rstrip(b"\0").decode(),
        within_s=SERVED_S,
    )


def image(host: int, counter: int) -> bytes:
    """Return a host's slot with a heartbeat's number."""
    return heartbeat_runner.image(owner(host), counter)
