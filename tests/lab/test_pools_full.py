# SPDX-License-Identifier: GPL-2.0-or-later
"""Both pools full while a host writes, and replicas that lost their disks, one or both.

Also in a laboratory with DRBD 9, named in SANCTL_TEST_LAB: with two replicas its quorum is off, and
the same rules hold (docs/adr/0047).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest

from sanctl.errors import NotConverged
from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import node_faults
from sanctl.lab.machines.node_faults import FilledFilesystem
from sanctl.lab.measure import kernel_audit
from sanctl.system.runner import LocalRunner
from tests.support import ledgers
from tests.support.steps import await_writes, boot_id

# A command on a node that goes down under it is given up, and its process not waited for.
pytestmark = [
    pytest.mark.faults,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAME = "full0"
SIZE = 256 << 20
REGION = 16 << 20
# Two monitors of the pool's agent, and a busy machine.
RESERVED_S = 60.0
# A fencing, a boot, a resync.
BACK_S = 400.0
ROUNDS = 4
# Three monitors.
NOT_SERVED_S = 35.0
# A boot, the fencing of the other node, and what would then be a promotion.
ALONE_S = 150.0
#: They lose their disks in one moment.
TOGETHER = ("lost0", "lost1", "lost2", "lost3", "lost4")
TRIED = f"/run/sanctl/devices/{NAME}/reattach-tried"


@pytest.fixture
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    """A ledger that flushes after each write; nothing may be lost, and no write may fail."""
    with ledgers.ledger_on_new_device(
        scenario, NAME, str(SIZE), rate=0, region_bytes=REGION
    ) as made:
        yield made


def reserved(bed: LabSession) -> bool:
    script = f"stat -c %b /srv/sanctl/main/devices/{NAME}.*.data"
    return all(int(bed.sh(node.name, script).stdout) * 512 >= SIZE for node in bed.storage)


def fill(bed: LabSession, *, is_full: bool) -> None:
    change = node_faults.fill_filesystem if is_full else node_faults.free_filesystem
    for node in bed.storage:
        change(bed.lab, bed.node(node.name), FilledFilesystem.POOL, LocalRunner())


@pytest.mark.timeout(900)
def test_a_host_writes_on_while_both_pools_are_full(scenario: Scenario, load: LedgerLoad) -> None:
    """To places that nothing was written to before.

    Without reserved blocks both replicas dropped their disks at the first such write.
    """
    bed = scenario.bed
    boots = {node.name: boot_id(bed, node.name) for node in bed.storage}
    try:
        wait_for("reserved blocks", lambda: reserved(bed), within_s=RESERVED_S, every_s=2.0)
    except NotConverged:
        print("  no blocks are reserved")
    fill(bed, is_full=True)
    began_s = time.time()
    try:
        load.host.sh(
            f"dd if=/dev/urandom of={load.run.device} bs=64k count=1024 seek=1024 oflag=direct"
            " conv=notrunc,fsync status=none",
            timeout_s=120,
        )
        print(f"  64 MiB written in {time.time() - began_s:.0f} s")
        await_writes(load)
        assert collect.is_in_sync(bed, collect.active_node(bed, NAME), NAME)
    finally:
        fill(bed, is_full=False)
    failover.await_healthy(bed, "n1")
    assert {node.name: boot_id(bed, node.name) for node in bed.storage} == boots


def disk(bed: LabSession, node: str) -> str:
    """The state of the node's replica, as its DRBD says; empty: no answer."""
    return word(bed, node, "device", "disk")


def role(bed: LabSession, node: str) -> str:
    """The node's role, as its DRBD says; empty: no answer."""
    return word(bed, node, "resource", "role")


def word(bed: LabSession, node: str, kind: str, key: str) -> str:
    """What the node's DRBD says of the device in one word; empty: no answer."""
    out = bed.sh(node, f"drbdsetup events2 --now {NAME} | grep ' {kind} '", ok=range(256)).stdout
    return next((each[len(key) + 1 :] for each in out.split() if each.startswith(f"{key}:")), "")


