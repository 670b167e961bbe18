# SPDX-License-Identifier: GPL-2.0-or-later
"""Sets the demo's scene: its devices, the file system on one, the ledger on the other."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sanctl.errors import CommandError, Problem
from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import Load, Show, Tell
from sanctl.lab.harness.initiator import Host
from sanctl.lab.harness.lab_session import Bed, wait_for
from sanctl.lab.machines.spec import Network

# Longer than the commands themselves wait: what they say then is worth more than no answer.
_CREATE_DEADLINE_S = 300
_MOUNT_POINT = "/mnt/sanctl-demo"
_TOML = "/etc/sanctl/cluster.toml"


class Scene:
    """A cluster, a host, and what the host does with the cluster's devices."""

    def __init__(self, bed: Bed, host: Host) -> None:
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

    def exists(self, device: str) -> bool:
        """Whether the cluster has a device of that name."""
        node = self.bed.storage[0].name
        return not self.bed.sh(node, f"sanctl device show {device}", ok=range(256)).status

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
            prefer: the node that is to serve it.
            node: where the command is typed; the first node without it.
            nodes: those that get a replica; two that sanctl chooses without it.
            cache: its cache policy.
        """
        await_cluster(self.bed)
        where = ("--nodes", ",".join(nodes)) if nodes else ()
        self.sanctl(
            "device", "create", device, "--size", size, "--replicas", str(len(nodes) or 2), *where,
            "--prefer", prefer, "--initiator", self.host.iqn, "--cache", cache,
            node=node, timeout_s=_CREATE_DEADLINE_S,
        )  # fmt: skip
        return f"{self.iqn_prefix()}.{device}"

    def delete(self, device: str) -> None:
        """Delete a device with its data, after the host let go of it."""
        self.host.logout(f"{self.iqn_prefix()}.{device}")
        self.sanctl("device", "delete", device, "--yes", timeout_s=_CREATE_DEADLINE_S)

    def mount_with_file(self, device: str) -> None:
        """Make a file system on a device of the host, and a file whose checksum is known."""
        self.host.sh(
            f"mkfs.ext4 -q -F {device} && mkdir -p {_MOUNT_POINT} && mount {device} {_MOUNT_POINT}"
            f" && cd {_MOUNT_POINT} && head -c 16M /dev/urandom >file && sha256sum file >file.sum"
            " && sync -f .",
            timeout_s=180,
        )

    def file_is_right(self) -> bool:
        """Whether the file, read from the device and not from memory, has its checksum still.

        Also writes to the file system, which a kernel that had seen an error would refuse.
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
        """Let go of the file system, if it is mounted."""
        self.host.sh(f"! mountpoint -q {_MOUNT_POINT} || umount {_MOUNT_POINT}", timeout_s=120)

    def start_load(
        self,
        device: str,
        target: str,
        path: str,
        *,
        rate: float,
        region_bytes: int,
        tell: Tell,
        show: Show,
        synced: bool = True,
    ) -> Load:
        """Start a ledger on a device of the host; without `synced` it flushes nothing."""
        options = ["--rate", f"{rate:g}", "--region", str(region_bytes)]
        if not synced:
            options.append("--unsynced")
        run = self.host.start_ledger(device, path, *options)
        return Load(
            bed=self.bed,
            host=self.host,
            run=run,
            device=device,
            minor=collect.minor(self.bed, collect.active_node(self.bed, device), device),
            target=target,
            tell=tell,
            show=show,
        )


def await_cluster(bed: Bed) -> None:
    """Wait until every member of the cluster is online, as the first one sees it."""
    names = [node.name for node in bed.cluster]

    def online() -> bool:
        out = bed.sh(names[0], "crm_mon -1 --output-as=text --include=none,nodes").stdout
        listed = out.partition("Online:")[2].partition("]")[0].split()
        return set(names) <= set(listed)

    wait_for("all cluster nodes online", online, within_s=120, every_s=2.0)


def require(is_true: bool, problem: str) -> None:
    """Raise unless something holds without which going on proves nothing.

    Raises:
        CommandError: it does not.
    """
    if not is_true:
        raise CommandError(Problem("SAN-DEMO-005", problem))
