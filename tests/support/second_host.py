# SPDX-License-Identifier: GPL-2.0-or-later
"""A second host on the machine of the laboratory's own: another initiator name, no multipath."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import wait_for

IFACE = "second"
SECOND = "iqn.2026-11.net.example:second"

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
def initiator(load: LedgerLoad) -> Iterator[None]:
    """Have the second host, which logs out and reads no more whatever becomes of it."""
    host = load.host
    host.sh(
        f"iscsiadm -m iface -I {IFACE} -o new;"
        f" iscsiadm -m iface -I {IFACE} -o update -n iface.initiatorname -v {SECOND}"
    )
    try:
        yield
    finally:
        unit, log = reads_of(load)
        host.sh(f"systemctl stop {unit} 2>/dev/null; rm -f {log}; true", timeout_s=60)
        host.sh(
            f"iscsiadm -m node -I {IFACE} -T {load.target} --logout;"
            f" iscsiadm -m node -I {IFACE} -T {load.target} -o delete;"
            f" iscsiadm -m iface -I {IFACE} -o delete; true",
            timeout_s=120,
        )


def reads_of(load: LedgerLoad) -> tuple[str, str]:
    """Return the unit that reads for the second host, and its log."""
    return f"reads-{load.device}", f"/var/tmp/{load.device}.log"


def in_kernels(load: LedgerLoad, nodes: tuple[str, ...]) -> dict[str, dict[str, bool]]:
    """Return each node's access list, and which of its initiators has a session now."""
    found = {}
    for node in nodes:
        out = load.bed.sh(
            node,
            f"cd /sys/kernel/config/target/iscsi/{load.target}/tpgt_{node[1:]}/acls &&"
            " for acl in *; do echo $acl $(head -n 1 $acl/info); done",
        ).stdout
        found[node] = {
            line.split()[0]: "No active" not in line for line in out.splitlines() if line.split()
        }
    return found


def begin_reads(load: LedgerLoad, disk: str) -> None:
    """Have the second host read all the time: it is denied with commands under way."""
    unit, log = reads_of(load)
    load.host.sh(
        f": >{log}; systemd-run --quiet --collect --unit={unit} sh -c"
        f" 'while dd if=/dev/{disk} of=/dev/null bs=4096 count=64 iflag=direct 2>/dev/null;"
        f" do echo read >>{log}; done; echo failed >>{log}'"
    )
    wait_for("its reads", lambda: "read" in load.host.sh(f"cat {log}"), within_s=20)
