# SPDX-License-Identifier: GPL-2.0-or-later
"""Backups into a repository on another server: read on the standby, small, whole or not there.

The repository is on the host i1, over ssh; the playbook puts it into place on the storage nodes.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import rollout
from sanctl.lab.machines.spec import Network
from tests.support import steps

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME, RESTORED = "bkp0", "bkp1"
SIZE_MIB = 96
MIB = 1 << 20
_REPOSITORY = "/srv/backups/sanctl"
_PASSPHRASE = "not-to-be-seen-in-any-command"
_DATA = "$(ls /srv/sanctl/main/devices/{name}.*.data)"


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    """Return a laboratory whose pools are XFS."""
    return xfs_bed


class Bed:
    """A device, the host that writes it, and a repository on that host."""

    def __init__(self, scenario: Scenario, target: str) -> None:
        self.lab, self.host, self.target = scenario.bed, scenario.host, target
        self.portals = scenario.portals(("n1", "n2"))

    def run(self, node: str, words: str, *, status: int = 0, timeout_s: float = 300.0) -> Any:
        done = self.lab.sh(
            node, f"sanctl {words} --output json", timeout_s=timeout_s, ok=range(256)
        )
        assert done.status == status, done.stdout + done.stderr
        found = json.loads(done.stdout)
        return found["problems"] if status else found["data"]

    def back_up(self, node: str = "n2", what: str = NAME, *words: str) -> Any:
        """Make a backup; a busy machine may not make its restore point in half a second."""

        def once() -> Any:
            done = self.lab.sh(
                node,
                f"sanctl backup run {what} {' '.join(words)} --output json",
                timeout_s=400,
                ok=range(256),
            )
            assert done.status == 0 or "SAN-SNAP-007" in done.stdout, done.stdout + done.stderr
            return json.loads(done.stdout)["data"]

        return wait_for("a backup", once, within_s=600)

    def write(self, *pieces: tuple[int, int]) -> None:
        """Have the host overwrite pieces of the device: where they begin, their length in MiB."""
        path = self.host.login(self.target, self.portals)
        for begin, length in pieces:
            self.host.sh(
                f"dd if=/dev/urandom of={path} bs=1M seek={begin} count={length} oflag=direct"
                " conv=notrunc,fsync",
                timeout_s=120,
            )
        self.host.logout(self.target)

    def digest(self, node: str, name: str = NAME) -> str:
        path = _DATA.format(name=name)
        return self.lab.sh(node, f"sha256sum <{path}", timeout_s=120).stdout.split()[0]

    def listed(self) -> list[str]:
        return [each["name"] for each in self.run("n2", f"backup list {NAME}")]

    def is_free_with(self, backups: list[str]) -> bool:
        """Whether the repository can be read, and has these backups.

        borg on its server keeps the lock of a client that is lost until sshd has noticed that.
        """
        line = f"sanctl backup list {NAME} --output json"
        done = self.lab.sh("n2", line, timeout_s=200.0, ok=range(256))
        found = json.loads(done.stdout)
        if done.status:
            assert {each["code"] for each in found["problems"]} == {"SAN-BKP-012"}, done.stdout
            return False
        assert [each["name"] for each in found["data"]] == backups
        return True

    def stored_bytes(self) -> int:
        """How much the repository has on its disk."""
        return int(self.host.sh(f"sync; du -sB1 {_REPOSITORY}", timeout_s=240).split()[0])

    def points(self) -> list[str]:
        return [each["name"] for each in self.run("n3", f"snapshot list {NAME}")]

    def await_no_point(self) -> None:
        wait_for("the end of the backup's restore point", lambda: not self.points(), within_s=90)


@pytest.fixture(scope="module")
def own(bed: LabSession) -> Iterator[Bed]:
    scenario = Scenario(bed, Initiator(bed, "i1"))
    _roll_out(bed)
    target = scenario.create(NAME, f"{SIZE_MIB}M", prefer="n1", nodes=("n1", "n2"))
    made = Bed(scenario, target)
    made.host.sh(f"rm -rf {_REPOSITORY}; mkdir -p $(dirname {_REPOSITORY})")
    assert made.run("n1", "backup init")["repository"] == "nas"
    made.write((0, SIZE_MIB // 2))
    yield made
    made.host.logout(target)
    bed.sh("i1", "rm -f /etc/ssh/sshd_config.d/00-repository.conf; systemctl reload ssh")
    for name in (NAME, RESTORED):
        bed.sh(
            "n3",
            f"sanctl device delete {name} --yes --accept SAN-DEV-023 --with-points",
            timeout_s=240,
            ok=(0, 4),
        )


def _roll_out(bed: LabSession) -> None:
    """Have the playbook put the repository into place, with a key that i1 lets in."""
    bed.sh(
        "i1",
        "cd /root/.ssh && rm -f repository repository.pub"
        " && ssh-keygen -q -t ed25519 -N '' -f repository -C of-the-repository"
        " && sed -i '/ of-the-repository$/d' authorized_keys"
        " && cat repository.pub >>authorized_keys",
    )
    # As the how-to has it: else a node that loses its power keeps the repository for hours.
    bed.sh(
        "i1",
        "printf 'ClientAliveInterval 10\\nClientAliveCountMax 3\\n'"
        " >/etc/ssh/sshd_config.d/00-repository.conf && /usr/sbin/sshd -t && systemctl reload ssh",
    )
    address = bed.node("i1").address(Network.ISCSI)
    host_key = bed.sh("i1", "ssh-keygen -y -f /etc/ssh/ssh_host_ed25519_key").stdout.strip()
    inventory = rollout.inventory_of(bed.lab)
    inventory["all"]["children"]["sanctl_nodes"]["vars"]["sanctl_backup_repositories"] = {
        "nas": {
            "location": f"ssh://root@{address}{_REPOSITORY}",
            "passphrase": _PASSPHRASE,
            "ssh_key": bed.sh("i1", "cat /root/.ssh/repository").stdout,
            "known_hosts": f"{address} {host_key}",
        }
    }
    assert rollout.run(bed.lab, inventory=inventory) > 0
    assert rollout.run(bed.lab, inventory=inventory) == 0
    modes = bed.sh("n1", "stat -c '%a %n' /etc/sanctl/backup/*").stdout
    assert {line.split()[0] for line in modes.splitlines()} == {"600"}, modes


def sync_bytes(bed: LabSession, node: str) -> int:
    """What has gone over a node's interface of the sync network, both ways."""
    folder = f"/sys/class/net/{Network.SYNC.nic}/statistics"
    return sum(map(int, bed.sh(node, f"cat {folder}/?x_bytes").stdout.split()))


