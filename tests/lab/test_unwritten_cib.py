# SPDX-License-Identifier: GPL-2.0-or-later
"""A node whose own disk was full when the CIB changed: Pacemaker writes it again by itself."""

from __future__ import annotations

import json

import pytest

from sanctl.errors import NotConverged
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.machines import node_faults
from sanctl.lab.machines.node_faults import FilledFilesystem
from sanctl.parse.cib_version import HEAD_BYTES, parse_cib_version
from sanctl.plan.health.own_disk_health import CIB_FILE
from sanctl.system.runner import LocalRunner

NODE, OTHER = "n1", "n2"
FOUND = f"SAN-HLT-140 node {NODE}"
REST = "/sanctl-test-rest"
#: Two looks of the pool agent, a minute apart, its monitors, and a machine that does other things.
SAID_S = 300.0


def findings(bed: LabSession) -> set[str]:
    done = bed.sh(OTHER, "sanctl status --output json", ok=(0, 1), timeout_s=60)
    return {
        f"{each['code']} {each['subject']}" for each in json.loads(done.stdout)["data"]["findings"]
    }


def versions(bed: LabSession) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """Return `admin_epoch` and `epoch` of the CIB on the node's disk, and in its memory."""
    written = bed.sh(NODE, f"head -c {HEAD_BYTES} {CIB_FILE}").stdout
    live = bed.sh(NODE, "cibadmin --query --no-children").stdout
    return parse_cib_version(written), parse_cib_version(live)


def change(bed: LabSession) -> None:
    for words in ("--update 1", "--delete"):
        bed.sh(OTHER, f"crm_attribute --name sanctl-test-written {words}", timeout_s=60)


def is_written(bed: LabSession) -> bool:
    on_disk, in_memory = versions(bed)
    return on_disk is not None and on_disk == in_memory


def is_left_behind(bed: LabSession) -> bool:
    """Take what room is left, and make a change; return whether it is not written."""
    bed.sh(NODE, f"cat /dev/zero >>{REST} 2>/dev/null; true", timeout_s=60)
    change(bed)
    try:
        wait_for("the change on the disk", lambda: is_written(bed), within_s=10)
    except NotConverged:
        return True
    return False


@pytest.mark.faults
def test_what_was_not_written_is_once_there_is_room(bed: LabSession) -> None:
    node_faults.fill_filesystem(bed.lab, bed.node(NODE), FilledFilesystem.ROOT, LocalRunner())
    try:
        wait_for(
            "a change that is not written", lambda: is_left_behind(bed), within_s=300, every_s=0.0
        )
        wait_for("the finding", lambda: FOUND in findings(bed), within_s=SAID_S, every_s=3.0)
    finally:
        bed.sh(NODE, f"rm -f {REST}", timeout_s=60)
        node_faults.free_filesystem(bed.lab, bed.node(NODE), FilledFilesystem.ROOT, LocalRunner())
    written, live = versions(bed)
    assert written is not None and live is not None and written < live, (written, live)
    wait_for("the CIB on the disk", lambda: is_written(bed), within_s=SAID_S, every_s=3.0)
    wait_for("no finding", lambda: FOUND not in findings(bed), within_s=SAID_S, every_s=3.0)
    # It goes on by itself with the next change.
    change(bed)
    wait_for("the next change on the disk", lambda: is_written(bed), within_s=60)
    told = bed.sh(NODE, "journalctl -q -b -o cat SANCTL_ACTION=own-disk", timeout_s=60).stdout
    assert told.count("was told to write the CIB to disk again") == 1, told
    assert "sanctl-written" not in bed.sh(NODE, "cibadmin --query").stdout
