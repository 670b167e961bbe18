# SPDX-License-Identifier: GPL-2.0-or-later
"""The monitor of a Primary whose peer is away is short; the service that flushes is watched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sanctl.lab.harness.failover import await_healthy
from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scenario

pytestmark = pytest.mark.faults

NAME = "alone0"
FLUSH = "sanctl-flush.service"
#: A monitor every ten seconds; the whole one after an attribute was published is no older.
_SHORT_WITHIN_S = 90.0


@pytest.fixture
def alone(scenario: Scenario) -> Iterator[Scenario]:
    """A device that n1 serves, whose other replica is stopped."""
    scenario.create(NAME, "64M", prefer="n1", nodes=("n1", "n2"))
    try:
        await_healthy(scenario.bed, "n1")
        scenario.sanctl("node", "standby", "n2", timeout_s=120)
        yield scenario
    finally:
        scenario.sanctl("node", "online", "n2", timeout_s=120)
        await_healthy(scenario.bed, "n1")
        scenario.delete(NAME)


def fingerprint(scenario: Scenario) -> str:
    found = scenario.bed.sh(
        "n1", f"stat -c %i:%y /run/sanctl/devices/{NAME}/fingerprint", ok=range(256)
    )
    return found.stdout.strip()


def test_it_is_short_until_the_flushing_service_ends(alone: Scenario) -> None:
    wait_for("a fingerprint", lambda: fingerprint(alone), within_s=_SHORT_WITHIN_S)
    state = alone.bed.sh("n1", "cat /proc/drbd").stdout
    assert "cs:WFConnection ro:Primary/Unknown ds:UpToDate/" in state
    assert alone.bed.sh("n1", f"systemctl is-active {FLUSH}").stdout.strip() == "active"
    before = alone.bed.sh("n1", f"systemctl show -P MainPID {FLUSH}").stdout
    alone.bed.sh("n1", f"systemctl kill -s KILL {FLUSH}")
    wait_for(
        "the next monitors to start the service again",
        lambda: (
            alone.bed.sh("n1", f"systemctl show -P MainPID {FLUSH}").stdout not in {before, "0\n"}
        ),
        within_s=90.0,
    )