#: Looks every twentieth of a second, in the guest: what is left to read takes borg a second or two,
#: and a look by ssh may take as long. It has read some of the device; what it reads of its own at
#: its start is less. The oldest of that name: what it forks has it, too, for a moment. One that had
#: read all by the time it was stopped is in no middle.
_STOP = f"""
rm -f {{log}} {{log}}.new
setsid -f bash -c 'sanctl backup run {NAME} --output json >{{log}}.new
mv {{log}}.new {{log}}' </dev/null >/dev/null 2>/root/backup.err
for _ in $(seq 1200); do
    [ ! -e {{log}} ] || {{{{ cat {{log}}; exit 3; }}}}
    for pid in $(pgrep -o -f '[b]org import-tar'); do
        did=$(sed -n 's/rchar: //p' /proc/$pid/io 2>/dev/null)
        [ "${{{{did:-0}}}}" -gt {40 * MIB} ] || continue
        kill -STOP $pid && sleep 0.2
        grep -q '^State:.*[Tt] ' /proc/$pid/status || exit 4
        did=$(sed -n 's/rchar: //p' /proc/$pid/io)
        [ "$did" -lt {SIZE_MIB * MIB} ] && exit 0
        kill -CONT $pid
        exit 5
    done
    sleep 0.05
done
exit 6
"""


