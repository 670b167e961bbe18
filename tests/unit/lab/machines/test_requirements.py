# SPDX-License-Identifier: GPL-2.0-or-later
"""Each missing requirement of this machine is one line with a hint."""

from __future__ import annotations

from typing import Any

import pytest

from sanctl.lab.machines.requirements import HostFacts, check, check_memory
from sanctl.lab.machines.spec import LabSpec

GOOD = HostFacts(
    is_root=True,
    os_id="debian",
    codename="bookworm",
    os_name="Debian GNU/Linux 12 (bookworm)",
    has_tun=True,
    has_network_namespaces=True,
    missing_programs=(),
    has_keyring=True,
    has_pyghmi=True,
    available_memory_mib=16384,
    free_disk_mib=100000,
)


def test_a_good_host_has_no_problems() -> None:
    assert check(GOOD, LabSpec()) == []


@pytest.mark.parametrize(
    ("change", "text", "hint"),
    [
        ({"is_root": False}, "needs root", "sudo"),
        ({"os_id": "fedora", "os_name": "Fedora 42"}, "Fedora 42", "Debian 12 or Debian 13"),
        ({"codename": "bullseye", "os_name": "Debian 11"}, "Debian 11", "Debian 12 or Debian 13"),
        ({"has_tun": False}, "/dev/net/tun", "modprobe tun"),
        ({"has_network_namespaces": False}, "network namespaces", "CONFIG_NET_NS"),
        ({"missing_programs": ("mmdebstrap",)}, "mmdebstrap", "apt-get install mmdebstrap"),
        ({"missing_programs": ("ip", "tc")}, "ip, tc", "apt-get install iproute2"),
        ({"has_keyring": False}, "archive keys", "debian-archive-keyring"),
        ({"has_pyghmi": False}, "pyghmi", "make setup"),
        ({"available_memory_mib": 2000}, "4096 MiB of free memory", "smaller --memory"),
        ({"free_disk_mib": 10}, "free disk", "free some"),
    ],
)
def test_each_lack_is_one_line_with_a_hint(change: dict[str, Any], text: str, hint: str) -> None:
    (problem,) = check(GOOD._replace(**change), LabSpec())
    assert text in problem.text
    assert hint in problem.hint
    assert "\n" not in str(problem)


def test_all_lacks_are_listed_at_once() -> None:
    lacks = check(GOOD._replace(is_root=False, has_tun=False, free_disk_mib=0), LabSpec())
    assert len(lacks) == 3


def test_nothing_to_boot_needs_no_memory() -> None:
    assert check_memory(0, 768, 10) == []
    assert len(check_memory(1, 768, 1791)) == 1
    assert check_memory(1, 768, 1792) == []
