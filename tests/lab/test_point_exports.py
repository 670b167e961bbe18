# SPDX-License-Identifier: GPL-2.0-or-later
"""Exported restore points: read by a backup host from a standby, past the sync network, read-only.

An export holds up nothing: neither deletion, nor a failover, nor the stop of its node.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import failover
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines.spec import Network
from tests.lab.test_backups import sync_bytes
from tests.lab.test_chap import answers, inquiry
from tests.support.steps import boot_id

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME, OTHER = "exp0", "exp1"
SIZE_MIB, MIB = 64, 1 << 20
POINT = f"{NAME}@kept"
#: A host that has the restore point alone, and not the device.
BACKUP, BACKUP_IQN, SECRET = "bk1", "iqn.2026-11.net.example:backup", "aSecretOfBk1.1"
#: An interval of the pool agent's monitor, and what it does before.
FOLLOWED_S = 60.0


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    """Return a laboratory whose pools are XFS."""
    return xfs_bed


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Iterator[Scenario]:
    made = Scenario(bed, Initiator(bed, "i1"))
    yield made
    for name in (NAME, OTHER):
        bed.sh(
            "n3",
            f"sanctl device delete {name} --yes --accept SAN-DEV-023 --with-points",
            timeout_s=240,
            ok=(0, 4),
        )


def run(bed: LabSession, node: str, words: str, *, status: int = 0) -> Any:
    """Run a command; return its data, or the problems of one that is to fail."""
    done = bed.sh(node, f"sanctl {words} --output json", timeout_s=120, ok=range(256))
    assert done.status == status, done.stdout + done.stderr
    told = json.loads(done.stdout)
    return told["problems"] if status else told["data"]


def digest_read(host: Initiator, path: str) -> str:
    text = host.sh(f"dd if={path} bs=1M iflag=direct 2>/dev/null | sha256sum", timeout_s=120)
    return text.split()[0]


def write(scenario: Scenario, path: str) -> None:
    scenario.host.sh(
        f"dd if=/dev/urandom of={path} bs=1M count={SIZE_MIB} oflag=direct conv=notrunc,fsync",
        timeout_s=120,
    )


def make_point(bed: LabSession, name: str) -> None:
    """Make a restore point; a busy machine may not make it within half a second."""
    words = f"sanctl snapshot create {NAME} --name {name}"
    wait_for(
        "a restore point",
        lambda: bed.sh("n3", words, timeout_s=120, ok=range(256)).status == 0,
        within_s=240,
    )


@pytest.fixture(scope="module")
def kept(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """A device's path, and the digest of its restore point; it has other data since."""
    bed, host = scenario.bed, scenario.host
    target = scenario.create(NAME, f"{SIZE_MIB}M", prefer="n1", nodes=("n1", "n2"))
    path = host.login(target, scenario.portals())
    write(scenario, path)
    digest = digest_read(host, path)

    make_point(bed, "kept")
    write(scenario, path)
    yield path, digest
    host.logout(target)


def log_in(scenario: Scenario, target: str, node: str) -> str:
    """Log in to an export of a node; return the disk, of which multipath makes nothing."""
    portal = scenario.bed.node(node).address(Network.ISCSI)
    scenario.host.sh(
        f"iscsiadm -m discovery -t sendtargets -p {portal}"
        f" && {{ iscsiadm -m node -T {target} -p {portal} --login || [ $? = 15 ]; }}"
    )
    path = path_of(scenario, target, node)
    wait_for(
        "the disk",
        lambda: scenario.bed.sh(scenario.host.name, f"test -b {path}", ok=(0, 1)).status == 0,
        within_s=60,
    )
    return path


def path_of(scenario: Scenario, target: str, node: str) -> str:
    portal = scenario.bed.node(node).address(Network.ISCSI)
    return f"/dev/disk/by-path/ip-{portal}:3260-iscsi-{target}-lun-0"


