# SPDX-License-Identifier: GPL-2.0-or-later
"""Devices with two, three and four copies in a laboratory with DRBD 9, and what its nodes say."""

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
from sanctl.lab.harness.failover import Load, await_healthy
from sanctl.lab.harness.lab_session import Bed, wait_for
from sanctl.lab.harness.scenario import Scene
from sanctl.lab.machines import lab_state, network
from sanctl.lab.machines.spec import LabSpec, Network, Role
from sanctl.lab.measure import ledger_latency
from sanctl.system.runner import LocalRunner
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


def laboratory_with_drbd_9(request: pytest.FixtureRequest) -> Iterator[Bed]:
    """In place of the session's laboratory, which has three nodes and Linux' own DRBD."""
    found = lab_state.find(OWN_LAB) if OWN_LAB else None
    is_own = found is not None and len(storage_of(found.spec)) >= 3
    if not is_own and not (KERNEL and MODULES):
        pytest.skip(
            "no kernel with DRBD 9: name a UML kernel that has its modules in SANCTL_TEST_KERNEL, "
            "and the folder of its modules in SANCTL_TEST_MODULES"
        )
    spec = LabSpec(name=OWN_LAB if is_own else "testcopies", nodes=_NODES)
    kernel = () if is_own else ("--kernel", KERNEL, "--modules", MODULES)
    for made in laboratory(request, spec, is_own=is_own, options=kernel):
        version = made.sh("n1", "modprobe drbd; cat /sys/module/drbd/version").stdout.strip()
        if not version.startswith("9."):
            pytest.skip(f"three copies need DRBD 9: the kernel of lab {spec.name} has {version}")
        yield made


class Copies:
    """A device with several copies, a host that writes to it, and what its nodes say."""

    def __init__(self, scene: Scene, name: str, nodes: Sequence[str]) -> None:
        self.scene = scene
        self.bed = scene.bed
        self.name = name
        self.nodes = tuple(nodes)
        self.target = f"{scene.iqn_prefix()}.{name}"
        if not scene.exists(name):
            scene.sanctl(
                "device", "create", name, "--size", str(SIZE_BYTES), "--replicas", str(len(nodes)),
                "--nodes", ",".join(nodes), "--prefer", nodes[0], "--initiator", scene.host.iqn,
                timeout_s=300,
            )  # fmt: skip
        portals = [self.bed.node(node).address(Network.ISCSI) for node in nodes]
        self.path = scene.host.login(self.target, portals)

    def events(self, node: str) -> str:
        return self.bed.sh(node, f"drbdsetup events2 --now --statistics {self.name}").stdout

    def is_whole(self) -> bool:
        """Whether every copy is in step with every other, and none is marked."""
        return not self.marks() and all(
            collect.in_sync(self.bed, node, self.name)
            and self.events(node).count("peer-disk:UpToDate") == len(self.nodes) - 1
            for node in self.nodes
        )

    def await_whole(self) -> None:
        wait_for(
            f"all copies of {self.name} in step", self.is_whole, within_s=DEADLINE_S, every_s=2.0
        )
        await_healthy(self.bed, self.nodes[0])

    def marks(self) -> set[str]:
        """The nodes that are marked as outdated, in the CIB of a node of the cluster."""
        for node in self.bed.cluster:
            done = self.bed.sh(
                node.name,
                f'cibadmin -Q --xpath "//node[instance_attributes/nvpair[@name='
                f"'sanctl-outdated-{self.name}']]\"",
                ok=range(256),
                timeout_s=20,
            )
            if done.status in {0, 6, 105}:
                return set(re.findall(r'<node [^>]*uname="(\w+)"', done.stdout))
        raise AssertionError("no node of the cluster answers")

    def active(self) -> str:
        return collect.active_node(self.bed, self.name)

    def others(self) -> list[str]:
        return [node for node in self.nodes if node != self.active()]

    def differing_sectors(self, node: str) -> int:
        """Compare all copies with that node's, block by block, and count what differs."""
        peers = re.findall(r"exists connection .*peer-node-id:(\d+)", self.events(node))
        total = 0
        for peer in peers:
            self.bed.sh(node, f"drbdsetup verify {self.name} {peer} 0 --start=0", timeout_s=60)
            wait_for(
                f"verify of {self.name} with {peer}",
                lambda: "Verify" not in self.events(node),
                within_s=DEADLINE_S,
                every_s=1.0,
            )
            total += sum(map(int, re.findall(r"out-of-sync:(\d+)", self.events(node))))
        return total


@contextlib.contextmanager
def writing(copies: Copies) -> Iterator[Load]:
    """Let the host write; whatever happens meanwhile, nothing may be lost or refused."""
    load = copies.scene.start_load(
        copies.name,
        copies.target,
        copies.path,
        rate=50,
        region_bytes=REGION_BYTES,
        tell=lambda text: print(f"  {text}"),
        show=lambda _state: None,
    )
    sessions = load.sessions()
    try:
        yield load
    finally:
        copies.scene.host.stop_ledger(load.run)
    check = copies.scene.host.check_ledger(load.run)
    print(f"  ledger: {check['acknowledged']} acknowledged, {check['lost']} lost")
    assert check["acknowledged"] > 200
    assert (check["lost"], check["errors"]) == (0, 0), check["findings"]
    assert load.sessions().keys() == sessions.keys()


def await_writes(load: Load, *, within_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + within_s
    with load.host.watch_ledger(load.run) as states:
        for seen in states:
            if seen["silent_s"] < 0.5 and seen["rate"] > 0:
                return
            assert time.monotonic() < deadline, seen


def pause_s(load: Load, since_s: float) -> float:
    """How long the host waited at most since then."""
    records = load.host.fetch_log(load.run)[1]
    return ledger_latency.find_pause(records, since_s, time.time()).seconds


def power_is_back(bed: Bed, *nodes: str) -> None:
    """Wait for fencing to switch nodes on again; who is not fenced is switched on here."""
    for node in nodes:
        with contextlib.suppress(NotConverged):
            wait_for(f"the power of {node}", partial(bed.has_power, node), within_s=40)
        if not bed.has_power(node):
            bed.give_power(node)


def lines(copies: Copies, node: str, since_s: float, wanted: str) -> list[str]:
    log = collect.journals(copies.bed, [node], since_s)
    return [e.message for e in log if copies.name in e.message and re.search(wanted, e.message)]


def sent_kib(copies: Copies, node: str, since_s: float) -> int:
    """How much the last resyncs into a node were to send, as its DRBD said when they began."""
    found = lines(copies, node, since_s, r"Began resync as SyncTarget")
    return sum(int(re.findall(r"will sync (\d+) KB", line)[0]) for line in found)


@contextlib.contextmanager
def unplugged(bed: Bed, node: str, *cables: Network) -> Iterator[None]:
    for cable in cables:
        network.unplug(bed.lab, bed.node(node), cable, LocalRunner())
    try:
        yield
    finally:
        for cable in cables:
            network.plug(bed.lab, bed.node(node), cable, LocalRunner())