@pytest.mark.timeout(1500)
def test_a_replica_that_lost_its_disk_first_is_not_served(
    scenario: Scenario, load: LedgerLoad
) -> None:
    """The active node loses its disk, the host writes on, the standby loses its disk.

    The active node is fenced, as it can neither serve nor stop. It comes back with its disk, which
    lacks what was acknowledged last, and finds a peer without a disk.
    """
    bed = scenario.bed
    for _ in range(ROUNDS):
        active = collect.active_node(bed, NAME)
        standby = load.peer_of(active)
        before = boot_id(bed, active)
        # Its disk goes on failing: it has been tried so often that it is not tried for an hour.
        bed.sh(standby, f"echo 16 >{TRIED}")
        lose_disk(bed, load, active)
        await_writes(load)
        lose_disk(bed, load, standby)
        states = (disk(bed, active), disk(bed, standby))
        print(f"  {active}, active: {states[0]}; {standby}: {states[1]}")
        if states == ("Diskless", "Diskless"):
            break
        bed.sh(standby, f"rm -f {TRIED}")
        await_sync(bed)
    else:
        pytest.fail("the first disk was attached again before the second was lost")
    wait_for(
        f"{active} to be back, and connected",
        lambda: (
            boot_id(bed, active) != before
            and disk(bed, active) in {"UpToDate", "Consistent"}
            and "connection:Connected" in bed.sh(standby, f"drbdsetup events2 --now {NAME}").stdout
        ),
        within_s=BACK_S,
        every_s=1.0,
    )
    served = False
    until_s = time.monotonic() + NOT_SERVED_S
    while time.monotonic() < until_s and not served:
        served = active in kernel_audit.active_nodes(collect.kernel_views(bed), NAME)
        time.sleep(1.0)
    bed.sh(standby, f"rm -f {TRIED}")
    assert not served, f"{active} serves without what was acknowledged last"
    await_sync(bed)
    await_writes(load, within_s=BACK_S)
    # The standby's score was a few seconds old when it was to be promoted without a disk.
    bed.sh("n3", f"crm_resource --cleanup --resource {NAME}", timeout_s=60)
    failover.await_healthy(bed, "n1")


@pytest.mark.timeout(1500)
def test_a_standby_that_lost_its_disk_does_not_take_over(
    scenario: Scenario, load: LedgerLoad
) -> None:
    """The standby's disk is lost, the host writes on, both nodes lose power, the standby is back.

    It boots with its disk, which lacks what was written since, and with the witness it fences the
    other node. Nothing is served before that one is back.
    """
    bed = scenario.bed
    await_sync(bed)
    active = collect.active_node(bed, NAME)
    standby = load.peer_of(active)
    bed.sh(standby, f"echo 16 >{TRIED}")
    lose_disk(bed, load, standby)
    await_writes(load)
    await_mark(bed, standby, asked=active)
    # The node that has the writes stays away until it is seen that the other one does not serve.
    assert_is_not_served_alone(bed, load, standby, good=active)
    await_writes(load, within_s=BACK_S)
    await_sync(bed)
    failover.await_healthy(bed, "n1")


@pytest.mark.timeout(1500)
def test_an_active_node_that_lost_its_disk_does_not_serve_what_it_has(
    scenario: Scenario, load: LedgerLoad
) -> None:
    """The active node's disk is lost, the host writes on to the standby's, both lose power.

    The device is not moved meanwhile, so that nobody but the active node can say that its disk is
    behind. It boots with that disk, and with the witness it fences the other node.
    """
    bed = scenario.bed
    await_sync(bed)
    active = collect.active_node(bed, NAME)
    standby = load.peer_of(active)
    managed = f"crm_resource --resource sanctl-{NAME} --meta"
    bed.sh("n3", f"{managed} --set-parameter is-managed --parameter-value false", timeout_s=60)
    try:
        # Tried so often that no monitor tries for an hour.
        bed.sh(active, f"echo 16 >{TRIED}")
        lose_disk(bed, load, active)
        await_writes(load)
        await_mark(bed, active, asked=standby)
        states = (disk(bed, active), role(bed, active), role(bed, standby))
        assert states == ("Diskless", "Primary", "Secondary"), states
        await_writes(load)

        def let_cluster_act() -> None:
            # Nothing is started on the node before that. With quorum only: alone it would change
            # its own CIB.
            script = (
                f"crm_node --quorum | grep --quiet 1 && {managed} --delete-parameter is-managed"
            )
            wait_for(
                f"{active} to be in the cluster again",
                lambda: bed.sh(active, script).status == 0,
                within_s=BACK_S,
                every_s=2.0,
            )

        assert_is_not_served_alone(bed, load, active, good=standby, is_back=let_cluster_act)
    finally:
        bed.sh("n3", f"{managed} --delete-parameter is-managed", ok=range(256), timeout_s=60)
    await_writes(load, within_s=BACK_S)
    await_sync(bed)
    failover.await_healthy(bed, "n1")
    marks = f"//rsc_location[starts-with(@id,'sanctl-outdated-{NAME}.')]"
    wait_for(
        "no mark",
        lambda: bed.sh("n3", f'cibadmin --query --xpath "{marks}"', ok=range(256)).status != 0,
        within_s=90,
        every_s=3.0,
    )


