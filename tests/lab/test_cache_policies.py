# SPDX-License-Identifier: GPL-2.0-or-later
"""Cache policies: which acknowledged writes survive a power cut, a crash, a change of mode.

Rows of the table in docs/explanation/cache.md. One device through all of them, in file order, and a
ledger on it, which is checked at the end. The row of all power lost at once is in
test_write_back_power_loss.py.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines.spec import Network
from sanctl.lab.measure import ledger_latency
from tests.support import ledgers
from tests.support.steps import kernel_mode

pytestmark = pytest.mark.faults

NAME = "cache0"
MIB = 2**20
# A monitor's interval, and some for a machine that does other things too.
BACK_DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    target = scenario.create(NAME, "128M", prefer="n1")
    path = scenario.host.login(target, scenario.portals())
    made = ledgers.start(
        scenario,
        NAME,
        target,
        path,
        rate=50,
        region_bytes=32 * MIB,
        # With flushes nothing would be in RAM alone, and the loss of a node no test of anything.
        synced=False,
    )
    yield made
    ledgers.stop(made)
    scenario.delete(NAME)


def no_write_is_lost(load: LedgerLoad) -> None:
    """Stop the ledger and check it: every acknowledged write is there, and none met an error."""
    ledgers.assert_nothing_lost(load, more_than=100)


def data(bed: LabSession, node: str = "n3") -> dict[str, Any]:
    """What `device show` says, asked where no replica is."""
    shown = bed.sh(node, f"sanctl device show {NAME} --output json", timeout_s=90).stdout
    reported = json.loads(shown)["data"]
    assert isinstance(reported, dict)
    return reported


def modes(bed: LabSession) -> dict[str, tuple[str | None, str | None]]:
    return {
        one["node"]: (one["cache"]["mode"], one["cache"]["reason"]) for one in data(bed)["replicas"]
    }


def marker(bed: LabSession, node: str) -> str:
    return bed.sh(
        node, f"cat /srv/sanctl/main/devices/{NAME}.*.ram 2>/dev/null", ok=range(256)
    ).stdout.strip()


def write_back(load: LedgerLoad) -> None:
    """Return when both replicas are in write-back."""
    load.bed.sh("n3", f"sanctl device cache {NAME} write-back", timeout_s=150)
    wait_for(
        "write-back on both nodes",
        lambda: set(modes(load.bed).values()) == {("write-back", None)},
        within_s=BACK_DEADLINE_S,
        every_s=2.0,
    )


def reported_write_caches(load: LedgerLoad) -> set[str]:
    """Return the write cache that each of the host's paths reports."""
    paths = load.host.paths(load.target, portals(load.bed))
    out = load.host.sh("; ".join(f"cat /sys/block/{path}/queue/write_cache" for path in paths))
    return set(out.splitlines())


def portals(bed: LabSession) -> list[str]:
    return [node.address(Network.ISCSI) for node in bed.storage]


def steps(bed: LabSession, node: str, since_s: float) -> list[tuple[float, str, str]]:
    """What an agent or handler on a node did, in the order of time: when, action, words."""
    found = [
        (entry.at_s, entry.message)
        for entry in collect.journals(bed, [node], since_s)
        if NAME in entry.message
    ]
    return [(at_s, node, message) for at_s, message in sorted(found)]


def journal_text(log: list[tuple[float, str, str]]) -> str:
    return "\n".join(text for _, _, text in log)


def position(log: list[tuple[float, str, str]], wanted: str) -> int:
    places = [index for index, (_, _, text) in enumerate(log) if re.search(wanted, text)]
    assert places, f"{wanted} is not in " + "\n".join(text for _, _, text in log)
    return places[0]


def await_log(bed: LabSession, node: str, since_s: float, wanted: str, *, within_s: float) -> None:
    wait_for(
        f"{wanted!r} on {node}",
        lambda: any(re.search(wanted, text) for _, _, text in steps(bed, node, since_s)),
        within_s=within_s,
        every_s=3.0,
    )


@pytest.mark.quick
def test_modes_change_under_load_and_hosts_see_nothing_of_it(load: LedgerLoad) -> None:
    bed = load.bed
    sessions = load.host.sessions(load.target)
    reported = reported_write_caches(load)
    assert reported == {"write back"}
    began_s = time.time()
    for mode in ("write-through", "write-back", "none", "write-back", "write-through"):
        bed.sh("n3", f"sanctl device cache {NAME} {mode}", timeout_s=150)
        assert {kernel_mode(bed, NAME, node.name) for node in bed.storage} == {mode}
        boots = {marker(bed, node.name) for node in bed.storage}
        assert ("" not in boots) is (mode == "write-back"), boots
        assert reported_write_caches(load) == reported
    assert load.host.sessions(load.target) == sessions
    pause = ledger_latency.find_pause(load.host.fetch_log(load.run)[1], began_s, time.time())
    print(f"  longest pause in five changes: {pause.seconds:.2f} s")
    assert pause.errors == 0


def test_what_is_dirty_stays_below_its_limit(load: LedgerLoad) -> None:
    """The kernel's limit, measured by the kernel, while more is written than it allows."""
    bed = load.bed
    bed.sh("n3", f"sanctl device cache {NAME} write-back --dirty-limit 8M", timeout_s=150)
    with bed.stream(
        "n1", "while :; do awk '/^(Dirty|Writeback):/ {n += $2} END {print n}' /proc/meminfo;"
        " sleep 0.2; done",
    ) as watch:  # fmt: skip
        load.host.sh(
            f"dd if=/dev/zero of={load.run.device} bs=64k count=512 seek=1024 oflag=direct"
            " conv=notrunc",
            timeout_s=300,
        )
        watch.terminate()
        assert watch.stdout is not None
        most_kib = max(int(line) for line in watch.stdout.read().split())
    # The kernel looks once for some pages written, so a little more than the limit is allowed for.
    assert 0 < most_kib < 12 * 1024, f"{most_kib} KiB were dirty under a limit of 8 MiB"


