# SPDX-License-Identifier: GPL-2.0-or-later
"""SAN-DOC-010 of a kernel that has been installed and not booted yet."""

from __future__ import annotations

import pytest

from sanctl.model.findings import Severity
from sanctl.plan.health.kernel_health import kernel_findings

IN_TREE = "kernel/fs/ext4/ext4.ko.xz:\nkernel/drivers/block/drbd/drbd.ko.xz: kernel/lib/lru.ko.xz\n"
BUILT_IN = "kernel/fs/ext4/ext4.ko:\nkernel/drivers/block/drbd/drbd.ko\n"
OWN = "updates/dkms/drbd.ko:\nupdates/dkms/drbd_transport_tcp.ko: updates/dkms/drbd.ko\n"
NONE = "updates/dkms/drbd_transport_tcp.ko: updates/dkms/drbd.ko\nkernel/x/not-drbd.ko:\n"
RUNNING = "6.1.0-28-amd64"


def told(
    installed: dict[str, str], *, running: str = RUNNING, is_drbd_9: bool = False
) -> list[str]:
    found = list(kernel_findings(running, installed, is_drbd_9=is_drbd_9))
    assert all((e.code, e.severity) == ("SAN-DOC-010", Severity.WARNING) for e in found)
    return [each.subject.removeprefix("kernel ") for each in found]


def test_a_newer_kernel_without_drbd_is_said_before_the_boot() -> None:
    """After the boot the node had no replicas, and that was the first that was said."""
    installed = {RUNNING: OWN, "6.1.0-9-amd64": NONE, "6.1.0-100-amd64": NONE}
    assert told(installed) == ["6.1.0-100-amd64"]


@pytest.mark.parametrize(
    ("text", "is_drbd_9", "is_said"),
    [
        (IN_TREE, False, False),
        (BUILT_IN, False, False),
        (OWN, False, False),
        (OWN, True, False),
        (IN_TREE + OWN, True, False),
        # DRBD 8.4 does not know the metadata of DRBD 9.
        (IN_TREE, True, True),
        (BUILT_IN, True, True),
        (NONE, True, True),
    ],
)
def test_the_module_has_to_be_of_the_generation_that_runs(
    text: str, is_drbd_9: bool, is_said: bool
) -> None:
    assert bool(told({"6.1.0-29-amd64": text}, is_drbd_9=is_drbd_9)) is is_said


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("5.14.0-427.el9.x86_64", "5.14.0-427.8.1.el9_4.x86_64"),
        ("5.14.0-70.el9.x86_64", "5.14.0-427.el9.x86_64"),
        ("6.8.0-9-generic", "6.8.0-10-generic"),
    ],
)
def test_releases_are_compared_by_their_numbers(older: str, newer: str) -> None:
    assert told({newer: NONE}, running=older) == [newer]
    assert told({older: NONE}, running=newer) == []


def test_a_kernel_of_another_flavour_is_booted_by_choice() -> None:
    installed = {"6.1.0-30-cloud-amd64": NONE, "6.1.0-30-amd64": NONE}
    assert told(installed) == ["6.1.0-30-amd64"]