@pytest.mark.timeout(900)
def test_the_replicas_of_all_disks_that_a_node_has_lost_are_marked_together(
    scenario: Scenario,
) -> None:
    """One monitor marks them all; each mark alone would be a change of the CIB.

    The devices are not moved meanwhile, so that the configuration changes for the marks alone.
    """
    bed = scenario.bed
    scenario.create_together(TOGETHER, "64M", prefer="n1")
    managed = {name: f"crm_resource --resource sanctl-{name} --meta" for name in TOGETHER}
    give_back = " ; ".join(f"{each} --delete-parameter is-managed" for each in managed.values())
    tried = {name: f"/run/sanctl/devices/{name}/reattach-tried" for name in TOGETHER}
    try:
        for name in TOGETHER:
            wait_for(
                f"{name} in sync on n1",
                lambda device=name: (  # type: ignore[misc]
                    collect.active_node(bed, device) == "n1"
                    and collect.is_in_sync(bed, "n1", device)
                ),
                within_s=BACK_S,
                every_s=2.0,
            )
        take = " --set-parameter is-managed --parameter-value false && "
        bed.sh("n3", "".join(each + take for each in managed.values()) + "true", timeout_s=120)
        # Tried so often that no monitor attaches one for an hour.
        losses = (
            f"echo 16 >{tried[name]}; drbdsetup detach --force {minor_of(bed, name)}"
            for name in TOGETHER
        )
        before = epoch(bed)
        bed.sh("n1", "; ".join(losses), timeout_s=60)
        marks = "cibadmin --query --scope constraints"
        wait_for(
            "all marks",
            lambda: all(
                f"sanctl-outdated-{name}.n1." in bed.sh("n3", marks).stdout for name in TOGETHER
            ),
            within_s=60,
            every_s=1.0,
        )
        # A monitor that comes between two of the losses marks what is lost by then.
        assert epoch(bed) - before <= 2
    finally:
        bed.sh("n3", give_back, ok=range(256), timeout_s=120)
        bed.sh("n1", f"rm -f {' '.join(tried.values())}", ok=range(256))
    for name in TOGETHER:
        wait_for(
            f"{name} in sync, and no mark of it",
            lambda device=name: (  # type: ignore[misc]
                collect.is_in_sync(bed, collect.active_node(bed, device), device)
                and f"sanctl-outdated-{device}." not in bed.sh("n3", marks).stdout
            ),
            within_s=BACK_S,
            every_s=3.0,
        )
    scenario.delete_together(TOGETHER)


def lose_disk(bed: LabSession, load: LedgerLoad, node: str) -> None:
    """Detach a node's disk as one that takes no write any more, not even of DRBD's metadata.

    DRBD 9 notes in the metadata that the replica is behind, if it still can; it is put back to what
    it was before. The host's writes pause meanwhile: a request that the detaching has given up and
    that the disk answers all the same is a panic of DRBD's, 8.4 and 9.
    """
    load.host.sh(f"systemctl kill --signal=STOP {load.run.unit}")
    try:
        await_no_request(bed, load, node)
        detach(bed, load, node)
    finally:
        load.host.sh(f"systemctl kill --signal=CONT {load.run.unit}")


