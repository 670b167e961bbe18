# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD 9: write-back with three replicas stays with two of them, and ends with one alone.

On a laboratory of its own with DRBD 9, as tests/lab/test_drbd9_replicas.py. In file order, on one
device; a ledger runs on it through every fault, and no acknowledged write may be missing at its
end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.measure import kernel_audit
from tests.support.drbd9_devices import (
    DEADLINE_S,
    ReplicatedDevice,
    journal_lines,
    laboratory_with_drbd_9,
    pause_s,
    power_is_back,
    writing,
)
from tests.support.steps import await_writes, kernel_mode

pytestmark = [pytest.mark.faults, pytest.mark.drbd9]

NAME = "threeback"
FLUSHED = "cache: write-through: all that was in RAM"
# 256 MiB at this rate: time to lose another replica meanwhile.
SLOW = ("--rate-max", "3M", "--rate-min", "1M")
AGAIN = ("--rate-max", "network", "--rate-min", "32M")


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    yield from laboratory_with_drbd_9(request)


@pytest.fixture(scope="module")
def three(bed: LabSession) -> Iterator[ReplicatedDevice]:
    scenario = Scenario(bed, Initiator(bed, "i1"))
    made = ReplicatedDevice(scenario, NAME, ("n1", "n2", "n3"))
    made.await_recovery()
    scenario.sanctl("device", "cache", NAME, "write-back", timeout_s=180)
    yield made
    scenario.delete(NAME)


def modes(three: ReplicatedDevice, *nodes: str) -> set[str]:
    """The modes that the kernels of some nodes are in; of all with a replica if none is named."""
    return {kernel_mode(three.bed, NAME, node) for node in nodes or three.nodes}


def holds(three: ReplicatedDevice, node: str) -> bool:
    """Whether quorum-minimum-redundancy is 2: I/O freezes with fewer than two good replicas."""
    shown = three.bed.sh(node, f"drbdsetup show {NAME}").stdout
    return bool(re.search(r"quorum-minimum-redundancy\s+2;", shown))


def await_write_back(three: ReplicatedDevice) -> None:
    """Wait until all replicas are in sync and write-back; the Primary has minimum redundancy 2."""
    three.await_recovery()
    wait_for(
        "write-back on all three",
        lambda: modes(three) == {"write-back"},
        within_s=DEADLINE_S,
        every_s=2.0,
    )
    active = three.active()
    wait_for(
        "minimum redundancy 2 on the Primary alone", lambda: holding(three) == {active}, within_s=60
    )


def holding(three: ReplicatedDevice) -> set[str]:
    return {node for node in three.nodes if holds(three, node)}


def await_marked(three: ReplicatedDevice, node: str) -> None:
    wait_for(f"{node} to be marked", lambda: node in three.marks(), within_s=DEADLINE_S)


def is_filled(three: ReplicatedDevice, node: str) -> bool:
    return "replication:SyncTarget" in three.events(node)


def in_order(three: ReplicatedDevice, node: str, since_s: float, *wanted: str) -> None:
    """Demand that a node's journal has these words one after the other."""
    reported = [
        entry.message
        for entry in collect.journals(three.bed, [node], since_s)
        if NAME in entry.message
    ]
    at = 0
    for words in wanted:
        later = [place for place in range(at, len(reported)) if re.search(words, reported[place])]
        assert later, f"{words!r} does not follow in\n" + "\n".join(reported)
        at = later[0] + 1


def test_write_back_with_three(three: ReplicatedDevice) -> None:
    await_write_back(three)


def test_two_that_are_left_stay_in_write_back(three: ReplicatedDevice) -> None:
    serving, (gone, other) = three.active(), three.others()
    with writing(three) as load:
        await_writes(load)
        began_s = three.bed.cut_power(gone)
        await_marked(three, gone)
        await_writes(load)
        print(f"  pause {pause_s(load, began_s):.2f} s")
        assert not journal_lines(
            three, serving, began_s - 1, r"susp-io\( no -> |quorum\( yes -> no"
        )
        assert modes(three, serving, other) == {"write-back"}
        power_is_back(three.bed, gone)
        # Also while it is filled.
        await_write_back(three)
    for node in (serving, other):
        assert not journal_lines(three, node, began_s - 1, FLUSHED), (
            f"{node} left write-back meanwhile"
        )


