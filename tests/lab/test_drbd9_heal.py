# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD 9: `sanctl device heal` of three replicas: one is left of them, or one has diverged.

On a laboratory as tests/lab/test_drbd9_replicas.py has: three nodes with a replica, and enough
others that the cluster is quorate without two of them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.errors import ExitStatus, NotConverged
from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online
from sanctl.lab.machines.spec import Network
from sanctl.lab.measure import kernel_audit
from tests.support.drbd9_devices import (
    DEADLINE_S,
    ReplicatedDevice,
    laboratory_with_drbd_9,
    power_is_back,
    writing,
)
from tests.support.steps import await_writes, unplugged

pytestmark = [
    pytest.mark.faults,
    pytest.mark.drbd9,
    pytest.mark.in_order,
    pytest.mark.timeout(1800),
]

NAME = "heal3"
#: The node on which the commands are given: it has no replica.
ELSEWHERE = "n4"
#: Where the side that diverges writes, beyond what the ledger has.
AT_MIB, SIZE_MIB = 64, 2
_MIB = 2**20
#: The commands of SAN-HEAL-007, as docs/howto/diverged-data.md has them.
_DISCARDED_BY_HAND = (
    "drbdadm --config-file /run/sanctl/drbd.d/{0}.conf disconnect {0}",
    "drbdadm --config-file /run/sanctl/drbd.d/{0}.conf connect --discard-my-data {0}",
)
_CONNECTED = "drbdadm --config-file /run/sanctl/drbd.d/{0}.conf connect {0}:{1}"


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    for made in laboratory_with_drbd_9(request):
        if len(made.cluster) < 5:
            pytest.skip("without two of its nodes a cluster of four has no quorum: five are needed")
        yield made


@pytest.fixture(scope="module")
def three(bed: LabSession) -> Iterator[ReplicatedDevice]:
    scenario = Scenario(bed, Initiator(bed, "i1"))
    made = ReplicatedDevice(scenario, NAME, ("n1", "n2", "n3"))
    made.await_recovery()
    yield made
    bed.sh("n1", "crm_attribute --name maintenance-mode --delete", ok=range(256))
    for node in made.nodes:
        bed.ensure_power(node)
        bed.sh(node, "systemctl enable --now corosync pacemaker", ok=range(256), timeout_s=120)
    await_members_online(bed)
    scenario.delete(made.name)


def heal(bed: LabSession, *arguments: str, ok: tuple[int, ...] = (0,)) -> dict[str, Any]:
    words = shlex.join(["sanctl", "device", "heal", NAME, "--output", "json", *arguments])
    reported = json.loads(bed.sh(ELSEWHERE, words, timeout_s=180, ok=ok).stdout)
    assert isinstance(reported, dict)
    return reported


def await_condition(bed: LabSession, wanted: str) -> dict[str, dict[str, Any]]:
    """Wait until the agents have published enough to know the condition; by node, its replica."""

    def reported() -> dict[str, dict[str, Any]] | None:
        data = heal(bed, ok=(0, int(ExitStatus.DEGRADED)))["data"]
        if data["condition"] != wanted:
            return None
        return {replica["node"]: replica for replica in data["copies"]}

    return wait_for(f"condition {wanted}", reported, within_s=DEADLINE_S, every_s=2.0)


