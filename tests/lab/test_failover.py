# SPDX-License-Identifier: GPL-2.0-or-later
"""One device: created, exported, moved, crashed, resized, unmapped, deleted (two storage nodes).

The tests build on each other's device, in file order: each step costs seconds on real kernels,
and a device that has been through all of the earlier ones is the better subject.
"""

from __future__ import annotations

import json
import re
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.parse.corosync import parse_quorumtool
from tests.support import ledgers

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
def exported(scenario: Scenario) -> Iterator[Exported]:
    target = scenario.create(NAME, "512M", prefer="n1")
    if collect.active_node(scenario.bed, NAME) != "n1":  # right after a rollout it may be
        scenario.sanctl("device", "move", NAME, "--to", "n1", timeout_s=120)
    yield Exported(target, scenario.host.login(target, scenario.portals()))
    if scenario.exists(NAME):  # a test deletes it
        scenario.delete(NAME)


@pytest.fixture
def load(
    scenario: Scenario, exported: Exported, request: pytest.FixtureRequest
) -> Iterator[LedgerLoad]:
    """A ledger on the device while the test runs; whatever happens, nothing may be lost."""
    made = ledgers.start(
        scenario, NAME, exported.target, exported.path, rate=100, region_bytes=REGION_BYTES
    )
    yield made
    ledgers.assert_nothing_lost(made)


def paths_of(scenario: Scenario, exported: Exported) -> list[str]:
    paths = list(scenario.host.paths(exported.target, scenario.portals()))
    assert len(paths) == len(scenario.portals())
    return paths


@pytest.mark.quick
def test_a_new_device_is_in_sync_without_a_sync(scenario: Scenario, exported: Exported) -> None:
    """Both replicas are zeros: nothing had to be copied."""
    bed = scenario.bed
    assert collect.active_node(bed, NAME) == "n1"
    assert collect.is_in_sync(bed, "n1", NAME)
    log = collect.journals(bed, ["n1", "n2"], time.time() - 600)
    assert not [e.message for e in log if f"{NAME}: Began resync" in e.message]


@pytest.mark.quick
def test_identity_is_the_same_by_every_path(scenario: Scenario, exported: Exported) -> None:
    """A host that saw two different disks would join them to none, or worse."""
    paths = paths_of(scenario, exported)
    reported = {
        path: scenario.host.sh(
            f"sg_inq -s 200 /dev/{path}; sg_vpd -p 0x80 /dev/{path};"
            f" sg_vpd -p bl /dev/{path}; sg_vpd -p lbpv /dev/{path};"
            f" blockdev --getsize64 /dev/{path}"
        )
        for path in paths
    }
    assert len({text.replace(path, "PATH") for path, text in reported.items()}) == 1, reported
    designators = {path: scenario.host.sh(f"sg_vpd -p 0x83 /dev/{path}") for path in paths}
    naa = {path: re.findall(r"0x6[0-9a-f]{31}", text) for path, text in designators.items()}
    assert len({tuple(found) for found in naa.values()}) == 1, naa
    assert all(naa.values())
    assert scenario.host.sh(f"blockdev --getsize64 {exported.path}").strip() == str(SIZE_BYTES)


@pytest.mark.quick
def test_paths_differ_where_they_must(scenario: Scenario, exported: Exported) -> None:
    """Paths differ in their target port and target port group."""
    groups, ports = set(), set()
    for path in paths_of(scenario, exported):
        text = scenario.host.sh(f"sg_vpd -p 0x83 /dev/{path}")
        groups.add(re.findall(r"Target port group: (0x[0-9a-f]+)", text)[0])
        ports.add(re.findall(r"Relative target port: (0x[0-9a-f]+)", text)[0])
    assert groups == {"0x1", "0x2"}
    assert len(ports) == 2


