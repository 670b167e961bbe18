# SPDX-License-Identifier: GPL-2.0-or-later
"""What somebody who knows Pacemaker types: a disabled resource, a node in maintenance, a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sanctl.lab.harness import failover
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario

NAME = "byhand0"
CLONE = f"sanctl-{NAME}"
DISABLE = "crm_resource --resource {} --meta --set-parameter target-role --parameter-value Stopped"
ENABLE = "crm_resource --resource {} --meta --delete-parameter target-role"
SOON_S = 60.0
#: A clock that is off at two looks, a minute apart, is published.
CLOCK_S = 200.0


@pytest.fixture(scope="module")
def own(scenario: Scenario) -> Iterator[LabSession]:
    """The laboratory with a device that n1 serves."""
    scenario.create(NAME, "64M", prefer="n1")
    yield scenario.bed
    scenario.delete(NAME)


def status(own: LabSession) -> str:
    return own.sh("n3", "sanctl status", ok=(0, 1), timeout_s=60).stdout


def saying(own: LabSession, code: str) -> Callable[[], bool]:
    return lambda: code in status(own)


def test_a_device_that_is_disabled_is_not_being_deleted(own: LabSession) -> None:
    own.sh("n3", DISABLE.format(CLONE))
    wait_for("the device to be stopped", saying(own, "SAN-HLT-166"), within_s=SOON_S)
    assert "device delete" not in status(own)
    refused = own.sh("n3", f"sanctl device resize {NAME} 128M", ok=(4,))
    assert "SAN-DEV-014" in refused.stderr and "disabled" in refused.stderr
    own.sh("n3", ENABLE.format(CLONE))
    failover.await_healthy(own, "n3")


def test_a_deletion_that_was_interrupted_is_taken_back(own: LabSession) -> None:
    # Interrupted once its mark is there. A job in the background ignores Ctrl-C, but for env.
    delete = (
        f"env --default-signal=INT sanctl device delete {NAME} --yes --accept SAN-DEV-023 & pid=$!;"
        f" for nr in $(seq 90); do cibadmin --query | grep -q sanctl-{NAME}-meta-deletion && break;"
        " sleep 0.3; done; kill -INT $pid; wait $pid"
    )
    # The demotion waits for the lock, so nothing is removed before the command is interrupted.
    with own.stream("n1", f"flock /run/sanctl/fence-{NAME}.lock sleep 60"):
        own.sh("n3", delete, ok=range(256), timeout_s=120)
        told = status(own)
        assert "SAN-HLT-030" in told and "deleting" in told
        own.sh("n3", ENABLE.format(CLONE))
    failover.await_healthy(own, "n3")
    # The mark has gone with what it speaks of.
    own.sh("n3", DISABLE.format(CLONE))
    wait_for("the device to be stopped", saying(own, "SAN-HLT-166"), within_s=SOON_S)
    own.sh("n3", ENABLE.format(CLONE))
    failover.await_healthy(own, "n3")


def test_commands_refuse_while_a_node_is_in_maintenance(own: LabSession) -> None:
    own.sh("n3", "crm_attribute --node n2 --name maintenance --update true")
    try:
        wait_for("the finding", saying(own, "SAN-HLT-020"), within_s=SOON_S)
        for command in (f"device move {NAME} --to n2", f"device delete {NAME} --yes"):
            refused = own.sh("n3", f"sanctl {command}", ok=(4,), timeout_s=60)
            assert "SAN-DEV-018" in refused.stderr, command
    finally:
        own.sh("n3", "crm_attribute --node n2 --name maintenance --delete")
    failover.await_healthy(own, "n3")


@pytest.mark.parametrize(
    ("resource", "code"), [("sanctl-pools", "SAN-HLT-154"), ("fence-n2", "SAN-HLT-156")]
)
def test_what_watches_and_what_fences_may_not_be_disabled_in_silence(
    own: LabSession, resource: str, code: str
) -> None:
    own.sh("n3", DISABLE.format(resource))
    try:
        wait_for("the finding", saying(own, code), within_s=SOON_S)
    finally:
        own.sh("n3", ENABLE.format(resource))
    failover.await_healthy(own, "n3")


@pytest.mark.faults
def test_a_clock_that_is_off_is_named(own: LabSession) -> None:
    own.sh("n2", "date --set '+600 seconds'")
    try:
        wait_for("the finding", lambda: "SAN-HLT-161" in status(own), within_s=CLOCK_S, every_s=5)
        assert "node n2: its clock is 10 min ahead of those of n1 and n3" in status(own)
    finally:
        own.sh("n2", "date --set '-600 seconds'")
    failover.await_healthy(own, "n3")
