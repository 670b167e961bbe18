# SPDX-License-Identifier: GPL-2.0-or-later
"""Copies of a device at a second site: equal, of what has changed alone, whole or not there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import second_site, steps
from tests.support.json_contract import breaches
from tests.support.second_site import (
    IMAGE,
    KEY,
    MOUNT,
    PATH,
    SERVER,
    SITE,
    digest,
    files,
    sanctl,
    state,
)

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME = "far0"
SIZE_MIB = 64
MIB = 1 << 20
#: What the test writes between two runs: pieces of this size, far from each other.
PIECE_KIB, PIECES = 64, 48


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    """Return a laboratory whose pools are XFS."""
    return xfs_bed


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    return Scenario(bed, Initiator(bed, "i1"))


@pytest.fixture(scope="module")
def server(bed: LabSession) -> Iterator[str]:
    """Make the server a site's, with the nodes' key; return its address for ssh."""
    with second_site.server(bed) as address:
        yield address


@pytest.fixture(scope="module")
def device(scenario: Scenario, server: str) -> Iterator[str]:
    """Return the path that the host has of the device, which n1 serves, a third of it written."""
    del server
    path = scenario.host.login(
        scenario.create(NAME, f"{SIZE_MIB}M", prefer="n1"), scenario.portals()
    )
    write(scenario, path, 0, 20 * 1024)
    yield path
    scenario.host.logout(f"{scenario.iqn_prefix()}.{NAME}")
    scenario.bed.sh(
        "n3", f"sanctl device delete {NAME} --yes --accept SAN-DEV-023 --with-points", timeout_s=240
    )


def write(scenario: Scenario, path: str, at_kib: int, count_kib: int) -> None:
    """Write random bytes to the device, past the host's page cache."""
    scenario.host.sh(
        f"dd if=/dev/urandom of={path} bs=4k seek={at_kib // 4} count={count_kib // 4}"
        " iflag=fullblock oflag=direct conv=fsync status=none",
        timeout_s=120,
    )


def write_pieces(scenario: Scenario, path: str) -> int:
    """Write pieces that are far from each other; return how many bytes."""
    step = SIZE_MIB * 1024 // PIECES // 4
    scenario.host.sh(
        f"for n in $(seq 0 {PIECES - 1}); do dd if=/dev/urandom of={path} bs=4k"
        f" seek=$((n * {step})) count={PIECE_KIB // 4} iflag=fullblock oflag=direct status=none;"
        f" done; sync {path}",
        timeout_s=180,
    )
    return PIECES * PIECE_KIB * 1024


def run(bed: LabSession, node: str, more: str = "") -> Any:
    """Copy the device once; a busy machine may not make the point within half a second."""

    def once() -> Any:
        done = bed.sh(
            node,
            f"sanctl replicate run {NAME} --to {SITE} {more} --output json",
            timeout_s=400,
            ok=range(256),
        )
        assert done.status == 0 or "SAN-SNAP-007" in done.stdout, done.stdout + done.stderr
        assert breaches("replicate run", done.stdout) == []
        return json.loads(done.stdout)["data"]

    made = wait_for(f"a copy of {NAME}", once, within_s=400)
    copy = made["copy"]
    print(
        f"  {copy['point']} from {node}, base {made['base']}: changed {copy['changed_bytes']},"
        f" sent {copy['sent_bytes']}, by extents: {made['by_extents']},"
        f" read {made['read_bytes']} as {made['why_whole'] or 'it has changed'}"
    )
    return made


def fails(bed: LabSession, node: str, code: str, status: int, more: str = "") -> str:
    """Check that a run fails for a reason; return what it says."""
    problem = sanctl(bed, node, f"replicate run {NAME} --to {SITE} {more}", status=status)[0]
    assert problem["code"] == code, problem
    print(f"  {problem['code']}: {problem['text']}")
    return str(problem["text"])


def points(bed: LabSession) -> list[dict[str, Any]]:
    listed = sanctl(bed, "n3", f"snapshot list {NAME}")
    return [each for each in listed if not each["deleting"]]


def assert_equal(bed: LabSession, made: dict[str, Any]) -> None:
    """Check that a copy is as the restore point on each of its nodes; the point is the only one."""
    (point,) = points(bed)
    assert point["name"] == made["copy"]["point"]
    wanted = digest(bed, SERVER, made["file"])
    assert {digest(bed, each["node"], point["file"]) for each in point["nodes"]} == {wanted}
    assert not [each for each in files(bed) if each.endswith(".partial")]