def detach(bed: LabSession, load: LedgerLoad, node: str) -> None:
    """See `lose_disk`."""
    bed.sh(
        node,
        "set -eu; set -- /srv/sanctl/main/devices/" + NAME + ".*.meta; cp $1 /run/before.meta;"
        f" drbdsetup detach --force {load.minor};"
        " if grep --quiet ^9 /sys/module/drbd/version; then"
        " dd if=/run/before.meta of=$1 bs=64k conv=notrunc,fsync status=none; fi;"
        " rm /run/before.meta",
        timeout_s=60,
    )


def await_no_request(bed: LabSession, load: LedgerLoad, node: str) -> None:
    """Wait until DRBD on a node has no request of the host under way."""
    # DRBD 9 says nothing of its devices in /proc/drbd.
    requests = (
        f"grep --after-context=1 '^ *{load.minor}:' /proc/drbd"
        f" || drbdsetup events2 --now --statistics {NAME}"
    )
    wait_for(
        "no write under way",
        lambda: re.search(r" ap:0 | upper-pending:0\b", bed.sh(node, requests).stdout),
        within_s=30,
        every_s=1.0,
    )


def minor_of(bed: LabSession, name: str) -> str:
    """The number of a device's DRBD device on n1."""
    out = bed.sh("n1", f"drbdsetup events2 --now {name}").stdout
    return next(each[len("minor:") :] for each in out.split() if each.startswith("minor:"))


def epoch(bed: LabSession) -> int:
    """How often the CIB's configuration has been changed."""
    found = re.search(r'\sepoch="(\d+)"', bed.sh("n3", "cibadmin -Q --no-children").stdout)
    assert found is not None
    return int(found[1])


def await_mark(bed: LabSession, node: str, *, asked: str) -> None:
    """Wait for the mark of a node's replica; say so where there is none."""
    mark = f"//rsc_location[starts-with(@id,'sanctl-outdated-{NAME}.{node}.')]"
    try:
        wait_for(
            "the mark of the replica without a disk",
            lambda: bed.sh(
                asked, f'cibadmin --query --xpath "{mark}"', ok=range(256)
            ).status == 0,
            within_s=60,
            every_s=2.0,
        )  # fmt: skip
    except NotConverged:
        print(f"  {node} is not marked")


def assert_is_not_served_alone(
    bed: LabSession,
    load: LedgerLoad,
    behind: str,
    *,
    good: str,
    is_back: Callable[[], None] = lambda: None,
) -> None:
    """Cut the power of both nodes, let the one come back that is behind; later the other one."""
    bed.sh(good, "systemctl mask corosync.service pacemaker.service")
    before = boot_id(bed, good)
    # The only good replica's last seconds are another matter (docs/explanation/cache.md).
    load.host.sh(f"systemctl kill --signal=STOP {load.run.unit}")
    bed.sh(good, "sync -f /srv/sanctl/main", timeout_s=60)
    bed.cut_power(behind)
    bed.cut_power(good)
    bed.ensure_power(behind)

    def serves() -> bool:
        resource = f"drbdsetup events2 --now {NAME} | grep ' resource '"
        return "role:Primary" in bed.sh(behind, resource, ok=range(256), timeout_s=30).stdout

    is_back()
    until_s = time.monotonic() + ALONE_S
    while not (served := serves()) and time.monotonic() < until_s:
        time.sleep(1.0)
    bed.ensure_power(good)
    wait_for("the node that was cut", lambda: boot_id(bed, good) != before, within_s=BACK_S)
    bed.sh(
        good,
        "systemctl unmask corosync.service pacemaker.service && systemctl start pacemaker.service",
        timeout_s=120,
    )
    load.host.sh(f"systemctl kill --signal=CONT {load.run.unit}")
    assert not served, f"{behind} serves without what was written while it had no disk"


