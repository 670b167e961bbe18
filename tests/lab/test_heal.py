# SPDX-License-Identifier: GPL-2.0-or-later
"""Replicas that have diverged, made so on purpose, and what an operator does about it.

Each side is Primary while the other is out of reach, and takes a write of its own. DRBD then
refuses to connect them, sanctl says so, and nothing is thrown away until an operator names a copy.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import await_healthy
from sanctl.lab.harness.lab_session import Bed, wait_for
from sanctl.lab.harness.scenario import Scene
from sanctl.lab.machines import network
from sanctl.lab.machines.spec import Network
from sanctl.system.runner import LocalRunner

pytestmark = pytest.mark.faults

NAME = "heal0"
MIB = 2**20
# Where each side writes while they are apart, and how much.
AT = {"n1": 8 * MIB, "n2": 24 * MIB}
SIZE = {"n1": 2 * MIB, "n2": 1 * MIB}


@pytest.fixture(scope="module")
def device(scene: Scene) -> Iterator[str]:
    scene.create(NAME, "64M", prefer="n1")
    yield NAME
    scene.bed.sh("n1", "crm_attribute --name maintenance-mode --delete", ok=range(256))
    scene.delete(NAME)


def heal(bed: Bed, *arguments: str, ok: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """Run `sanctl device heal` on the witness, where neither copy is."""
    words = shlex.join(["sanctl", "device", "heal", NAME, "--output", "json", *arguments])
    told = json.loads(bed.sh("n3", words, timeout_s=180, ok=ok).stdout)
    assert isinstance(told, dict)
    return told


def write(bed: Bed, node: str, value: str, *, through: str) -> None:
    """Fill a node's own stretch of the device with one byte value."""
    bed.sh(
        node,
        f"head -c {SIZE[node]} /dev/zero | tr '\\0' '{value}' |"
        f" dd of={through} bs=1M seek={AT[node] // MIB} oflag=direct conv=nocreat iflag=fullblock",
        timeout_s=60,
    )


def content(bed: Bed, node: str) -> tuple[str, str]:
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


def diverge(bed: Bed, *, keeps_serving: bool, rotations: int = 0) -> None:
    """Let both nodes write apart from each other, then give them their link back.

    Each marked the other as behind when it lost it, so that nobody serves, unless asked for.
    With each rotation n2 takes a new generation, until it no longer knows the common one.
    """
    minor = collect.minor(bed, "n2", NAME)
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
    if keeps_serving:
        # n2's own promotion has marked n1, as it must; so both are marked.
        bed.sh("n1", f"crm_attribute --node n1 --name sanctl-outdated-{NAME} --delete")
    bed.sh("n1", "crm_attribute --name maintenance-mode --delete")


def await_condition(bed: Bed, wanted: str) -> dict[str, Any]:
    """Wait until the agents have told enough for this to be known."""

    def told() -> dict[str, Any] | None:
        data = heal(bed, ok=(0, 1))["data"]
        assert isinstance(data, dict)
        return data if data["condition"] == wanted else None

    return wait_for(f"condition {wanted}", told, within_s=90, every_s=2.0)


def await_step(bed: Bed) -> None:
    wait_for("the replicas in step", lambda: collect.in_sync(bed, "n1", NAME), within_s=120)


def test_sound_replicas_offer_nothing(scene: Scene, device: str) -> None:
    assert heal(scene.bed)["data"]["condition"] == "sound"
    assert (
        heal(scene.bed, "--keep", "n2", "--yes", ok=(4,))["problems"][0]["code"] == "SAN-HEAL-001"
    )


def test_both_are_marked_and_one_is_given_up(scene: Scene, device: str) -> None:
    bed = scene.bed
    diverge(bed, keeps_serving=False)
    data = await_condition(bed, "diverged")
    copies = {copy["node"]: copy for copy in data["copies"]}
    for node, copy in copies.items():
        assert copy["marked"] and not copy["serves"]
        assert copy["only_there_bytes"] >= SIZE[node]
        assert copy["apart_since"] is not None
    assert copies["n1"]["keeping_it"]["loses"]["bytes_at_most"] >= SIZE["n2"]
    status = bed.sh("n3", "sanctl status", ok=(0, 1)).stdout
    assert "SAN-HLT-038" in status and "SAN-HLT-032" in status
    assert f"sanctl device heal {NAME}" in status
    # Nothing was thrown away so far, and a stale order throws nothing away.
    uuid = json.loads(scene.sanctl("device", "show", NAME, "--output", "json"))["data"]["uuid"]
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


def test_the_copy_that_is_served_is_given_up_only_by_its_code(scene: Scene, device: str) -> None:
    bed = scene.bed
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


def test_copies_without_a_common_past(scene: Scene, device: str) -> None:
    """Neither bitmap tells what differs: the copy that is given up is sent whole."""
    bed = scene.bed
    # The kernels know that they are in step before the agents have told the cluster.
    await_healthy(bed, "n3")
    scene.sanctl("device", "move", NAME, "--to", "n1", timeout_s=90)
    diverge(bed, keeps_serving=True, rotations=3)
    await_condition(bed, "unrelated")
    heal(bed, "--keep", "n1", "--yes")
    await_step(bed)
    assert collect.active_node(bed, NAME) == "n1"
    assert content(bed, "n1") == content(bed, "n2")


def test_the_copy_that_was_ahead_is_gone(scene: Scene, device: str) -> None:
    """n2 left first and knows that it is behind; n1, which served on, is away.

    Quorum goes with the second of three nodes, so n1 is stopped only when n2 is back, before n2
    has caught up: its sync network is cut meanwhile.
    """
    bed = scene.bed
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
        copies = {copy["node"]: copy for copy in data["copies"]}
        assert copies["n1"]["keeping_it"]["refused"]["code"] == "SAN-HEAL-002"
        assert copies["n2"]["keeping_it"]["loses"]["bytes_at_most"] is None
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
