# SPDX-License-Identifier: GPL-2.0-or-later
"""Persistent reservations hold through moves, crashes, a killed service (ADR 83)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online
from tests.support.two_hosts import TwoHosts

pytestmark = [pytest.mark.in_order]

NAME = "kept0"
#: Of a witness, which none of these tests takes down.
WHERE = "n3"
KEYS, CHANGED = (0xA0, 0xB1), 0xC2
RESERVE = "--prout-type=5"
SERVED_S, BACK_S, MIRRORED_S = 120.0, 400.0, 60.0
ROUNDS, SEED = 20, 20261126
_FILE = "tail -n +1 /srv/sanctl/main/devices/{name}.*.reservations | head -1"


@pytest.fixture(scope="module")
def hosts(scenario: Scenario) -> Iterator[TwoHosts]:
    """A device on n1 and n2, served by n1, with reservations on; both hosts at both nodes."""
    with TwoHosts(scenario, NAME).sharing(where=WHERE) as found:
        yield found


def active(hosts: TwoHosts) -> str:
    """The node that serves the device, as the kernels say."""
    return collect.active_node(hosts.scenario.bed, NAME)


def other(node: str) -> str:
    return "n2" if node == "n1" else "n1"


def stored(bed: LabSession, node: str) -> dict[str, object]:
    """What a node's file says, without its version."""
    found = json.loads(bed.sh(node, _FILE.format(name=NAME)).stdout)
    return {name: found[name] for name in ("registrations", "holder", "type", "cleared")}


def await_served(hosts: TwoHosts, by: str, host: int) -> None:
    wait_for(
        f"a write of host {host} at {by}",
        lambda: hosts.write(host, by) == "written",
        within_s=SERVED_S,
    )


def await_whole(hosts: TwoHosts) -> None:
    """Both replicas in sync, all nodes members, all paths back, the same by each of them."""
    bed, node = hosts.scenario.bed, active(hosts)
    await_members_online(bed)
    wait_for("both replicas", lambda: collect.is_in_sync(bed, node, NAME), within_s=BACK_S)
    wait_for(
        "the same keys by all paths",
        lambda: (
            hosts.keys(0, node)
            == hosts.keys(1, node)
            == hosts.keys(0, other(node))
            == hosts.keys(1, other(node))
        ),
        within_s=BACK_S,
        every_s=1.0,
    )
    assert stored(bed, "n1") == stored(bed, "n2")


def assert_held_by(hosts: TwoHosts, host: int, node: str) -> None:
    """The reservation is one host's: it writes at that node, and the other one does not."""
    assert hosts.keys(host, node) == [KEYS[host]]
    assert hosts.holder(1 - host, node) == KEYS[host]
    assert hosts.is_refused(1 - host, node)
    assert hosts.write(host, node) == "written"


def register(hosts: TwoHosts, host: int) -> None:
    """By all paths, the active one first, as mpathpersist does."""
    node = active(hosts)
    for each in (node, other(node)):
        assert hosts.out(host, each, f"--register-ignore --param-sark={KEYS[host]:x}") == 0


def take_over(hosts: TwoHosts, host: int, node: str) -> None:
    """Take the other host's registration and reservation away."""
    options = f"--preempt --param-rk={KEYS[host]:x} --param-sark={KEYS[1 - host]:x} {RESERVE}"
    # One that was made before the session ended, unanswered, is a conflict when it is asked again.
    assert hosts.out(host, node, options) == 0 or hosts.holder(host, node) == KEYS[host]


def test_a_host_registers_by_each_path_and_all_see_it(hosts: TwoHosts) -> None:
    register(hosts, 0)
    for node in ("n1", "n2"):
        assert hosts.keys(0, node) == hosts.keys(1, node) == [KEYS[0]]
    options = f"--reserve --param-rk={KEYS[1]:x} {RESERVE}"
    # By SPC a conflict; LIO says that the LUN is not ready (core_scsi3_pro_reserve).
    assert hosts.out(1, "n1", options) != 0, "it is not registered"
    assert hosts.holder(0, "n1") is None