def test_one_that_is_left_flushes_before_it_goes_on(three: ReplicatedDevice) -> None:
    serving, (first, second) = three.active(), three.others()
    with writing(three) as load:
        await_writes(load)
        three.bed.cut_power(first)
        await_marked(three, first)
        await_writes(load)
        assert kernel_mode(three.bed, NAME, serving) == "write-back"
        began_s = three.bed.cut_power(second)
        await_marked(three, second)
        await_writes(load)
        print(f"  pause {pause_s(load, began_s):.2f} s")
        in_order(
            three, serving, began_s - 1,
            r"quorum\( yes -> no", FLUSHED, f"{second} cannot be promoted", r"quorum\( no -> yes",
        )  # fmt: skip
        assert kernel_mode(three.bed, NAME, serving) == "write-through"
        assert not holds(three, serving)
        assert kernel_audit.violations(collect.kernel_views(three.bed)) == []
        power_is_back(three.bed, first, second)
        await_write_back(three)


def test_the_last_good_one_is_lost_while_another_is_filled(three: ReplicatedDevice) -> None:
    """The Primary and the replica being resynced are a majority, with which DRBD would go on."""
    serving, (behind, good) = three.active(), three.others()
    three.scenario.sanctl("device", "sync", NAME, *SLOW, timeout_s=120)
    with writing(three) as load:
        await_writes(load)
        three.bed.cut_power(behind)
        await_marked(three, behind)
        power_is_back(three.bed, behind)
        wait_for(f"{behind} to be filled", lambda: is_filled(three, behind), within_s=DEADLINE_S)
        assert kernel_mode(three.bed, NAME, serving) == "write-back"
        began_s = three.bed.cut_power(good)
        wait_for(
            "write-through where it serves",
            lambda: kernel_mode(three.bed, NAME, serving) == "write-through",
            within_s=DEADLINE_S,
        )
        await_writes(load)
        print(f"  pause {pause_s(load, began_s):.2f} s")
        in_order(three, serving, began_s - 1, r"quorum\( yes -> no", FLUSHED)
        assert not holds(three, serving)
        power_is_back(three.bed, good)
        three.scenario.sanctl("device", "sync", NAME, *AGAIN, timeout_s=120)
        await_write_back(three)


def test_the_last_good_one_loses_its_disk(three: ReplicatedDevice) -> None:
    """The Primary closes the connection to it; it is connected again, and the disk attached."""
    serving, (away, good) = three.active(), three.others()
    with writing(three) as load:
        await_writes(load)
        three.bed.cut_power(away)
        await_marked(three, away)
        assert kernel_mode(three.bed, NAME, serving) == "write-back"
        began_s = time.time()
        three.bed.sh(good, f"drbdsetup detach $(drbdadm sh-minor {NAME}) --force", timeout_s=60)
        wait_for(
            "write-through where it serves",
            lambda: kernel_mode(three.bed, NAME, serving) == "write-through",
            within_s=DEADLINE_S,
        )
        await_writes(load)
        print(f"  pause {pause_s(load, began_s):.2f} s")
        wait_for(
            f"{good} to be good again",
            lambda: kernel_mode(three.bed, NAME, serving) == "write-back",
            within_s=DEADLINE_S,
            every_s=2.0,
        )
        power_is_back(three.bed, away)
        await_write_back(three)


def test_the_node_that_takes_over_stays_in_write_back(three: ReplicatedDevice) -> None:
    lost, others = three.active(), three.others()
    with writing(three) as load:
        await_writes(load)
        began_s = three.bed.cut_power(lost)
        wait_for("another node to serve", lambda: three.active() != lost, within_s=DEADLINE_S)
        active = three.active()
        await_writes(load)
        print(f"  pause {pause_s(load, began_s):.2f} s")
        assert holds(three, active)
        assert modes(three, *others) == {"write-back"}
        power_is_back(three.bed, lost)
        await_write_back(three)
    for node in others:
        assert not journal_lines(three, node, began_s - 1, FLUSHED), (
            f"{node} left write-back meanwhile"
        )


def test_write_through_makes_every_write_stable_again(three: ReplicatedDevice) -> None:
    began = time.time()
    three.scenario.sanctl("device", "cache", NAME, "write-through", timeout_s=180)
    assert modes(three) == {"write-through"}
    assert holding(three) == set()
    assert journal_lines(three, three.active(), began - 1, FLUSHED)
    assert three.differing_sectors(three.active()) == 0
