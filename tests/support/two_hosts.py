# SPDX-License-Identifier: GPL-2.0-or-later
"""Two initiators on the laboratory's one host, with a device's paths of each."""

from __future__ import annotations

import contextlib
import re
import shlex
import time
from collections.abc import Iterator
from typing import Self

from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online
from sanctl.lab.machines.spec import Network

_SECOND = "second"
#: Of sg_persist(8): the session has ended; what another host did is told, and nothing was done; no
#: session (ENXIO).
TRANSPORT_ERROR, UNIT_ATTENTION, NO_SESSION = 35, 6, 56
#: Each session: its portal's address, its initiator and its disk.
_PATHS = (
    "iscsiadm -m session -P 3 | awk '/Target:/ { target = $2 } /Current Portal:/ { portal = $3 }"
    " /Iface Initiatorname:/ { iqn = $3 } /Attached scsi disk/ { print target, portal, iqn, $4 }'"
)
_KEY = re.compile(r"^\s+0x([0-9a-f]+)\s*$", re.M)
_HOLDER = re.compile(r"Key=0x([0-9a-f]+)")

#: Writes to some disks in turn until it is ended, and appends the disk of each write that was made.
_WRITER = """
import itertools, mmap, os, time
page = mmap.mmap(-1, 4096)
log = os.open("{log}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
for tried in itertools.count(1):
    for disk in {disks}:
        try:
            handle = os.open(disk, os.O_WRONLY | os.O_DIRECT)
            try:
                os.pwrite(handle, page, {offset})
                os.write(log, f"{{disk}}\\n".encode())
            finally:
                os.close(handle)
        except OSError:
            pass
    with open("{log}.tried", "w") as file:
        file.write(str(tried))
    time.sleep(0.05)
"""


