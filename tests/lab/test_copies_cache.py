# SPDX-License-Identifier: GPL-2.0-or-later
"""Three copies in write-back: two that are left stay in it, and one alone never is.

On a laboratory of its own with DRBD 9, as tests/lab/test_copies.py. In file order, on one device; a
ledger runs on it through every fault, and no acknowledged write may be missing at its end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Host
from sanctl.lab.harness.lab_session import Bed, wait_for
from sanctl.lab.harness.scenario import Scene
from sanctl.lab.measure import audit
from tests.support.copies import (
    DEADLINE_S,
    Copies,
    await_writes,
    laboratory_with_drbd_9,
    lines,
    pause_s,
    power_is_back,
    writing,
)
from tests.support.steps import kernel_mode

pytestmark = pytest.mark.faults

NAME = "threeback"
FLUSHED = "cache: write-through: all that was in RAM"
# 256 MiB at this rate: time to lose another copy meanwhile.
SLOW = ("--rate-max", "3M", "--rate-min", "1M")
AGAIN = ("--rate-max", "network", "--rate-min", "32M")


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    yield from laboratory_with_drbd_9(request)


@pytest.fixture(scope="module")
def three(bed: Bed) -> Iterator[Copies]:
    scene = Scene(bed, Host(bed, "i1"))
    made = Copies(scene, NAME, ("n1", "n2", "n3"))
    made.await_whole()
    scene.sanctl("device", "cache", NAME, "write-back", timeout_s=180)
    yield made
    scene.delete(NAME)


def modes(three: Copies, *nodes: str) -> set[str]:
    """The modes that the kernels of some nodes are in; of all with a copy if none is named."""
    return {kernel_mode(three.bed, NAME, node) for node in nodes or three.nodes}


def holds(three: Copies, node: str) -> bool:
    """Whether DRBD is to freeze I/O there while it sees fewer than two good copies."""
    shown = three.bed.sh(node, f"drbdsetup show {NAME}").stdout
    return bool(re.search(r"quorum-minimum-redundancy\s+2;", shown))


def await_write_back(three: Copies) -> None:
    """Wait until all copies are whole, in write-back, and the one that serves is held."""
    three.await_whole()
    wait_for(
        "write-back on all three",
        lambda: modes(three) == {"write-back"},
        within_s=DEADLINE_S,
        every_s=2.0,
    )
    active = three.active()
    wait_for("only who serves to hold", lambda: holding(three) == {active}, within_s=60)


def holding(three: Copies) -> set[str]:
    return {node for node in three.nodes if holds(three, node)}


def await_marked(three: Copies, node: str) -> None:
    wait_for(f"{node} to be marked", lambda: node in three.marks(), within_s=DEADLINE_S)


def is_filled(three: Copies, node: str) -> bool:
    return "replication:SyncTarget" in three.events(node)


def in_order(three: Copies, node: str, since_s: float, *wanted: str) -> None:
    """Demand that a node's journal has these words one after the other."""
    told = [
        entry.message
        for entry in collect.journals(three.bed, [node], since_s)
        if NAME in entry.message
    ]
    at = 0
    for words in wanted:
        later = [place for place in range(at, len(told)) if re.search(words, told[place])]
        assert later, f"{words!r} does not follow in\n" + "\n".join(told)
        at = later[0] + 1


def test_write_back_with_three(three: Copies) -> None:
    await_write_back(three)


def test_two_that_are_left_stay_in_write_back(three: Copies) -> None:
    serving, (gone, other) = three.active(), three.others()
    with writing(three) as load:
        await_writes(load)
        begun = three.bed.cut_power(gone)
        await_marked(three, gone)
        await_writes(load)
        print(f"  pause {pause_s(load, begun):.2f} s")
        assert not lines(three, serving, begun - 1, r"susp-io\( no -> |quorum\( yes -> no")
        assert modes(three, serving, other) == {"write-back"}
        power_is_back(three.bed, gone)
        # Also while it is filled.
        await_write_back(three)
    for node in (serving, other):
        assert not lines(three, node, begun - 1, FLUSHED), f"{node} left write-back meanwhile"


