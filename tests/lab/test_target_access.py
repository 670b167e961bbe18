# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl target deny` while hosts are logged in: the denied one loses the device, no other does.

Two hosts use the device: the laboratory's own, by multipath with a ledger, and a second one, which
is another initiator name on the same machine. Multipath is kept from the second one's disks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import ledgers
from tests.support.steps import await_writes

pytestmark = pytest.mark.faults

NAME = "access0"
NODES = ("n1", "n2")
IFACE = "second"
SECOND = "iqn.2026-11.net.example:second"
#: What ends a session is the target; the host has given up the disk after replacement_timeout.
LOST_S = 30.0
UNIT = f"reads-{NAME}"
LOG = f"/var/tmp/{NAME}.log"

#: Prints "PORTAL DISK STATE" for each session of the second host's with this target.
_DISKS = """
for session in /sys/class/iscsi_session/session*; do
    [ "$(cat $session/initiatorname)" = {iqn} ] && [ "$(cat $session/targetname)" = {target} ] ||
        continue
    portal=$(cat $session/device/connection*/iscsi_connection/*/persistent_address)
    for disk in $session/device/target*/*/block/*; do
        [ -e $disk ] && echo $portal ${{disk##*/}} $(cat $disk/device/state)
    done
done
true
"""

#: Prints the sessions of a host with this target.
_SESSIONS = """
for session in /sys/class/iscsi_session/session*; do
    [ "$(cat $session/initiatorname)" = {iqn} ] && [ "$(cat $session/targetname)" = {target} ] &&
        echo ${{session##*/}} $(cat $session/state)
done
true
"""


@pytest.fixture
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    """The host that stays: nothing it wrote may be lost, no request of it may fail."""
    with ledgers.ledger_on_new_device(
        scenario, NAME, "64M", rate=100, region_bytes=16 << 20
    ) as made:
        yield made


def sessions(load: LedgerLoad) -> str:
    """Return the sessions of the host that stays, and their states."""
    return load.host.sh(_SESSIONS.format(iqn=load.host.iqn, target=load.target))


def disks(load: LedgerLoad) -> dict[str, tuple[str, str]]:
    """Return the second host's disks of the device with their state, by portal."""
    out = load.host.sh(_DISKS.format(iqn=SECOND, target=load.target))
    lines = (line.split() for line in out.splitlines())
    return {portal: (disk, state) for portal, disk, state in lines}


def read_once(load: LedgerLoad, disk: str) -> int:
    """Read the disk's first block past all caches; return the exit status."""
    return load.bed.sh(
        load.host.name,
        f"timeout 20 dd if=/dev/{disk} of=/dev/null bs=4096 count=1 iflag=direct",
        ok=range(256),
        timeout_s=60,
    ).status


def log_in(load: LedgerLoad, portals: list[str]) -> dict[str, tuple[str, str]]:
    """Log the second host in, and keep multipath from its disks."""
    for portal in portals:
        load.host.sh(
            f"iscsiadm -m discovery -t sendtargets -p {portal} -I {IFACE}"
            f" && iscsiadm -m node -T {load.target} -p {portal} -I {IFACE} --login",
            timeout_s=120,
        )
    wait_for("its disks", lambda: len(disks(load)) == len(portals), within_s=30)
    load.host.sh("udevadm settle --timeout=30", timeout_s=60)
    found = disks(load)
    for disk, _ in found.values():
        load.host.sh(f"multipathd del path {disk}")
    return found


@contextlib.contextmanager
def second_host(load: LedgerLoad, portals: list[str]) -> Iterator[dict[str, tuple[str, str]]]:
    """Have a second host that is allowed and logged in, whatever becomes of it."""
    scenario, host = Scenario(load.bed, load.host), load.host
    assert f"{SECOND} may use" in scenario.sanctl("target", "allow", NAME, SECOND)
    host.sh(
        f"iscsiadm -m iface -I {IFACE} -o new;"
        f" iscsiadm -m iface -I {IFACE} -o update -n iface.initiatorname -v {SECOND}"
    )
    try:
        yield log_in(load, portals)
    finally:
        host.sh(f"systemctl stop {UNIT} 2>/dev/null; rm -f {LOG}; true", timeout_s=60)
        host.sh(
            f"iscsiadm -m node -I {IFACE} -T {load.target} --logout;"
            f" iscsiadm -m node -I {IFACE} -T {load.target} -o delete;"
            f" iscsiadm -m iface -I {IFACE} -o delete; true",
            timeout_s=120,
        )


def in_kernels(load: LedgerLoad) -> dict[str, dict[str, bool]]:
    """Return each node's access list, and which of its initiators has a session now."""
    found = {}
    for node in NODES:
        out = load.bed.sh(
            node,
            f"cd /sys/kernel/config/target/iscsi/{load.target}/tpgt_*/acls &&"
            " for acl in *; do echo $acl $(head -n 1 $acl/info); done",
        ).stdout
        found[node] = {
            line.split()[0]: "No active" not in line for line in out.splitlines() if line.split()
        }
    return found


def begin_reads(load: LedgerLoad, disk: str) -> None:
    """Have the second host read all the time: it is denied with commands under way."""
    load.host.sh(
        f": >{LOG}; systemd-run --quiet --collect --unit={UNIT} sh -c"
        f" 'while dd if=/dev/{disk} of=/dev/null bs=4096 count=64 iflag=direct 2>/dev/null;"
        f" do echo read >>{LOG}; done; echo failed >>{LOG}'"
    )
    wait_for("its reads", lambda: "read" in load.host.sh(f"cat {LOG}"), within_s=20)


def test_a_host_that_is_denied_loses_the_device_and_no_other_does(
    scenario: Scenario, load: LedgerLoad
) -> None:
    host, portals = load.host, scenario.portals(NODES)
    before = sessions(load)
    assert before.count("LOGGED_IN") == len(portals)
    with second_host(load, portals) as found:
        assert in_kernels(load) == {node: {host.iqn: True, SECOND: True} for node in NODES}
        disk, _ = found[portals[0]]  # n1 serves
        assert read_once(load, disk) == 0
        begin_reads(load, disk)
        began_s = time.monotonic()
        said = scenario.sanctl("target", "deny", NAME, SECOND)
        assert said.strip() == f"{SECOND} may no longer use device {NAME}"
        denied_s = time.monotonic() - began_s
        # Before anything is waited for: the command has said so.
        assert in_kernels(load) == {node: {host.iqn: True} for node in NODES}
        wait_for("its reads to fail", lambda: "failed" in host.sh(f"cat {LOG}"), within_s=LOST_S)
        lost_s = time.monotonic() - began_s
        print(f"  denied in {denied_s:.1f} s, the host has lost it after {lost_s:.1f} s")
        wait_for(
            "it to have no disk in use",
            lambda: all(state != "running" for _, state in disks(load).values()),
            within_s=LOST_S,
        )
        assert all(read_once(load, each) != 0 for each, _ in disks(load).values())
        for portal in portals:
            assert load.target not in host.sh(
                f"iscsiadm -m discovery -t sendtargets -p {portal} -I {IFACE} -o nonpersistent",
                ok=(0, 21),
            )
        await_writes(load)
        assert sessions(load) == before
        assert in_kernels(load) == {node: {host.iqn: True} for node in NODES}
        again = scenario.sanctl("target", "deny", NAME, SECOND)
        assert again.strip() == f"{SECOND} was not on the list of device {NAME}: nothing to do"
        shown = scenario.sanctl("target", "show", NAME)
        assert SECOND not in shown and host.iqn in shown
    failover.await_healthy(scenario.bed, "n1")
    assert sessions(load) == before
