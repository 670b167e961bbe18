# SPDX-License-Identifier: GPL-2.0-or-later
"""Copies among three storage nodes in two racks, under a running ledger, with DRBD 8.4.

On a laboratory of its own: three storage nodes, of which the first two share a rack, and a witness.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.errors import CommandError
from sanctl.lab.bench import replica_changes
from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import Load, await_healthy, await_writes
from sanctl.lab.harness.initiator import Host
from sanctl.lab.harness.lab_session import Bed, wait_for
from sanctl.lab.harness.scenario import Scene
from sanctl.lab.machines import lab_state
from sanctl.lab.machines.spec import LabSpec, Witness
from sanctl.lab.measure import audit
from tests.support import level_steps
from tests.support.laboratory import laboratory
from tests.support.level_steps import CHANGE_S, assert_unnoticed, begin_change, files, follow

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1200)]

OWN_LAB = os.environ.get("SANCTL_TEST_LAB", "")
SHAPE = {"nodes": 4, "witness": Witness.NODE.value, "racks": 2}
NAME, OTHER = "three", "third"
RISK = ("--accept", "SAN-RISK-004")


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    """In place of the session's laboratory, which has two storage nodes."""
    wanted = LabSpec(name="testthree", **SHAPE)  # type: ignore[arg-type]
    found = lab_state.find(OWN_LAB) if OWN_LAB else None
    is_own = found is not None and (found.spec.nodes, found.spec.racks) == (4, 2)
    spec = found.spec if found is not None and is_own else wanted
    yield from laboratory(request, spec, is_own=is_own, options=("--racks", str(spec.racks)))


@pytest.fixture(scope="module")
def scene(bed: Bed) -> Scene:
    return Scene(bed, Host(bed, "i1"))


@pytest.fixture
def load(request: pytest.FixtureRequest, scene: Scene) -> Iterator[Load]:
    """A device with copies on n1, which serves it, and n2."""
    cache = getattr(request, "param", "none")
    with level_steps.loaded(scene, NAME, ("n1", "n2"), cache=cache) as made:
        yield made


def told(scene: Scene, *words: str, node: str = "n1") -> Any:
    out = scene.bed.sh(node, f"sanctl {' '.join(words)} --output json", ok=(0, 1)).stdout
    return json.loads(out)["data"]


def copies(scene: Scene, name: str = NAME, node: str = "n4") -> tuple[str, ...]:
    return replica_changes.copies(scene.bed, node, name)


def refusal(scene: Scene, *words: str) -> str:
    with pytest.raises(CommandError) as caught:
        scene.sanctl(*words)
    return str(caught.value)


def crash(load: Load, lost: str, taker: str) -> None:
    """Cut the power of the node that serves: another takes over, and it comes back."""
    bed = load.bed
    with load.host.watch_ledger(load.run) as states:
        await_writes(load, states)
        bed.cut_power(lost)
        wait_for(
            f"{taker} to serve",
            lambda: collect.active_node(bed, load.device) == taker,
            within_s=120,
        )
        await_writes(load, states)
    assert audit.violations(collect.views(bed)) == []
    wait_for(f"the power of {lost}", lambda: bed.has_power(lost), within_s=90)
    await_healthy(bed, taker)


def switch_off_for_good(bed: Bed, node: str) -> None:
    """Cut a node's power, and again when fencing has given it back and has been heard to have.

    Cut earlier, and whoever fences would switch it on once more.
    """
    bed.cut_power(node)
    wait_for(
        f"{node} to be fenced",
        lambda: f"OFFLINE: [ {node} ]" in bed.sh("n4", "crm_mon -1").stdout,
        within_s=120,
        every_s=0.2,
    )
    wait_for(f"the power of {node}", lambda: bed.has_power(node), within_s=90, every_s=0.2)
    bed.cut_power(node)


def come_back(bed: Bed, node: str) -> None:
    """Switch a node on that was off; what it had of devices it removes."""
    if not bed.has_power(node):
        bed.give_power(node)
    wait_for(
        f"{node} to remove what it had",
        lambda: (
            not {NAME, OTHER} & {line.split(".")[0] for line in files(bed, node).split()}
            and node in bed.sh("n4", "crm_mon -1 | grep Online:").stdout.split()
        ),
        within_s=240,
        every_s=2.0,
    )


def test_copies_go_to_different_racks_and_it_is_said_why(scene: Scene) -> None:
    place = told(scene, "device", "place", "--size", "256M", "--explain")
    verdicts = {each["node"]: each for each in place["verdicts"]}
    assert {node: each["rack"] for node, each in verdicts.items()} == {
        "n1": "r1", "n2": "r1", "n3": "r2",
    }  # fmt: skip
    assert "n3" in place["nodes"] and len(place["nodes"]) == 2
    (passed,) = (each for each in verdicts.values() if not each["chosen"])
    assert passed["reason"].startswith("rack r1 has a copy already, on n")
    assert "another rack" in verdicts["n3"]["reason"] or place["nodes"][0] == "n3"
    scene.sanctl("device", "create", NAME, "--size", "256M", timeout_s=300)
    try:
        assert "n3" in copies(scene)
        scene.sanctl("device", "replicas", NAME, "1", "--drop", "n3", timeout_s=CHANGE_S)
        (left,) = copies(scene)
        # The one that is added by itself goes to the other rack, too.
        scene.sanctl("device", "replicas", NAME, "2", timeout_s=CHANGE_S)
        assert copies(scene) == (left, "n3")
        # Who asks for it gets both in one rack.
        here = {"n1", "n2"} - {left}
        scene.sanctl(
            "device", "replicas", NAME, "2", "--add", *here, "--drop", "n3", *RISK,
            timeout_s=CHANGE_S,
        )  # fmt: skip
        assert set(copies(scene)) == {"n1", "n2"}
    finally:
        scene.delete(NAME)