class TwoHosts:
    """Host 0 is the laboratory's own initiator, host 1 another one beside it."""

    def __init__(self, scenario: Scenario, device: str) -> None:
        self.scenario, self.device, self.host = scenario, device, scenario.host
        self.iqns = (self.host.iqn, f"{self.host.iqn}-{_SECOND}")
        self.target = f"{scenario.iqn_prefix()}.{device}"
        self._portals = {node.name: node.address(Network.ISCSI) for node in scenario.bed.storage}
        self._disks: dict[tuple[str, str], str] = {}

    @contextlib.contextmanager
    def sharing(self, *, where: str) -> Iterator[Self]:
        """Have both logged in at the device: served by n1, with a replica on n2, reservations on.

        Made before, and deleted after; what the hosts still run then is ended.

        Args:
            where: the node on which sanctl is called.
        """
        allowed = [each for iqn in self.iqns for each in ("--initiator", iqn)]
        await_members_online(self.scenario.bed)
        self.scenario.sanctl(
            "device", "create", self.device, "--size", "64M", "--nodes", "n1,n2", "--prefer", "n1",
            "--reservations", "on", *allowed, node=where, timeout_s=300,
        )  # fmt: skip
        try:
            self.log_in()
            yield self
        finally:
            for host in (0, 1):
                self.end_programs(host)
            self.log_out()
            self.scenario.delete_together([self.device])

    def end_programs(self, host: int) -> None:
        """End what a host has running all the while."""
        self.stop_writer(host)

    def log_in(self) -> None:
        """Log in both initiators at all nodes."""
        set_second = f"iscsiadm -m iface -I {_SECOND} -o update"
        portal = self._portals[min(self._portals)]
        self.host.sh(
            f"iscsiadm -m iface -I {_SECOND} -o new;"
            f" {set_second} -n iface.initiatorname -v {self.iqns[1]}"
            f" && {set_second} -n iface.transport_name -v tcp"
            f" && iscsiadm -m discovery -t sendtargets -p {portal} -I default -I {_SECOND}"
            f" && iscsiadm -m node -T {self.target} --login",
            timeout_s=120,
        )
        self._find_all()

    def log_in_anew(self, host: int, node: str, *, ping_s: int) -> None:
        """Log a host in anew at a node, with a ping each so many seconds; 0: without any.

        Without pings a command that is not answered waits as long as its sender does.
        """
        iface = ("default", _SECOND)[host]
        record = f"iscsiadm -m node -T {self.target} -p {self._portals[node]} -I {iface}"
        pings = " && ".join(
            f"{record} -o update -n node.conn[0].timeo.noop_out_{name} -v {ping_s}"
            for name in ("interval", "timeout")
        )
        self.host.sh(f"{pings} && {record} --logout && {record} --login", timeout_s=120)
        self._find_all()

    def _find_all(self) -> None:
        wanted = len(self.iqns) * len(self._portals)
        self._disks = wait_for(
            f"{wanted} disks",
            lambda: found if len(found := self._find()) == wanted else None,
            within_s=60,
        )

    def log_out(self) -> None:
        """End all sessions of the device, and forget them."""
        self.host.logout(self.target)
        self.host.sh(f"iscsiadm -m iface -I {_SECOND} -o delete; true")

    def _find(self) -> dict[tuple[str, str], str]:
        found = {}
        for line in self.host.sh(_PATHS, ok=(0, 21)).splitlines():
            target, portal, iqn, disk = line.split()
            if target == self.target:
                found[iqn, portal.split(":")[0]] = f"/dev/{disk}"
        return found

    def disk(self, host: int, node: str) -> str:
        """Return the disk by which a host reaches the device at a node."""
        return self._disks[self.iqns[host], self._portals[node]]

    def out(
        self, host: int, node: str, options: str, *, timeout_s: float = 90.0, tries: int = 6
    ) -> int:
        """Send a PERSISTENT RESERVE OUT; return sg_persist's status.

        A host whose session ends meanwhile, on a busy machine, asks again, as others do: it does
        not know what became of the command.
        """
        while True:
            status = self.scenario.bed.sh(
                self.host.name,
                f"sg_persist --no-inquiry --out {options} {self.disk(host, node)}",
                ok=range(256),
                timeout_s=timeout_s,
            ).status
            tries -= 1
            if status not in {TRANSPORT_ERROR, UNIT_ATTENTION, NO_SESSION} or not tries:
                return status
            time.sleep(3.0)

    def keys(self, host: int, node: str) -> list[int]:
        """Return the keys that a host is shown at a node, one for each registration."""
        found = _KEY.findall(self._read(host, node, "--read-keys"))
        return sorted(int(key, 16) for key in found)

    def holder(self, host: int, node: str) -> int | None:
        """Return the key of the reservation that a host is shown at a node."""
        found = _HOLDER.search(self._read(host, node, "--read-reservation"))
        return None if found is None else int(found[1], 16)

    def _read(self, host: int, node: str, what: str) -> str:
        script = f"sg_persist --no-inquiry --in {what} {self.disk(host, node)}"
        for _ in range(6):
            status = self.scenario.bed.sh(self.host.name, script, ok=range(256)).status
            if status in {TRANSPORT_ERROR, NO_SESSION}:
                time.sleep(3.0)
            elif status != UNIT_ATTENTION:
                break
        return self.scenario.bed.sh(self.host.name, script).stdout

    def is_refused(self, host: int, node: str) -> bool:
        """Whether a write of a host is a reservation conflict; one whose session ended is tried
        again."""
        for _ in range(6):
            said = self.write(host, node)
            if said in {"written", "conflict"}:
                break
            time.sleep(3.0)
        return said == "conflict"

    def write(self, host: int, node: str) -> str:
        """Write a block of the second MiB; return `written`, `conflict` or what else came."""
        disk = self.disk(host, node)
        result = self.scenario.bed.sh(
            self.host.name,
            f"dd if=/dev/zero of={disk} bs=4096 seek=256 count=1 oflag=direct 2>&1",
            ok=range(256),
        )
        if not result.status:
            return "written"
        return "conflict" if "Invalid exchange" in result.stdout else result.stdout

    def start_writer(self, host: int) -> None:
        """Have a host write all the time, by each of its paths."""
        disks = [self.disk(host, node) for node in self._portals]
        script = _WRITER.format(log=self._log(host), disks=disks, offset=(2 + host) << 20)
        self.host.sh(
            f"systemd-run --quiet --collect --unit={self._unit(host)}"
            f" python3 -c {shlex.quote(script)}"
        )

    def stop_writer(self, host: int) -> None:
        """End the host's writes."""
        self.host.sh(f"systemctl stop {self._unit(host)}; true")

    def writes(self, host: int) -> tuple[int, int]:
        """Return how often a writer has tried all paths, and how many writes were made."""
        log = self._log(host)
        script = f"touch {log} {log}.tried; wc -l <{log}; cat {log}.tried"
        made, *tried = self.host.sh(script).split()
        return int(tried[0]) if tried else 0, int(made)

    def _unit(self, host: int) -> str:
        return f"writes-{self.device}-{host}"

    def _log(self, host: int) -> str:
        return f"/run/{self._unit(host)}"