def await_partial(bed: LabSession) -> None:
    wait_for(
        "a copy under way",
        lambda: [each for each in files(bed) if each.endswith(".partial")],
        within_s=120,
        every_s=0.1,
    )


def test_what_is_no_site_is_refused(bed: LabSession, server: str) -> None:
    fine = f"site add {SITE} --ssh {server} --path"
    for node, words, status, code in (
        ("n1", f"site add Far --ssh {server} --path {PATH}", 2, "SAN-SITE-001"),
        ("n1", f"{fine} copies", 2, "SAN-SITE-001"),
        ("n1", f"{fine} /srv/nowhere", 5, "SAN-SITE-006"),
        ("n1", f"{fine} /root", 5, "SAN-SITE-006"),
        ("n1", f"{fine} /mnt", 5, "SAN-SITE-006"),
        ("n3", f"{fine} {PATH}", 4, "SAN-SITE-004"),
        ("n1", f"{fine} {PATH} --host-key SHA256:abc", 4, "SAN-SITE-015"),
        ("n1", f"site add {SITE} --ssh {server}:2222 --path {PATH}", 5, "SAN-SITE-005"),
    ):
        (problem,) = sanctl(bed, node, words, status=status)
        assert problem["code"] == code, problem
        print(f"  {problem['code']}: {problem['text']}")
    assert sanctl(bed, "n1", "site list") == []
    assert bed.sh(SERVER, f"find {PATH} /mnt -mindepth 1").stdout == ""


def test_the_first_copy_is_equal(scenario: Scenario, server: str, device: str) -> None:
    bed = scenario.bed
    made = sanctl(bed, "n1", f"site add {SITE} --ssh {server} --path {PATH}")
    assert made["fingerprint"].startswith("SHA256:")
    (problem,) = sanctl(bed, "n1", f"site add {SITE} --ssh {server} --path {PATH}", status=4)
    assert problem["code"] == "SAN-SITE-003"
    (problem,) = sanctl(bed, "n2", f"replicate run {NAME} --to near", status=4)
    assert problem["code"] == "SAN-SITE-002"
    fails(bed, "n1", "SAN-SITE-010", 4)
    fails(bed, "n3", "SAN-DEV-015", 4)
    assert points(bed) == []
    copy = run(bed, "n2")
    assert copy["base"] is None and copy["by_extents"]
    assert_equal(bed, copy)
    # What was never written is not sent.
    assert 20 * MIB <= copy["copy"]["sent_bytes"] <= 1.1 * 20 * MIB
    del device


def test_what_has_changed_alone_is_sent(scenario: Scenario, device: str) -> None:
    bed = scenario.bed
    before = run(bed, "n2")
    assert before["copy"]["changed_bytes"] == 0 and before["copy"]["sent_bytes"] < 64 << 10
    changed = write_pieces(scenario, device)
    whole = state(bed)
    made = run(bed, "n2")
    assert made["base"] == before["copy"]["point"] and made["by_extents"]
    assert made["copy"]["changed_bytes"] == changed
    assert made["copy"]["sent_bytes"] <= 1.1 * changed
    assert_equal(bed, made)
    after = state(bed)
    assert {each: after[each] for each in whole} == whole and len(after) == len(whole) + 1


def test_what_has_changed_alone_is_read_for_the_proof(scenario: Scenario, device: str) -> None:
    """Once a day it is all, and where it is asked for."""
    bed = scenario.bed
    write(scenario, device, 8 * 1024, 1024)
    quick = run(bed, "n2")
    # The filesystem may say of some blocks around that they are elsewhere.
    assert quick["why_whole"] is None and MIB <= quick["read_bytes"] <= 4 * MIB
    assert_equal(bed, quick)
    whole = run(bed, "n2", "--whole")
    assert whole["why_whole"] and whole["read_bytes"] == SIZE_MIB * MIB
    assert whole["copy"]["digest"] == quick["copy"]["digest"]
    read, proven = (quick["copy"][key] for key in ("read_whole", "proven"))
    assert read < proven and whole["copy"]["read_whole"] == whole["copy"]["proven"]
    (shown,) = sanctl(bed, "n1", f"replicate status {NAME}")
    assert shown["copy"] == whole["copy"]
    assert_equal(bed, whole)