@pytest.mark.quick
def test_one_port_group_is_active_the_other_standby(scenario: Scenario, exported: Exported) -> None:
    states = {}
    for path in paths_of(scenario, exported):
        own = re.findall(
            r"Target port group: (0x[0-9a-f]+)", scenario.host.sh(f"sg_vpd -p 0x83 /dev/{path}")
        )[0]
        text = scenario.host.sh(f"sg_rtpg --decode /dev/{path}")
        reported = dict(
            re.findall(
                r"target port group id : (0x[0-9a-f]+).*?asymmetric access state : 0x([0-9a-f]+)",
                text,
                re.DOTALL,
            )
        )
        states[own] = int(reported[own], 16)
    assert states == {"0x1": 0, "0x2": 2}


@pytest.mark.quick
def test_the_standby_path_takes_no_data(scenario: Scenario, exported: Exported) -> None:
    """Whatever multipath believes, the standby node must refuse."""
    standby = next(
        path
        for path in paths_of(scenario, exported)
        if re.search(r"Target port group: 0x2\b", scenario.host.sh(f"sg_vpd -p 0x83 /dev/{path}"))
    )
    read, write = "28 00 00 00 00 00 00 00 01 00", "2a 00 00 00 00 00 00 00 01 00"
    for command in (
        f"sg_raw -r 512 /dev/{standby} {read}",
        f"sg_raw -s 512 -i /dev/zero /dev/{standby} {write}",
    ):
        done = scenario.bed.sh(scenario.host.name, command, ok=range(256))
        assert done.status != 0
        assert "target port in standby state" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "allowed", [(), ("iqn.2026-11.net.example:stranger",)], ids=["empty", "other"]
)
def test_an_initiator_not_on_the_list_sees_nothing(
    scenario: Scenario, allowed: tuple[str, ...]
) -> None:
    options = [each for iqn in allowed for each in ("--initiator", iqn)]
    scenario.sanctl("device", "create", "closed", "--size", "64M", *options, timeout_s=180)
    try:
        target = f"{scenario.iqn_prefix()}.closed"
        for portal in scenario.portals():
            assert target not in scenario.host.discover(portal)
            scenario.host.sh(f"iscsiadm -m node -T {target} -p {portal} -o new")
            done = scenario.bed.sh(
                scenario.host.name,
                f"iscsiadm -m node -T {target} -p {portal} --login",
                ok=range(256),
                timeout_s=150,
            )
            assert done.status != 0
        assert scenario.host.sessions(target) == {}
    finally:
        scenario.delete("closed")


@pytest.mark.quick
@pytest.mark.usefixtures("exported")
def test_the_audit_sees_what_the_kernels_do(scenario: Scenario) -> None:
    """An audit that reads nothing would approve of everything."""
    seen = collect.kernel_views(scenario.bed)
    assert (seen["n1"][NAME].role, seen["n1"][NAME].table) == ("Primary", "linear")
    assert (seen["n2"][NAME].role, seen["n2"][NAME].table) == ("Secondary", "error")
    assert seen["n1"][NAME].is_active and not seen["n2"][NAME].is_active


@pytest.mark.quick
def test_a_planned_move_under_load(scenario: Scenario, load: LedgerLoad) -> None:
    trial = failover.measure_move(load, "n2")
    assert trial.to_node == "n2"
    assert trial.sessions.kept, trial.sessions
    assert trial.pause.errors == 0
    assert trial.violations == ()
    assert trial.pause.seconds <= PAUSE_DEADLINE_S, trial.stages


@pytest.mark.quick
def test_a_crash_under_load_and_the_return(scenario: Scenario, load: LedgerLoad) -> None:
    lost = collect.active_node(scenario.bed, NAME)
    survivor = load.peer_of(lost)
    trial = failover.measure_crash(load)
    assert (trial.from_node, trial.to_node) == (lost, survivor)
    assert trial.is_fenced, failover.events_text(trial)
    assert trial.sessions.kept, trial.sessions
    assert trial.pause.errors == 0
    assert trial.violations == ()
    assert trial.resync is not None
    assert trial.resync.copied_bytes <= trial.resync.limit_bytes
    assert trial.pause.seconds <= PAUSE_DEADLINE_S, trial.stages
    # The mark of the lost replica has numbered the CIB by the membership without that node.
    root = ET.fromstring(scenario.bed.sh(survivor, "cibadmin --query --no-children").stdout)
    ring, rest = divmod(int(root.get("admin_epoch", "0")), 512)
    now = parse_quorumtool(scenario.bed.sh(survivor, "corosync-quorumtool -s").stdout).ring
    assert 64 <= rest < 512 and now is not None and 0 < ring < now


