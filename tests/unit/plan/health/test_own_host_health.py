# SPDX-License-Identifier: GPL-2.0-or-later
"""Swap on a device that the node imports from itself is found, by whatever name."""

from __future__ import annotations

import pytest

from sanctl.model.findings import Severity
from sanctl.plan.health.own_host_health import swap_findings

_HEAD = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
_WWID = "36001405aabbccddeeff00112233445566"
_MOUNTS = (
    "/dev/sda2 / ext4 rw 0 0\n"
    f"/dev/mapper/{_WWID} /srv/guest\\040data ext4 rw 0 0\n"
    "/dev/sdb1 /srv/guest\\040data/local xfs rw 0 0\n"
)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/dev/dm-3", True),
        ("/dev/dm-4", False),
        ("/dev/sda3", False),
        ("/swapfile", False),
        ("/srv/guest data/swap", True),
        ("/srv/guest data/local/swap", False),
    ],
)
def test_swap_below_which_the_nodes_own_target_lies(path: str, found: bool) -> None:
    uuids = {"dm-3": f"part1-mpath-{_WWID}\n", "dm-4": "LVM-abc\n"}
    # /proc/swaps writes a space as \040, too.
    line = path.replace(" ", "\\040")
    findings = list(swap_findings(f"{_HEAD}{line}\tfile\t1\t0\t-2\n", _MOUNTS, uuids.get))
    assert [each.code for each in findings] == (["SAN-DOC-012"] if found else [])
    assert all(each.severity is Severity.CRITICAL for each in findings)


def test_no_swap_is_no_finding() -> None:
    assert list(swap_findings(_HEAD, _MOUNTS, lambda _: None)) == []
    assert list(swap_findings("", "", lambda _: None)) == []
