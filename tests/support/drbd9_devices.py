# SPDX-License-Identifier: GPL-2.0-or-later
"""Devices with two to four replicas in a laboratory with DRBD 9: create, watch, cut, compare."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from sanctl.errors import NotConverged
from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import LedgerLoad, await_healthy
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import lab_state
from sanctl.lab.machines.spec import EXT4, LabSpec, Network, Role
from sanctl.lab.measure import ledger_latency
from tests.support import ledgers
from tests.support.laboratory import laboratory

OWN_LAB = os.environ.get("SANCTL_TEST_LAB", "")
KERNEL = os.environ.get("SANCTL_TEST_KERNEL", "")
MODULES = os.environ.get("SANCTL_TEST_MODULES", "")
_NODES = 5
SIZE_BYTES = 256 * 2**20
REGION_BYTES = 32 * 2**20
# A machine that does other things too; what is waited for is never the time itself.
DEADLINE_S = 240.0


def storage_of(spec: LabSpec) -> list[str]:
    """The nodes of a laboratory that hold data."""
    return [node.name for node in spec.cluster_nodes if node.role is Role.STORAGE]


def laboratory_with_drbd_9(
    request: pytest.FixtureRequest, *, filesystem: str = EXT4
) -> Iterator[LabSession]:
    """A laboratory with DRBD 9, in place of the shared one with Linux' own DRBD 8.4.

    An operator's own has the filesystem that it was made with.
    """
    found = lab_state.find(OWN_LAB) if OWN_LAB else None
    is_own = found is not None and len(storage_of(found.spec)) >= 3
    if not is_own and not (KERNEL and MODULES):
        pytest.skip(
            "no kernel with DRBD 9: name a UML kernel that has its modules in SANCTL_TEST_KERNEL, "
            "and the folder of its modules in SANCTL_TEST_MODULES"
        )
    spec = LabSpec(name=OWN_LAB if is_own else "testcopies", nodes=_NODES, filesystem=filesystem)
    kernel = () if is_own else ("--kernel", KERNEL, "--modules", MODULES)
    for made in laboratory(request, spec, is_own=is_own, options=kernel):
        version = made.sh("n1", "modprobe drbd; cat /sys/module/drbd/version").stdout.strip()
        if not version.startswith("9."):
            pytest.skip(f"three copies need DRBD 9: the kernel of lab {spec.name} has {version}")
        yield made


class ReplicatedDevice:
    """A device with several replicas, its host, and what its nodes' DRBD reports."""

    def __init__(self, scenario: Scenario, name: str, nodes: Sequence[str]) -> None:
        self.scenario = scenario
        self.bed = scenario.bed
        self.name = name
        self.nodes = tuple(nodes)
        self.target = f"{scenario.iqn_prefix()}.{name}"
        if not scenario.exists(name):
            scenario.sanctl(
                "device", "create", name, "--size", str(SIZE_BYTES), "--replicas", str(len(nodes)),
                "--nodes", ",".join(nodes), "--prefer", nodes[0], "--initiator", scenario.host.iqn,
                timeout_s=300,
            )  # fmt: skip
        portals = [self.bed.node(node).address(Network.ISCSI) for node in nodes]
        self.path = scenario.host.login(self.target, portals)

    def events(self, node: str) -> str:
        return self.bed.sh(node, f"drbdsetup events2 --now --statistics {self.name}").stdout

    def is_whole(self) -> bool:
        """Whether every replica is in sync with every other, and none is marked."""
        return not self.marks() and all(
            collect.is_in_sync(self.bed, node, self.name)
            and self.events(node).count("peer-disk:UpToDate") == len(self.nodes) - 1
            for node in self.nodes
        )

    def await_recovery(self) -> None:
        wait_for(
            f"all replicas of {self.name} in step", self.is_whole, within_s=DEADLINE_S, every_s=2.0
        )
        await_healthy(self.bed, self.nodes[0])

    def marks(self) -> set[str]:
        """The nodes that are marked as outdated, in the CIB of a node of the cluster."""
        for node in self.bed.cluster:
            done = self.bed.sh(
                node.name,
                'cibadmin -Q --xpath "//rsc_location'
                f"[starts-with(@id,'sanctl-outdated-{self.name}.')]\"",
                ok=range(256),
                timeout_s=20,
            )
            if done.status in {0, 6, 105}:
                return set(re.findall(r'<rsc_location [^>]*\bnode="(\w+)"', done.stdout))
        raise AssertionError("no node of the cluster answers")

    def active(self) -> str:
        return collect.active_node(self.bed, self.name)

    def others(self) -> list[str]:
        return [node for node in self.nodes if node != self.active()]

    def differing_sectors(self, node: str) -> int:
        """Verify all replicas against that node's, and return the sectors that differ.

        By what DRBD logs of each block that differs. The counts of its bitmaps may keep bits of a
        resync that another node ended, which no comparison of the blocks removes.
        """
        peers = re.findall(r"exists connection .*peer-node-id:(\d+)", self.events(node))
        began_s = time.time()
        for peer in peers:
            self.bed.sh(node, f"drbdsetup verify {self.name} {peer} 0 --start=0", timeout_s=60)
            wait_for(
                f"verify of {self.name} with {peer}",
                lambda: "Verify" not in self.events(node),
                within_s=DEADLINE_S,
                every_s=1.0,
            )
        wait_for(
            f"the journal to have {len(peers)} complete verifies",
            lambda: (
                len(journal_lines(self, node, began_s - 1, r"Online verify done \(")) == len(peers)
            ),
            within_s=60,
            every_s=1.0,
        )
        marked = re.findall(r"out-of-sync:([1-9]\d*)", self.events(node))
        print(f"  KiB out of sync in the bitmaps: {' '.join(marked) or 0}")
        found = journal_lines(self, node, began_s - 1, "Out of sync: start=")
        return sum(int(size) for line in found for size in re.findall(r"size=(\d+)", line))