def test_the_rate_of_a_site_holds(scenario: Scenario, server: str, device: str) -> None:
    """By what the sender's network interface counts, over each span of five seconds and more."""
    bed = scenario.bed
    for wrong in ("0", "-1M", "nan", "9999999T"):
        words = f"site set {SITE} --limit-rate {wrong}"
        assert sanctl(bed, "n1", words, status=2)[0]["code"] == "SAN-SITE-001"
    limit, sent_kib = 256 << 10, 6 * 1024
    assert sanctl(bed, "n1", f"site set {SITE} --limit-rate 256K")["limit_bytes_s"] == limit
    write(scenario, device, 0, sent_kib)
    counted, sent, limited_s = counted_run(bed, server)
    assert sent >= sent_kib * 1024
    most = max(
        (later - before - limit) / (until_s - from_s) / limit
        for number, (from_s, before) in enumerate(counted)
        for until_s, later in counted[number:]
        if until_s - from_s >= 5
    )
    print(f"  {sent} bytes in {limited_s:.0f} s at {limit} a second; at most {most:.2f} of that")
    # What ssh and TCP add is a few percent.
    assert most <= 1.15 and limited_s >= sent / limit - 1
    write(scenario, device, 0, sent_kib)
    _, sent, free_s = counted_run(bed, server, "--limit-rate none")
    print(f"  {sent} bytes without a limit in {free_s:.0f} s")
    assert sent >= sent_kib * 1024 and free_s < limited_s
    assert sanctl(bed, "n1", f"site set {SITE} --limit-rate none")["limit_bytes_s"] is None


def test_how_far_a_copy_is_shows_on_any_node(scenario: Scenario, device: str) -> None:
    """And of one that was killed it is not shown for good."""
    bed = scenario.bed
    write(scenario, device, 0, 12 * 1024)
    line = f"sanctl replicate run {NAME} --to {SITE} --limit-rate 256K"

    def shown() -> Any:
        return sanctl(bed, "n3", f"replicate status {NAME}")[0]

    with bed.stream("n2", f"echo $$; exec {line} 2>&1") as process:
        assert process.stdout is not None
        pid = process.stdout.readline().strip()
        progress = wait_for("a progress", lambda: shown()["progress"], within_s=120)
        print(f"  {progress}")
        assert (progress["node"], progress["phase"]) == ("n2", "sending")
        assert 0 < progress["done_bytes"] < progress["total_bytes"] and progress["left_s"] > 0
        text = bed.sh("n3", f"sanctl replicate status {NAME}").stdout
        assert "under way on n2" in text and "on n2: sending [#" in text
        assert "sanctl.copy." not in bed.sh("n3", "cibadmin --query").stdout
        bed.sh("n2", f"kill -KILL {pid}")
        process.stdout.read()
        assert process.wait(120) != 0
    wait_for("no progress", lambda: shown()["progress"] is None, within_s=180)
    assert shown()["attempt"]
    made = run(bed, "n2")
    assert not shown()["attempt"] and shown()["progress"] is None
    assert_equal(bed, made)


def counted_run(
    bed: LabSession, server: str, more: str = ""
) -> tuple[list[tuple[float, int]], int, float]:
    """Copy the device from n2; return what its interface had sent at which time, the copy's bytes,
    and how long it took, in seconds."""
    to = server.partition("@")[2]
    count = (
        f"name=$(ip -o route get {to} | grep -o 'dev [^ ]*' | cut -c5-); while sleep 0.5; do"
        " echo $(cut -d' ' -f1 /proc/uptime) $(cat /sys/class/net/$name/statistics/tx_bytes); done"
    )
    with bed.stream("n2", f"echo $$; {count}") as process:
        assert process.stdout is not None
        pid = process.stdout.readline().strip()
        began_s = time.monotonic()
        made = run(bed, "n2", more)
        took_s = time.monotonic() - began_s
        bed.sh("n2", f"kill {pid}")
        lines = [line.split() for line in process.stdout.read().splitlines()]
        process.wait(60)
    counted = [(float(line[0]), int(line[1])) for line in lines if len(line) == 2]
    return counted, int(made["copy"]["sent_bytes"]), took_s


