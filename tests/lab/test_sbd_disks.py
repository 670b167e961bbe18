# SPDX-License-Identifier: GPL-2.0-or-later
"""The rollout and SBD's shared disk: initialized when blank, left alone in all other cases.

On real kernels, whose disks hold something else or cannot be read, and with a cluster that runs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sanctl.errors import CommandError
from sanctl.lab.harness.lab_session import LabSession, run_sanctl
from sanctl.lab.harness.scenario import await_members_online
from sanctl.lab.machines import guest_files, lab_state, rollout
from sanctl.lab.machines import requirements as lab_host
from sanctl.lab.machines.spec import LabSpec
from tests.support import run_recorder

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

OWN_LAB = os.environ.get("SANCTL_TEST_SBD_DISKS_LAB", "")
LAB = OWN_LAB or "sbd-disks"
RELEASE = os.environ.get("SANCTL_TEST_RELEASE", "trixie")
DISK = guest_files.SHARED_DEVICE
# A device-mapper device over the shared disk that is made to fail.
MAPPED = "/dev/mapper/sbd-disk"
MIB = 1 << 20
SETTINGS: dict[str, object] = {
    "sanctl_sbd_mode": "disk",
    "sanctl_sbd_watchdog": "softdog",
    # The first is User Mode Linux's own, which does nothing here.
    "sanctl_sbd_watchdog_device": "/dev/watchdog1",
    "sanctl_accept_risks": ["SAN-CONF-042"],
    "sanctl_fence_options": {},
    "sanctl_fence_password": "",
}


@pytest.fixture(autouse=True)
def _audited() -> None:
    """No device is made here, and at first there is no cluster: nothing is to be audited."""


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    """A laboratory that nothing has been rolled out to."""
    began_s = time.monotonic()
    if lab_state.find(LAB) is None:
        lacking = lab_host.check(lab_host.read_host_facts(), LabSpec(name=LAB))
        if lacking:
            pytest.fail("no laboratory here: " + "; ".join(map(str, lacking)))
        run_sanctl(
            "lab", "up", "--name", LAB, "--release", RELEASE, "--no-rollout",
            "--shared-disk", "8M", "--initiators", "0", timeout_s=1200,
        )  # fmt: skip
    try:
        run_recorder.note_boot(request.config, time.monotonic() - began_s)
        yield LabSession(LAB)
    finally:
        if not OWN_LAB:
            run_sanctl("lab", "destroy", "--name", LAB, timeout_s=120)


def roll_out(bed: LabSession, *arguments: str, disk: str = DISK) -> int:
    settings = {**SETTINGS, "sanctl_sbd_devices": [disk]}
    return rollout.run(bed.lab, arguments=(*arguments, "--extra-vars", json.dumps(settings)))


def refusal(bed: LabSession, *, disk: str = DISK) -> str:
    """Return why the playbook refuses the disk; nothing may have been written to it."""
    before = content(bed)
    with pytest.raises(CommandError):
        roll_out(bed, "--tags", "sbd", disk=disk)
    assert content(bed) == before
    # The log's lines are folded where the screen would end.
    return " ".join((bed.lab.directory / "rollout.log").read_text().split())


def content(bed: LabSession) -> bytes:
    """Return the shared disk as the host of the laboratory has it: below all caches of nodes."""
    return (bed.lab.directory / "shared.raw").read_bytes()


def blank(bed: LabSession) -> None:
    bed.sh("n1", f"dd if=/dev/zero of={DISK} bs=1M count=8 oflag=direct conv=fsync,notrunc")
    assert content(bed).count(0) == 8 * MIB


def is_sbds(bed: LabSession) -> bool:
    return content(bed).startswith(b"SBD_SBD_")


@contextmanager
def failing(bed: LabSession, node: str, table: str, message: str = "") -> Iterator[None]:
    """Have all nodes see the shared disk through device-mapper, and on one have it fail."""
    linear = f"0 $(blockdev --getsz {DISK}) linear {DISK} 0"
    name = os.path.basename(MAPPED)
    try:
        for other in bed.cluster:
            bed.sh(other.name, f'modprobe dm-mod; dmsetup create {name} --table "{linear}"')
        # What was read before the disk began to fail is in the page cache for as long as it is
        # open: a look through that cache would see nothing of the failure.
        bed.sh(
            node,
            f"exec 9<{MAPPED}; setsid sleep 600 >/dev/null 2>&1 & echo $! >/run/{name}.pid\n"
            f"dd if={MAPPED} of=/dev/null bs=1M count=1; modprobe dm-dust\n"
            f"dmsetup suspend {name}; dmsetup load {name} --table"
            f' "0 $(blockdev --getsz {DISK}) {table}"; dmsetup resume {name}; {message}',
        )
        yield
    finally:
        for other in bed.cluster:
            bed.sh(
                other.name,
                f"kill $(cat /run/{name}.pid); rm -f /run/{name}.pid;"
                f" dmsetup remove --retry {name}",
                ok=range(256),
            )


def test_a_disk_that_holds_a_filesystem_is_left(bed: LabSession) -> None:
    bed.sh("n1", f"mkfs.ext4 -q -F {DISK} && sync")
    messages = refusal(bed)
    assert "neither SBD's nor blank" in messages
    assert "Nothing was written" in messages


@pytest.mark.parametrize("node", ["n1", "n3"])
@pytest.mark.parametrize("sector", [0, 2047])
@pytest.mark.parametrize("has_header", [False, True])
def test_a_sector_that_cannot_be_read_is_not_blank(
    bed: LabSession, node: str, sector: int, has_header: bool
) -> None:
    """On the node that would write, and on another one; with writes that would mend the sector."""
    blank(bed)
    if has_header:
        bed.sh("n1", f"sbd -d {DISK} -1 5 -4 10 create")
    message = f"dmsetup message sbd-disk 0 addbadblock {sector}; dmsetup message sbd-disk 0 enable"
    with failing(bed, node, f"dust {DISK} 0 512", message):
        cached = f"dd if={MAPPED} of=/dev/null bs=512 skip={sector} count=1"
        assert bed.sh(node, cached, ok=range(256)).status == 0
        assert bed.sh(node, f"{cached} iflag=direct", ok=range(256)).status != 0
        messages = refusal(bed, disk=MAPPED)
    assert "cannot be read (Input/output error)" in messages
    assert is_sbds(bed) is has_header


def test_a_disk_of_which_nothing_can_be_read_is_not_blank(bed: LabSession) -> None:
    blank(bed)
    with failing(bed, "n2", "error"):
        assert "cannot be read (Input/output error)" in refusal(bed, disk=MAPPED)


def test_a_blank_disk_that_something_holds_is_left(bed: LabSession) -> None:
    blank(bed)
    with failing(bed, "n2", f"linear {DISK} 0"):
        assert "in use by something else" in refusal(bed)


def test_what_is_no_disk_is_left(bed: LabSession) -> None:
    for disk, text in (("/dev/sbd-gone", "no such device"), ("/dev/null", "no block device")):
        assert text in refusal(bed, disk=disk)


def test_a_blank_disk_is_left_while_corosync_runs_on_another_node(bed: LabSession) -> None:
    blank(bed)
    bed.sh("n3", "systemctl start corosync.service")
    try:
        messages = refusal(bed)
    finally:
        bed.sh("n3", "systemctl stop corosync.service")
    assert "corosync run on n3" in messages


def test_check_mode_tells_and_does_nothing(bed: LabSession) -> None:
    blank(bed)
    assert roll_out(bed, "--check", "--tags", "sbd") > 0
    assert content(bed).count(0) == 8 * MIB


def test_names_of_different_disks_are_refused(bed: LabSession) -> None:
    """All of them are blank; once there is a header, one node does not find it."""
    blank(bed)
    other = "0 8192 zero"
    name = os.path.basename(MAPPED)
    try:
        for node in bed.cluster:
            table = other if node.name == "n2" else f"0 16384 linear {DISK} 0"
            bed.sh(node.name, f'modprobe dm-mod; dmsetup create {name} --table "{table}"')
        with pytest.raises(CommandError, match="not the same on all nodes"):
            roll_out(bed, "--tags", "sbd", disk=MAPPED)
    finally:
        for node in bed.cluster:
            bed.sh(node.name, f"dmsetup remove {name}", ok=range(256))


def test_a_blank_disk_is_initialized_once_and_never_below_a_live_cluster(bed: LabSession) -> None:
    blank(bed)
    roll_out(bed)
    await_members_online(bed)
    for node in bed.cluster:
        dumped = bed.sh(node.name, f"sbd -d {DISK} dump").stdout
        assert "Timeout (watchdog) : 5\n" in dumped
        assert "Timeout (msgwait)  : 10\n" in dumped

    header = content(bed)[:512]
    assert roll_out(bed, "--tags", "sbd") == 0
    assert content(bed)[:512] == header

    # The cluster has quorum and lives without its disk, whose watchers give up.
    bed.sh("n2", f"dd if=/dev/zero of={DISK} bs=1M count=8 oflag=direct conv=fsync,notrunc")
    messages = refusal(bed)
    assert "corosync and sbd run on n1" in messages
    assert content(bed).count(0) == 8 * MIB

    by_hand = f"sbd -d {DISK} -1 5 -4 10 create"
    assert f"`{by_hand}`" in messages
    bed.sh("n1", by_hand)
    header = content(bed)[:512]
    assert roll_out(bed, "--tags", "sbd") == 0
    assert content(bed)[:512] == header
