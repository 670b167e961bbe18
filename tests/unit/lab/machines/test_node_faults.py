# SPDX-License-Identifier: GPL-2.0-or-later
"""The scripts that break and heal a node."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sanctl.errors import UsageError
from sanctl.lab.machines import guest_files, node_faults
from sanctl.lab.machines.lab_state import Lab
from sanctl.lab.machines.spec import LabSpec
from sanctl.system.runner import LocalRunner

SPEC = LabSpec(nodes=3, initiators=1, disks=2)


@pytest.fixture
def lab() -> Lab:
    return Lab(spec=SPEC, image=Path("/image"), kernel=Path("/kernel"))


@pytest.mark.parametrize("does", list(node_faults.DiskBehaviour))
def test_a_broken_disk_is_swapped_beneath_its_filesystem(does: node_faults.DiskBehaviour) -> None:
    script = node_faults.disk_script(2, does)
    if does is not node_faults.DiskBehaviour.VOLATILE:
        # Without these a disk that hangs or fails could be neither broken nor mended.
        assert "suspend --noflush --nolockfs lab-disk2" in script
    if does is not node_faults.DiskBehaviour.HANG:
        assert "disk=/dev/ubdc" in script
        assert script.index("suspend") < script.index("load") < script.index("resume")


def test_the_sectors_that_are_bad_are_those_that_were_named(lab: Lab) -> None:
    script = node_faults.disk_script(1, node_faults.DiskBehaviour.BAD, sectors=(8, 18))
    assert "for block in 8 18; do dmsetup message lab-disk1 0 addbadblock $block" in script
    assert script.index("resume") < script.index("addbadblock") < script.index("enable")
    runner = LocalRunner()
    for does, sectors in (
        (node_faults.DiskBehaviour.BAD, ()),
        (node_faults.DiskBehaviour.FAIL, (8,)),
    ):
        with pytest.raises(UsageError, match="--sector and"):
            node_faults.break_disk(lab, SPEC.node("n1"), 1, does, runner, sectors=sectors)


def test_healing_touches_only_what_the_node_has(lab: Lab) -> None:
    storage = node_faults.heal_script(lab, SPEC.node("n1"))
    assert "lab-disk1" in storage and "lab-disk2" in storage
    assert "rm -f /srv/sanctl/main/.lab-filler" in storage
    for name in ("n3", "i1"):
        assert "lab-disk" not in node_faults.heal_script(lab, SPEC.node(name))


def test_every_script_is_shell(lab: Lab) -> None:
    scripts = [node_faults.heal_script(lab, SPEC.node("n1"))]
    scripts += [
        node_faults.disk_script(1, does, sectors=(8,)) for does in node_faults.DiskBehaviour
    ]
    identity = guest_files.identity_files(
        SPEC, SPEC.node("n1"), machine_id="m", host_key="k", host_public_key="p", login_key="l"
    )
    scripts.append(identity["/usr/lib/sanctl-lab/disks"].content.decode())
    for script in scripts:
        subprocess.run(["sh", "-n"], input=script, text=True, check=True)