def test_a_reservation_is_in_force_by_both_paths(hosts: TwoHosts) -> None:
    assert hosts.out(0, "n1", f"--reserve --param-rk={KEYS[0]:x} {RESERVE}") == 0
    assert stored(hosts.scenario.bed, "n1") == stored(hosts.scenario.bed, "n2")
    assert_held_by(hosts, 0, "n1")
    wait_for("it at the standby", lambda: hosts.holder(1, "n2") == KEYS[0], within_s=MIRRORED_S)
    shown = hosts.scenario.sanctl("target", "reservations", NAME, node=WHERE)
    print(shown)
    assert hosts.iqns[0] in shown and hosts.iqns[1] not in shown


def test_a_planned_move_takes_it_along(hosts: TwoHosts) -> None:
    hosts.scenario.sanctl("device", "move", NAME, "--to", "n2", node=WHERE, timeout_s=120)
    await_served(hosts, "n2", 0)
    assert_held_by(hosts, 0, "n2")


@pytest.mark.faults
def test_it_is_in_force_before_the_first_write_after_a_crash(hosts: TwoHosts) -> None:
    """A host that is kept out tries all the while, by both its paths."""
    await_whole(hosts)
    bed, node = hosts.scenario.bed, active(hosts)
    hosts.start_writer(1)
    wait_for("its first tries", lambda: hosts.writes(1)[0] > 3, within_s=30)
    bed.cut_power(node)
    await_served(hosts, other(node), 0)
    assert_held_by(hosts, 0, other(node))
    tried = hosts.writes(1)[0]
    wait_for("more tries", lambda: hosts.writes(1)[0] > tried + 3, within_s=60)
    assert hosts.writes(1)[1] == 0
    bed.ensure_power(node)
    await_whole(hosts)
    hosts.stop_writer(1)


@pytest.mark.faults
def test_what_was_taken_away_does_not_come_back(hosts: TwoHosts) -> None:
    bed, node = hosts.scenario.bed, active(hosts)
    register(hosts, 1)
    take_over(hosts, 1, node)
    assert_held_by(hosts, 1, node)
    bed.cut_power(node)
    await_served(hosts, other(node), 1)
    assert_held_by(hosts, 1, other(node))
    bed.ensure_power(node)
    await_whole(hosts)


@pytest.mark.faults
def test_all_power_lost(hosts: TwoHosts) -> None:
    bed, before = hosts.scenario.bed, stored(hosts.scenario.bed, active(hosts))
    for node in ("n1", "n2"):
        bed.cut_power(node)
    for node in ("n1", "n2"):
        bed.ensure_power(node)
    node = wait_for("a node that serves", lambda: active(hosts), within_s=BACK_S, every_s=2.0)
    await_served(hosts, node, 1)
    assert_held_by(hosts, 1, node)
    assert stored(bed, node) == before
    await_whole(hosts)


@pytest.mark.faults
def test_the_service_is_killed_while_a_change_waits(hosts: TwoHosts) -> None:
    """The kernel hands the write out again: the host is answered, or asks again; both end alike."""
    bed, node = hosts.scenario.bed, active(hosts)
    peer, change = other(node), f"--register-ignore --param-sark={CHANGED:x}"
    stop, go_on = (
        f"systemctl kill --signal={each} sanctl-reservations" for each in ("STOP", "CONT")
    )
    bed.sh(peer, stop)
    try:
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(hosts.out, 0, node, change, timeout_s=90, tries=1)
            wait_for(
                "the change that waits",
                lambda: (
                    "for a replica"
                    in bed.sh(node, "journalctl -t sanctl --since=-60s --no-pager").stdout
                ),
                within_s=30,
            )
            # The host may have given its session up by now.
            assert f"{CHANGED:#x}" not in str(stored(bed, node))
            bed.sh(node, "systemctl kill --signal=KILL sanctl-reservations")
            bed.sh(peer, go_on)
            told = asked.result()
            print("the host was told", told)
    finally:
        bed.sh(peer, go_on)
    # A host that was told nothing does not know, and asks again: a monitor may have taken back
    # what nobody was answered.
    assert told == 0 or hosts.out(0, node, change) == 0
    wait_for(
        "the registration on both nodes",
        lambda: all(f"{CHANGED:#x}" in str(stored(bed, each)) for each in (node, peer)),
        within_s=60,
    )
    assert hosts.keys(1, node) == sorted([KEYS[1], CHANGED])
    assert hosts.out(0, node, "--register-ignore --param-sark=0") == 0
    await_whole(hosts)


