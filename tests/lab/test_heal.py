# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl device heal`: replicas that have diverged, and the repair an operator chooses.

Each node is Primary while the other is out of reach, and takes a write of its own. DRBD then
refuses to connect them, sanctl reports it, and no data is discarded until an operator names a
replica.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.errors import ExitStatus
from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import await_healthy
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import network
from sanctl.lab.machines.spec import Network
from sanctl.model.outdated_mark import mark_attributes
from sanctl.system.runner import LocalRunner

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME = "heal0"
MIB = 2**20
NOT_CONVERGED = int(ExitStatus.NOT_CONVERGED)
_KEEP_FROM_DISCARDING = """set -e
cp /usr/sbin/drbdadm /root/drbdadm.real
cat >/root/drbdadm.held <<'END'
#!/bin/sh
case "$*" in *--discard-my-data*) exit 1 ;; esac
exec /root/drbdadm.real "$@"
END
chmod 755 /root/drbdadm.held
mount --bind /root/drbdadm.held /usr/sbin/drbdadm
"""
# Where each side writes while they are apart, and how much.
AT = {"n1": 8 * MIB, "n2": 24 * MIB}
SIZE = {"n1": 2 * MIB, "n2": 1 * MIB}


@pytest.fixture(scope="module")
def device(scenario: Scenario) -> Iterator[str]:
    scenario.create(NAME, "64M", prefer="n1")
    yield NAME
    scenario.bed.sh("n1", "crm_attribute --name maintenance-mode --delete", ok=range(256))
    scenario.delete(NAME)