@contextlib.contextmanager
def paused_in_the_middle(own: Bed, node: str) -> Iterator[str]:
    """Begin a backup on a node, and stop borg in it for as long as the block lasts."""
    log = "/root/backup.json"

    def stopped() -> bool:
        done = own.lab.sh(node, _STOP.format(log=log), timeout_s=300.0, ok=range(256))
        # A busy machine may not make the restore point in time.
        is_busy = done.status == 3 and "SAN-SNAP-007" in done.stdout
        assert done.status == 0 or is_busy, f"{done.status}: {done.stdout}{done.stderr}"
        return done.status == 0

    wait_for("borg to have read a part", stopped, within_s=500)
    try:
        yield log
    finally:
        own.lab.sh(node, "pkill -CONT -f '[b]org import-tar'", ok=range(256))


@pytest.mark.quick
def test_a_backup_is_what_the_device_was_and_comes_back(own: Bed) -> None:
    digest = own.digest("n1")
    refused = own.run("n1", f"backup run {NAME}", status=4)
    assert refused[0]["code"] == "SAN-BKP-004" and "n2" in refused[0]["hint"]
    assert own.run("n1", f"backup run {NAME} --skip-elsewhere") == {"skipped": True}
    before = {node: sync_bytes(own.lab, node) for node in ("n1", "n2")}
    began_s = time.monotonic()
    made = own.back_up()
    took_s = time.monotonic() - began_s
    after = {node: sync_bytes(own.lab, node) for node in ("n1", "n2")}
    crossed = max(after[node] - before[node] for node in before)
    print(f"  backup: {took_s:.1f} s, {made}; sync network: {crossed} bytes")
    assert made["sha256"] == digest and own.listed() == [made["name"]]
    # Corosync's second link and DRBD's keepalives, some kB in a second; the restore point.
    assert crossed < SIZE_MIB * MIB // 100
    own.await_no_point()
    began_s = time.monotonic()
    restored = own.run(
        "n2",
        f"backup restore {made['name']} --to {RESTORED} --initiator {own.host.iqn}",
        timeout_s=400,
    )
    print(f"  restore: {time.monotonic() - began_s:.1f} s")
    assert restored["sha256"] == digest and restored["restore"] is None
    assert {own.digest(node, RESTORED) for node in ("n1", "n2")} == {digest}
    target = own.target.removesuffix(NAME) + RESTORED
    path = own.host.login(target, own.portals)
    read = own.host.sh(f"dd if={path} bs=1M iflag=direct 2>/dev/null | sha256sum", timeout_s=120)
    own.host.logout(target)
    assert read.split()[0] == digest
    own.run("n3", f"device delete {RESTORED} --yes --accept SAN-DEV-023")


def test_only_what_changed_is_stored(own: Bed) -> None:
    # Four pieces that begin and end with chunks, of 8 MiB together.
    pieces = ((3, 2), (17, 2), (31, 2), (SIZE_MIB - 2, 2))
    changed = sum(length for _, length in pieces) * MIB
    own.write(*pieces)
    sent = int(own.host.sh(f"cat /sys/class/net/{Network.ISCSI.nic}/statistics/rx_bytes"))
    before = own.stored_bytes()
    made = own.back_up()
    sent = int(own.host.sh(f"cat /sys/class/net/{Network.ISCSI.nic}/statistics/rx_bytes")) - sent
    stored = own.stored_bytes() - before
    print(
        f"  changed {changed}: borg says {made['stored_bytes']}, on its disk {stored}, sent {sent}"
    )
    assert made["sha256"] == own.digest("n1")
    assert made["stored_bytes"] <= 1.2 * changed and stored <= 1.2 * changed
    assert sent <= 1.2 * changed


def test_a_named_restore_point_once(own: Bed) -> None:
    digest = own.digest("n1")

    def point() -> bool:
        words = f"sanctl snapshot create {NAME} --name kept"
        return own.lab.sh("n3", words, timeout_s=120, ok=range(256)).status == 0

    wait_for("a restore point", point, within_s=180)
    own.write((40, 1))
    made = own.back_up("n2", f"{NAME}@kept")
    assert made["sha256"] == digest and made["point"] == "kept" and own.points() == ["kept"]
    again = own.run("n2", f"backup run {NAME}@kept", status=4)
    assert again[0]["code"] == "SAN-BKP-017"
    assert own.run("n2", f"backup verify {made['name']}")["sha256"] == digest
    # On the active node only if it is asked for.
    own.run("n3", f"snapshot delete {NAME}@kept --yes")
    assert own.back_up("n1", NAME, "--on-active")["sha256"] == own.digest("n1")


