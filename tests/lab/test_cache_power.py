"""All power is lost at once, with disks that forget what was not flushed: what is left, by policy.

The last rows of the table in docs/explanation/cache.md. What must not be lost with write-through is
lost without a cache policy when no host flushes, as the table says; that is the proof that the
check finds a flush that was left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.demo import observe
from sanctl.demo.bed import Bed, wait_for
from sanctl.demo.scene import Scene
from sanctl.lab import faults
from sanctl.lab.spec import Network
from sanctl.system.runner import LocalRunner

pytestmark = pytest.mark.faults

NAME = "power0"
MIB = 2**20
PATTERN_AT_MIB, PATTERN_MIB = 100, 8
BACK_DEADLINE_S = 400.0


@pytest.fixture(scope="module")
def device(scene: Scene) -> Iterator[tuple[str, str]]:
    """The target, and its path on the host."""
    target = scene.create(NAME, "128M", prefer="n1")
    yield target, scene.host.login(target, scene.portals())
    scene.delete(NAME)


def set_cache(bed: Bed, mode: str) -> None:
    """Return when both replicas are in a mode; asked where no replica is."""
    bed.sh("n3", f"sanctl device cache {NAME} {mode}", timeout_s=150)

    def reached() -> bool:
        told = bed.sh("n3", f"sanctl device show {NAME} --output json", timeout_s=60).stdout
        return {one["cache"]["mode"] for one in json.loads(told)["data"]["replicas"]} == {mode}

    wait_for(f"both replicas in {mode}", reached, within_s=150, every_s=2.0)


def let_disks_forget(bed: Bed) -> None:
    """Give the disk of every storage node a volatile cache of its own, until its next boot."""
    for node in bed.storage:
        faults.break_disk(bed.lab, node, 1, faults.Disk.VOLATILE, LocalRunner())


def cut_all(bed: Bed) -> None:
    """Cut the power of all storage nodes, the one that serves last, and give it back."""
    active = observe.active_node(bed, NAME)
    for name in sorted((node.name for node in bed.storage), key=lambda name: name == active):
        bed.cut_power(name)
    for node in bed.storage:
        if not bed.has_power(node.name):  # fencing may have given it back
            bed.give_power(node.name)


@pytest.mark.parametrize(("mode", "loses"), [("write-through", False), ("none", True)])
def test_what_no_host_flushed(
    scene: Scene, device: tuple[str, str], mode: str, loses: bool
) -> None:
    bed, host = scene.bed, scene.host
    set_cache(bed, mode)
    let_disks_forget(bed)
    load = scene.start_load(
        NAME,
        device[0],
        device[1],
        rate=50,
        region_bytes=4 * MIB,
        tell=print,
        show=lambda _state: None,
    )
    # Nothing is written after the cut that could hide what it took.
    host.stop_ledger(load.run)
    cut_all(bed)
    wait_for(
        "the device to be served again",
        lambda: observe.active_node(bed, NAME) and observe.in_sync(bed, "n1", NAME),
        within_s=BACK_DEADLINE_S,
        every_s=5.0,
    )
    host.login(device[0], [node.address(Network.ISCSI) for node in bed.storage])
    check = host.check_ledger(load.run)
    print(f"  {mode}: {check['acknowledged']} acknowledged, {check['lost']} lost")
    assert check["acknowledged"] > 20
    assert (check["lost"] > 0) is loses, check["findings"]


def test_write_back_waits_for_an_operator_and_has_what_was_flushed(
    scene: Scene, device: tuple[str, str]
) -> None:
    bed, host = scene.bed, scene.host
    set_cache(bed, "write-back")
    let_disks_forget(bed)
    active = observe.active_node(bed, NAME)
    content = f"yes flushed | head -c {PATTERN_MIB * MIB}"
    host.sh(
        f"{content} | dd of={device[1]} bs=1M seek={PATTERN_AT_MIB} oflag=direct"
        " iflag=fullblock conv=notrunc,fsync",
        timeout_s=120,
    )
    cut_all(bed)

    def blocked() -> dict[str, Any] | None:
        text = bed.sh("n3", f"sanctl device heal {NAME} --output json", ok=range(256)).stdout
        told = json.loads(text)["data"]
        if not told or told["condition"] != "blocked":
            return None
        return dict(told) if all(copy["suspect"] for copy in told["copies"]) else None

    shown = wait_for("both copies to be suspect", blocked, within_s=BACK_DEADLINE_S, every_s=5.0)
    assert [copy["node"] for copy in shown["copies"] if copy["served_last"]] == [active]
    assert not any(copy["serves"] for copy in shown["copies"])
    bed.sh("n3", f"sanctl device heal {NAME} --keep {active} --yes", timeout_s=240)
    assert observe.active_node(bed, NAME) == active
    wait_for(
        "the other copy to be filled",
        lambda: observe.in_sync(bed, active, NAME),
        within_s=BACK_DEADLINE_S,
        every_s=3.0,
    )
    read = host.sh(
        f"dd if={device[1]} bs=1M skip={PATTERN_AT_MIB} count={PATTERN_MIB} iflag=direct"
        " 2>/dev/null | sha256sum",
        timeout_s=120,
    )
    assert read == host.sh(f"{content} | sha256sum")
