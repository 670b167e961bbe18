# SPDX-License-Identifier: GPL-2.0-or-later
"""Resyncs and verifies: bytes on the sync network, order, schedules, repair.

The interfaces count every byte, headers included; DRBD counts what it calls data. Both have to say
the same of a resync.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines.spec import Network
from tests.support import ledgers

NAME = "sync0"
MIB = 2**20
SIZE_MIB = 192
# What is written before anything is measured; the rest of the device is zeros, which are not sent.
FILLED_MIB = 64
SETTLE_S = 180.0
USUAL = (
    "--full-above never --csums off --rate-max network --rate-min 32M --resync-window always"
    " --priority 50"
)


@pytest.fixture(scope="module")
def device(scenario: Scenario) -> Iterator[str]:
    scenario.create(NAME, f"{SIZE_MIB}M", prefer="n1")
    write(scenario.bed, NAME, 0, FILLED_MIB)
    yield NAME
    scenario.delete(NAME)


@pytest.fixture(autouse=True)
def whole_and_unhindered(
    request: pytest.FixtureRequest, scenario: Scenario, device: str
) -> Iterator[None]:
    """After a test that failed: reset the policy, connect the replicas, wait for Established."""
    before = request.session.testsfailed
    yield
    if request.session.testsfailed == before:
        return
    set_policy(scenario.bed, device, USUAL)
    if scenario.bed.sh("n2", f"drbdadm cstate {device}").stdout.strip() == "StandAlone":
        join(scenario.bed, device)
    wait_for(
        f"{device} to be in sync",
        lambda: all(
            replica["replication"] == "Established"
            for replica in replicas_of(scenario.bed, device).values()
        ),
        within_s=SETTLE_S,
    )


def write(bed: LabSession, device: str, at_mib: int, mib: int) -> None:
    """Write something new to a device, on the node that serves it."""
    bed.sh(
        "n1",
        f"dd if=/dev/urandom of=/dev/mapper/sanctl-{device} bs=1M count={mib} seek={at_mib}"
        " oflag=direct conv=nocreat iflag=fullblock",
        timeout_s=120,
    )


def write_the_same(bed: LabSession, device: str, at_mib: int, mib: int) -> None:
    """Write to a device what it holds there."""
    path = f"/dev/mapper/sanctl-{device}"
    bed.sh(
        "n1",
        f"dd if={path} of=/run/same bs=1M count={mib} skip={at_mib} iflag=direct &&"
        f" dd if=/run/same of={path} bs=1M seek={at_mib} oflag=direct conv=nocreat;"
        " status=$?; rm -f /run/same; exit $status",
        timeout_s=120,
    )


def replicas_of(bed: LabSession, device: str) -> dict[str, Any]:
    """Return what `sanctl sync status` says of a device's replicas, by node."""
    reported = json.loads(bed.sh("n3", "sanctl sync status --output json").stdout)
    return {replica["node"]: replica for replica in reported["data"] if replica["device"] == device}


def set_policy(bed: LabSession, device: str, *options: str) -> None:
    bed.sh("n1", f"sanctl device sync {device} {' '.join(options)}", timeout_s=90)


def part(bed: LabSession, *devices: str) -> None:
    """Disconnect the standby in an orderly way: it outdates itself, no I/O is frozen."""
    bed.sh("n2", " && ".join(f"drbdadm disconnect {name}" for name in devices))


def join(bed: LabSession, *devices: str) -> None:
    bed.sh("n2", " && ".join(f"drbdadm connect {name}" for name in devices))


def finished(bed: LabSession, device: str, since: Mapping[str, Any] | None) -> dict[str, Any]:
    """Wait for another resync to end than the one before; return it once all say it is over."""

    def look() -> dict[str, Any] | None:
        seen = replicas_of(bed, device)
        latest: dict[str, Any] | None = seen["n2"]["latest"]
        is_over = latest is not None and latest["ended"] is not None and latest != since
        calm = all(replica["replication"] == "Established" for replica in seen.values())
        return latest if is_over and calm else None

    return wait_for(f"the resync of {device}", look, within_s=SETTLE_S)


def standing(bed: LabSession, device: str) -> int:
    """Return how many bytes a resync that is held back has left, once what was on its way is in.

    A resync that is paused takes no more requests; those already sent are still answered.
    """
    seen: list[int] = []

    def look() -> bool:
        seen.append(replicas_of(bed, device)["n2"]["running"]["left_bytes"])
        return len(seen) > 1 and seen[-1] == seen[-2]

    wait_for(f"the resync of {device} to stand still", look, within_s=60)
    return seen[-1]