def test_it_grows_under_a_live_session(
    scenario: Scenario, exported: Exported, load: LedgerLoad
) -> None:
    before = load.sessions()
    scenario.sanctl("device", "resize", NAME, str(GROWN_BYTES), timeout_s=120)

    def seen_size() -> bool:
        scenario.host.sh(f"iscsiadm -m node -T {exported.target} --rescan")
        name = exported.path.removeprefix("/dev/mapper/")
        scenario.host.sh(f"multipathd resize map {name}")
        size = scenario.host.sh(f"blockdev --getsize64 {exported.path}")
        return int(size) == GROWN_BYTES

    wait_for("the host to see the new size", seen_size, within_s=60, every_s=2.0)
    assert load.sessions() == before
    # What was added is there, on the device and not only in its size.
    scenario.host.sh(
        f"dd if=/dev/zero of={exported.path} bs=4096 count=1 oflag=direct conv=nocreat"
        f" seek={GROWN_BYTES // 4096 - 1}"
    )


def written_bytes(bed: LabSession, first: int, size: int) -> dict[str, int]:
    """Bytes of a range of the device's data file that hold data on each node: not reserved ones."""
    script = f"filefrag -v -b1 /srv/sanctl/main/devices/{NAME}.*.data"
    found = {}
    for node in bed.storage:
        out = bed.sh(node.name, script).stdout
        extents = re.findall(r"^ *\d+: *(\d+)\.\. *(\d+):(.*)$", out, re.MULTILINE)
        found[node.name] = sum(
            max(0, min(int(last) + 1, first + size) - max(int(begin), first))
            for begin, last, rest in extents
            if "unwritten" not in rest
        )
    return found


def test_unmap_frees_blocks_on_every_replica(scenario: Scenario, exported: Exported) -> None:
    """After a crash and a move, too: the other tests came before.

    The blocks are reserved again soon, and hold nothing then.
    """
    at, size = 256 << 20, 64 << 20
    scenario.host.sh(
        f"dd if=/dev/urandom of={exported.path} bs=1M seek={at >> 20} count={size >> 20}"
        " oflag=direct conv=nocreat",
        timeout_s=120,
    )
    nodes = [node.name for node in scenario.bed.storage]
    assert written_bytes(scenario.bed, at, size) == dict.fromkeys(nodes, size)
    scenario.host.sh(f"blkdiscard --offset {at} --length {size} {exported.path}", timeout_s=120)

    def freed() -> bool:
        left = written_bytes(scenario.bed, at, size)
        return all(left[node] <= size * 0.1 for node in nodes)

    wait_for("the blocks to be free in both files", freed, within_s=30)


@pytest.mark.quick
@pytest.mark.usefixtures("exported")
def test_status_is_healthy_and_shows_the_device(scenario: Scenario) -> None:
    failover.await_healthy(scenario.bed, "n1")
    reported = json.loads(scenario.sanctl("status", "--output", "json"))
    assert NAME in json.dumps(reported)


@pytest.mark.quick
def test_deleted_is_gone_from_every_node(scenario: Scenario, exported: Exported) -> None:
    def leftovers() -> str:
        return "".join(
            scenario.bed.sh(
                node.name,
                "ls /srv/sanctl/main/devices; losetup -a; dmsetup ls;"
                " ls /sys/kernel/config/target/iscsi /sys/kernel/config/target/core/* /etc/drbd.d",
                ok=range(256),
            ).stdout
            for node in scenario.bed.storage
        )

    assert NAME in leftovers()
    scenario.delete(NAME)
    wait_for(
        f"everything of {NAME} to be gone",
        lambda: NAME not in leftovers(),
        within_s=60,
        every_s=2.0,
    )
    assert all(NAME not in view for view in collect.kernel_views(scenario.bed).values())
