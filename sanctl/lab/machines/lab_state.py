# SPDX-License-Identifier: GPL-2.0-or-later
"""A laboratory's files on this machine: lab.json, ssh configuration, BMC password, locks."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sanctl.errors import Problem, Refused
from sanctl.lab.machines.spec import LabSpec, Network, NodeSpec
from sanctl.system.files import write_atomically

STATE_ROOT = Path("/var/lib/sanctl-lab")
CACHE_ROOT = Path("/var/cache/sanctl-lab")
RUN_ROOT = Path("/run/sanctl-lab")
BMC_USER = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A laboratory that exists on this machine: its specification and its files.

    `machines`, `ssh_config`, `enter()` and `bmc_password()` are all that rollout and tests need to
    reach the nodes.
    """

    spec: LabSpec
    image: Path
    kernel: Path

    @property
    def name(self) -> str:
        """Its name."""
        return self.spec.name

    @property
    def machines(self) -> tuple[NodeSpec, ...]:
        """All its nodes."""
        return self.spec.machines

    @property
    def directory(self) -> Path:
        """The laboratory's files on disk, those of the rollout included."""
        return STATE_ROOT / self.name

    @property
    def run_directory(self) -> Path:
        """The files that exist only while the laboratory is up."""
        return RUN_ROOT / self.name

    @property
    def ssh_config(self) -> Path:
        """The `ssh -F` file that knows every node by name."""
        return self.directory / "ssh_config"

    @property
    def namespace(self) -> str:
        """The name of its network namespace."""
        return f"sanctl-{self.name}"

    @property
    def namespace_path(self) -> Path:
        """Its network namespace, as a file to enter."""
        return Path("/run/netns") / self.namespace

    @property
    def bmc_password_file(self) -> Path:
        """The file (0600) with the BMCs' password."""
        return self.directory / "bmc.password"

    def node_directory(self, node: NodeSpec) -> Path:
        """One node's files."""
        return self.directory / "nodes" / node.name

    def console_log(self, node: NodeSpec) -> Path:
        """The log file of a node's console."""
        return self.node_directory(node) / "console.log"

    def bmc_password(self) -> str:
        """The password of user `admin` on every BMC."""
        return self.bmc_password_file.read_text().strip()

    def enter(self, *argv: str) -> tuple[str, ...]:
        """Return the command line that runs a command in the laboratory's network namespace."""
        return ("nsenter", f"--net={self.namespace_path}", *argv)

    def ssh_argv(
        self, node: NodeSpec, *command: str, options: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Return the command line that logs in to a node, or runs a command there."""
        return self.enter("ssh", "-F", str(self.ssh_config), *options, node.name, *command)

    def is_up(self) -> bool:
        """Whether the laboratory's network exists: then its nodes can be switched on."""
        return self.namespace_path.exists()


def save(lab: Lab) -> None:
    """Write a laboratory's lab.json."""
    data = {
        "schema": 1,
        "spec": lab.spec.as_json(),
        "image": str(lab.image),
        "kernel": str(lab.kernel),
    }
    write_atomically(str(lab.directory / "lab.json"), json.dumps(data, indent=2) + "\n")


def load(name: str) -> Lab:
    """Return the laboratory of that name.

    Raises:
        Refused: there is none.
    """
    lab = find(name)
    if lab is None:
        raise Refused(
            Problem("SAN-LAB-003", f"there is no lab {name!r}", f"sanctl lab up --name {name}")
        )
    return lab


def find(name: str) -> Lab | None:
    """Return the laboratory of that name, or None."""
    try:
        data = json.loads((STATE_ROOT / name / "lab.json").read_text())
    except FileNotFoundError:
        return None
    return Lab(
        spec=LabSpec.from_json(data["spec"]), image=Path(data["image"]), kernel=Path(data["kernel"])
    )


def names() -> list[str]:
    """Return the names of the laboratories on this machine."""
    return sorted(path.parent.name for path in STATE_ROOT.glob("*/lab.json"))


def write_ssh_config(lab: Lab, host_keys: dict[str, str]) -> None:
    """Write the ssh configuration and the known host keys of all nodes."""
    known = []
    lines = []
    for node in lab.machines:
        address = node.address(Network.HEARTBEAT)
        known.append(f"{node.name},{address} {host_keys[node.name]}")
        lines += [
            f"Host {node.name} {address}",
            f"  HostName {address}",
            f"  HostKeyAlias {node.name}",
        ]
    lines += [
        "Host *",
        "  User root",
        f"  IdentityFile {lab.directory}/id_ed25519",
        "  IdentitiesOnly yes",
        f"  UserKnownHostsFile {lab.directory}/known_hosts",
        "  GlobalKnownHostsFile /dev/null",
        "  StrictHostKeyChecking yes",
        "  PasswordAuthentication no",
        "  BatchMode yes",
        "  LogLevel ERROR",
        "  ConnectTimeout 5",
        # A node that lost power must not leave commands hanging on its dead connection.
        "  ServerAliveInterval 3",
        "  ServerAliveCountMax 3",
        "  ControlMaster auto",
        f"  ControlPath {lab.run_directory}/ssh-%n",
        "  ControlPersist 300",
    ]
    write_atomically(str(lab.directory / "known_hosts"), "\n".join(known) + "\n", mode=0o600)
    write_atomically(str(lab.ssh_config), "\n".join(lines) + "\n", mode=0o600)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; a second process waits for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