@pytest.mark.faults
def test_a_command_that_a_standby_holds_delays_no_failover(hosts: TwoHosts) -> None:
    """Answered there it would be a lie; its session ends, and with it the wait."""
    bed, node = hosts.scenario.bed, active(hosts)
    peer, before = other(node), stored(hosts.scenario.bed, node)
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(
            hosts.out,
            1,
            peer,
            f"--release --param-rk={KEYS[1]:x} {RESERVE}",
            timeout_s=150,
            tries=1,
        )
        wait_for(
            "the command that waits",
            lambda: (
                bed.sh(peer, f"flock -n /run/sanctl/held-{NAME}.lock true", ok=range(256)).status
            ),
            within_s=30,
        )
        bed.cut_power(node)
        await_served(hosts, peer, 1)
        print("the host was told", asked.result())
    assert stored(bed, peer) == before
    assert hosts.holder(0, peer) == KEYS[1]
    bed.ensure_power(node)
    await_whole(hosts)


def test_an_operator_breaks_it(hosts: TwoHosts) -> None:
    node = active(hosts)
    told = hosts.scenario.sanctl(
        "target", "reservations", NAME, "clear", "--yes", node=WHERE, timeout_s=120
    )
    print(told)
    wait_for("no keys", lambda: hosts.keys(0, node) == [], within_s=60)
    for host in (0, 1):
        await_served(hosts, node, host)
    await_whole(hosts)


@pytest.mark.parametrize("kind", [1, 3, 6, 7, 8])
def test_each_type_is_in_force_where_the_device_moves(hosts: TwoHosts, kind: int) -> None:
    """The kernel reads numbers as C does: of 08 it made none, and no node served."""
    await_whole(hosts)
    node = active(hosts)
    register(hosts, 0)
    assert hosts.out(0, node, f"--reserve --param-rk={KEYS[0]:x} --prout-type={kind}") == 0
    hosts.scenario.sanctl("device", "move", NAME, "--to", other(node), node=WHERE, timeout_s=120)
    node = other(node)
    await_served(hosts, node, 0)
    # Of all registrants READ RESERVATION names no key.
    assert hosts.is_refused(1, node)
    assert hosts.write(0, node) == "written"
    assert hosts.out(0, node, "--register-ignore --param-sark=0") == 0
    await_served(hosts, node, 1)
    await_whole(hosts)


@pytest.mark.faults
@pytest.mark.timeout(5400)
def test_twenty_crashes_and_moves(hosts: TwoHosts) -> None:
    """After each the other host takes the device over, and the one before tries to write on."""
    choose, bed = random.Random(SEED), hosts.scenario.bed
    holder = 0
    register(hosts, holder)
    node = active(hosts)
    assert hosts.out(holder, node, f"--reserve --param-rk={KEYS[holder]:x} {RESERVE}") == 0
    for number in range(ROUNDS):
        await_whole(hosts)
        node = active(hosts)
        hosts.start_writer(1 - holder)
        fault = choose.choice(("crash", "crash", "move", "standby", "both", "service"))
        print(f"{number}: {fault}, served by {node}, held by host {holder}")
        if fault == "move":
            hosts.scenario.sanctl(
                "device", "move", NAME, "--to", other(node), node=WHERE, timeout_s=120
            )
        elif fault == "service":
            bed.sh(node, "systemctl kill --signal=KILL sanctl-reservations")
        lost = {"crash": [node], "standby": [other(node)], "both": [node, other(node)]}.get(
            fault, []
        )
        for each in lost:
            bed.cut_power(each)
        if fault == "both":
            for each in lost:
                bed.ensure_power(each)
        node = wait_for("a node that serves", lambda: active(hosts), within_s=BACK_S, every_s=1.0)
        await_served(hosts, node, holder)
        assert_held_by(hosts, holder, node)
        assert hosts.writes(1 - holder)[1] == 0
        for each in lost:
            bed.ensure_power(each)
        hosts.stop_writer(1 - holder)
        holder = 1 - holder
        options = f"--register-ignore --param-sark={KEYS[holder]:x}"
        assert hosts.out(holder, node, options) == 0
        take_over(hosts, holder, node)
        assert_held_by(hosts, holder, node)
    await_whole(hosts)
