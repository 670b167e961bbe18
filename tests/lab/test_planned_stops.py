# SPDX-License-Identifier: GPL-2.0-or-later
"""Planned stops: a node rebooted, updated or powered off stops in order, without fencing.

`reboot` typed on a node is not a crash: what it serves is served elsewhere first, its replicas are
stopped while they still see their peers, and only then its network goes. So no node is fenced, and
the hosts see no more than a planned move.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online
from sanctl.lab.machines.spec import Network
from sanctl.lab.measure import ledger_latency, timeline
from sanctl.lab.measure.ledger_latency import Pause
from tests.support import ledgers
from tests.support.steps import boot_id

# A command on a node that goes down under it is given up, and its process not waited for.
pytestmark = [
    pytest.mark.faults,
    pytest.mark.in_order,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAME = "stop0"
# To notice a hang: other people's work may share the processors. What keeps the pause short is
# tested by the order of events, and the pause itself is printed beside that of a planned move.
PAUSE_DEADLINE_S = 60.0
_DOWN_S, _BACK_S = 150.0, 150.0


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    """A ledger that runs through all tests but the last; at its end nothing may be lost."""
    made = ledgers.start_on_new_device(scenario, NAME, "256M", rate=100, region_bytes=32 * 2**20)
    yield made
    # The last test may have ended it, or may not have been asked for.
    ledgers.stop(made)
    check = made.host.check_ledger(made.run)
    scenario.delete(NAME)
    assert (check["lost"], check["errors"]) == (0, 0), check["findings"]


def reboot(load: LedgerLoad, node: str) -> float:
    """Type `reboot` on a node and return when; it is back and in step when this ends."""
    bed = load.bed
    before = boot_id(bed, node)
    began_s = time.time()
    bed.sh(node, "reboot", ok=range(256), timeout_s=30)

    def is_another() -> bool:
        # The shared connection of ssh does not notice that its other end is gone.
        (bed.lab.run_directory / f"ssh-{node}").unlink(missing_ok=True)
        return boot_id(bed, node) != before

    wait_for(f"{node} to have rebooted", is_another, within_s=_DOWN_S, every_s=2.0)
    settle(load, node)
    return began_s


def settle(load: LedgerLoad, node: str) -> None:
    bed = load.bed
    await_members_online(bed)
    wait_for(
        f"the replica on {node} to be in step",
        lambda: collect.is_in_sync(bed, node, NAME),
        within_s=_BACK_S,
        every_s=1.0,
    )
    failover.await_healthy(bed, node)


def pause_since(load: LedgerLoad, began_s: float) -> Pause:
    records = load.host.fetch_log(load.run)[1]
    return ledger_latency.find_pause(records, began_s, time.time())


def assert_orderly(load: LedgerLoad, leaver: str, began_s: float) -> list[timeline.Entry]:
    """No node was fenced, and the survivor's DRBD saw an orderly disconnect (TearDown)."""
    bed = load.bed
    entries = collect.journals(bed, [node.name for node in bed.cluster], began_s - 1)
    assert not [
        e.message
        for e in entries
        if re.search(r"Requesting (peer )?fencing|terminated \(", e.message)
    ]
    kernel = [
        e.message
        for e in entries
        if e.identifier == "kernel" and e.node != leaver and f"drbd {NAME}:" in e.message
    ]
    assert any("-> TearDown" in text for text in kernel), kernel
    assert not [t for t in kernel if re.search("NetworkFailure|BrokenPipe|Timeout|PingAck", t)]
    return entries


def assert_like_a_move(entries: list[timeline.Entry], leaver: str) -> None:
    """The peer served before the leaver's replica was stopped, as in a planned move.

    The other way round the pause holds the teardown of a replica and DRBD's fence-peer handler.
    """
    actions = [e for e in entries if e.device == NAME]
    served = [
        e.at_s for e in actions if e.node != leaver and e.message.endswith("promote: serving")
    ]
    stopped = [e.at_s for e in actions if e.node == leaver and e.action == "stop"]
    assert served and stopped
    assert min(served) < min(stopped)


def assert_bitmap_resync(load: LedgerLoad, entries: list[timeline.Entry], began_s: float) -> None:
    copied = timeline.resync_bytes(entries, load.minor, began_s)
    records = load.host.fetch_log(load.run)[1]
    assert copied is not None
    assert copied <= ledger_latency.bytes_written(records, began_s, time.time())


def test_a_planned_move_to_compare_with(load: LedgerLoad) -> None:
    failover.await_healthy(load.bed, "n1")
    trial = failover.measure_move(load, load.peer_of(collect.active_node(load.bed, NAME)))
    print(f"  pause {trial.pause.seconds:.2f} s")
    assert trial.pause.errors == 0


def test_reboot_typed_on_the_active_node(load: LedgerLoad) -> None:
    active = collect.active_node(load.bed, NAME)
    sessions = load.sessions()
    began_s = reboot(load, active)
    pause = pause_since(load, began_s)
    print(f"  pause {pause.seconds:.2f} s")
    assert collect.active_node(load.bed, NAME) == load.peer_of(active)
    assert pause.errors == 0
    assert pause.seconds <= PAUSE_DEADLINE_S
    entries = assert_orderly(load, active, began_s)
    assert_like_a_move(entries, active)
    assert_bitmap_resync(load, entries, began_s)
    # The session to the node that took over is the same; the other comes back by itself.
    after = wait_for(
        "both sessions",
        lambda: found if len(found := load.sessions()) == len(sessions) else None,
        within_s=60,
    )
    portal = load.bed.node(load.peer_of(active)).address(Network.ISCSI)
    assert after[portal] == sessions[portal]