def test_a_copy_moves_and_the_device_survives_on_it(scene: Scene, load: Load) -> None:
    words = ("2", "--add", "n3", "--drop", "n2")
    assert "SAN-RISK-004" in refusal(scene, "device", "replicas", NAME, *words)
    assert copies(scene) == ("n1", "n2")
    assert_unnoticed(replica_changes.change(load, *words, *RISK))
    assert copies(scene) == ("n1", "n3")
    assert NAME not in files(scene.bed, "n2")
    follow(scene, load, "n1", "n3")
    crash(load, "n1", "n3")


def test_the_copy_that_serves_moves(scene: Scene, load: Load) -> None:
    words = ("device", "replicas", NAME, "2", "--add", "n3", "--drop", "n1", *RISK)
    with load.host.watch_ledger(load.run) as states:
        await_writes(load, states)
        scene.sanctl(*words, timeout_s=CHANGE_S)
        await_writes(load, states)
    assert copies(scene) == ("n2", "n3")
    assert collect.active_node(scene.bed, NAME) == "n2"
    assert NAME not in files(scene.bed, "n1")
    follow(scene, load, "n2", "n3")


def test_a_node_that_is_off_for_good_is_replaced(scene: Scene, load: Load) -> None:
    """It served one device and was the standby of another."""
    bed = scene.bed
    scene.create(OTHER, "64M", prefer="n2", nodes=["n2", "n1"])
    try:
        switch_off_for_good(bed, "n2")
        wait_for(
            "both devices to be served by n1",
            lambda: all(collect.active_node(bed, name) == "n1" for name in (NAME, OTHER)),
            within_s=120,
        )
        with load.host.watch_ledger(load.run) as states:
            await_writes(load, states)
            scene.sanctl("node", "replace", "n2", "n3", timeout_s=CHANGE_S)
            await_writes(load, states)
        for name in (NAME, OTHER):
            assert copies(scene, name) == ("n1", "n3")
            assert collect.in_sync(bed, "n1", name)
        assert audit.violations(collect.views(bed)) == []
        assert "nothing to do" in scene.sanctl("node", "replace", "n2", "n3")
        follow(scene, load, "n1", "n3")
        # Two of four nodes would be no majority: the old one has to be back, or removed for good.
        come_back(bed, "n2")
        crash(load, "n1", "n3")
    finally:
        if not bed.has_power("n2"):
            bed.give_power("n2")
        scene.delete(OTHER)


def test_the_new_node_dies_and_the_move_goes_elsewhere(scene: Scene, load: Load) -> None:
    bed = scene.bed
    words = ("device", "replicas", NAME, "2", "--add", "n3", "--drop", "n2", *RISK)
    begin_change(bed, "n1", *words)
    level_steps.await_filling(bed, "n3", NAME)
    switch_off_for_good(bed, "n3")
    try:
        assert collect.active_node(bed, NAME) == "n1"
        with load.host.watch_ledger(load.run) as states:
            await_writes(load, states)
            # What the first command waited for does not come any more.
            bed.sh("n1", "systemctl kill --signal KILL levels-change", ok=range(256))
            scene.sanctl(
                "device", "replicas", NAME, "2", "--add", "n2", "--drop", "n3", timeout_s=CHANGE_S
            )
            await_writes(load, states)
        assert copies(scene) == ("n1", "n2")
        assert collect.in_sync(bed, "n1", NAME)
    finally:
        if not bed.has_power("n3"):
            bed.give_power("n3")
    come_back(bed, "n3")
    crash(load, "n1", "n2")


@pytest.mark.parametrize("load", ["write-through"], indirect=True)
def test_the_only_good_copy_dies_in_the_middle_of_a_move(scene: Scene, load: Load) -> None:
    """Nobody serves what is half filled: the device waits, and the move goes on."""
    bed = scene.bed
    words = ("device", "replicas", NAME, "2", "--add", "n3", "--drop", "n2", *RISK)
    begin_change(bed, "n4", *words)
    level_steps.await_filling(bed, "n3", NAME)
    bed.cut_power("n1")
    wait_for(
        "the cluster to miss it",
        lambda: "n1" not in bed.sh("n4", "crm_mon -1 | grep Online:").stdout.split(),
        within_s=120,
    )
    assert not audit.active_nodes(collect.views(bed), NAME)
    wait_for("the power of n1", lambda: bed.has_power("n1"), within_s=90)
    wait_for(
        "n1 to serve again",
        lambda: collect.active_node(bed, NAME) == "n1",
        within_s=240,
        every_s=2.0,
    )
    scene.sanctl(*words, node="n4", timeout_s=CHANGE_S)
    assert copies(scene) == ("n1", "n3")
    assert collect.in_sync(bed, "n1", NAME)
    assert NAME not in files(bed, "n2")
