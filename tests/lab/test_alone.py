# SPDX-License-Identifier: GPL-2.0-or-later
"""All power is lost, and only the node that did not serve last comes back.

Where the votes keep no notes (heartbeat, a quorum device) nobody can tell it whether the other went
on without it, so it does not serve by itself. It does when an operator has said three things: that
the cluster may begin without the other node, that the other is off, and which copy to keep.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Host
from sanctl.lab.harness.lab_session import Bed, wait_for
from sanctl.lab.harness.scenario import Scene
from sanctl.lab.machines import lab_state
from sanctl.lab.machines.process import Process
from sanctl.lab.machines.spec import LabSpec, Witness
from tests.support.laboratory import laboratory

pytestmark = pytest.mark.faults

OWN_LAB = os.environ.get("SANCTL_TEST_LAB", "")
NAME = "alone0"
MIB = 2**20
BOOT_S, SOON_S, BACK_S = 180.0, 120.0, 400.0
WRITTEN = 8 * MIB
# A young device has no generation that is older than both.
REFUSED = ("diverged", "unrelated")


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    """In place of the session's laboratory, whose witness has notes."""
    found = lab_state.find(OWN_LAB) if OWN_LAB else None
    is_own = found is not None and found.spec.witness_kind is not Witness.NODE
    spec = LabSpec(name=OWN_LAB if is_own else "testduo", nodes=2, witness=Witness.NONE.value)
    yield from laboratory(request, spec, is_own=is_own)


@pytest.fixture(scope="module")
def path(bed: Bed) -> Iterator[str]:
    scene = Scene(bed, Host(bed, "i1"))
    target = scene.create(NAME, "128M", prefer="n1")
    yield scene.host.login(target, scene.portals())
    scene.delete(NAME)


def case(bed: Bed) -> dict[str, Any]:
    """What `device heal` shows on n2."""
    text = bed.sh("n2", f"sanctl device heal {NAME} --output json", ok=(0, 1), timeout_s=60).stdout
    found = json.loads(text)["data"]
    assert isinstance(found, dict)
    return found


def active(bed: Bed) -> str | None:
    text = bed.sh("n2", f"sanctl device show {NAME} --output json", timeout_s=60).stdout
    found = json.loads(text)["data"]["active_node"]
    return None if found is None else str(found)


@pytest.mark.timeout(1800)
def test_the_one_that_comes_back_serves_when_it_is_told_to(bed: Bed, path: str) -> None:
    host = Host(bed, "i1")
    wait_for("both copies", lambda: collect.in_sync(bed, "n1", NAME), within_s=SOON_S)
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
        bed.give_power("n2")
        quorum = "corosync-quorumtool -s"
        told = wait_for(
            "corosync on n2",
            lambda: out if "Nodes:" in (out := bed.sh("n2", quorum, ok=range(256)).stdout) else "",
            within_s=BOOT_S,
            every_s=2.0,
        )
        if bed.lab.spec.witness_kind is Witness.NONE:
            assert "WaitForAll" in told and "Quorate:          No" in told
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
        assert case(bed)["condition"] == "sound", "whoever is unclean may be serving"
        bed.sh("n2", "stonith_admin --confirm n1")
        wait_for(
            "nobody to be let serve",
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
def test_the_other_may_come_back_after_all(bed: Bed, path: str) -> None:
    """Its copy is given up, if it has anything of its own, and both are whole again."""
    if not bed.has_power("n1"):
        bed.give_power("n1")
    wait_for(
        "n1 in contact, or refused",
        lambda: collect.in_sync(bed, "n2", NAME) or case(bed)["condition"] in REFUSED,
        within_s=BACK_S,
        every_s=3.0,
    )
    if case(bed)["condition"] in REFUSED:
        bed.sh("n2", f"sanctl device heal {NAME} --keep n2 --yes", timeout_s=240)
    wait_for("both copies", lambda: collect.in_sync(bed, "n2", NAME), within_s=BACK_S, every_s=3.0)
    assert active(bed) == "n2"
    assert flushed(Host(bed, "i1"), path) == WRITTEN // len("flushed\n")


def flushed(host: Host, path: str) -> int:
    """How many words that the host had flushed are there."""
    return int(
        host.sh(
            f"dd if={path} bs=1M count={WRITTEN // MIB} iflag=direct 2>/dev/null"
            " | grep -c '^flushed$'",
            timeout_s=300,
        )
    )
