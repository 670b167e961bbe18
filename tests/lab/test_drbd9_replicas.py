# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD 9: devices with two, three and four replicas through moves, crashes and partitions.

On a laboratory of its own, with four storage nodes and a witness, whose kernel has DRBD 9: Linux
itself has 8.4. In file order, on a device with two replicas, one with three and one with four; a
ledger runs on them through every fault, and no acknowledged write may be missing at its end.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from sanctl.lab.bench import replica_changes
from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines.spec import Network
from sanctl.lab.measure import kernel_audit
from tests.support import replica_change_steps
from tests.support.drbd9_devices import (
    DEADLINE_S,
    REGION_BYTES,
    ReplicatedDevice,
    journal_lines,
    laboratory_with_drbd_9,
    pause_s,
    power_is_back,
    sent_kib,
    storage_of,
    writing,
)
from tests.support.steps import await_writes, unplugged

pytestmark = [pytest.mark.faults, pytest.mark.drbd9]


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    yield from laboratory_with_drbd_9(request)


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    return Scenario(bed, Initiator(bed, "i1"))


@pytest.fixture(scope="module")
def two(scenario: Scenario) -> Iterator[ReplicatedDevice]:
    made = ReplicatedDevice(scenario, "two", ("n1", "n2"))
    yield made
    scenario.delete(made.name)


@pytest.fixture(scope="module")
def three(scenario: Scenario) -> ReplicatedDevice:
    return ReplicatedDevice(scenario, "three", ("n1", "n2", "n3"))


@pytest.fixture(scope="module")
def four(scenario: Scenario, three: ReplicatedDevice) -> ReplicatedDevice:
    if len(storage_of(scenario.bed.lab.spec)) < 4:
        pytest.skip("four copies need four storage nodes, and this laboratory has three")
    scenario.delete(three.name)
    return ReplicatedDevice(scenario, "four", ("n1", "n2", "n3", "n4"))


def crash_and_return(device: ReplicatedDevice) -> None:
    """Cut the power of the node that serves; another takes over, and it comes back."""
    lost = device.active()
    with writing(device) as load:
        await_writes(load)
        began_s = device.bed.cut_power(lost)
        wait_for("another node to serve", lambda: device.active() != lost, within_s=DEADLINE_S)
        await_writes(load)
        print(f"  pause {pause_s(load, began_s):.2f} s")
        assert kernel_audit.violations(collect.kernel_views(device.bed)) == []
        power_is_back(device.bed, lost)
        device.await_recovery()
    # What was written meanwhile, and the activity log of what was written before: not all of it.
    kib = sent_kib(device, lost, began_s)
    print(f"  resync of {lost}: {kib} KiB")
    assert 0 < kib * 1024 <= REGION_BYTES + 16 * 2**20


def test_two_replicas_ask_the_cluster_as_with_8_4(two: ReplicatedDevice) -> None:
    two.await_recovery()
    options = two.bed.sh("n1", f"drbdsetup show --show-defaults {two.name}").stdout
    for word in (r"quorum\s+off", r"auto-promote\s+no", r"fencing\s+resource-and-stonith"):
        assert re.search(word, options), options
    assert not journal_lines(two, "n1", time.time() - 900, "Began resync")


def test_two_replicas_a_planned_move_and_a_crash(two: ReplicatedDevice) -> None:
    with writing(two) as load:
        began_s = time.time()
        two.scenario.sanctl("device", "move", two.name, "--to", "n2", timeout_s=120)
        await_writes(load)
        print(f"  pause {pause_s(load, began_s):.2f} s")
    assert two.active() == "n2"
    two.await_recovery()
    crash_and_return(two)
    assert two.differing_sectors(two.active()) == 0


def test_three_new_replicas_are_in_sync_without_a_sync(three: ReplicatedDevice) -> None:
    three.await_recovery()
    assert three.active() == "n1"
    for node in three.nodes:
        assert not journal_lines(three, node, time.time() - 900, "Began resync")
        options = three.bed.sh(node, f"drbdsetup show {three.name}").stdout
        for word in (r"quorum\s+majority", r"auto-promote\s+no", r"fencing\s+resource-only"):
            assert re.search(word, options), options


def test_the_metadata_has_room_for_four_replicas(three: ReplicatedDevice) -> None:
    dump = three.bed.sh("n3", f"drbdadm dump-md --force {three.name}").stdout
    assert re.search(r"max-peers 3;", dump), dump[:500]


