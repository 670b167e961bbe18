# SPDX-License-Identifier: GPL-2.0-or-later
"""Outdated marks: a replica is marked in the CIB before a resync overwrites its data.

With that rule broken on purpose (`_NO_MARK` below) they have to fail.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines.spec import Network
from sanctl.lab.measure import kernel_audit
from sanctl.lab.measure.ledger_writer import RecordKind
from tests.support import ledgers

# A command on a node that goes down under it is given up, and its process not waited for.
pytestmark = [
    pytest.mark.faults,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAME = "mark0"
DEADLINE_S = 150.0
#: With this in the environment the handler that marks a target is replaced by one that does
#: nothing: the tests below then have to fail.
_NO_MARK = "SANCTL_TEST_NO_TARGET_MARK"
_HANDLER = "/usr/lib/sanctl/before-resync-source"

# On the target of a resync: what it sends takes 0.7 s, so that it is UpToDate and its source has
# not heard of it for that long; then the cable goes. Within DRBD's ping-timeout of 1.8 s.
_CUT_WHEN_UP_TO_DATE = """
modprobe sch_netem && tc qdisc add dev sync0 root netem delay 700ms
drbdsetup events2 {name} >/run/resync-events &
watch=$!
end=$(($(date +%s) + 120))
until grep -q '^change device.* disk:UpToDate' /run/resync-events; do
    [ $(date +%s) -lt $end ] || break
done
ip link set sync0 down
kill $watch
tc qdisc del dev sync0 root
grep -q '^change device.* disk:UpToDate' /run/resync-events
"""


_OFF = "/run/systemd/system/sanctl-resync.service.d"


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    """A ledger through all tests; whatever happens, nothing may be lost."""
    with ledgers.ledger_on_new_device(
        scenario, NAME, "256M", rate=50, region_bytes=32 << 20
    ) as made:
        yield made


@pytest.fixture(autouse=True)
def _without_the_mark_if_asked(scenario: Scenario) -> Iterator[None]:
    if _NO_MARK not in os.environ:
        yield
        return
    for node in scenario.bed.storage:
        scenario.bed.sh(node.name, f"cp -p {_HANDLER} /root/ && ln -sf /bin/true {_HANDLER}")
    yield
    for node in scenario.bed.storage:
        scenario.bed.sh(node.name, f"rm {_HANDLER} && cp -p /root/before-resync-source {_HANDLER}")


@pytest.fixture(autouse=True)
def _without_resync_scheduler(scenario: Scenario) -> Iterator[None]:
    """Stop the resync scheduler: it would resume a resync that these tests have paused."""
    for node in scenario.bed.storage:
        scenario.bed.sh(
            node.name,
            f"mkdir -p {_OFF} && printf '[Unit]\\nConditionPathExists=/nowhere\\n' >{_OFF}/off.conf"
            " && systemctl daemon-reload && systemctl stop sanctl-resync.service",
        )
    yield
    for node in scenario.bed.storage:
        scenario.bed.sh(node.name, f"rm -rf {_OFF} && systemctl daemon-reload")


def marked(bed: LabSession, asked_of: str) -> set[str]:
    """The nodes whose replica of the device is marked."""
    text = bed.sh(asked_of, "cibadmin --query --scope constraints").stdout
    return set(re.findall(rf'id="sanctl-outdated-{NAME}[.](\w+)[.]', text))


def drbd_shows(bed: LabSession, node: str, words: str) -> bool:
    """Whether DRBD on a node says that of the device."""
    return words in bed.sh(node, f"drbdsetup events2 --now {NAME}").stdout


def score_of(node: str) -> str:
    return f"attrd_updater --query --node {node} --name master-{NAME}"


def set_standby(bed: LabSession, asked_of: str, node: str, *, is_on: bool) -> None:
    """Have a node's devices stopped in an orderly way, or started."""
    verb = "--update on" if is_on else "--delete"
    bed.sh(asked_of, f"crm_attribute --node {node} --name standby {verb} --lifetime forever")


def stop_standby(load: LedgerLoad, active: str, standby: str) -> None:
    """Stop the standby's replica in an orderly way, and let the host write meanwhile."""
    set_standby(load.bed, active, standby, is_on=True)
    wait_for(
        f"no replica on {standby}",
        lambda: NAME not in collect.kernel_views(load.bed)[standby],
        within_s=DEADLINE_S,
    )
    before = written(load)
    wait_for("more writes", lambda: written(load) > before + 20, within_s=DEADLINE_S)