def test_one_that_is_left_flushes_before_it_goes_on(three: Copies) -> None:
    serving, (first, second) = three.active(), three.others()
    with writing(three) as load:
        await_writes(load)
        three.bed.cut_power(first)
        await_marked(three, first)
        await_writes(load)
        assert kernel_mode(three.bed, NAME, serving) == "write-back"
        begun = three.bed.cut_power(second)
        await_marked(three, second)
        await_writes(load)
        print(f"  pause {pause_s(load, begun):.2f} s")
        in_order(
            three, serving, begun - 1,
            r"quorum\( yes -> no", FLUSHED, f"{second} cannot be promoted", r"quorum\( no -> yes",
        )  # fmt: skip
        assert kernel_mode(three.bed, NAME, serving) == "write-through"
        assert not holds(three, serving)
        assert audit.violations(collect.views(three.bed)) == []
        power_is_back(three.bed, first, second)
        await_write_back(three)


def test_the_last_good_one_is_lost_while_another_is_filled(three: Copies) -> None:
    """Who serves and who is filled are a majority, which DRBD would go on with."""
    serving, (behind, good) = three.active(), three.others()
    three.scene.sanctl("device", "sync", NAME, *SLOW, timeout_s=120)
    with writing(three) as load:
        await_writes(load)
        three.bed.cut_power(behind)
        await_marked(three, behind)
        power_is_back(three.bed, behind)
        wait_for(f"{behind} to be filled", lambda: is_filled(three, behind), within_s=DEADLINE_S)
        assert kernel_mode(three.bed, NAME, serving) == "write-back"
        begun = three.bed.cut_power(good)
        wait_for(
            "write-through where it serves",
            lambda: kernel_mode(three.bed, NAME, serving) == "write-through",
            within_s=DEADLINE_S,
        )
        await_writes(load)
        print(f"  pause {pause_s(load, begun):.2f} s")
        in_order(three, serving, begun - 1, r"quorum\( yes -> no", FLUSHED)
        assert not holds(three, serving)
        power_is_back(three.bed, good)
        three.scene.sanctl("device", "sync", NAME, *AGAIN, timeout_s=120)
        await_write_back(three)


def test_the_last_good_one_loses_its_disk(three: Copies) -> None:
    """Its Primary ends the connection for good; it is made anew, and the disk attached."""
    serving, (away, good) = three.active(), three.others()
    with writing(three) as load:
        await_writes(load)
        three.bed.cut_power(away)
        await_marked(three, away)
        assert kernel_mode(three.bed, NAME, serving) == "write-back"
        begun = time.time()
        three.bed.sh(good, f"drbdsetup detach $(drbdadm sh-minor {NAME}) --force", timeout_s=60)
        wait_for(
            "write-through where it serves",
            lambda: kernel_mode(three.bed, NAME, serving) == "write-through",
            within_s=DEADLINE_S,
        )
        await_writes(load)
        print(f"  pause {pause_s(load, begun):.2f} s")
        wait_for(
            f"{good} to be good again",
            lambda: kernel_mode(three.bed, NAME, serving) == "write-back",
            within_s=DEADLINE_S,
            every_s=2.0,
        )
        power_is_back(three.bed, away)
        await_write_back(three)


def test_who_takes_over_stays_in_write_back_with_another(three: Copies) -> None:
    lost, others = three.active(), three.others()
    with writing(three) as load:
        await_writes(load)
        begun = three.bed.cut_power(lost)
        wait_for("another node to serve", lambda: three.active() != lost, within_s=DEADLINE_S)
        active = three.active()
        await_writes(load)
        print(f"  pause {pause_s(load, begun):.2f} s")
        assert holds(three, active)
        assert modes(three, *others) == {"write-back"}
        power_is_back(three.bed, lost)
        await_write_back(three)
    for node in others:
        assert not lines(three, node, begun - 1, FLUSHED), f"{node} left write-back meanwhile"


def test_all_is_stable_again_when_the_policy_says_so(three: Copies) -> None:
    began = time.time()
    three.scene.sanctl("device", "cache", NAME, "write-through", timeout_s=180)
    assert modes(three) == {"write-through"}
    assert holding(three) == set()
    assert lines(three, three.active(), began - 1, FLUSHED)
    assert three.differing_sectors(three.active()) == 0