def heal(bed: LabSession, *arguments: str, ok: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """Run `sanctl device heal` on the witness, where neither replica is."""
    words = shlex.join(["sanctl", "device", "heal", NAME, "--output", "json", *arguments])
    reported = json.loads(bed.sh("n3", words, timeout_s=180, ok=ok).stdout)
    assert isinstance(reported, dict)
    return reported


def write(bed: LabSession, node: str, value: str, *, through: str) -> None:
    """Fill a node's own stretch of the device with one byte value."""
    bed.sh(
        node,
        f"head -c {SIZE[node]} /dev/zero | tr '\\0' '{value}' |"
        f" dd of={through} bs=1M seek={AT[node] // MIB} oflag=direct conv=nocreat iflag=fullblock",
        timeout_s=60,
    )


def content(bed: LabSession, node: str) -> tuple[str, str]:
    """Return the first byte of each stretch, read past all caches from a node's own replica."""
    loop = bed.sh(
        node, f"losetup -l -n -O NAME,BACK-FILE | grep '/{NAME}\\..*data' | cut -d' ' -f1"
    )
    read = "; ".join(
        f"dd if={loop.stdout.strip()} bs=4096 count=1 skip={at // 4096} iflag=direct 2>/dev/null"
        " | head -c 1; echo"
        for at in AT.values()
    )
    first, second = bed.sh(node, read).stdout.replace("\0", "-").split("\n")[:2]
    return first, second


def diverge(bed: LabSession, *, keeps_serving: bool, rotations: int = 0) -> None:
    """Let both nodes write apart from each other, then give them their link back.

    n1 has marked n2 as outdated when it lost the link. Unless `keeps_serving`, n1 is marked too, so
    that no node serves. Each rotation gives n2 a new data generation, until n2 has forgotten the
    common one.
    """
    minor = collect.drbd_minor(bed, "n2", NAME)
    # No agent runs meanwhile: it would put the second Primary away at once, and rightly.
    bed.sh("n1", "crm_attribute --name maintenance-mode --update true")
    network.unplug(bed.lab, bed.node("n2"), Network.SYNC, LocalRunner())
    try:
        wait_for(
            "n2 to notice",
            lambda: "connection:Connecting" in bed.sh("n2", f"drbdsetup status {NAME}").stdout,
            within_s=30,
        )
        write(bed, "n1", "A", through=f"/dev/mapper/sanctl-{NAME}")
        bed.sh("n2", f"drbdsetup primary {minor} --force", timeout_s=60)
        write(bed, "n2", "B", through=f"/dev/drbd{minor}")
        if rotations:
            # DRBD does this only for a replica that does not look for its peer.
            rotate = f"drbdsetup new-current-uuid {minor}; " * rotations
            bed.sh(
                "n2",
                f"set -e; drbdadm disconnect {NAME}; {rotate} drbdadm adjust {NAME}",
                timeout_s=60,
            )
        bed.sh("n2", f"drbdsetup secondary {minor}", timeout_s=60)
    finally:
        network.plug(bed.lab, bed.node("n2"), Network.SYNC, LocalRunner())
    # DRBD 8.4 forgets a connection that it has given up. Of unrelated replicas one does that, and
    # the other goes on trying.
    wait_for(
        "DRBD to refuse them",
        lambda: any(
            "peer" not in bed.sh(node, f"drbdsetup status {NAME}").stdout for node in ("n1", "n2")
        ),
        within_s=60,
    )
    if not keeps_serving:
        # What a handler of n2 does that is called before the cluster has lost n1.
        uuid = bed.sh("n1", f"crm_resource --resource {NAME} --get-parameter uuid").stdout.split()
        attributes = mark_attributes(NAME, "n1", uuid[-1]).items()
        mark = " ".join(f'{key}="{value}"' for key, value in attributes)
        bed.sh(
            "n1",
            "cibadmin --modify --allow-create --scope constraints --xml-pipe",
            stdin=f"<constraints><rsc_location {mark}/></constraints>",
        )
    bed.sh("n1", "crm_attribute --name maintenance-mode --delete")


def await_condition(bed: LabSession, wanted: str) -> dict[str, Any]:
    """Wait until the agents have published enough to know the condition."""

    def reported() -> dict[str, Any] | None:
        data = heal(bed, ok=(0, 1))["data"]
        assert isinstance(data, dict)
        return data if data["condition"] == wanted else None

    return wait_for(f"condition {wanted}", reported, within_s=90, every_s=2.0)


def has_order(bed: LabSession, node: str) -> bool:
    """Whether an operator's order to discard a node's replica is in the CIB."""
    query = f"crm_attribute --node {node} --name sanctl-discard-{NAME} --query --quiet"
    return bool(bed.sh(node, query, ok=range(256)).stdout.strip())


def await_step(bed: LabSession) -> None:
    wait_for("the replicas in step", lambda: collect.is_in_sync(bed, "n1", NAME), within_s=120)


@pytest.mark.quick
def test_sound_replicas_offer_nothing(scenario: Scenario, device: str) -> None:
    assert heal(scenario.bed)["data"]["condition"] == "sound"
    assert (
        heal(scenario.bed, "--keep", "n2", "--yes", ok=(4,))["problems"][0]["code"]
        == "SAN-HEAL-001"
    )


def test_both_are_marked_and_one_is_given_up(scenario: Scenario, device: str) -> None:
    bed = scenario.bed
    diverge(bed, keeps_serving=False)
    data = await_condition(bed, "diverged")
    replicas = {replica["node"]: replica for replica in data["copies"]}
    for node, replica in replicas.items():
        assert replica["marked"] and not replica["serves"]
        assert replica["only_there_bytes"] >= SIZE[node]
        assert replica["apart_since"] is not None
    assert replicas["n1"]["keeping_it"]["loses"]["bytes_at_most"] >= SIZE["n2"]
    status = bed.sh("n3", "sanctl status", ok=(0, 1)).stdout
    assert "SAN-HLT-038" in status and "SAN-HLT-032" in status
    assert f"sanctl device heal {NAME}" in status
    # Nothing was thrown away so far, and a stale order throws nothing away.
    uuid = json.loads(scenario.sanctl("device", "show", NAME, "--output", "json"))["data"]["uuid"]
    stale = f"crm_attribute --node n2 --name sanctl-discard-{NAME}"
    bed.sh("n1", f"{stale} --update '{uuid} 00000000000000AA bitmap'")
    wait_for(
        "the stale order to be dropped",
        lambda: bed.sh("n1", f"{stale} --query", ok=range(256)).status != 0,
        within_s=60,
    )
    assert content(bed, "n2") == ("-", "B")
    assert content(bed, "n1") == ("A", "-")
    heal(bed, "--keep", "n1", "--yes")
    await_step(bed)
    assert content(bed, "n2") == content(bed, "n1") == ("A", "-")
    assert collect.active_node(bed, NAME) == "n1"


def test_a_second_decision_withdraws_the_order_of_the_first(
    scenario: Scenario, device: str
) -> None:
    """A replica keeps its data generation while it serves: an old order would still fit it.

    DRBD on n2 takes no command to discard meanwhile, so that the first order stands.
    """
    bed = scenario.bed
    await_healthy(bed, "n3")
    diverge(bed, keeps_serving=False)
    await_condition(bed, "diverged")
    bed.sh("n2", _KEEP_FROM_DISCARDING)
    try:
        first = heal(bed, "--keep", "n1", "--yes", "--timeout", "20", ok=(NOT_CONVERGED,))
        assert first["problems"]
        assert has_order(bed, "n2") and not has_order(bed, "n1")
        await_condition(bed, "diverged")
        answer = ("--yes", "--accept", "SAN-HEAL-004", "--timeout", "1")
        second = heal(bed, "--keep", "n2", *answer, ok=(0, NOT_CONVERGED))
        print(f"  the second decision: {second['problems']}")
        assert not has_order(bed, "n2")
    finally:
        bed.sh("n2", "umount /usr/sbin/drbdadm")
    await_step(bed)
    await_healthy(bed, "n3")
    assert collect.active_node(bed, NAME) == "n2"
    assert content(bed, "n1") == content(bed, "n2") == ("A", "B")
    assert not has_order(bed, "n1") and not has_order(bed, "n2")
    scenario.sanctl("device", "move", NAME, "--to", "n1", timeout_s=90)


def test_the_replica_that_is_served_is_given_up_only_by_its_code(
    scenario: Scenario, device: str
) -> None:
    bed = scenario.bed
    # The kernels know that they are in step before the agents have told the cluster.
    await_healthy(bed, "n3")
    diverge(bed, keeps_serving=True)
    await_condition(bed, "diverged")
    assert collect.active_node(bed, NAME) == "n1"
    refused = heal(bed, "--keep", "n2", "--yes", ok=(4,))
    assert refused["problems"][0]["code"] == "SAN-HEAL-004"
    assert content(bed, "n1")[0] == "A"
    heal(bed, "--keep", "n2", "--yes", "--accept", "SAN-HEAL-004")
    await_step(bed)
    assert collect.active_node(bed, NAME) == "n2"
    assert content(bed, "n1") == content(bed, "n2")
    assert content(bed, "n1")[1] == "B"


def test_replicas_without_a_common_past(scenario: Scenario, device: str) -> None:
    """No bitmap has the differences: the replica that is given up gets a full resync."""
    bed = scenario.bed
    # The kernels know that they are in step before the agents have told the cluster.
    await_healthy(bed, "n3")
    scenario.sanctl("device", "move", NAME, "--to", "n1", timeout_s=90)
    diverge(bed, keeps_serving=True, rotations=3)
    await_condition(bed, "unrelated")
    heal(bed, "--keep", "n1", "--yes")
    await_step(bed)
    assert collect.active_node(bed, NAME) == "n1"
    assert content(bed, "n1") == content(bed, "n2")


def test_the_replica_that_was_ahead_is_gone(scenario: Scenario, device: str) -> None:
    """n2 left first and knows that it is behind; n1, which served on, is away.

    Quorum goes with the second of three nodes, so n1 is stopped only when n2 is back, before n2
    has caught up: its sync network is cut meanwhile.
    """
    bed = scenario.bed
    network.unplug(bed.lab, bed.node("n2"), Network.SYNC, LocalRunner())
    try:
        wait_for(
            "n2 to be marked",
            lambda: "connection:Connecting" in bed.sh("n1", f"drbdsetup status {NAME}").stdout,
            within_s=60,
        )
        write(bed, "n1", "C", through=f"/dev/mapper/sanctl-{NAME}")
        bed.sh("n1", "systemctl stop pacemaker corosync", timeout_s=180)
        data = await_condition(bed, "blocked")
        replicas = {replica["node"]: replica for replica in data["copies"]}
        assert replicas["n1"]["keeping_it"]["refused"]["code"] == "SAN-HEAL-002"
        assert replicas["n2"]["keeping_it"]["loses"]["bytes_at_most"] is None
        assert "SAN-HLT-037" in bed.sh("n3", "sanctl status", ok=(0, 1)).stdout
        heal(bed, "--keep", "n2", "--yes")
        assert collect.active_node(bed, NAME) == "n2"
        write(bed, "n2", "D", through=f"/dev/mapper/sanctl-{NAME}")
    finally:
        network.plug(bed.lab, bed.node("n2"), Network.SYNC, LocalRunner())
        bed.sh("n1", "systemctl start pacemaker", timeout_s=60)
    await_condition(bed, "diverged")
    heal(bed, "--keep", "n2", "--yes")
    await_step(bed)
    assert content(bed, "n1") == content(bed, "n2")
    assert content(bed, "n1")[1] == "D"
