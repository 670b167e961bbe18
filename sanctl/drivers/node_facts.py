# SPDX-License-Identifier: GPL-2.0-or-later
"""Read-only facts about this node for `sanctl doctor`: units, kernel modules, files, clock."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from sanctl.drivers import corosync, own_disk
from sanctl.errors import CommandError
from sanctl.parse.corosync import Link
from sanctl.system.files import is_folder, read_text_or
from sanctl.system.runner import Runner

_TIMEOUT_S = 20.0
_MODULES, _BOOT = "/lib/modules", "/boot"
#: As in /proc/PID/comm, where the kernel keeps 15 characters of a program's name.
_CIB_DAEMON = "pacemaker-based"
#: Older than any version of a CIB.
NO_CIB = (-1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A systemd unit: whether it is loaded, masked or missing; running; started at boot.

    `sub` says more of `active`, in words of the unit's kind; empty: not known.
    """

    load: str
    active: str
    enabled: str
    sub: str = ""


class NodeFactsPort(Protocol):
    """What the doctor needs to know about this node."""

    def node_name(self) -> str:
        """Return the name of this node."""
        ...

    def units(self, names: Collection[str]) -> Mapping[str, Unit] | None:
        """Return the state of units, None when systemd does not answer."""
        ...

    def has_module(self, name: str) -> bool:
        """Whether a kernel module is loaded or built in."""
        ...

    def kernel_modules(self) -> Mapping[str, str]:
        """Return the texts of modules.dep and modules.builtin of kernels that can be booted."""
        ...

    def text(self, path: str) -> str | None:
        """Return a file's text, None when it is missing or cannot be read."""
        ...

    def folder_texts(self, folder: str) -> Mapping[str, str]:
        """Return the texts of a folder's files by their names; those that can be read."""
        ...

    def mode(self, path: str) -> int | None:
        """Return a file's permission bits, None when it is missing."""
        ...

    def owner(self, path: str) -> int | None:
        """Return a file's owner, None when it is missing."""
        ...

    def is_clock_synchronised(self) -> bool | None:
        """Whether a time service synchronises the clock; None is unknown."""
        ...

    def ipc_buffer_bytes(self) -> int | None:
        """Return the IPC buffer that the running Pacemaker was given; None without one."""
        ...

    def written_cib_version(self) -> tuple[int, int] | None:
        """Return `admin_epoch` and `epoch` of the CIB on this node's disk; None: not known.

        NO_CIB where there is no such file, or the disk does not give it.
        """
        ...

    def own_disk_bytes(self) -> tuple[int, int] | None:
        """Return the size of the filesystem of /var/lib, and what is free; None: not known."""
        ...

    def run_bytes(self) -> tuple[int, int] | None:
        """Return the same of /run."""
        ...

    def links(self) -> tuple[Link, ...] | None:
        """Return Corosync's links from this node to others; None: Corosync does not say."""
        ...


class NodeFacts:
    """This node, asked through systemd and the filesystem."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def node_name(self) -> str:
        """See HostPort.node_name."""
        return os.uname().nodename

    def units(self, names: Collection[str]) -> Mapping[str, Unit] | None:
        """See HostPort.units."""
        try:
            result = self._runner.run(
                [
                    "systemctl",
                    "show",
                    "--property=Id,LoadState,ActiveState,SubState,UnitFileState",
                    *names,
                ],
                timeout_s=_TIMEOUT_S,
            )
        except CommandError:
            return None
        # One block per unit, in the order of the arguments; an alias has another unit's Id.
        blocks = result.stdout.strip("\n").split("\n\n")
        return {name: _unit(block) for name, block in zip(names, blocks, strict=False)}

    def has_module(self, name: str) -> bool:
        """See HostPort.has_module."""
        return is_folder(f"/sys/module/{name}")

    def kernel_modules(self) -> Mapping[str, str]:
        """See HostPort.kernel_modules."""
        try:
            releases = os.listdir(_MODULES)
        except OSError:
            return {}
        found = {}
        for release in releases:
            folder = f"{_MODULES}/{release}"
            # What a removed kernel has left is not booted.
            images = (f"{_BOOT}/vmlinuz-{release}", f"{folder}/vmlinuz")
            text = self.text(f"{folder}/modules.dep")
            if text is not None and any(self.mode(each) is not None for each in images):
                found[release] = f"{text}\n{self.text(f'{folder}/modules.builtin') or ''}"
        return found

    def text(self, path: str) -> str | None:
        """See HostPort.text."""
        try:
            text = read_text_or(path, "\0")
        except OSError:
            return None
        return None if text == "\0" else text

    def folder_texts(self, folder: str) -> Mapping[str, str]:
        """See HostPort.folder_texts."""
        try:
            names = os.listdir(folder)
        except OSError:
            return {}
        found = {name: self.text(f"{folder}/{name}") for name in names}
        return {name: text for name, text in found.items() if text is not None}

    def mode(self, path: str) -> int | None:
        """See HostPort.mode."""
        try:
            return stat.S_IMODE(os.stat(path).st_mode)
        except OSError:
            return None

    def owner(self, path: str) -> int | None:
        """See HostPort.owner."""
        try:
            return os.stat(path).st_uid
        except OSError:
            return None

    def is_clock_synchronised(self) -> bool | None:
        """See HostPort.is_clock_synchronised."""
        try:
            result = self._runner.run(
                ["timedatectl", "show", "--property=NTPSynchronized", "--value"],
                timeout_s=_TIMEOUT_S,
            )
        except CommandError:
            return None
        return {"yes": True, "no": False}.get(result.stdout.strip())

    def ipc_buffer_bytes(self) -> int | None:
        """See HostPort.ipc_buffer_bytes."""
        for process in os.listdir("/proc"):
            if (
                process.isdigit()
                and (self.text(f"/proc/{process}/comm") or "").strip() == _CIB_DAEMON
            ):
                for variable in (self.text(f"/proc/{process}/environ") or "").split("\0"):
                    name, _, value = variable.partition("=")
                    if name == "PCMK_ipc_buffer" and value.isascii() and value.isdecimal():
                        return int(value)
        return None

    def written_cib_version(self) -> tuple[int, int] | None:
        """See HostPort.written_cib_version."""
        try:
            return own_disk.written_cib_version() or NO_CIB
        except PermissionError:
            return None
        except OSError:
            return NO_CIB

    def own_disk_bytes(self) -> tuple[int, int] | None:
        """See HostPort.own_disk_bytes."""
        try:
            return own_disk.space_bytes()
        except OSError:
            return None

    def run_bytes(self) -> tuple[int, int] | None:
        """See HostPort.run_bytes."""
        try:
            return own_disk.run_space_bytes()
        except OSError:
            return None

    def links(self) -> tuple[Link, ...] | None:
        """See HostPort.links."""
        try:
            return corosync.links(self._runner)
        except CommandError:
            return None


def _unit(block: str) -> Unit:
    pairs = dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line)
    return Unit(
        load=pairs.get("LoadState", "?"),
        active=pairs.get("ActiveState", "?"),
        enabled=pairs.get("UnitFileState", "?"),
        sub=pairs.get("SubState", ""),
    )