def test_without_sanctl_it_is_an_image_that_can_be_mounted(own: Bed) -> None:
    name = own.back_up()["name"]
    own.lab.sh(
        "n2",
        f"cd /root && rm -f {NAME}.img*; {_borg('extract')}::{name}"
        f" && sha256sum -c --quiet {NAME}.img.sha256"
        f" && loop=$(losetup --find --show --read-only {NAME}.img)"
        f" && cmp -n {MIB} $loop {NAME}.img; losetup --detach $loop; rm {NAME}.img*",
        timeout_s=200,
    )


def test_no_room_in_the_repository(own: Bed) -> None:
    small = f"{_REPOSITORY}-small"
    own.host.sh(
        f"umount {small} 2>/dev/null; mkdir -p {small} && mount -t tmpfs -o size=24M x {small}"
    )
    where = f"sed 's,{_REPOSITORY},{small}/r,; s/nas/small/' /etc/sanctl/backup.toml | tail -n 3"
    own.lab.sh(
        "n2",
        "cd /etc/sanctl && cp -p backup.toml /root/backup.toml.before && "
        f'more=$({where}) && echo "$more" >>backup.toml && '
        "cd backup && for kind in passphrase key known_hosts; do cp -p nas.$kind small.$kind; done",
    )
    try:
        assert own.run("n2", "backup list", status=4)[0]["code"] == "SAN-BKP-002"
        own.run("n2", "backup init --repository small")
        full = own.run("n2", f"backup run {NAME} --repository small", status=5)
        assert full[0]["code"] == "SAN-BKP-013", full
        assert own.run("n2", "backup list --repository small") == []
        # Nothing is stored there any more that would end the warning of it.
        assert own.run("n1", f"backup forget {NAME} --repository small")["was_noted"]
        own.await_no_point()
    finally:
        own.lab.sh(
            "n2",
            "cd /etc/sanctl && cp -p /root/backup.toml.before backup.toml; rm -f backup/small.*",
        )
        own.host.sh(f"umount {small}; rmdir {small}")


def test_what_is_refused_changes_nothing(own: Bed) -> None:
    before = own.listed()
    for words, status, code in (
        ("run none", 4, "SAN-DEV-002"),
        (f"run {NAME}@none", 4, "SAN-SNAP-009"),
        (f"run {NAME} --repository none", 4, "SAN-BKP-002"),
        ("verify not-a-backup", 2, "SAN-BKP-001"),
        (f"verify {NAME}@none.20200101-000000", 4, "SAN-BKP-016"),
        (f"restore {NAME}@none.20200101-000000 --to {RESTORED}", 4, "SAN-BKP-016"),
        (f"restore {before[0]} --to {NAME}", 4, "SAN-DEV-001"),
        (f"prune {NAME}", 2, "SAN-BKP-006"),
        ("init", 5, "SAN-BKP-018"),
    ):
        found = own.run("n2", f"backup {words}", status=status)
        assert code in [each["code"] for each in found], (words, found)
    secret = "/etc/sanctl/backup/nas.passphrase"
    own.lab.sh("n2", f"cp -p {secret} /root/right && echo wrong >{secret}")
    assert own.run("n2", f"backup run {NAME}", status=5)[0]["code"] == "SAN-BKP-011"
    own.lab.sh("n2", f"cp -p /root/right {secret} && chmod 0644 {secret}")
    assert own.run("n2", f"backup run {NAME}", status=5)[0]["code"] == "SAN-BKP-011"
    own.lab.sh("n2", f"chmod 0600 {secret}")
    keys = "/etc/sanctl/backup/nas.known_hosts"
    own.lab.sh("n2", f"cp -p {keys} /root/keys && sed -i 's/AAAA[^ ]*/AAAA/' {keys}")
    found = own.run("n2", f"backup run {NAME}", status=5)[0]
    # borg may notice that ssh has ended before it reads what ssh says.
    said = f"{found['text']} {found['hint']}".lower()
    assert found["code"] == "SAN-BKP-014" and "host key" in said, found
    own.lab.sh("n2", f"cp -p /root/keys {keys}")
    own.host.sh(f"mv {_REPOSITORY} {_REPOSITORY}.away")
    assert own.run("n2", f"backup run {NAME}", status=5)[0]["code"] == "SAN-BKP-010"
    own.host.sh(f"mv {_REPOSITORY}.away {_REPOSITORY}")
    assert own.points() == [] and own.listed() == before