def carried(bed: LabSession, node: str) -> dict[str, int]:
    """Return the bytes that each of a node's interfaces has received and sent."""
    script = (
        "cd /sys/class/net; for nic in *0; do"
        " echo $nic $(cat $nic/statistics/rx_bytes $nic/statistics/tx_bytes); done"
    )
    counts: dict[str, int] = {}
    for line in bed.sh(node, script).stdout.splitlines():
        nic, received, sent = line.split()
        counts |= {f"{nic} in": int(received), f"{nic} out": int(sent)}
    return counts


def difference(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {key: after[key] - before[key] for key in before}


def resync(bed: LabSession, device: str) -> tuple[dict[str, Any], int]:
    """Join a device's replicas; return the resync and the bytes the sync network brought for it."""
    since = replicas_of(bed, device)["n2"]["latest"]
    before = carried(bed, "n2")
    join(bed, device)
    latest = finished(bed, device, since)
    return latest, difference(before, carried(bed, "n2"))["sync0 in"]


def freezes(bed: LabSession, device: str) -> int:
    """Return how often the node that serves has frozen a device's I/O to fence its peer."""
    call = f"drbd {device}: helper command: .* fence-peer {device}$"
    return int(bed.sh("n1", f"journalctl -k --no-pager | grep -c '{call}'", ok=(0, 1)).stdout)


def test_fast_sync_sends_what_differs(scenario: Scenario, device: str) -> None:
    bed = scenario.bed
    part(bed, device)
    write(bed, device, 8, 16)
    latest, brought = resync(bed, device)
    print(f"fast: {latest['changed_bytes']} marked, {brought} on the network")
    assert (latest["kind"], latest["changed_bytes"]) == ("fast", 16 * MIB)
    assert latest["received_bytes"] == 16 * MIB
    assert 16 * MIB < brought <= 1.1 * 16 * MIB


def test_full_sync_sends_all(scenario: Scenario, device: str) -> None:
    """More than the limit differs: all of it is sent, though a part would do."""
    bed = scenario.bed
    # Slow enough for the scheduler to find it, on a machine that is busy with other things.
    set_policy(bed, device, "--full-above", "5", "--rate-max", "1M", "--rate-min", "1M")
    frozen = freezes(bed, device)
    since = replicas_of(bed, device)["n2"]["latest"]
    part(bed, device)
    write(bed, device, 8, 16)
    before = carried(bed, "n2")
    join(bed, device)

    def is_full() -> bool:
        running = replicas_of(bed, device)["n2"]["running"]
        return running is not None and running["total_bytes"] == SIZE_MIB * MIB

    wait_for("all of it to be sent", is_full, within_s=60)
    set_policy(bed, device, "--full-above", "never", "--rate-max", "network", "--rate-min", "32M")
    latest = finished(bed, device, since)
    brought = difference(before, carried(bed, "n2"))["sync0 in"]
    print(f"full: {latest['changed_bytes']} marked, {brought} on the network")
    assert (latest["kind"], latest["changed_bytes"]) == ("full", 16 * MIB)
    assert "limit is 5%" in latest["why"]
    # Blocks of zeros are sent as a message, not as data.
    assert FILLED_MIB * MIB <= brought <= 1.1 * (FILLED_MIB + 16) * MIB
    assert freezes(bed, device) == frozen


def test_checksums_send_little_where_the_data_is_the_same(scenario: Scenario, device: str) -> None:
    bed = scenario.bed
    set_policy(bed, device, "--csums", "on")
    part(bed, device)
    write_the_same(bed, device, 8, 16)
    write(bed, device, 30, 1)
    latest, brought = resync(bed, device)
    set_policy(bed, device, "--csums", "off")
    print(f"checksums: {latest['changed_bytes']} marked, {brought} on the network")
    assert latest["changed_bytes"] == 17 * MIB
    assert latest["received_bytes"] == 1 * MIB
    assert brought < 2.5 * MIB


@pytest.mark.faults
def test_hours_hold_a_resync_back_and_nothing_else_does(scenario: Scenario, device: str) -> None:
    """Also when the scheduler that holds it back is killed: a monitor starts it again."""
    bed = scenario.bed
    hour = int(bed.sh("n2", "date +%H").stdout)
    set_policy(bed, device, "--resync-window", f"{(hour + 2) % 24:02}-{(hour + 3) % 24:02}")
    since = replicas_of(bed, device)["n2"]["latest"]
    part(bed, device)
    # More than can be sent before the scheduler has paused it.
    write(bed, device, 0, FILLED_MIB)
    join(bed, device)

    def waits() -> bool:
        running = replicas_of(bed, device)["n2"]["running"]
        return running is not None and str(running["waits"]).startswith("until")

    wait_for("the resync to wait for its hours", waits, within_s=60)
    left = standing(bed, device)
    bed.sh("n2", "systemctl kill --signal=KILL sanctl-resync.service")
    wait_for(
        "the scheduler to run again",
        lambda: (
            bed.sh("n2", "systemctl is-active sanctl-resync.service").stdout.strip() == "active"
        ),
        within_s=60,
    )
    wait_for("the resync to wait as before", waits, within_s=60)
    assert standing(bed, device) == left > 0
    set_policy(bed, device, "--resync-window", "always")
    latest = finished(bed, device, since)
    assert latest["changed_bytes"] == FILLED_MIB * MIB
    # Counted over the death, too.
    assert latest["received_bytes"] >= 0.95 * FILLED_MIB * MIB


@pytest.mark.faults
def test_several_come_back_in_order_and_not_at_once(scenario: Scenario, device: str) -> None:
    """The one with the highest priority, then the one with least to send."""
    bed = scenario.bed
    others = ("sync1", "sync2")
    for name in others:
        scenario.create(name, "64M", prefer="n1")
    try:
        amounts = {"sync0": 12, "sync1": 6, "sync2": 8}
        for name in amounts:
            # Slow enough to be seen.
            priority = "90" if name == "sync2" else "50"
            set_policy(bed, name, "--rate-max", "1M", "--rate-min", "1M", "--priority", priority)
        since = {name: replicas_of(bed, name)["n2"]["latest"] for name in amounts}
        part(bed, *amounts)
        for name, mib in amounts.items():
            write(bed, name, 0, mib)
        join(bed, *amounts)
        order: list[str] = []
        waiting: set[str] = set()

        def look() -> bool:
            reported = json.loads(bed.sh("n3", "sanctl sync status --output json").stdout)
            seen = [replica for replica in reported["data"] if replica["node"] == "n2"]
            for replica in seen:
                name, latest = replica["device"], replica["latest"]
                if replica["running"] and replica["running"]["waits"]:
                    waiting.add(f"{name} {replica['running']['waits']}")
                ended = latest is not None and latest["ended"] and latest != since[name]
                if ended and name not in order:
                    order.append(name)
            return len(order) == 3

        wait_for("all to be back", look, within_s=SETTLE_S, every_s=0.2)
        assert order == ["sync2", "sync1", "sync0"]
        assert {"sync1 for sync2", "sync0 for sync2"} <= waiting
    finally:
        set_policy(bed, device, "--rate-max", "network", "--rate-min", "32M", "--priority", "50")
        for name in others:
            scenario.delete(name)


def alter(bed: LabSession, device: str, at: int) -> None:
    """Write 8 KiB of something else into the standby's replica behind DRBD's back."""
    loop = bed.sh(
        "n2", f"losetup -l -n -O NAME,BACK-FILE | grep '/{device}\\..*data' | cut -d' ' -f1"
    ).stdout.strip()
    bed.sh(
        "n2",
        f"head -c 8192 /dev/urandom | dd of={loop} bs=4096 seek={at // 4096} oflag=direct"
        " conv=nocreat,notrunc iflag=fullblock",
    )


@pytest.mark.quick
def test_verify_finds_what_was_altered_and_repairs_it(scenario: Scenario, device: str) -> None:
    """Blocks of the standby altered behind DRBD's back, and no others."""
    bed = scenario.bed
    where = {"first": 3 * MIB, "second": 40 * MIB + 8192}
    for at in where.values():
        alter(bed, device, at)

    def verify(*options: str, ok: tuple[int, ...]) -> dict[str, Any]:
        words = " ".join(("sanctl device verify", device, "--output json", *options))
        reported = json.loads(bed.sh("n3", words, timeout_s=300, ok=ok).stdout)["data"]
        assert isinstance(reported, dict)
        return reported

    ranges = [{"first": at, "bytes": 8192} for at in where.values()]
    found = verify(ok=(1,))
    assert (found["node"], found["repaired_bytes"]) == ("n1", None)
    assert found["verify"]["result"] == "differs"
    assert found["verify"]["ranges"] == ranges
    status = bed.sh("n1", "sanctl status --output json", ok=(0, 1)).stdout
    assert "SAN-HLT-039" in {each["code"] for each in json.loads(status)["data"]["findings"]}
    before = carried(bed, "n2")
    mended = verify("--repair", "--yes", ok=(0,))
    assert (mended["verify"]["ranges"], mended["repaired_bytes"]) == (ranges, 16384)
    # The checksums of a verify, and the blocks: nothing like the device.
    assert difference(before, carried(bed, "n2"))["sync0 in"] < SIZE_MIB * MIB / 10
    assert verify(ok=(0,))["verify"]["result"] == "same"
    history = bed.sh("n1", f"cat /srv/sanctl/*/devices/{device}.*.verify").stdout.splitlines()
    assert [line.split(",")[1] for line in history[-3:]] == ["differs", "differs", "same"]


@pytest.mark.faults
def test_a_repair_is_made_though_its_node_did_not_see_the_verify(
    scenario: Scenario, device: str
) -> None:
    """The scheduler on that node is stopped, and gone before the verify ends."""
    bed = scenario.bed
    alter(bed, device, 24 * MIB)
    unit = "sanctl-test-lock.service"
    held = f"systemd-run --quiet --unit {unit} flock /run/sanctl/resync.lock sleep infinity"
    bed.sh("n2", f"systemctl stop sanctl-resync.service; {held}", timeout_s=60)

    def reported(node: str) -> list[str]:
        path = f"/srv/sanctl/*/devices/{device}.*.verify"
        lines = bed.sh(node, f"cat {path}", ok=(0, 1)).stdout.splitlines()
        return lines[-1].split(",")[:2] if lines else ["", ""]

    before = reported("n1")[0]
    try:
        order = f"sanctl device verify {device} --repair --yes --timeout 1"
        bed.sh("n3", order, timeout_s=60, ok=range(1, 256))
        wait_for(
            "the verify to end",
            lambda: reported("n1")[0] != before and reported("n1")[1] == "differs",
            within_s=SETTLE_S,
        )
    finally:
        bed.sh("n2", f"systemctl stop {unit}", timeout_s=60)

    ordered = reported("n1")[0]
    wait_for("the repair", lambda: reported("n2") == [ordered, "repaired"], within_s=60)
    text = bed.sh("n3", f"sanctl device verify {device} --output json", timeout_s=300).stdout
    assert json.loads(text)["data"]["verify"]["result"] == "same"


@pytest.fixture
def never_verified(scenario: Scenario) -> Iterator[str]:
    """A device of its own: a verify that was ordered in the same hour stands for the scheduled."""
    name = "sync4"
    scenario.create(name, "64M", prefer="n1")
    yield name
    scenario.delete(name)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_a_schedule_begins_a_verify_by_itself(scenario: Scenario, never_verified: str) -> None:
    """In its hour, once; and what it finds is complained of."""
    bed, device = scenario.bed, never_verified

    def history() -> list[list[str]]:
        text = bed.sh("n1", f"cat /srv/sanctl/*/devices/{device}.*.verify", ok=(0, 1)).stdout
        return [line.split(",") for line in text.splitlines()]

    def long_enough() -> bool:
        return int(bed.sh("n1", "date +%-M").stdout) < 57

    wait_for("an hour with minutes left", long_enough, within_s=240, every_s=2.0)
    before = history()
    assert before == []
    alter(bed, device, 5 * MIB)
    hour = bed.sh("n1", "date +%H").stdout.strip()
    other = f"{(int(hour) + 2) % 24:02}"
    # Not its hour.
    set_policy_of_verify(bed, device, f"daily@{other}")
    await_monitor(bed, device)
    assert history() == before
    begin = int(time.time())
    set_policy_of_verify(bed, device, f"daily@{hour}")

    def ended() -> list[str] | None:
        new = history()[len(before) :]
        return new[0] if new and new[0][1] != "running" else None

    # It waits until all others of its hour can have said that they wait, too.
    found = wait_for("the scheduled verify", ended, within_s=SETTLE_S + 120)
    print(f"scheduled: began {int(found[2]) - begin} s after its hour was set, {found}")
    assert (found[1], found[4], found[5]) == ("differs", "8", f"{5 * MIB}+8192")
    status = bed.sh("n1", "sanctl status --output json", ok=(0, 1)).stdout
    assert "SAN-HLT-039" in {each["code"] for each in json.loads(status)["data"]["findings"]}
    # Once in its hour.
    await_monitor(bed, device)
    assert len(history()) == len(before) + 1
    set_policy_of_verify(bed, device, "off")
    bed.sh("n3", f"sanctl device verify {device} --repair --yes", timeout_s=300)
    bed.sh("n3", f"sanctl device verify {device}", timeout_s=300)


def set_policy_of_verify(bed: LabSession, device: str, schedule: str) -> None:
    bed.sh("n1", f"sanctl device verify {device} --schedule {schedule}", timeout_s=90)


def await_monitor(bed: LabSession, device: str) -> None:
    """Wait until a monitor of the active node has published its attribute: every two minutes.

    It checks whether a verify is due before it publishes.
    """
    reported = f"stat -c %Y /run/sanctl/devices/{device}/attrd-cache.state"
    begin = int(bed.sh("n1", "date +%s").stdout)
    wait_for("a monitor", lambda: int(bed.sh("n1", reported).stdout) > begin, within_s=180)


@pytest.mark.faults
def test_each_network_carries_its_own(scenario: Scenario, device: str) -> None:
    """A host writes through several portals of each node while the policy changes under it."""
    bed, host = scenario.bed, scenario.host
    more = {"n1": "10.77.1.61", "n2": "10.77.1.62"}
    name = "sync3"
    for node, address in more.items():
        bed.sh(
            node,
            f"ip address add {address}/24 dev {Network.ISCSI.nic};"
            " cp /etc/sanctl/cluster.toml /run/cluster.toml;"
            f""" sed -i 's/^iscsi = \\["{bed.node(node).address(Network.ISCSI)}"/&, "{address}"/'"""
            " /etc/sanctl/cluster.toml",
        )
    portals = [*scenario.portals(), *more.values()]
    try:
        target = scenario.create(name, "64M", prefer="n1")
        path = host.login(target, portals)
        assert len(host.paths(target, portals)) == 4
        bed.sh(host.name, f"multipath -ll {path.rpartition('/')[2]}")
        before = {node: carried(bed, node) for node in ("n1", "n2")}
        begin = time.monotonic()
        host.sh(
            f"dd if=/dev/urandom of={path} bs=1M count=32 oflag=direct iflag=fullblock",
            timeout_s=180,
        )
        moved = {node: difference(before[node], carried(bed, node)) for node in before}
        print(f"{time.monotonic() - begin:.0f} s: {moved}")
        written = 32 * MIB
        # Beside the data: headers, and the cluster's own talk, which goes over two networks.
        little = written / 10
        assert written <= moved["n1"]["iscsi0 in"] <= written + little
        assert written <= moved["n1"]["sync0 out"] <= written + little
        assert written <= moved["n2"]["sync0 in"] <= written + little
        for node, ways in (
            ("n1", ("iscsi0 out", "sync0 in", "hb0 in", "hb0 out")),
            ("n2", ("iscsi0 in", "iscsi0 out", "sync0 out", "hb0 in", "hb0 out")),
        ):
            assert all(moved[node][way] < little for way in ways), (node, moved[node])
    finally:
        scenario.delete(name)
        for node, address in more.items():
            bed.sh(
                node,
                f"ip address del {address}/24 dev {Network.ISCSI.nic};"
                " mv /run/cluster.toml /etc/sanctl/cluster.toml",
            )


@pytest.mark.faults
def test_a_policy_changes_under_a_host_that_writes(scenario: Scenario, device: str) -> None:
    """No write fails or is lost, and none waits longer than beside any other command."""
    scenario.sanctl("target", "allow", device, scenario.host.iqn)
    target = f"{scenario.iqn_prefix()}.{device}"
    path = scenario.host.login(target, scenario.portals())
    load = ledgers.start(scenario, device, target, path, rate=50, region_bytes=8 * MIB)
    for options in (("--csums", "on"), ("--rate-max", "50M"), ("--csums", "off")):
        set_policy(scenario.bed, device, *options)
    ledgers.assert_nothing_lost(load, more_than=0)