@pytest.mark.parametrize("victim", ["sender", "receiver"])
def test_killed_in_the_middle(scenario: Scenario, device: str, victim: str) -> None:
    bed = scenario.bed
    write(scenario, device, 0, 24 * 1024)
    whole, newest = state(bed), sanctl(bed, "n2", f"replicate status {NAME}")[0]["copy"]
    line = f"sanctl replicate run {NAME} --to {SITE}"
    with bed.stream("n2", f"echo $$; exec {line} 2>&1") as process:
        assert process.stdout is not None
        pid = process.stdout.readline().strip()
        await_partial(bed)
        if victim == "sender":
            bed.sh("n2", f"kill -KILL {pid}")
        else:
            bed.sh(SERVER, "kill -KILL $(pgrep -f 'compile[(]d,')")
        said = process.stdout.read()
        status = process.wait(120)
    print(f"  status {status}: {said.strip().splitlines()[-1:]}")
    assert status != 0 and (victim == "sender" or "SAN-SITE-005" in said)
    assert state(bed) == whole
    shown = sanctl(bed, "n2", f"replicate status {NAME}")[0]
    assert shown["copy"] == newest and shown["base_here"]
    made = run(bed, "n2")
    assert made["base"] == newest["point"] and made["by_extents"]
    assert_equal(bed, made)


def test_the_destination_is_full(scenario: Scenario, device: str) -> None:
    bed = scenario.bed
    write(scenario, device, 30 * 1024, 24 * 1024)
    whole = state(bed)
    free_mib = int(bed.sh(SERVER, f"df --output=avail -BM {MOUNT} | tail -1 | tr -dc 0-9").stdout)
    # Said before anything is written.
    bed.sh(SERVER, f"fallocate -l {free_mib - 40}M {MOUNT}/fill")
    fails(bed, "n2", "SAN-SITE-007", 5)
    # And in the middle: what was free at the begin is gone.
    bed.sh(SERVER, f"rm {MOUNT}/fill")
    line = f"sanctl replicate run {NAME} --to {SITE}"
    with bed.stream("n2", f"exec {line} 2>&1") as process:
        assert process.stdout is not None
        await_partial(bed)
        bed.sh(SERVER, f"dd if=/dev/zero of={MOUNT}/fill bs=1M 2>/dev/null", timeout_s=60, ok=(1,))
        said = process.stdout.read()
        status = process.wait(120)
    print(f"  status {status}: {said.strip().splitlines()[-1:]}")
    bed.sh(SERVER, f"rm {MOUNT}/fill")
    assert status == 5 and "SAN-SITE-007" in said
    assert state(bed) == whole
    assert_equal(bed, run(bed, "n2"))


def test_another_host_key_or_format_or_no_filesystem(scenario: Scenario) -> None:
    bed = scenario.bed
    whole, before = state(bed), [each["name"] for each in points(bed)]
    mark = f"{PATH}/sanctl-site.json"
    bed.sh(SERVER, f'cp -a {mark} /var/tmp/mark && sed -i \'s/"format": 1/"format": 2/\' {mark}')
    fails(bed, "n2", "SAN-SITE-013", 5)
    bed.sh(SERVER, f"mv /var/tmp/mark {mark} && umount {MOUNT}")
    fails(bed, "n2", "SAN-SITE-006", 5)
    bed.sh(SERVER, f"mount -o loop {IMAGE} {MOUNT}")
    # Instead of another key of the server's, another one in the CIB: to ssh it is the same.
    xpath = f"//nvpair[@id='sanctl-site.{SITE}']"
    value = bed.sh("n1", f'cibadmin --query --xpath "{xpath}"').stdout.partition('value="')[2]
    value = value.partition('"')[0]
    other = bed.read_bytes("n1", f"{KEY}.pub").decode().split()
    wrong = " ".join((*value.split(" ")[:4], *other[:2]))
    set_value = (
        "cibadmin --modify --scope crm_config --xml-text '<cluster_property_set"
        ' id="sanctl.sites"><nvpair id="sanctl-site.{0}" name="sanctl-site.{0}"'
        ' value="{1}"/></cluster_property_set>\''
    )
    bed.sh("n1", set_value.format(SITE, wrong))
    fails(bed, "n2", "SAN-SITE-015", 5)
    bed.sh("n1", set_value.format(SITE, value))
    assert state(bed) == whole and [each["name"] for each in points(bed)] == before


def test_the_base_is_gone(scenario: Scenario, device: str) -> None:
    bed = scenario.bed
    (base,) = points(bed)
    sanctl(bed, "n3", f"snapshot delete {NAME}@{base['name']} --yes")
    changed = write_pieces(scenario, device)
    made = run(bed, "n2")
    assert not made["by_extents"] and made["base"] == base["name"]
    # In chunks of a MiB: each of the pieces is in one, or in two.
    assert changed <= made["copy"]["changed_bytes"] <= 2 * PIECES * MIB
    assert_equal(bed, made)