def test_the_order_in_which_a_node_stops(load: LedgerLoad) -> None:
    """Devices move, then replicas stop, then Corosync, then the network: from the node's journal.

    Of the boot before, of the node that the test above has rebooted.
    """
    bed = load.bed
    node = load.peer_of(collect.active_node(bed, NAME))
    text = bed.sh(
        node,
        "journalctl --quiet -b -1 -o json --output-fields=MESSAGE,SANCTL_ACTION,SANCTL_STEP,UNIT",
        timeout_s=60,
    ).stdout
    order = []
    for line in text.splitlines():
        entry = json.loads(line)
        message, action = str(entry.get("MESSAGE", "")), entry.get("SANCTL_ACTION", "")
        step = entry.get("SANCTL_STEP", "")
        if (action, step) == ("drain", "end"):
            order.append("drained")
        elif (action, step) == ("stop", "end") and NAME in message:
            order.append("replica stopped")
        elif message.startswith("Stopped corosync.service"):
            order.append("corosync stopped")
        elif message.startswith("Stopped target network-online.target"):
            order.append("network goes")
    assert order[-4:] == ["drained", "replica stopped", "corosync stopped", "network goes"]


def test_reboot_typed_on_the_standby(load: LedgerLoad) -> None:
    active = collect.active_node(load.bed, NAME)
    standby = load.peer_of(active)
    began_s = reboot(load, standby)
    pause = pause_since(load, began_s)
    print(f"  pause {pause.seconds:.2f} s")
    assert collect.active_node(load.bed, NAME) == active
    assert pause.errors == 0
    assert pause.seconds <= PAUSE_DEADLINE_S
    assert_bitmap_resync(load, assert_orderly(load, standby, began_s), began_s)


@pytest.mark.quick
def test_restart_of_pacemaker_as_a_package_update_does_it(load: LedgerLoad) -> None:
    active = collect.active_node(load.bed, NAME)
    began_s = time.time()
    load.bed.sh(active, "systemctl restart pacemaker.service", timeout_s=180)
    settle(load, active)
    pause = pause_since(load, began_s)
    print(f"  pause {pause.seconds:.2f} s")
    assert collect.active_node(load.bed, NAME) == load.peer_of(active)
    assert pause.errors == 0
    assert pause.seconds <= PAUSE_DEADLINE_S
    assert_like_a_move(assert_orderly(load, active, began_s), active)


def test_what_pacemaker_leaves_up_is_taken_down_before_the_network(load: LedgerLoad) -> None:
    """In maintenance mode Pacemaker stops nothing when it stops; the last unit does."""
    bed = load.bed
    active = collect.active_node(bed, NAME)
    survivor = load.peer_of(active)
    bed.sh(survivor, "crm_attribute --name maintenance-mode --update true")
    before = boot_id(bed, active)
    began_s = time.time()
    try:
        bed.sh(active, "reboot", ok=range(256), timeout_s=30)

        def is_another() -> bool:
            (bed.lab.run_directory / f"ssh-{active}").unlink(missing_ok=True)
            return boot_id(bed, active) != before

        wait_for(f"{active} to have rebooted", is_another, within_s=_DOWN_S, every_s=2.0)
        await_members_online(bed)
    finally:
        bed.sh(survivor, "crm_attribute --name maintenance-mode --delete")
    settle(load, active)
    entries = collect.journals(bed, [active], began_s - 1)
    ours = [e for e in entries if e.identifier == "sanctl" and e.action == "stop-remaining"]
    messages = [e.message for e in ours]
    assert [text for text in messages if "still up" in text], messages
    assert_orderly(load, active, began_s)
    assert pause_since(load, began_s).errors == 0


def test_the_whole_rack_is_switched_off_and_on(load: LedgerLoad) -> None:
    """The hosts are stopped first, as they would be; what they wrote is all there afterwards."""
    bed = load.bed
    load.host.stop_ledger(load.run)
    began_s = time.time()
    for node in bed.cluster:
        bed.sh(node.name, "systemctl poweroff --no-block", ok=range(256), timeout_s=30)
    wait_for(
        "every node to be off",
        lambda: not any(bed.has_power(node.name) for node in bed.cluster),
        within_s=_DOWN_S,
    )
    consoles = {
        node.name: bed.lab.console_log(node).read_text(errors="replace") for node in bed.storage
    }
    for text in consoles.values():
        assert "Stopped pacemaker.service" in text
        assert "Failed with result" not in text.partition("Stopping sanctl-drain")[2]
    for node in bed.cluster:
        (bed.lab.run_directory / f"ssh-{node.name}").unlink(missing_ok=True)
        bed.ensure_power(node.name)
    wait_for("n1 to answer", lambda: boot_id(bed, "n1"), within_s=_BACK_S)
    settle(load, "n1")
    entries = collect.journals(bed, [node.name for node in bed.cluster], began_s - 1)
    assert not [e.message for e in entries if "Requesting fencing" in e.message]
    check = load.host.check_ledger(load.run)
    assert check["acknowledged"] > 1000
    assert (check["lost"], check["errors"]) == (0, 0), check["findings"]