def test_verify_finds_what_differs_on_each_and_repairs_it(three: ReplicatedDevice) -> None:
    """Two replicas altered behind DRBD's back, at two places."""
    three.await_recovery()
    serving, (first, second) = three.active(), three.others()
    places = {first: 3 * 2**20, second: 40 * 2**20 + 8192}
    for node, at in places.items():
        loop = f"$(losetup -l -n -O NAME,BACK-FILE | grep '/{three.name}\\..*data' | cut -d' ' -f1)"
        three.bed.sh(
            node,
            f"head -c 8192 /dev/urandom | dd of={loop} bs=4096 seek={at // 4096} oflag=direct"
            " conv=nocreat,notrunc iflag=fullblock",
        )

    def verify(*options: str, ok: int) -> Any:
        words = " ".join(("sanctl device verify", three.name, "--output json", *options))
        return json.loads(three.bed.sh(serving, words, timeout_s=300, ok=(ok,)).stdout)["data"]

    for found in (verify(ok=1), verify("--repair", "--yes", ok=0)):
        assert found["node"] == serving
        ranges = sorted((each["first"], each["bytes"]) for each in found["verify"]["ranges"])
        assert ranges == sorted((at, 8192) for at in places.values())
    assert found["repaired_bytes"] == 16384
    assert verify(ok=0)["verify"]["result"] == "same"
    three.await_recovery()
    assert three.differing_sectors(serving) == 0


def test_replicas_come_and_go(three: ReplicatedDevice) -> None:
    """A new replica is resynced before the old one goes; DRBD forgets the peer that has gone."""
    three.scenario.sanctl("device", "move", three.name, "--to", "n1", timeout_s=120)
    three.await_recovery()
    with writing(three) as load:
        for words, nodes in (
            (("3", "--add", "n4", "--drop", "n3"), ("n1", "n2", "n4")),
            (("4", "--add", "n3"), ("n1", "n2", "n4", "n3")),
            (("2", "--drop", "n3", "--drop", "n4"), ("n1", "n2")),
            (("3", "--add", "n3"), ("n1", "n2", "n3")),
        ):
            trial = replica_changes.measure_change(load, *words)
            print(f"  {trial.name}: longest pause {trial.pause.seconds:.2f} s")
            assert set(trial.after) == set(nodes)
            assert trial.sessions_kept
            assert (trial.pause.errors, trial.violations) == (0, ())
            peers = {int(node[1]) - 1 for node in nodes} - {0}
            wait_for(
                f"n1 to know of {', '.join(nodes)} only",
                partial(knows_only, three, "n1", peers),
                within_s=60,
            )
        replica_change_steps.follow(three.scenario, load, *three.nodes)
    three.await_recovery()
    assert three.differing_sectors("n1") == 0


def knows_only(device: ReplicatedDevice, node: str, peers: set[int]) -> bool:
    """Whether these are the peers that a node's metadata keep a bitmap for."""
    dump = device.bed.sh(node, f"drbdadm dump-md --force {device.name}").stdout
    known = {
        int(number)
        for number, index in re.findall(r"peer\[(\d+)\] \{[^}]*bitmap-index (-?\d+)", dump)
        if int(index) >= 0
    }
    return known == peers


def test_a_planned_move(three: ReplicatedDevice) -> None:
    with writing(three) as load:
        began_s = time.time()
        three.scenario.sanctl("device", "move", three.name, "--to", "n3", timeout_s=120)
        await_writes(load)
        print(f"  pause {pause_s(load, began_s):.2f} s")
    assert three.active() == "n3"
    three.await_recovery()


def test_a_standby_that_goes_freezes_nothing(three: ReplicatedDevice) -> None:
    """Two of three are a majority: no fencing is asked for, the host waits for DRBD to notice."""
    (gone, _) = three.others()
    serving = three.active()
    with writing(three) as load:
        await_writes(load)
        began_s = three.bed.cut_power(gone)
        wait_for(f"{gone} to be marked", lambda: gone in three.marks(), within_s=DEADLINE_S)
        await_writes(load)
        print(f"  pause {pause_s(load, began_s):.2f} s")
        assert three.active() == serving
        assert not journal_lines(
            three, serving, began_s - 1, r"susp-io\( no -> |quorum\( yes -> no"
        )
        power_is_back(three.bed, gone)
        three.await_recovery()
    print(f"  resync of {gone}: {sent_kib(three, gone, began_s)} KiB")
    assert 0 < sent_kib(three, gone, began_s) * 1024 <= REGION_BYTES


def test_a_crash_of_the_active_and_its_return(three: ReplicatedDevice) -> None:
    crash_and_return(three)


def test_a_replica_that_loses_the_sync_network_cannot_serve_and_comes_back(
    three: ReplicatedDevice,
) -> None:
    """As of LINBIT/drbd issue 145: what was written meanwhile must not be taken for known."""
    (cut, _) = three.others()
    with writing(three) as load:
        await_writes(load)
        began_s = time.time()
        with unplugged(three.bed, cut, Network.SYNC):
            wait_for(f"{cut} to be marked", lambda: cut in three.marks(), within_s=DEADLINE_S)
            wait_for(
                f"{cut} to have no majority",
                lambda: "quorum:no" in three.events(cut),
                within_s=DEADLINE_S,
            )
            # It may call itself UpToDate: a replica without a connection has seen no newer data.
            tried = three.bed.sh(cut, f"drbdsetup primary {three.name}", ok=range(256))
            assert tried.status != 0, "a copy without a majority became Primary"
            await_writes(load)
        three.await_recovery()
        assert sent_kib(three, cut, began_s) > 0
    assert three.differing_sectors(three.active()) == 0