def test_the_file_of_the_base_is_gone(scenario: Scenario, device: str) -> None:
    """As where the pool of the sending node began anew: the CIB may still name that node."""
    bed = scenario.bed
    (base,) = points(bed)
    file = sanctl(bed, "n2", f"snapshot show {NAME}@{base['name']}")["file"]
    bed.sh("n2", f"test -f {file} && rm {file}")
    changed = write_pieces(scenario, device)
    made = run(bed, "n2")
    assert not made["by_extents"] and made["base"] == base["name"]
    assert changed <= made["copy"]["changed_bytes"] <= 2 * PIECES * MIB
    assert_equal(bed, made)


def test_after_a_failover_the_other_node_has_the_base(scenario: Scenario, device: str) -> None:
    bed = scenario.bed
    newest = sanctl(bed, "n2", f"replicate status {NAME}")[0]["copy"]
    assert collect.active_node(bed, NAME) == "n1"
    bed.cut_power("n1")
    try:
        wait_for(
            "n2 to serve",
            lambda: bed.sh("n2", f"drbdadm role {NAME}").stdout.startswith("Primary"),
            within_s=240,
        )
        changed = write_pieces(scenario, device)
        fails(bed, "n2", "SAN-SITE-010", 4)
    finally:
        bed.ensure_power("n1")
    failover.await_healthy(bed, "n3")
    made = run(bed, "n1")
    assert made["base"] == newest["point"] and made["by_extents"]
    assert made["copy"]["changed_bytes"] == changed
    assert made["copy"]["sent_bytes"] <= 1.1 * changed
    assert_equal(bed, made)


def test_the_power_of_the_sender_is_cut(scenario: Scenario, device: str) -> None:
    bed = scenario.bed
    write(scenario, device, 0, 24 * 1024)
    whole = state(bed)
    line = f"sanctl replicate run {NAME} --to {SITE}"
    bed.sh("n1", f"systemd-run --unit=site-copy {line}")
    await_partial(bed)
    before = steps.boot_id(bed, "n1")
    bed.cut_power("n1")
    bed.ensure_power("n1")
    # Until then the cluster may not have noticed.
    wait_for("n1 to boot", lambda: steps.boot_id(bed, "n1") != before, within_s=240)
    failover.await_healthy(bed, "n3")
    assert state(bed) == whole
    # The receiver may still wait for its sender: the next run takes its place.
    made = run(bed, "n1")
    assert made["by_extents"] and made["base"]
    assert_equal(bed, made)


def test_old_copies_are_removed(bed: LabSession) -> None:
    before = state(bed)
    assert len(before) > 3
    made = run(bed, "n1", "--keep 2")
    after = state(bed)
    assert len(after) == 2 and len(made["removed"]) == len(before) - 1
    assert all(before.get(each, value) == value for each, value in after.items())
    beside = [f"{each}{suffix}" for each in after for suffix in (".json", ".chunks")]
    assert sorted(files(bed)) == sorted([*after, *beside])
    assert_equal(bed, made)


def test_a_copy_seeds_a_new_device(scenario: Scenario, device: str) -> None:
    """What docs/howto/second-site.md says: the file is as raw as the device."""
    bed = scenario.bed
    del device
    (shown,) = sanctl(bed, "n3", f"replicate status {NAME}")
    target = scenario.create("seeded", f"{SIZE_MIB}M", prefer="n2")
    try:
        path = scenario.host.login(target, scenario.portals())
        scenario.host.sh(
            f"dd if={shown['file']} of={path} bs=1M oflag=direct conv=fsync", timeout_s=180
        )
        wanted = digest(bed, SERVER, shown["file"])
        data = "$(ls /srv/sanctl/main/devices/seeded.*.data)"
        for node in ("n1", "n2"):
            bed.sh(node, "echo 3 >/proc/sys/vm/drop_caches")
            assert digest(bed, node, data) == wanted
    finally:
        scenario.delete("seeded")


