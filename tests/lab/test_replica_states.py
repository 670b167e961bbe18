# SPDX-License-Identifier: GPL-2.0-or-later
"""What nodes publish of their replicas: never in the CIB, never older than what is there now.

A node whose pacemaker-attrd has just been killed has told nothing, and its replica reads as
unknown, not as what it was; and so does one of which an earlier release says something else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online

NAME = "state0"
ACTIVE, STANDBY, ASKED = "n1", "n2", "n3"


@pytest.fixture(scope="module")
def device(scenario: Scenario) -> Iterator[Scenario]:
    await_members_online(scenario.bed)
    scenario.sanctl(
        "device", "create", NAME, "--size", "32M", "--replicas", "2",
        "--nodes", f"{ACTIVE},{STANDBY}", "--prefer", ACTIVE, timeout_s=200,
    )  # fmt: skip
    yield scenario
    scenario.sanctl("device", "delete", NAME, "--yes", "--accept", "SAN-DEV-023", timeout_s=200)


def disks(bed: LabSession) -> dict[str, str | None]:
    """What the commands know of the replicas' disks, by node."""
    text = bed.sh(ASKED, f"sanctl device show {NAME} --output json", ok=range(256)).stdout
    replicas = json.loads(text)["data"]["replicas"]
    return {each["node"]: each["disk"] for each in replicas}


def states_in_cib(bed: LabSession) -> str:
    wanted = """-e 'value="disk=' -e 'name="sanctl.states'"""
    return bed.sh(ASKED, f"cibadmin --query | grep {wanted}", ok=(0, 1)).stdout


KNOWN = {ACTIVE: "UpToDate", STANDBY: "UpToDate"}


def test_a_new_device_is_known_at_once_and_not_by_the_cib(device: Scenario) -> None:
    assert disks(device.bed) == KNOWN
    assert states_in_cib(device.bed) == ""


def test_a_killed_attribute_daemon_makes_a_replica_unknown_until_it_is_told_again(
    device: Scenario,
) -> None:
    bed = device.bed
    # No monitor publishes again before the command has looked.
    bed.sh(STANDBY, "pkill -STOP -x pacemaker-execd; pkill -KILL -x pacemaker-attrd")
    try:
        wait_for("an unknown replica", lambda: disks(bed)[STANDBY] is None, within_s=60)
        assert disks(bed)[ACTIVE] == "UpToDate"
    finally:
        bed.sh(STANDBY, "pkill -CONT -x pacemaker-execd")
    wait_for("both to be known", lambda: disks(bed) == KNOWN, within_s=90)
    assert states_in_cib(bed) == ""


def test_what_an_earlier_release_has_left_is_deleted_and_not_believed(device: Scenario) -> None:
    bed = device.bed
    left = "disk=Inconsistent connection=Connected role=Secondary"
    # No monitor deletes it before the command has looked.
    bed.sh(STANDBY, "pkill -STOP -x pacemaker-execd")
    try:
        bed.sh(STANDBY, f"attrd_updater --name sanctl-{NAME} '--update={left}'")
        wait_for("an unknown replica", lambda: disks(bed)[STANDBY] is None, within_s=60)
    finally:
        bed.sh(STANDBY, "pkill -CONT -x pacemaker-execd")
    wait_for("the CIB without it", lambda: states_in_cib(bed) == "", within_s=90)
    wait_for("both to be known", lambda: disks(bed) == KNOWN, within_s=90)