@pytest.mark.timeout(900)
def test_disks_that_both_nodes_have_dropped_are_attached_again(
    scenario: Scenario, load: LedgerLoad
) -> None:
    """Both disks are dropped while no host writes, so that the active node is demoted, not fenced.

    Nothing attached either disk again: each node waited for the other's good data.
    """
    bed = scenario.bed
    await_sync(bed)
    active = collect.active_node(bed, NAME)
    nodes = (load.peer_of(active), active)
    boots = {node: boot_id(bed, node) for node in nodes}
    try:
        lose_both_disks(bed, load, nodes)
        wait_for(
            "both disks to be named",
            # Promoted by its old score the standby is restarted, which attaches its disk.
            lambda: disk(bed, nodes[0]) != "Diskless" or "check its disk on n1 and n2" in bed.sh(
                "n3", "sanctl status", ok=range(256), timeout_s=60
            ).stdout,
            within_s=60,
            every_s=2.0,
        )  # fmt: skip
        for node in nodes:
            bed.sh(node, f"rm -f {TRIED}")
        await_sync(bed)
    finally:
        for node in nodes:
            bed.sh(node, f"rm -f {TRIED}", ok=range(256))
        load.host.sh(f"systemctl kill --signal=CONT {load.run.unit}")
    assert {node: boot_id(bed, node) for node in nodes} == boots
    await_writes(load, within_s=BACK_S)
    bed.sh("n3", f"crm_resource --cleanup --resource {NAME}", timeout_s=60)
    failover.await_healthy(bed, "n1")


@pytest.mark.timeout(1200)
def test_the_first_disk_that_is_back_is_not_served_when_the_other_node_leaves(
    scenario: Scenario, load: LedgerLoad
) -> None:
    """It may be the one that was lost first, and lack what the other one has."""
    bed = scenario.bed
    await_sync(bed)
    active = collect.active_node(bed, NAME)
    standby = load.peer_of(active)
    before = boot_id(bed, active)
    try:
        lose_both_disks(bed, load, (standby, active))
        bed.sh(standby, f"rm -f {TRIED}")
        wait_for(
            "the first disk to be attached",
            # DRBD 9 knows that it was lost while the other one served, if it could note that.
            lambda: disk(bed, standby) in {"UpToDate", "Consistent", "Outdated"},
            within_s=60,
            every_s=1.0,
        )
        bed.cut_power(active)
        served = False
        until_s = time.monotonic() + NOT_SERVED_S
        while time.monotonic() < until_s and not served:
            served = role(bed, standby) == "Primary"
            time.sleep(1.0)
        bed.ensure_power(active)
        assert not served, f"{standby} serves without having met the other disk"
        wait_for("the other node", lambda: boot_id(bed, active) != before, within_s=BACK_S)
    finally:
        for node in (standby, active):
            bed.sh(node, f"rm -f {TRIED}", ok=range(256))
        load.host.sh(f"systemctl kill --signal=CONT {load.run.unit}")
    await_writes(load, within_s=BACK_S)
    await_sync(bed)
    # The standby was to be promoted by its old score, without a disk.
    bed.sh("n3", f"crm_resource --cleanup --resource {NAME}", timeout_s=60)
    failover.await_healthy(bed, "n1")


def lose_both_disks(bed: LabSession, load: LedgerLoad, nodes: tuple[str, str]) -> None:
    """Stop the host's writes and detach both disks, so that the active node is demoted.

    Args:
        bed: the laboratory.
        load: the device's load.
        nodes: the standby, then the active node.
    """
    load.host.sh(f"systemctl kill --signal=STOP {load.run.unit}")
    await_no_request(bed, load, nodes[1])
    for node in nodes:
        # Tried so often that no monitor tries for an hour.
        bed.sh(node, f"echo 16 >{TRIED}; drbdsetup detach --force {load.minor}", timeout_s=30)
    wait_for(
        "two standbys without a disk",
        lambda: all(
            disk(bed, node) == "Diskless" and role(bed, node) == "Secondary" for node in nodes
        ),
        within_s=90,
        every_s=2.0,
    )


def await_sync(bed: LabSession) -> None:
    wait_for(
        "both in sync",
        lambda: collect.is_in_sync(bed, collect.active_node(bed, NAME), NAME),
        within_s=BACK_S,
        every_s=3.0,
    )
