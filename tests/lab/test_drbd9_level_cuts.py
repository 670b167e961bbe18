# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD 9: the power of a node is cut in the middle of a change 2 to 3, 3 to 4, 4 to 3, 3 to 2.

Of the node that serves, with the command that runs on it, or of the one whose replica is added or
dropped. Afterwards the level is one of the two and each replica is whole: by itself, or by the
command that the messages name. On a laboratory as tests/lab/test_drbd9_replicas.py has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sanctl.errors import NotConverged
from sanctl.lab.chaos.primary_watch import PrimaryWatch
from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online
from sanctl.lab.measure import kernel_audit
from tests.support import ledgers, level_cuts, replica_change_steps
from tests.support.drbd9_devices import (
    DEADLINE_S,
    REGION_BYTES,
    ReplicatedDevice,
    laboratory_with_drbd_9,
    power_is_back,
)
from tests.support.level_cuts import KEEPS_POWER, Change, Moment
from tests.support.steps import await_writes

pytestmark = [pytest.mark.faults, pytest.mark.drbd9, pytest.mark.timeout(2400)]

NAME = "cut"
SERVES = "n1"
CHANGES = (Change(2, 3), Change(3, 4), Change(4, 3), Change(3, 2))
#: Whose power is cut.
SERVING, CHANGED = "serving", "changed"


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    yield from laboratory_with_drbd_9(request)


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    return Scenario(bed, Initiator(bed, "i1"))


@pytest.fixture
def device(scenario: Scenario, change: Change) -> Iterator[ReplicatedDevice]:
    bed = scenario.bed
    if lacking := change.lacks(bed):
        pytest.skip(lacking)
    # What a case before this one has left, where it has failed.
    for node in bed.cluster:
        bed.ensure_power(node.name)
    await_members_online(bed)
    if scenario.exists(NAME):
        scenario.delete(NAME)
    made = ReplicatedDevice(scenario, NAME, level_cuts.members(change.before))
    made.await_recovery()
    # Zeros are not sent: the fill would be over at once.
    scenario.host.sh(
        f"dd if=/dev/urandom of={made.path} bs=1M count=96 oflag=direct", timeout_s=300
    )
    yield made
    bed.sh(KEEPS_POWER, f"systemctl stop {level_cuts.UNIT}", ok=range(256), timeout_s=120)
    scenario.delete(NAME)


@pytest.mark.parametrize(
    ("change", "moment", "whose"),
    [
        pytest.param(
            change,
            moment,
            whose,
            id=f"{change.before}to{change.after}-{moment.name.lower()}-{whose}",
        )
        for change in CHANGES
        for moment in change.moments
        for whose in (SERVING, CHANGED)
    ],
)
def test_power_is_cut_in_the_middle_of_a_change(
    device: ReplicatedDevice, change: Change, moment: Moment, whose: str
) -> None:
    bed, scenario = device.bed, device.scenario
    assert device.active() == SERVES
    # What runs the command dies with the node that serves, and outlives the other one.
    victim, asked = (SERVES, SERVES) if whose == SERVING else (change.node, KEEPS_POWER)
    if moment is Moment.FILLING:
        level_cuts.limit_rate(device, slow=True)
    watch = PrimaryWatch(bed)
    watch.start()
    load = ledgers.start(
        scenario, NAME, device.target, device.path, rate=50, region_bytes=REGION_BYTES
    )
    try:
        await_writes(load)
        began_s = time.time()
        cut_in_the_middle(device, change, moment, victim=victim, asked=asked)
        power_is_back(bed, victim)
        wait_for("all members", lambda: are_members_online(bed), within_s=DEADLINE_S, every_s=2.0)
        if moment is Moment.FILLING:
            level_cuts.limit_rate(device, slow=False)
        recovers(device, change, asked=asked, since_s=began_s)
        # As docs/howto/replicas.md has hosts do. They may have been without a path until now.
        replica_change_steps.follow(scenario, load, *device.nodes)
        await_writes(load)
        level_cuts.await_by_itself_or_as_told(
            bed, "a healthy cluster", lambda: level_cuts.is_healthy(bed), change, ""
        )
        # The same command goes on from wherever the change is: it ends, and the level is the new.
        scenario.sanctl(*change.words(NAME), node=KEEPS_POWER, timeout_s=480)
        assert level_cuts.listed(device) == (level_cuts.members(change.after), change.after)
        assert level_cuts.is_settled(device, change)
        replica_change_steps.follow(scenario, load, *device.nodes)
        await_writes(load)
        ledgers.assert_nothing_lost(load)
    finally:
        ledgers.stop(load)
        watch.stop()
    assert watch.violations == []
    assert kernel_audit.violations(collect.kernel_views(bed)) == []
    assert device.differing_sectors(device.active()) == 0


def cut_in_the_middle(
    device: ReplicatedDevice, change: Change, moment: Moment, *, victim: str, asked: str
) -> None:
    """Begin a change, and cut a node's power once the change has come as far as that."""
    bed = device.bed
    with level_cuts.held_at(device, victim, moment):
        replica_change_steps.begin_change(bed, asked, *change.words(NAME))
        level_cuts.await_moment(device, change, moment)
        if moment is Moment.LISTED:
            # A file that a dropped node is in still, and an added one is not in yet.
            assert level_cuts.names(device, victim, change.node) is not change.adds
        runs = level_cuts.is_under_way(bed, asked)
        bed.cut_power(victim)
    print(f"  {change}: power of {victim} cut, {moment}; the command runs: {runs}")
    assert runs or moment is Moment.ENDING


def are_members_online(bed: LabSession) -> bool:
    """Whether the node that has kept its power sees all members."""
    shown = bed.sh(KEEPS_POWER, "crm_mon -1 --output-as=text --include=none,nodes").stdout
    online = shown.partition("Online:")[2].partition("]")[0].split()
    return {node.name for node in bed.cluster} <= set(online)


def recovers(device: ReplicatedDevice, change: Change, *, asked: str, since_s: float) -> None:
    """The command ends, where it still runs; then the device is as before, or as asked for."""
    bed = device.bed
    wait_for("a node to serve", device.active, within_s=DEADLINE_S)

    def has_ended() -> bool:
        return not level_cuts.is_under_way(bed, asked)

    try:
        wait_for("the command to end", has_ended, within_s=DEADLINE_S, every_s=2.0)
    except NotConverged:
        # Ctrl-C: it says what is left, and how to go on.
        bed.sh(asked, f"systemctl kill --signal INT {level_cuts.UNIT}", ok=range(256))
        print("  the command did not end")
        wait_for("the command to end at Ctrl-C", has_ended, within_s=120)
    messages = level_cuts.said(bed, asked, since_s)
    print("".join(f"    {line}\n" for line in messages.splitlines()))
    level_cuts.await_by_itself_or_as_told(
        bed,
        "each replica to be whole, and nothing else to be left",
        lambda: level_cuts.is_settled(device, change),
        change,
        messages,
    )
    print(f"  {len(device.nodes)} replicas, served by {device.active()}")