def test_the_standby_loses_its_power(load: LedgerLoad) -> None:
    bed = load.bed
    write_back(load)
    began_s = bed.cut_power("n2")
    await_log(bed, "n1", began_s, "n2 cannot be promoted any more", within_s=180)
    log = steps(bed, "n1", began_s)
    assert position(log, "cache: write-through: all that was in RAM") < position(
        log, "n2 cannot be promoted any more"
    ), "the survivor went on before it had flushed"
    assert kernel_mode(bed, NAME, "n1") == "write-through" and marker(bed, "n1") == ""
    wait_for(
        "the reason to be published",
        lambda: modes(bed)["n1"] == ("write-through", "one-copy"),
        within_s=60,
        every_s=2.0,
    )
    # Where an operator looks first: in the journal, in `device show`, in the status.
    assert re.search(r"all that was in RAM.*: one replica is in sync", journal_text(log))
    shown = bed.sh("n3", f"sanctl device show {NAME} --output json", ok=(0, 1), timeout_s=60)
    of_n1 = next(
        each for each in json.loads(shown.stdout)["data"]["replicas"] if each["node"] == "n1"
    )
    assert of_n1["cache"]["mode"] == "write-through" and of_n1["cache"]["reason"]
    status = bed.sh("n3", "sanctl status", ok=(0, 1), timeout_s=60).stdout
    assert re.search(rf"device {NAME}\s+n1\s+write-through \(one replica is in sync", status)
    bed.ensure_power("n2")
    await_log(bed, "n2", began_s, "a full resync begins", within_s=300)
    await_log(bed, "n2", began_s, "cache: write-back: two replicas", within_s=300)


def test_the_node_that_serves_loses_its_power(load: LedgerLoad) -> None:
    bed = load.bed
    write_back(load)
    active = collect.active_node(bed, NAME)
    other = next(node.name for node in bed.storage if node.name != active)
    began_s = bed.cut_power(active)
    await_log(bed, other, began_s, "promote: serving", within_s=240)
    log = steps(bed, other, began_s)
    assert position(log, "cache: write-through: all that was in RAM") < position(
        log, "promote: gate leads onto DRBD"
    ), "it served before it had flushed"
    bed.ensure_power(active)
    await_log(bed, active, began_s, "a full resync begins", within_s=300)
    await_log(bed, other, began_s, "cache: write-back: two replicas", within_s=300)


def test_a_standby_that_stops_in_order_leaves_no_node_in_write_back(load: LedgerLoad) -> None:
    bed = load.bed
    write_back(load)
    active = collect.active_node(bed, NAME)
    other = next(node.name for node in bed.storage if node.name != active)
    began_s = time.time()
    bed.sh("n3", f"sanctl node standby {other}", timeout_s=180)
    # The standby is down before the active node has published its change.
    await_log(bed, active, began_s, f"{other} cannot be promoted any more", within_s=60)
    log = steps(bed, active, began_s)
    assert position(log, "cache: write-through: all that was in RAM") < position(
        log, f"{other} cannot be promoted any more"
    )
    assert kernel_mode(bed, NAME, active) == "write-through"
    bed.sh("n3", f"sanctl node online {other}", timeout_s=240)
    write_back(load)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("which", ["standby", "active"])
@pytest.mark.parametrize(
    ("step", "mode"),
    [
        ("entered", "write-back"),
        ("synchronous", "write-through"),
        ("flushed", "write-through"),
    ],
)
def test_power_is_cut_at_a_step_of_a_change(
    load: LedgerLoad, step: str, mode: str, which: str
) -> None:
    """The agent dies at that step, then the power is cut: a full resync, and the change goes on."""
    bed = load.bed
    if mode == "write-back":
        bed.sh("n3", f"sanctl device cache {NAME} write-through", timeout_s=150)
    else:
        write_back(load)
    active = collect.active_node(bed, NAME)
    standby = next(node.name for node in bed.storage if node.name != active)
    node, other = (active, standby) if which == "active" else (standby, active)
    point = f"/run/sanctl/die-after/cache-{step}"
    bed.sh(node, f"mkdir -p /run/sanctl/die-after; touch {point}")
    with bed.stream("n3", f"sanctl device cache {NAME} {mode} --timeout 300"):
        wait_for(
            f"the agent to die after {step}",
            lambda: bed.sh(node, f"test -e {point}", ok=range(256)).status == 1,
            within_s=90,
        )
        began_s = bed.cut_power(node)
    if which == "active":
        await_log(bed, other, began_s, "promote: serving", within_s=240)
    bed.ensure_power(node)
    begins = "a full resync begins"
    if step == "flushed":
        # All is on the disk: the next action may have said so before the power was cut.
        begins += "|DRBD attached and connecting"
    await_log(bed, node, began_s, begins, within_s=300)
    wait_for(
        "both in sync", lambda: collect.is_in_sync(bed, other, NAME), within_s=300, every_s=3.0
    )
    bed.sh("n3", f"sanctl device cache {NAME} {mode} --timeout 300", timeout_s=320)
    assert {kernel_mode(bed, NAME, each.name) for each in bed.storage} == {mode}


@pytest.mark.quick
@pytest.mark.concludes
def test_no_acknowledged_write_is_lost_in_the_end(load: LedgerLoad) -> None:
    no_write_is_lost(load)