def written(load: LedgerLoad) -> int:
    """How many writes have been acknowledged so far."""
    return sum(record.kind is RecordKind.ACK for record in load.host.fetch_log(load.run)[1])


def await_recovery(load: LedgerLoad, node: str) -> None:
    wait_for("both in sync", lambda: collect.is_in_sync(load.bed, node, NAME), within_s=DEADLINE_S)
    wait_for("no mark", lambda: not marked(load.bed, node), within_s=DEADLINE_S)


def test_a_standby_that_was_stopped_in_order_is_marked_until_its_resync_has_ended(
    scenario: Scenario, load: LedgerLoad
) -> None:
    bed, began_s = scenario.bed, time.time()
    active = collect.active_node(bed, NAME)
    standby = load.peer_of(active)
    sessions = load.sessions()
    stop_standby(load, active, standby)
    assert marked(bed, active) == set()
    bed.sh(active, f"drbdsetup pause-sync {load.minor}")
    set_standby(bed, active, standby, is_on=False)
    wait_for("the resync", lambda: drbd_shows(bed, active, ":PausedSyncS"), within_s=DEADLINE_S)
    assert marked(bed, active) == {standby}
    assert drbd_shows(bed, standby, " disk:Inconsistent")
    wait_for(
        "the standby to rule itself out",
        lambda: "-INFINITY" in bed.sh(active, score_of(standby)).stdout,
        within_s=DEADLINE_S,
    )
    bed.sh(active, f"drbdsetup resume-sync {load.minor}")
    await_recovery(load, active)
    assert collect.active_node(bed, NAME) == active
    portal = bed.node(active).address(Network.ISCSI)
    assert load.sessions()[portal] == sessions[portal]
    log = collect.journals(bed, [active], began_s)
    took = [e.message for e in log if f"{NAME}: {standby} is marked as outdated" in e.message]
    assert len(took) == 1, took


def test_a_target_whose_source_did_not_hear_of_the_end_is_not_promoted(
    scenario: Scenario, load: LedgerLoad
) -> None:
    """The worst moment: the target is UpToDate by its own word, its Primary goes on and dies."""
    bed = scenario.bed
    active = collect.active_node(bed, NAME)
    standby = load.peer_of(active)
    stop_standby(load, active, standby)
    bed.sh(active, f"drbdsetup pause-sync {load.minor}")
    set_standby(bed, active, standby, is_on=False)
    wait_for("the resync", lambda: drbd_shows(bed, active, ":PausedSyncS"), within_s=DEADLINE_S)
    cut = threading.Thread(
        target=bed.sh,
        args=(standby, _CUT_WHEN_UP_TO_DATE.format(name=NAME)),
        kwargs={"timeout_s": DEADLINE_S},
    )
    cut.start()
    try:
        wait_for(
            "the delay", lambda: "delay" in bed.sh(standby, "tc qdisc").stdout, within_s=DEADLINE_S
        )
        bed.sh(active, f"drbdsetup resume-sync {load.minor}")
        cut.join()
        assert drbd_shows(bed, standby, " disk:UpToDate")
        wait_for(
            "the Primary to miss it",
            lambda: drbd_shows(bed, active, "connection:Connecting"),
            within_s=DEADLINE_S,
        )
        assert drbd_shows(bed, active, "role:Primary suspended:no")
        before = written(load)
        wait_for("writes alone", lambda: written(load) > before + 20, within_s=DEADLINE_S)
        bed.cut_power(active)
        gone_s = time.time()
        wait_for(
            f"{active} to have been fenced",
            lambda: (since := bed.powered_since_s(active)) is not None and since > gone_s,
            within_s=DEADLINE_S,
        )
        bed.sh(standby, "crm_resource --wait --timeout 60s", timeout_s=70, ok=range(256))
        assert standby not in kernel_audit.active_nodes(collect.kernel_views(bed), NAME)
    finally:
        bed.sh(standby, "ip link set sync0 up")
    wait_for(
        f"{active} to serve again",
        lambda: kernel_audit.active_nodes(collect.kernel_views(bed), NAME) == [active],
        within_s=DEADLINE_S,
    )
    await_recovery(load, active)
