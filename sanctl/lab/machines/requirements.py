# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether this machine can run a laboratory: root, tun, programs, memory, disk (SAN-LAB-030)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from sanctl.errors import Problem, Refused
from sanctl.lab.machines.spec import LabSpec

# Program -> the Debian package that brings it.
_PROGRAMS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "mke2fs": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "mount": "mount",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sysctl": "procps",
}
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_SUPPORTED = {"bookworm": "Debian 12", "trixie": "Debian 13"}
_MEMORY_RESERVE_MIB = 1024
# Image, kernel and the space for building them.
_CACHE_MIB = 4096
# What a node's root is expected to grow by.
_ROOT_GROWTH_MIB = 512


class HostFacts(NamedTuple):
    """The facts about this machine that the checks use."""

    is_root: bool
    os_id: str
    codename: str
    os_name: str
    has_tun: bool
    has_network_namespaces: bool
    missing_programs: tuple[str, ...]
    has_keyring: bool
    has_pyghmi: bool
    available_memory_mib: int
    free_disk_mib: int


def check(facts: HostFacts, spec: LabSpec) -> list[Problem]:
    """Return each requirement of a laboratory that this host does not meet. Pure."""
    problems = []

    def lacks(text: str, hint: str) -> None:
        problems.append(Problem("SAN-LAB-030", text, hint))

    if facts.os_id != "debian" or facts.codename not in _SUPPORTED:
        lacks(
            f"this host runs {facts.os_name}, which the lab does not support",
            "use " + " or ".join(_SUPPORTED.values()),
        )
    if not facts.is_root:
        lacks("the lab needs root for namespaces and taps", "run it with sudo")
    if not facts.has_tun:
        lacks("/dev/net/tun is missing", "modprobe tun, or give the container that device")
    if not facts.has_network_namespaces:
        lacks("this kernel has no network namespaces", "a kernel with CONFIG_NET_NS")
    packages = sorted({_PROGRAMS[name] for name in facts.missing_programs})
    if packages:
        lacks(
            "programs are missing: " + ", ".join(facts.missing_programs),
            "apt-get install " + " ".join(packages),
        )
    if not facts.has_keyring:
        lacks("Debian's archive keys are missing", "apt-get install debian-archive-keyring")
    if not facts.has_pyghmi:
        lacks(
            "the Python package pyghmi is missing", "make setup, or apt-get install python3-pyghmi"
        )
    problems += check_memory(len(spec.machines), spec.memory_mib, facts.available_memory_mib)
    wanted = _CACHE_MIB + len(spec.machines) * _ROOT_GROWTH_MIB
    if facts.free_disk_mib < wanted:
        lacks(
            f"the lab wants {wanted} MiB of free disk below /var, there are {facts.free_disk_mib}",
            "free some, or sanctl lab destroy what is not needed",
        )
    return problems


def read_host_facts() -> HostFacts:
    """Read the facts about this host."""
    release = _os_release()
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    disk = os.statvfs("/var")
    return HostFacts(
        is_root=os.geteuid() == 0,
        os_id=release.get("ID", ""),
        codename=release.get("VERSION_CODENAME", ""),
        os_name=release.get("PRETTY_NAME", "an unknown system"),
        has_tun=Path("/dev/net/tun").is_char_device(),
        has_network_namespaces=Path("/proc/self/ns/net").exists(),
        missing_programs=tuple(name for name in _PROGRAMS if not shutil.which(name, path=path)),
        has_keyring=_KEYRING.exists(),
        has_pyghmi=_has_pyghmi(),
        available_memory_mib=_available_memory_mib(),
        free_disk_mib=disk.f_bavail * disk.f_frsize // 2**20,
    )


def check_memory(nodes: int, memory_mib: int, available_mib: int) -> list[Problem]:
    """Return the problem if there is too little free memory for that many nodes. Pure."""
    wanted = nodes * memory_mib + _MEMORY_RESERVE_MIB
    if not nodes or available_mib >= wanted:
        return []
    return [
        Problem(
            "SAN-LAB-030",
            f"{nodes} nodes of {memory_mib} MiB want {wanted} MiB of free memory, "
            f"there are {available_mib}",
            "fewer nodes, or a smaller --memory",
        )
    ]


def require(spec: LabSpec) -> HostFacts:
    """Return the host's facts if it can make that lab.

    Raises:
        Refused: it cannot; all reasons are listed.
    """
    facts = read_host_facts()
    problems = check(facts, spec)
    if problems:
        raise Refused(*problems)
    return facts


def require_memory(nodes: int, memory_mib: int) -> None:
    """Check that many nodes can be booted now.

    Raises:
        Refused: there is too little memory.
    """
    problems = check_memory(nodes, memory_mib, _available_memory_mib())
    if problems:
        raise Refused(*problems)


def require_root() -> None:
    """Every command that touches a lab needs root.

    Raises:
        Refused: this is not root.
    """
    if os.geteuid() != 0:
        raise Refused(
            Problem("SAN-LAB-030", "the lab needs root for namespaces and taps", "run it with sudo")
        )


def _os_release() -> dict[str, str]:
    try:
        text = Path("/etc/os-release").read_text()
    except FileNotFoundError:
        return {}
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {key: value.strip('"') for key, value in pairs}


def _available_memory_mib() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return 0


def _has_pyghmi() -> bool:
    from importlib.util import find_spec  # noqa: PLC0415 - only the preflight asks

    return find_spec("pyghmi") is not None