def test_a_schedule_goes_on_at_whatever_is_a_standby(scenario: Scenario, device: str) -> None:
    bed = scenario.bed
    del device
    given = sanctl(bed, "n3", f"replicate schedule {NAME} --to {SITE} --every 1m --keep 2")
    assert given["changed"] and given["schedule"]["keep"] == 2
    for standby, active in (("n1", "n2"), ("n2", "n1")):
        if collect.active_node(bed, NAME) != active:
            bed.sh("n3", f"sanctl device move {NAME} --to {active}", timeout_s=180)
        before = made_on(bed, standby)
        wait_for(
            f"a copy from {standby}",
            lambda before=before, standby=standby: made_on(bed, standby) > before,  # type: ignore[misc]
            within_s=240,
        )
    sanctl(bed, "n3", f"replicate schedule {NAME} --to {SITE} --every off")
    (shown,) = sanctl(bed, "n3", f"replicate status {NAME}")
    assert shown["schedule"] is None and len(state(bed)) <= 3
    # No host has written since.
    data = f"$(ls /srv/sanctl/main/devices/{NAME}.*.data)"
    assert digest(bed, SERVER, shown["file"]) == digest(bed, "n1", data) == digest(bed, "n2", data)


def made_on(bed: LabSession, node: str) -> int:
    """Return how many copies a node has made by schedule since it runs."""
    text = bed.sh(node, f"journalctl -b -o cat SANCTL_DEVICE={NAME} SANCTL_ACTION=replicate").stdout
    return text.count("is proven at site")


def test_a_disk_that_is_carried_goes_on_elsewhere(
    scenario: Scenario, server: str, device: str
) -> None:
    """What docs/howto/second-site.md says: the first copy by a disk."""
    bed, carried = scenario.bed, "/srv/carried"
    standby = "n2" if collect.active_node(bed, NAME) == "n1" else "n1"
    before = run(bed, standby)
    whole, changed = state(bed), write_pieces(scenario, device)
    await_unmounted(bed, MOUNT)
    try:
        fails(bed, standby, "SAN-SITE-006", 5)
        # It is not there yet, and an empty directory is not this site, and is not marked.
        bed.sh(SERVER, f"mkdir -p {carried} /var/tmp/empty")
        for path in (f"{carried}/sanctl", "/var/tmp/empty"):
            words = f"site set {SITE} --ssh {server} --path {path}"
            assert sanctl(bed, "n1", words, status=5)[0]["code"] == "SAN-SITE-006"
        assert bed.sh(SERVER, "ls /var/tmp/empty").stdout == ""
        assert [each["path"] for each in sanctl(bed, "n1", "site list")] == [PATH]
        bed.sh(SERVER, f"mount -o loop {IMAGE} {carried}")
        words = f"site set {SITE} --ssh {server} --path {carried}/sanctl"
        moved = sanctl(bed, "n1", words)
        assert moved["changed"] and moved["path"] == f"{carried}/sanctl"
        assert not sanctl(bed, "n1", words)["changed"]
        made = run(bed, standby)
        assert made["base"] == before["copy"]["point"] and made["by_extents"]
        assert made["copy"]["changed_bytes"] == changed
        assert made["copy"]["sent_bytes"] <= 1.1 * changed
        assert made["file"].startswith(f"{carried}/sanctl/")
        (point,) = points(bed)
        wanted = digest(bed, SERVER, made["file"])
        assert {digest(bed, each["node"], point["file"]) for each in point["nodes"]} == {wanted}
    finally:
        await_unmounted(bed, carried)
        bed.sh(SERVER, f"mount -o loop {IMAGE} {MOUNT}; rmdir {carried} /var/tmp/empty")
        sanctl(bed, "n1", f"site set {SITE} --path {PATH}")
    after = state(bed)
    assert {each: after[each] for each in whole} == whole and len(after) == len(whole) + 1
    home = run(bed, standby)
    assert home["base"] == made["copy"]["point"] and home["copy"]["changed_bytes"] == 0
    assert_equal(bed, home)


def await_unmounted(bed: LabSession, path: str) -> None:
    """Unmount a filesystem of the server; a receiver may be ending still."""
    wait_for(
        f"{path} to be unmounted",
        lambda: (
            bed.sh(SERVER, f"! mountpoint -q {path} || umount {path}", ok=range(256)).status == 0
        ),
        within_s=60,
    )


def test_a_site_that_is_removed_keeps_its_copies(bed: LabSession, device: str) -> None:
    del device
    whole = state(bed)
    sanctl(bed, "n3", f"site remove {SITE} --yes")
    assert sanctl(bed, "n3", "site list") == [] == sanctl(bed, "n3", "replicate status")
    assert points(bed) == []
    assert state(bed) == whole
    (problem,) = sanctl(bed, "n3", f"site remove {SITE} --yes", status=4)
    assert problem["code"] == "SAN-SITE-002"
