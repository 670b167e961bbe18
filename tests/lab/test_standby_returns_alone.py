# SPDX-License-Identifier: GPL-2.0-or-later
"""Power lost on both nodes of two, and only the node that was the standby comes back.

Without a witness node the CIB may have been changed on the other node since: n2 cannot know whether
n1 went on alone, so it does not serve by itself. It serves after three steps of an operator: the
cluster starts without n1, n1 is confirmed off, and the replica to keep is named.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines.process import Process
from sanctl.lab.machines.spec import LabSpec, Witness
from tests.support.laboratory import own_or_new_laboratory

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME = "alone0"
MIB = 2**20
BOOT_S, SOON_S, BACK_S = 180.0, 120.0, 400.0
WRITTEN = 8 * MIB
# A young device has no generation that is older than both.
REFUSED = ("diverged", "unrelated")


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    """A laboratory without a witness node, in place of the shared one."""
    spec = LabSpec(name="testduo", nodes=2, witness=Witness.NONE.value)
    yield from own_or_new_laboratory(
        request, spec, fits=lambda own: own.witness_kind is not Witness.NODE
    )


@pytest.fixture(scope="module")
def path(bed: LabSession) -> Iterator[str]:
    scenario = Scenario(bed, Initiator(bed, "i1"))
    target = scenario.create(NAME, "128M", prefer="n1")
    yield scenario.host.login(target, scenario.portals())
    scenario.delete(NAME)


def case(bed: LabSession) -> dict[str, Any]:
    """What `device heal` shows on n2."""
    text = bed.sh("n2", f"sanctl device heal {NAME} --output json", ok=(0, 1), timeout_s=60).stdout
    found = json.loads(text)["data"]
    assert isinstance(found, dict)
    return found


def active(bed: LabSession) -> str | None:
    text = bed.sh("n2", f"sanctl device show {NAME} --output json", timeout_s=60).stdout
    found = json.loads(text)["data"]["active_node"]
    return None if found is None else str(found)


@pytest.mark.timeout(1800)
def test_the_node_that_returns_serves_after_the_operators_three_steps(
    bed: LabSession, path: str
) -> None:
    host = Initiator(bed, "i1")
    wait_for("both replicas", lambda: collect.is_in_sync(bed, "n1", NAME), within_s=SOON_S)
    host.sh(
        f"yes flushed | dd of={path} bs=1M count={WRITTEN // MIB} oflag=direct iflag=fullblock"
        " conv=fsync,notrunc",
        timeout_s=120,
    )
    bmc = Process.load(bed.lab.run_directory / "bmc-n1.pid")
    assert bmc is not None
    os.kill(bmc.pid, signal.SIGSTOP)
    try:
        for node in ("n2", "n1"):
            bed.cut_power(node)
        bed.ensure_power("n2")
        quorum = "corosync-quorumtool -s"
        reported = wait_for(
            "corosync on n2",
            lambda: out if "Nodes:" in (out := bed.sh("n2", quorum, ok=range(256)).stdout) else "",
            within_s=BOOT_S,
            every_s=2.0,
        )
        if bed.lab.spec.witness_kind is Witness.NONE:
            assert "WaitForAll" in reported and "Quorate:          No" in reported
            bed.sh("n2", "corosync-cmapctl -s quorum.cancel_wait_for_all u8 1")
        wait_for(
            "quorum",
            lambda: "Quorate:          Yes" in bed.sh("n2", quorum, ok=range(256)).stdout,
            within_s=SOON_S,
        )
        wait_for(
            "n1 to be unclean",
            lambda: "UNCLEAN" in bed.sh("n2", "crm_mon -1 --include=none,nodes").stdout,
            within_s=SOON_S,
            every_s=2.0,
        )
        found = case(bed)
        assert found["condition"] == "waiting", "an unclean node may be serving"
        assert "n1 is unclean" in found["waits_for"]
        bed.sh("n2", "sanctl node confirm-off n1 --yes", timeout_s=120)
        wait_for(
            "the condition blocked",
            lambda: case(bed)["condition"] == "blocked",
            within_s=SOON_S,
            every_s=3.0,
        )
        assert active(bed) is None
        assert "SAN-HLT-037" in bed.sh("n2", "sanctl status", ok=range(256), timeout_s=60).stdout
        bed.sh("n2", f"sanctl device heal {NAME} --keep n2 --yes", timeout_s=240)
        assert active(bed) == "n2"
    finally:
        os.kill(bmc.pid, signal.SIGCONT)
    assert flushed(host, path) == WRITTEN // len("flushed\n")


@pytest.mark.timeout(1200)
def test_the_other_node_returns_and_is_resynced(bed: LabSession, path: str) -> None:
    """If n1's replica has diverged it is given up; then both are in sync again."""
    bed.ensure_power("n1")
    wait_for(
        "n1 in contact, or refused",
        lambda: collect.is_in_sync(bed, "n2", NAME) or case(bed)["condition"] in REFUSED,
        within_s=BACK_S,
        every_s=3.0,
    )
    if case(bed)["condition"] in REFUSED:
        bed.sh("n2", f"sanctl device heal {NAME} --keep n2 --yes", timeout_s=240)
    wait_for(
        "both replicas", lambda: collect.is_in_sync(bed, "n2", NAME), within_s=BACK_S, every_s=3.0
    )
    assert active(bed) == "n2"
    assert flushed(Initiator(bed, "i1"), path) == WRITTEN // len("flushed\n")


def flushed(host: Initiator, path: str) -> int:
    """How many words that the host had flushed are there."""
    return int(
        host.sh(
            f"dd if={path} bs=1M count={WRITTEN // MIB} iflag=direct 2>/dev/null"
            " | grep -c '^flushed$'",
            timeout_s=300,
        )
    )