def test_without_any_replica_in_contact_the_active_goes_on_by_the_clusters_leave(
    three: ReplicatedDevice,
) -> None:
    """The sync network is cut, the cluster has all nodes: the active node goes on alone."""
    serving = three.active()
    with writing(three) as load:
        await_writes(load)
        began_s = time.time()
        with unplugged(three.bed, serving, Network.SYNC):
            wait_for(
                "the others to be marked",
                lambda: three.marks() == set(three.nodes) - {serving},
                within_s=DEADLINE_S,
            )
            await_writes(load)
            assert three.active() == serving
            assert journal_lines(three, serving, began_s - 1, "quorum\\( yes -> no"), (
                "it was never without"
            )
        print(f"  pause {pause_s(load, began_s):.2f} s")
        three.await_recovery()
    assert three.differing_sectors(three.active()) == 0


def test_four_new_replicas(four: ReplicatedDevice) -> None:
    four.await_recovery()
    assert four.active() == "n1"


def test_a_replica_that_returns_while_another_is_filled_gets_all_it_lacks(
    four: ReplicatedDevice,
) -> None:
    """Once broken: a third replica sent it what the *other* returning one still lacked (ADR 39)."""
    serving, (first, second) = four.active(), four.others()[:2]
    rates = ("--rate-min", "256K", "--rate-max", "512K")
    four.scenario.sanctl("device", "sync", four.name, *rates, timeout_s=120)
    with writing(four) as load:
        await_writes(load)
        began_s = time.time()
        # At once, so that both are behind by the same generation.
        for node in (first, second):
            four.bed.cut_power(node)
        wait_for("both to be marked", lambda: four.marks() >= {first, second}, within_s=DEADLINE_S)
        four.bed.sh(serving, f"crm_standby --node {second} --update on")
        try:
            await_writes(load)
            power_is_back(four.bed, first, second)
            wait_for(
                f"half of {first} to be filled",
                lambda: 0 < differing_kib(four, first) < sent_kib(four, first, began_s) / 2,
                within_s=DEADLINE_S,
                every_s=0.2,
            )
        finally:
            four.bed.sh(serving, f"crm_standby --node {second} --delete")
        wait_for(
            f"{second} to be filled, too",
            lambda: differing_kib(four, second) > 0,
            within_s=DEADLINE_S,
            every_s=0.2,
        )
        rates = ("--rate-min", "32M", "--rate-max", "network")
        four.scenario.sanctl("device", "sync", four.name, *rates, timeout_s=120)
        four.await_recovery()
    copied = [
        line
        for node in four.nodes
        for line in journal_lines(four, node, began_s, "Copying bitmap of peer")
    ]
    assert not copied
    assert four.differing_sectors(four.active()) == 0


def differing_kib(device: ReplicatedDevice, node: str) -> int:
    """How much of a replica still differs from the one that fills it."""
    found = re.findall(r"replication:SyncTarget .*out-of-sync:(\d+)", device.events(node))
    return max(map(int, found), default=0)


def test_two_standbys_of_four_gone_the_active_goes_on_when_they_are_fenced(
    four: ReplicatedDevice,
) -> None:
    """Two of four replicas are no majority; the cluster, quorate with its witness, allows it."""
    serving = four.active()
    gone = four.others()[:2]
    with writing(four) as load:
        await_writes(load)
        began_s = time.time()
        for node in gone:
            four.bed.cut_power(node)
        wait_for("both to be marked", lambda: four.marks() >= set(gone), within_s=DEADLINE_S)
        await_writes(load)
        print(f"  pause {pause_s(load, began_s):.2f} s")
        assert four.active() == serving
        power_is_back(four.bed, *gone)
        four.await_recovery()
    assert four.differing_sectors(four.active()) == 0


def test_the_active_and_another_of_four_gone_no_node_serves_until_one_is_back(
    four: ReplicatedDevice,
) -> None:
    """The two that are left may not have seen the last write: so neither of them is promoted."""
    gone = [four.active(), four.others()[0]]
    left = [node for node in four.nodes if node not in gone]
    with writing(four) as load:
        await_writes(load)
        began_s = time.time()
        for node in gone:
            four.bed.cut_power(node)
        power_is_back(four.bed, *gone)
        wait_for("the device to be served", lambda: bool(four.active()), within_s=DEADLINE_S)
        await_writes(load)
        print(f"  pause {pause_s(load, began_s):.2f} s")
        promoted = journal_lines(four, four.active(), began_s, r"role\( Secondary -> Primary")
        connected = [
            line
            for node in left
            for line in journal_lines(four, node, began_s, r"conn\( \w+ -> Connected")
        ]
        assert promoted and connected, "it was served without a majority of its copies"
        # Pacemaker may have promoted each remaining replica once, before its monitor had published
        # that it has no majority. DRBD refused; Pacemaker shows the failure until a cleanup.
        four.bed.sh(left[0], f"crm_resource --cleanup --resource {four.name}", timeout_s=60)
        four.await_recovery()
    assert four.differing_sectors(four.active()) == 0