def test_the_only_one_that_is_left_serves_by_decision(three: ReplicatedDevice) -> None:
    """Two lose their power for good: DRBD lets the third not be promoted, it sees no majority."""
    bed = three.bed
    gone = [three.active(), three.others()[0]]
    (left,) = set(three.nodes) - set(gone)
    with writing(three) as load:
        await_writes(load)
        # They are switched on by their fencing, and do not join the cluster any more.
        for node in gone:
            bed.sh(node, "systemctl disable corosync pacemaker; sync -f /etc")
        for node in gone:
            bed.cut_power(node)
        replicas = await_condition(bed, "blocked")
        with pytest.raises(NotConverged):
            print(f"  {three.active()} serves, one of three replicas, by itself")
        for node in gone:
            assert replicas[node]["keeping_it"]["refused"]["code"] == "SAN-HEAL-002"
        # What was written on the others after it had lost them is not known.
        assert replicas[left]["keeping_it"]["loses"]["bytes_at_most"] is None
        assert set(replicas[left]["keeping_it"]["loses"]["nodes"]) == set(gone)
        status = bed.sh(ELSEWHERE, "sanctl status", ok=range(256)).stdout
        assert f"sanctl device heal {NAME}" in status, status
        heal(bed, "--keep", left, "--yes")
        assert three.active() == left
        assert three.marks() == set(gone)
        await_writes(load)
        # Pacemaker may have ordered it before the replica had published that it sees no majority.
        bed.sh(left, f"crm_resource --cleanup --resource {NAME}", timeout_s=60)
        power_is_back(bed, *gone)
        for node in gone:
            wait_for(
                f"{node} to join the cluster",
                lambda node=node: (  # type: ignore[misc]
                    bed.sh(
                        node,
                        "systemctl enable --now corosync pacemaker",
                        ok=range(256),
                        timeout_s=60,
                    ).status
                    == 0
                ),
                within_s=DEADLINE_S,
                every_s=3.0,
            )
        three.await_recovery()
        assert kernel_audit.violations(collect.kernel_views(bed)) == []
        assert three.active() == left
    assert three.differing_sectors(three.active()) == 0


def test_one_of_three_has_diverged_and_is_discarded_by_the_commands_that_are_named(
    three: ReplicatedDevice,
) -> None:
    bed = three.bed
    serving, apart = three.active(), three.others()[0]
    minor = collect.drbd_minor(bed, apart, NAME)
    with writing(three) as load:
        await_writes(load)
        # No agent runs meanwhile: it would put the second Primary away at once, and rightly.
        bed.sh(ELSEWHERE, "crm_attribute --name maintenance-mode --update true")
        with unplugged(bed, apart, Network.SYNC):
            wait_for(
                f"{apart} to be without the others",
                lambda: "connection:Connected" not in three.events(apart),
                within_s=60,
            )
            await_writes(load)
            bed.sh(
                apart,
                f"drbdsetup resource-options {NAME} --quorum=off;"
                f" drbdsetup primary {NAME} --force &&"
                f" head -c {SIZE_MIB * _MIB} /dev/zero | tr '\\0' 'B' |"
                f" dd of=/dev/drbd{minor} bs=1M seek={AT_MIB} oflag=direct conv=nocreat"
                f" iflag=fullblock && drbdsetup secondary {NAME} &&"
                f" drbdsetup resource-options {NAME} --quorum=majority",
                timeout_s=60,
            )
        bed.sh(ELSEWHERE, "crm_attribute --name maintenance-mode --delete")
        replicas = await_condition(bed, "diverged")
        assert three.active() == serving, "a replica that has diverged costs no device"
        assert replicas[serving]["keeping_it"]["refused"]["code"] == "SAN-HEAL-007"
        found = heal(bed, "--keep", serving, "--yes", ok=(int(ExitStatus.REFUSED),))
        (refusal,) = found["problems"]
        assert refusal["code"] == "SAN-HEAL-007"
        # The commands, and where.
        assert f"on {apart}, one after the other" in str(refusal), refusal
        assert "--discard-my-data" in str(refusal) and f"{NAME}:{apart}" in str(refusal), refusal
        for command in _DISCARDED_BY_HAND:
            bed.sh(apart, command.format(NAME), timeout_s=60)
        for node in three.nodes:
            if node != apart:  # One that has not given up is connected already, and says so.
                bed.sh(node, _CONNECTED.format(NAME, apart), timeout_s=60, ok=range(256))
        three.await_recovery()
        assert three.active() == serving
        await_writes(load)
    assert three.differing_sectors(three.active()) == 0
    loop = bed.sh(
        apart, f"losetup -l -n -O NAME,BACK-FILE | grep '/{NAME}\\..*data' | cut -d' ' -f1"
    ).stdout.strip()
    first = bed.sh(
        apart,
        f"dd if={loop} bs=4096 count=1 skip={AT_MIB * 256} iflag=direct status=none | head -c 1"
        " | od -An -c",
    ).stdout.strip()
    assert first != "B", "what was discarded is still there"
