# SPDX-License-Identifier: GPL-2.0-or-later
"""A look at the pool on the disk of a node that is off, as its next boot would find it."""

from __future__ import annotations

from pathlib import Path

from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.machines.spec import NodeSpec
from sanctl.system.runner import LocalRunner


def ask_disk(bed: LabSession, node: NodeSpec, folder: Path, look: str, *, device: str) -> str:
    """Return what a script prints of a device's file (`$file`) on the disk of a node that is off.

    On a copy of the disk: mounting plays back the filesystem's journal.
    """
    copy, mounted = folder / f"{node.name}.raw", folder / node.name
    mounted.mkdir(exist_ok=True)
    script = (
        f"cp --sparse=always {bed.lab.node_directory(node)}/disk1.raw {copy}\n"
        f"mount -o loop {copy} {mounted}\n"
        f"file=$(echo {mounted}/devices/{device}.*.data)\n{look}"
    )
    done = LocalRunner().run(["unshare", "--mount", "bash", "-ec", script], timeout_s=120)
    copy.unlink()
    return done.stdout
