# SPDX-License-Identifier: GPL-2.0-or-later
"""The life of a device on real kernels: exported, written, moved, crashed, resized, deleted.

The tests build on each other's device, in file order: each step costs seconds on real kernels,
and a device that has been through all of the earlier ones is the better subject.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import Load
from sanctl.lab.harness.lab_session import Bed, wait_for
from sanctl.lab.harness.scenario import Scene

NAME = "vol0"
SIZE_BYTES = 512 * 2**20
GROWN_BYTES = 768 * 2**20
REGION_BYTES = 32 * 2**20
# A shared machine is no stop-watch: what is promised of pauses is measured and judged by the demo,
# on a quiet one. This is only to notice a hang.
PAUSE_DEADLINE_S = 60.0


@dataclass(frozen=True)
class Exported:
    """A device the host is logged in to."""

    target: str
    path: str  # of the multipath device


@pytest.fixture(scope="module")
def exported(scene: Scene) -> Exported:
    target = scene.create(NAME, "512M", prefer="n1")
    return Exported(target, scene.host.login(target, scene.portals()))


@pytest.fixture
def load(scene: Scene, exported: Exported, request: pytest.FixtureRequest) -> Iterator[Load]:
    """A ledger on the device while the test runs; whatever happens, nothing may be lost."""
    made = scene.start_load(
        NAME,
        exported.target,
        exported.path,
        rate=100,
        region_bytes=REGION_BYTES,
        tell=lambda text: print(f"  {text}"),
        show=lambda _state: None,
    )
    yield made
    scene.host.stop_ledger(made.run)
    check = scene.host.check_ledger(made.run)
    assert check["acknowledged"] > 200
    assert (check["lost"], check["errors"]) == (0, 0), check["findings"]


def paths_of(scene: Scene, exported: Exported) -> list[str]:
    paths = list(scene.host.paths(exported.target, scene.portals()))
    assert len(paths) == len(scene.portals())
    return paths


def test_a_new_device_is_in_sync_without_a_sync(scene: Scene, exported: Exported) -> None:
    """Both replicas are zeros: nothing had to be copied."""
    bed = scene.bed
    assert collect.active_node(bed, NAME) == "n1"
    assert collect.in_sync(bed, "n1", NAME)
    log = collect.journals(bed, ["n1", "n2"], time.time() - 600)
    assert not [e.message for e in log if f"{NAME}: Began resync" in e.message]


def test_identity_is_the_same_by_every_path(scene: Scene, exported: Exported) -> None:
    """A host that saw two different disks would join them to none, or worse."""
    paths = paths_of(scene, exported)
    told = {
        path: scene.host.sh(
            f"sg_inq -s 200 /dev/{path}; sg_vpd -p 0x80 /dev/{path};"
            f" sg_vpd -p bl /dev/{path}; sg_vpd -p lbpv /dev/{path};"
            f" blockdev --getsize64 /dev/{path}"
        )
        for path in paths
    }
    assert len({text.replace(path, "PATH") for path, text in told.items()}) == 1, told
    designators = {path: scene.host.sh(f"sg_vpd -p 0x83 /dev/{path}") for path in paths}
    naa = {path: re.findall(r"0x6[0-9a-f]{31}", text) for path, text in designators.items()}
    assert len({tuple(found) for found in naa.values()}) == 1, naa
    assert all(naa.values())
    assert scene.host.sh(f"blockdev --getsize64 {exported.path}").strip() == str(SIZE_BYTES)


def test_paths_differ_where_they_must(scene: Scene, exported: Exported) -> None:
    """Port and port group are what tells one path from another."""
    groups, ports = set(), set()
    for path in paths_of(scene, exported):
        text = scene.host.sh(f"sg_vpd -p 0x83 /dev/{path}")
        groups.add(re.findall(r"Target port group: (0x[0-9a-f]+)", text)[0])
        ports.add(re.findall(r"Relative target port: (0x[0-9a-f]+)", text)[0])
    assert groups == {"0x1", "0x2"}
    assert len(ports) == 2


def test_one_port_group_is_active_the_other_standby(scene: Scene, exported: Exported) -> None:
    states = {}
    for path in paths_of(scene, exported):
        own = re.findall(
            r"Target port group: (0x[0-9a-f]+)", scene.host.sh(f"sg_vpd -p 0x83 /dev/{path}")
        )[0]
        text = scene.host.sh(f"sg_rtpg --decode /dev/{path}")
        told = dict(
            re.findall(
                r"target port group id : (0x[0-9a-f]+).*?asymmetric access state : 0x([0-9a-f]+)",
                text,
                re.DOTALL,
            )
        )
        states[own] = int(told[own], 16)
    assert states == {"0x1": 0, "0x2": 2}


def test_the_standby_path_takes_no_data(scene: Scene, exported: Exported) -> None:
    """Whatever multipath believes, the standby node must refuse."""
    standby = next(
        path
        for path in paths_of(scene, exported)
        if re.search(r"Target port group: 0x2\b", scene.host.sh(f"sg_vpd -p 0x83 /dev/{path}"))
    )
    read, write = "28 00 00 00 00 00 00 00 01 00", "2a 00 00 00 00 00 00 00 01 00"
    for command in (
        f"sg_raw -r 512 /dev/{standby} {read}",
        f"sg_raw -s 512 -i /dev/zero /dev/{standby} {write}",
    ):
        done = scene.bed.sh(scene.host.name, command, ok=range(256))
        assert done.status != 0
        assert "target port in standby state" in done.stdout + done.stderr


@pytest.mark.parametrize("who", [(), ("iqn.2026-11.net.example:stranger",)], ids=["empty", "other"])
def test_an_initiator_not_on_the_list_sees_nothing(scene: Scene, who: tuple[str, ...]) -> None:
    options = [each for iqn in who for each in ("--initiator", iqn)]
    scene.sanctl("device", "create", "closed", "--size", "64M", *options, timeout_s=180)
    try:
        target = f"{scene.iqn_prefix()}.closed"
        for portal in scene.portals():
            assert target not in scene.host.discover(portal)
            scene.host.sh(f"iscsiadm -m node -T {target} -p {portal} -o new")
            done = scene.bed.sh(
                scene.host.name,
                f"iscsiadm -m node -T {target} -p {portal} --login",
                ok=range(256),
                timeout_s=150,
            )
            assert done.status != 0
        assert scene.host.sessions(target) == {}
    finally:
        scene.delete("closed")


def test_the_audit_sees_what_the_kernels_do(scene: Scene) -> None:
    """An audit that reads nothing would approve of everything."""
    seen = collect.views(scene.bed)
    assert (seen["n1"][NAME].role, seen["n1"][NAME].table) == ("Primary", "linear")
    assert (seen["n2"][NAME].role, seen["n2"][NAME].table) == ("Secondary", "error")
    assert seen["n1"][NAME].is_active and not seen["n2"][NAME].is_active


def test_a_planned_move_under_load(scene: Scene, load: Load) -> None:
    trial = failover.move(load, "n2")
    assert trial.to_node == "n2"
    assert trial.sessions.kept, trial.sessions
    assert trial.pause.errors == 0
    assert trial.violations == ()
    assert trial.pause.seconds <= PAUSE_DEADLINE_S, trial.stages


def test_a_crash_under_load_and_the_return(scene: Scene, load: Load) -> None:
    trial = failover.crash(load)
    assert (trial.from_node, trial.to_node) == ("n2", "n1")
    assert trial.is_fenced, trial.events
    assert trial.sessions.kept, trial.sessions
    assert trial.pause.errors == 0
    assert trial.violations == ()
    assert trial.resync is not None
    assert trial.resync.copied_bytes <= trial.resync.limit_bytes
    assert trial.pause.seconds <= PAUSE_DEADLINE_S, trial.stages


def test_it_grows_under_a_live_session(scene: Scene, exported: Exported, load: Load) -> None:
    before = load.sessions()
    scene.sanctl("device", "resize", NAME, str(GROWN_BYTES), timeout_s=120)

    def seen_size() -> bool:
        scene.host.sh(f"iscsiadm -m node -T {exported.target} --rescan")
        name = exported.path.removeprefix("/dev/mapper/")
        scene.host.sh(f"multipathd resize map {name}")
        size = scene.host.sh(f"blockdev --getsize64 {exported.path}")
        return int(size) == GROWN_BYTES

    wait_for("the host to see the new size", seen_size, within_s=60, every_s=2.0)
    assert load.sessions() == before
    # What was added is there, on the device and not only in its size.
    scene.host.sh(
        f"dd if=/dev/zero of={exported.path} bs=4096 count=1 oflag=direct conv=nocreat"
        f" seek={GROWN_BYTES // 4096 - 1}"
    )


def allocated(bed: Bed) -> dict[str, int]:
    """Bytes that the device's data file takes on each node."""
    script = f"stat -c '%b' /srv/sanctl/main/devices/{NAME}.*.data"
    return {node.name: int(bed.sh(node.name, script).stdout) * 512 for node in bed.storage}