def test_a_backup_host_reads_the_standby(scenario: Scenario, kept: tuple[str, str]) -> None:
    bed, host = scenario.bed, scenario.host
    refused = run(bed, "n1", f"snapshot export {POINT} --initiator {host.iqn}", status=4)
    assert refused[0]["code"] == "SAN-EXP-002" and "n2" in refused[0]["hint"]
    assert run(bed, "n3", f"snapshot export {POINT} --initiator {host.iqn}", status=4)
    assert run(bed, "n2", f"snapshot export {POINT}", status=4)[0]["code"] == "SAN-EXP-003"
    made = run(bed, "n2", f"snapshot export {POINT} --initiator {host.iqn}")
    # A second time changes nothing.
    assert run(bed, "n2", f"snapshot export {POINT} --initiator {host.iqn}") == made
    assert run(bed, "n2", "snapshot exports") == [made]
    assert run(bed, "n1", "snapshot exports") == []
    path = log_in(scenario, made["target"], "n2")
    before = {node: sync_bytes(bed, node) for node in ("n1", "n2")}
    served = f"cat /sys/class/net/{Network.ISCSI.nic}/statistics/tx_bytes"
    before_served = int(bed.sh("n1", served).stdout)
    assert digest_read(host, path) == kept[1]
    crossed = max(sync_bytes(bed, node) - before[node] for node in before)
    print(f"  sync network: {crossed} bytes")
    # Corosync's second link and DRBD's keepalives, some kB in a second.
    assert crossed < SIZE_MIB * MIB // 100
    assert int(bed.sh("n1", served).stdout) - before_served < SIZE_MIB * MIB // 10
    # Another disk than the device, for multipath and for whoever looks at serials.
    ids = {host.sh(f"lsblk -ndo WWN,SERIAL {each} || true") for each in (path, kept[0])}
    assert len({path, kept[0]}) == 2 and (len(ids) == 2 or ids == {""})
    refused_write = host.sh(
        f"dd if=/dev/zero of={path} bs=4k count=1 oflag=direct conv=notrunc 2>&1 || echo refused"
    )
    assert "refused" in refused_write
    assert digest_read(host, path) == kept[1]


def test_an_export_holds_up_no_failover(scenario: Scenario, kept: tuple[str, str]) -> None:
    bed, host = scenario.bed, scenario.host
    bed.sh("n3", f"sanctl device move {NAME} --to n2", timeout_s=180)
    failover.await_healthy(bed, "n1")
    (shown,) = run(bed, "n2", "snapshot exports")
    path = path_of(scenario, shown["target"], "n2")
    assert digest_read(host, path) == kept[1]
    # A replica is stopped and started beside it.
    bed.sh("n3", f"sanctl device move {NAME} --to n1", timeout_s=180)
    bed.sh("n2", "sanctl node standby n2", timeout_s=180)
    bed.sh("n2", "sanctl node online n2", timeout_s=180)
    failover.await_healthy(bed, "n1")
    assert digest_read(host, path) == kept[1]


