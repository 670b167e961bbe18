# SPDX-License-Identifier: GPL-2.0-or-later
"""A cluster with one host: create and delete devices, mount a filesystem, start a ledger."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from sanctl.errors import CommandError, Problem
from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import LedgerLoad, PrintLine, ShowLedger
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.machines.spec import Network
from sanctl.plan.device.deletion import HOSTS_LOGGED_IN

# Longer than the commands' own deadlines: their error says more than a time-out here.
_COMMAND_DEADLINE_S = 300.0
_MORE_S_PER_DEVICE = 20.0
_MOUNT_POINT = "/mnt/sanctl-demo"
_TOML = "/etc/sanctl/cluster.toml"


class Scenario:
    """A cluster, a host, and what the host does with the cluster's devices."""

    def __init__(self, bed: LabSession, host: Initiator) -> None:
        self.bed = bed
        self.host = host

    def iqn_prefix(self) -> str:
        """Return the cluster's prefix of target names."""
        node = self.bed.storage[0].name
        return self.bed.sh(
            node,
            "python3 -c 'import tomllib;"
            f' print(tomllib.load(open("{_TOML}", "rb"))["cluster"]["iqn_prefix"])\'',
        ).stdout.strip()

    def portals(self, nodes: Sequence[str] = ()) -> list[str]:
        """Return the portals of some storage nodes, or of all."""
        return [
            node.address(Network.ISCSI)
            for node in self.bed.storage
            if not nodes or node.name in nodes
        ]

    def sanctl(self, *arguments: str, node: str = "", timeout_s: float = 60.0) -> str:
        """Run sanctl on a cluster node and return what it printed."""
        where = node or self.bed.storage[0].name
        return self.bed.sh(where, f"sanctl {shlex.join(arguments)}", timeout_s=timeout_s).stdout

    def device_names(self) -> list[str]:
        """Return the names of all devices, as the first node says that can tell.

        Raises:
            CommandError: no storage node can tell.
        """
        *others, last = (node.name for node in self.bed.storage)
        for node in others:
            try:
                return self._devices(node)
            except CommandError:
                continue  # without power, or no member at this moment: the next one may know
        return self._devices(last)

    def exists(self, device: str) -> bool:
        """Whether the cluster has a device of that name.

        Raises:
            CommandError: no storage node can tell.
        """
        return device in self.device_names()

    def _devices(self, node: str) -> list[str]:
        found = json.loads(self.sanctl("device", "list", "--output", "json", node=node))
        return [each["name"] for each in found["data"]]

    def create(
        self,
        device: str,
        size: str,
        *,
        prefer: str,
        node: str = "",
        nodes: Sequence[str] = (),
        cache: str = "none",
    ) -> str:
        """Create a device for the host and return its target's name.

        Args:
            device: its name.
            size: its size, as the command line takes it.
            prefer: the preferred node.
            node: the node on which the command is run; by default the first one.
            nodes: the nodes that get a replica; by default two that sanctl chooses.
            cache: the device's cache policy.
        """
        await_members_online(self.bed)
        self.create_together([device], size, prefer=prefer, node=node, nodes=nodes, cache=cache)
        return f"{self.iqn_prefix()}.{device}"

    def create_together(
        self,
        devices: Sequence[str],
        size: str,
        *,
        prefer: str,
        node: str = "",
        nodes: Sequence[str] = (),
        cache: str = "none",
    ) -> None:
        """Create several devices for the host by one command; arguments as those of `create`."""
        where = ("--nodes", ",".join(nodes)) if nodes else ()
        self.sanctl(
            "device", "create", *devices, "--size", size, "--replicas", str(len(nodes) or 2),
            *where, "--prefer", prefer, "--initiator", self.host.iqn, "--cache", cache,
            node=node, timeout_s=_command_deadline_s(len(devices)),
        )  # fmt: skip

    def delete(self, device: str) -> None:
        """Log the host out of a device, and delete it with its data."""
        self.host.logout(f"{self.iqn_prefix()}.{device}")
        self.delete_together([device])

    def delete_together(self, devices: Sequence[str]) -> None:
        """Delete several devices and their restore points by one command; no host uses them."""
        # Nodes say some seconds late that the host has logged out.
        self.sanctl(
            "device", "delete", *devices, "--yes", "--with-points", "--accept", HOSTS_LOGGED_IN,
            timeout_s=_command_deadline_s(len(devices)),
        )  # fmt: skip

    def mount_with_file(self, device: str) -> None:
        """Make a filesystem on a device of the host, and in it a file whose checksum is known."""
        self.host.sh(
            f"mkfs.ext4 -q -F {device} && mkdir -p {_MOUNT_POINT} && mount {device} {_MOUNT_POINT}"
            f" && cd {_MOUNT_POINT} && head -c 16M /dev/urandom >file && sha256sum file >file.sum"
            " && sync -f .",
            timeout_s=180,
        )

    def is_file_intact(self) -> bool:
        """Whether the file, read from the device past the page cache, has its checksum still.

        Also writes to the filesystem: after an error the kernel would have made it read-only.
        """
        done = self.bed.sh(
            self.host.name,
            f"cd {_MOUNT_POINT} && echo 3 >/proc/sys/vm/drop_caches"
            " && sha256sum -c --quiet file.sum && touch alive && sync -f .",
            timeout_s=120,
            ok=range(256),
        )
        return done.status == 0

    def unmount(self) -> None:
        """Unmount the filesystem, if it is mounted."""
        self.host.sh(f"! mountpoint -q {_MOUNT_POINT} || umount {_MOUNT_POINT}", timeout_s=120)

    def start_load(
        self,
        device: str,
        target: str,
        path: str,
        *,
        rate: float,
        region_bytes: int,
        print_line: PrintLine,
        show_ledger: ShowLedger,
        synced: bool = True,
        start_bytes: int = 0,
    ) -> LedgerLoad:
        """Start a ledger on a device of the host; without `synced` it flushes nothing.

        It writes `region_bytes` from `start_bytes` on.
        """
        options = ["--rate", f"{rate:g}", "--region", str(region_bytes)]
        if start_bytes:
            options += ["--start", str(start_bytes)]
        if not synced:
            options.append("--unsynced")
        run = self.host.start_ledger(device, path, *options)
        return LedgerLoad(
            bed=self.bed,
            host=self.host,
            run=run,
            device=device,
            minor=collect.drbd_minor(self.bed, collect.active_node(self.bed, device), device),
            target=target,
            print_line=print_line,
            show_ledger=show_ledger,
        )


def _command_deadline_s(devices: int) -> float:
    return _COMMAND_DEADLINE_S + _MORE_S_PER_DEVICE * (devices - 1)


def await_members_online(bed: LabSession) -> None:
    """Wait until every member of the cluster is online in the first member's crm_mon."""
    names = [node.name for node in bed.cluster]

    def online() -> bool:
        out = bed.sh(names[0], "crm_mon -1 --output-as=text --include=none,nodes").stdout
        listed = out.partition("Online:")[2].partition("]")[0].split()
        return set(names) <= set(listed)

    wait_for("all cluster nodes online", online, within_s=120, every_s=2.0)


def require(is_true: bool, problem: str) -> None:
    """Check a precondition without which the measurement would prove nothing.

    Raises:
        CommandError: it does not hold.
    """
    if not is_true:
        raise CommandError(Problem("SAN-DEMO-005", problem))