@contextlib.contextmanager
def writing(device: ReplicatedDevice) -> Iterator[LedgerLoad]:
    """Run a ledger as long as the block lasts; nothing may be lost, no request may fail."""
    load = ledgers.start(
        device.scenario, device.name, device.target, device.path, rate=50, region_bytes=REGION_BYTES
    )
    sessions = load.sessions()
    try:
        yield load
    finally:
        device.scenario.host.stop_ledger(load.run)
    check = device.scenario.host.check_ledger(load.run)
    print(f"  ledger: {check['acknowledged']} acknowledged, {check['lost']} lost")
    assert check["acknowledged"] > 200
    assert (check["lost"], check["errors"]) == (0, 0), check["findings"]
    assert load.sessions().keys() == sessions.keys()


def pause_s(load: LedgerLoad, since_s: float) -> float:
    """How long the host waited at most since then."""
    records = load.host.fetch_log(load.run)[1]
    return ledger_latency.find_pause(records, since_s, time.time()).seconds


def power_is_back(bed: LabSession, *nodes: str) -> None:
    """Wait until fencing has switched nodes on; a node that is not fenced is switched on here."""
    for node in nodes:
        with contextlib.suppress(NotConverged):
            wait_for(f"the power of {node}", partial(bed.has_power, node), within_s=40)
        bed.ensure_power(node)


def journal_lines(device: ReplicatedDevice, node: str, since_s: float, wanted: str) -> list[str]:
    log = collect.journals(device.bed, [node], since_s)
    return [e.message for e in log if device.name in e.message and re.search(wanted, e.message)]


def sent_kib(device: ReplicatedDevice, node: str, since_s: float) -> int:
    """How much the last resyncs into a node were to send, as its DRBD said when they began."""
    found = journal_lines(device, node, since_s, r"Began resync as SyncTarget")
    return sum(int(re.findall(r"will sync (\d+) KB", line)[0]) for line in found)