def test_unmap_frees_blocks_on_every_replica(scene: Scene, exported: Exported) -> None:
    """After a crash and a move, too: the other tests came before."""
    at_mib, size_mib = 256, 64
    scene.host.sh(
        f"dd if=/dev/urandom of={exported.path} bs=1M seek={at_mib} count={size_mib}"
        " oflag=direct conv=nocreat",
        timeout_s=120,
    )
    full = allocated(scene.bed)
    scene.host.sh(
        f"blkdiscard --offset {at_mib << 20} --length {size_mib << 20} {exported.path}",
        timeout_s=120,
    )

    def freed() -> bool:
        now = allocated(scene.bed)
        return all(now[node] <= full[node] - (size_mib << 20) * 0.9 for node in full)

    wait_for("the blocks to be free in both files", freed, within_s=30)


def test_status_is_healthy_and_shows_the_device(scene: Scene) -> None:
    failover.await_healthy(scene.bed, "n1")
    told = json.loads(scene.sanctl("status", "--output", "json"))
    assert NAME in json.dumps(told)


def test_deleted_is_gone_from_every_node(scene: Scene, exported: Exported) -> None:
    def leftovers() -> str:
        return "".join(
            scene.bed.sh(
                node.name,
                "ls /srv/sanctl/main/devices; losetup -a; dmsetup ls;"
                " ls /sys/kernel/config/target/iscsi /sys/kernel/config/target/core/* /etc/drbd.d",
                ok=range(256),
            ).stdout
            for node in scene.bed.storage
        )

    assert NAME in leftovers()
    scene.delete(NAME)
    wait_for(
        f"everything of {NAME} to be gone",
        lambda: NAME not in leftovers(),
        within_s=60,
        every_s=2.0,
    )
    assert all(NAME not in view for view in collect.views(scene.bed).values())