def test_the_passphrase_is_in_no_command_line_and_no_log(own: Bed) -> None:
    with paused_in_the_middle(own, "n2"):
        seen = own.lab.sh("n2", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' ' '")
        assert "import-tar" in seen.stdout and _PASSPHRASE not in seen.stdout
        busy = own.run("n2", f"backup run {NAME}", status=9)
        assert busy[0]["code"] == "SAN-BKP-008"
        # The repository is in use.
        locked = own.run("n1", "backup list", status=5)
        assert locked[0]["code"] == "SAN-BKP-012", locked
    wait_for(
        "its end",
        lambda: own.lab.sh("n2", "test -e /root/backup.json", ok=(0, 1)).status == 0,
        within_s=200,
    )
    own.await_no_point()
    for node in ("n1", "n2", "n3"):
        logs = own.lab.sh(node, "journalctl -o cat; cibadmin --query", timeout_s=120).stdout
        assert _PASSPHRASE not in logs


@pytest.mark.parametrize("victim", ["sanctl", "borg"])
def test_killed_in_the_middle_it_is_no_backup(own: Bed, victim: str) -> None:
    before = own.listed()
    with paused_in_the_middle(own, "n2"):
        assert [name[:10] for name in own.points()] == ["for-backup"]
        pattern = {"sanctl": "[s]anctl backup run", "borg": "[b]org import-tar"}[victim]
        own.lab.sh("n2", f"pkill -KILL -f '{pattern}'")
    # The pool agent of n2 removes what the process could not.
    own.await_no_point()
    wait_for("the repository's lock", lambda: own.is_free_with(before), within_s=200)
    made = own.back_up()
    assert made["sha256"] == own.digest("n1") and own.listed() == [*before, made["name"]]
    rest = own.lab.sh("n2", _borg("list --short --consider-checkpoints"), timeout_s=60).stdout
    assert "writing" not in rest, rest


def _borg(words: str, feed: str = "true") -> str:
    return (
        "export BORG_BASE_DIR=/var/lib/sanctl/borg"
        " BORG_PASSCOMMAND='cat /etc/sanctl/backup/nas.passphrase' BORG_RSH='ssh -i"
        " /etc/sanctl/backup/nas.key -o UserKnownHostsFile=/etc/sanctl/backup/nas.known_hosts'; "
        "at=$(sed -n 's/^location = \"\\(.*\\)\"/\\1/p' /etc/sanctl/backup.toml); "
        f"{feed} | borg {words} $at"
    )


def test_the_active_node_loses_power_in_the_middle(own: Bed) -> None:
    digest = own.digest("n1")
    before = own.listed()
    with paused_in_the_middle(own, "n2") as log:
        own.lab.cut_power("n1")
        try:
            wait_for("n2 to serve", lambda: collect.active_node(own.lab, NAME) == "n2", within_s=90)
        finally:
            own.lab.ensure_power("n1")
    wait_for(
        "the end of the backup",
        lambda: own.lab.sh("n2", f"test -e {log}", ok=(0, 1)).status == 0,
        within_s=200,
    )
    made = json.loads(own.lab.sh("n2", f"cat {log}").stdout)["data"]
    assert made["sha256"] == digest and own.listed() == [*before, made["name"]]
    failover.await_healthy(own.lab, "n3")
    own.await_no_point()
    # n2 serves now.
    assert own.run("n2", f"backup run {NAME}", status=4)[0]["code"] == "SAN-BKP-004"
    own.run("n3", f"device move {NAME} --to n1")


def test_the_reading_node_loses_power_in_the_middle(own: Bed) -> None:
    before = own.listed()
    with contextlib.ExitStack() as paused:
        paused.enter_context(paused_in_the_middle(own, "n2"))
        own.lab.cut_power("n2")
        own.lab.ensure_power("n2")
        wait_for("n2", lambda: own.lab.sh("n2", "true").status == 0, within_s=120)
    failover.await_healthy(own.lab, "n3")
    own.await_no_point()
    wait_for("the repository's lock", lambda: own.is_free_with(before), within_s=200)
    assert own.back_up()["sha256"] == own.digest("n1")


def who_may(own: Bed, node: str) -> str:
    """Return the entries of the access list that the kernel has for the restored device."""
    target = f"/sys/kernel/config/target/iscsi/*{RESTORED}"
    own.lab.sh(node, f"ls -d {target}/tpgt_*/acls")
    return own.lab.sh(node, f"ls -d {target}/tpgt_*/acls/* 2>/dev/null", ok=range(256)).stdout


def test_a_restore_goes_on_whatever_dies(own: Bed) -> None:
    digest, name = own.digest("n1"), own.back_up()["name"]
    words = f"backup restore {name} --to {RESTORED} --initiator {own.host.iqn} --timeout 45"
    with contextlib.ExitStack() as dying:
        for node in ("n1", "n2"):
            dying.enter_context(steps.dies_each_time(own.lab, node, "restore-chunk"))
        assert "goes on by itself" in str(own.run("n2", words, status=7))
        shown = own.run("n3", f"device show {RESTORED}")
        assert shown["restore"]["point"] == f"nas::{name}" and shown["state"] == "restoring"
        active = shown["active_node"]
        own.lab.cut_power(active)
        other = "n2" if active == "n1" else "n1"
        wait_for(
            f"{other} to serve",
            lambda: collect.active_node(own.lab, RESTORED) == other,
            within_s=90,
        )
        assert not who_may(own, other)
        assert own.digest(other, RESTORED) != digest
        own.lab.ensure_power(active)

    def is_over() -> bool:
        done = own.lab.sh("n3", f"sanctl device show {RESTORED} --output json", ok=range(256))
        return done.status == 0 and json.loads(done.stdout)["data"]["restore"] is None

    wait_for("the end of the restore", is_over, within_s=300)
    failover.await_healthy(own.lab, "n3")
    assert {own.digest(node, RESTORED) for node in ("n1", "n2")} == {digest}
    own.run("n3", f"device delete {RESTORED} --yes --accept SAN-DEV-023")


def test_a_backup_that_is_not_what_was_read_lets_no_host_in(own: Bed) -> None:
    """The digest that was noted is another one: as if borg had handed back other data."""
    name = own.back_up()["name"]
    # An archive as sanctl's, with a wrong digest.
    script = f"""
import hashlib, io, sys, tarfile
out = tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.GNU_FORMAT)
for name, data in (("{NAME}.img", bytes({MIB})),
                   ("{NAME}.img.sha256", (b"0" * 64) + b"  {NAME}.img\\n")):
    entry = tarfile.TarInfo(name); entry.size = len(data)
    out.addfile(entry, io.BytesIO(data))
out.close()
"""
    forged = f"{NAME}@forged.20260101-000000"
    make = _borg(f"import-tar --comment 'sanctl size={MIB}'", feed=f"python3 -c '{script}'")
    own.lab.sh("n2", f"{make}::{forged} -", timeout_s=120)
    assert own.run("n2", f"backup verify {forged}", status=5)[0]["code"] == "SAN-BKP-020"
    found = own.run(
        "n2",
        f"backup restore {forged} --to {RESTORED} --initiator {own.host.iqn}",
        status=5,
        timeout_s=200,
    )
    assert found[0]["code"] == "SAN-BKP-020"
    assert not who_may(own, "n1") and not who_may(own, "n2")
    status = own.lab.sh("n3", "sanctl status", ok=(0, 1)).stdout
    assert "SAN-HLT-111" in status, status
    own.run("n3", f"device delete {RESTORED} --yes --accept SAN-DEV-023")
    own.lab.sh("n2", _borg("delete") + f"::{forged}", timeout_s=60)
    assert name in own.listed()


def test_pruning_keeps_the_newest(own: Bed) -> None:
    before = own.listed()
    assert len(before) > 2
    gone = own.run("n2", f"backup prune {NAME} --keep-last 2 --yes")["deleted"]
    assert gone == before[:-2] and own.listed() == before[-2:]
    assert own.run("n2", f"backup verify {before[-1]}")["name"] == before[-1]