def test_who_may_log_in_follows_the_hosts(scenario: Scenario, kept: tuple[str, str]) -> None:
    """CHAP that the host is given later, and its end; another host of the export keeps it."""
    bed, host = scenario.bed, scenario.host
    file = f"/etc/sanctl/hosts/{BACKUP}"
    portal = bed.node("n2").address(Network.ISCSI)
    run(bed, "n3", f"host create {BACKUP} --iqn {BACKUP_IQN}")
    try:
        words = f"snapshot export {POINT} --initiator {host.iqn} --host {BACKUP}"
        target = run(bed, "n2", words)["target"]

        def is_let_in(login: str = "") -> bool:
            return answers(inquiry(scenario, portal, target, BACKUP_IQN, login))

        assert is_let_in()
        bed.sh(
            "n2",
            f"mkdir -p /etc/sanctl/hosts; umask 077; cat >{file}",
            stdin=f"secret = {SECRET}\n",
        )
        run(bed, "n3", f"host set {BACKUP} --chap {BACKUP}")
        wait_for("it to be asked for its secret", lambda: not is_let_in(), within_s=FOLLOWED_S)
        assert is_let_in(f"{BACKUP}%{SECRET}@")
        run(bed, "n3", f"host set {BACKUP} --no-chap")
        wait_for("it to be let in without", is_let_in, within_s=FOLLOWED_S)
        run(bed, "n3", f"host delete {BACKUP}")
        wait_for("it to be kept out", lambda: not is_let_in(), within_s=FOLLOWED_S)
        assert run(bed, "n2", "snapshot exports")[0]["initiators"] == [host.iqn]
        log = bed.sh("n2", "journalctl -o cat SYSLOG_IDENTIFIER=sanctl").stdout
        assert f"host {BACKUP}, to which it was exported, is gone" in log
        assert SECRET not in log
        assert digest_read(host, path_of(scenario, target, "n2")) == kept[1]
    finally:
        bed.sh("n3", f"sanctl host delete {BACKUP}", ok=range(256))
        bed.sh("n2", f"rm -f {file}")


def test_a_device_that_is_made_beside_it_gets_its_ports(scenario: Scenario) -> None:
    """Relative target port ids are unique on a node: an export has none that a device has."""
    target = scenario.create(OTHER, "32M", prefer="n2", nodes=("n1", "n2"))
    scenario.host.login(target, scenario.portals())
    scenario.host.logout(target)


def test_a_deleted_point_is_read_on(scenario: Scenario, kept: tuple[str, str]) -> None:
    bed, host = scenario.bed, scenario.host
    (shown,) = run(bed, "n2", "snapshot exports")
    run(bed, "n3", f"snapshot delete {POINT} --yes")
    path = path_of(scenario, shown["target"], "n2")
    assert digest_read(host, path) == kept[1]
    # Another one of its name is another disk.
    make_point(bed, "kept")
    refused = run(bed, "n2", f"snapshot export {POINT} --initiator {host.iqn}", status=4)
    assert refused[0]["code"] == "SAN-EXP-008"
    assert digest_read(host, path) == kept[1]
    host.logout(shown["target"])
    run(bed, "n2", f"snapshot unexport {POINT}")
    made = run(bed, "n2", f"snapshot export {POINT} --initiator {host.iqn}")
    path = log_in(scenario, made["target"], "n2")
    assert digest_read(host, path) == digest_read(host, kept[0]) != kept[1]
    run(bed, "n3", f"snapshot delete {POINT} --yes")
    host.logout(made["target"])
    run(bed, "n2", f"snapshot unexport {POINT}")
    assert run(bed, "n2", "snapshot exports") == []
    assert run(bed, "n2", f"snapshot unexport {POINT}", status=4)[0]["code"] == "SAN-EXP-005"
    assert "/points/" not in bed.sh("n2", "losetup -ln -O BACK-FILE").stdout


def test_the_stop_of_its_node_ends_it(scenario: Scenario, kept: tuple[str, str]) -> None:
    bed, host = scenario.bed, scenario.host
    again = f"{NAME}@again"
    make_point(bed, "again")
    run(bed, "n2", f"snapshot export {again} --initiator {host.iqn}")
    before = boot_id(bed, "n2")
    bed.sh("n2", "systemctl reboot", ok=range(256))
    wait_for(
        "n2 to be back",
        lambda: (
            bed.sh("n2", "cat /proc/sys/kernel/random/boot_id", ok=range(256)).stdout.strip()
            not in {"", before}
        ),
        within_s=300,
        every_s=2.0,
    )
    log = bed.sh("n2", "journalctl -b -1 -o cat", timeout_s=60).stdout
    mounts = [line for line in log.splitlines() if "srv-sanctl-main.mount" in line]
    assert any(line.startswith("Unmounted ") for line in mounts), mounts
    failover.await_healthy(bed, "n1")
    assert run(bed, "n2", "snapshot exports") == []
