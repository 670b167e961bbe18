# SPDX-License-Identifier: GPL-2.0-or-later
"""A replica that is stale must not serve: one that was left up, one that is started alone.

Left up while its node's cluster software is down, as in maintenance that went wrong: DRBD 8.4 calls
such a replica UpToDate whatever its Primary has written since. The Primary marks it; but where the
third vote keeps no notes the mark dies with the Primary's node, and what begins on the other one
knows nothing of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import network, network_cuts
from sanctl.lab.machines.spec import LabSpec, Network, Witness
from sanctl.system.runner import LocalRunner
from tests.support.laboratory import own_or_new_laboratory
from tests.support.steps import dead_bmc

pytestmark = pytest.mark.faults

NAME = "left0"
MIB = 2**20
WRITTEN = 4 * MIB
SOON_S, BACK_S = 120.0, 400.0
STACK = "corosync.service corosync-qdevice.service pacemaker.service"


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    """A laboratory with a quorum device, in place of the shared one."""
    spec = LabSpec(name="testleft", nodes=2, witness=Witness.QNETD.value)
    yield from own_or_new_laboratory(
        request, spec, fits=lambda own: own.witness_kind is Witness.QNETD
    )


@pytest.fixture(scope="module")
def path(bed: LabSession) -> Iterator[str]:
    scenario = Scenario(bed, Initiator(bed, "i1"))
    target = scenario.create(NAME, "128M", prefer="n1")
    yield scenario.host.login(target, scenario.portals())
    scenario.delete(NAME)


def write(bed: LabSession, path: str, word: str) -> None:
    Initiator(bed, "i1").sh(
        f"yes {word} | dd of={path} bs=1M count={WRITTEN // MIB} oflag=direct iflag=fullblock"
        " conv=fsync,notrunc",
        timeout_s=120,
    )


def words(bed: LabSession, path: str, word: str) -> int:
    """How often a host finds a word where it has written some."""
    command = f"dd if={path} bs=1M count={WRITTEN // MIB} iflag=direct 2>/dev/null"
    return int(Initiator(bed, "i1").sh(f"{command} | grep -c '^{word}$'", timeout_s=300, ok=(0, 1)))


def maintenance(bed: LabSession, node: str, *, on: bool) -> None:
    word = str(on).lower()
    command = f"crm_attribute --type crm_config --name maintenance-mode --update {word}"
    wait_for(
        "Pacemaker to take that",
        lambda: bed.sh(node, command, timeout_s=30, ok=range(256)).status == 0,
        within_s=SOON_S,
        every_s=2.0,
    )


def disk(bed: LabSession, node: str) -> str:
    return bed.sh(node, f"drbdadm dstate {NAME}", ok=range(256)).stdout.partition("/")[0].strip()


def case(bed: LabSession) -> dict[str, Any]:
    """What `device heal` shows on n2."""
    text = bed.sh("n2", f"sanctl device heal {NAME} --output json", ok=(0, 1), timeout_s=60).stdout
    found = json.loads(text)["data"]
    assert isinstance(found, dict)
    return found


def is_quorate(bed: LabSession, node: str) -> bool:
    reported = bed.sh(node, "corosync-quorumtool -s", ok=range(256)).stdout
    return "Quorate:          Yes" in reported


@pytest.mark.timeout(1800)
def test_what_was_left_up_does_not_serve_old_data(bed: LabSession, path: str) -> None:
    wait_for("both replicas", lambda: collect.is_in_sync(bed, "n1", NAME), within_s=SOON_S)
    bed.sh("n2", f"sanctl device move {NAME} --to n1", timeout_s=180)
    assert collect.active_node(bed, NAME) == "n1"
    write(bed, path, "older")
    maintenance(bed, "n1", on=True)
    bed.sh("n2", f"systemctl stop {STACK}", timeout_s=180)
    assert disk(bed, "n2") == "UpToDate", "it went with the cluster software: nothing is shown"
    network.unplug(bed.lab, bed.node("n2"), Network.SYNC, LocalRunner())
    try:
        write(bed, path, "newer")
        assert disk(bed, "n2") == "UpToDate", "DRBD knows by itself: nothing is shown"
        with dead_bmc(bed, "n1"):
            began_s = bed.cut_power("n1")
            bed.sh("n2", f"systemctl start {STACK}", timeout_s=180)
            wait_for("quorum", lambda: is_quorate(bed, "n2"), within_s=SOON_S, every_s=1.0)
            maintenance(bed, "n2", on=False)
            wait_for(
                "n1 to be unclean",
                lambda: "UNCLEAN" in bed.sh("n2", "crm_mon -1 --include=none,nodes").stdout,
                within_s=SOON_S,
                every_s=2.0,
            )
            bed.sh("n2", "sanctl node confirm-off n1 --yes", timeout_s=120)
            wait_for(
                "the condition blocked",
                lambda: case(bed)["condition"] == "blocked",
                within_s=SOON_S,
                every_s=3.0,
            )
            assert disk(bed, "n2") == "Consistent"
            messages = [
                e.message for e in collect.journals(bed, ["n2"], began_s) if e.device == NAME
            ]
            assert messages and not any("promote: serving" in message for message in messages), (
                messages
            )
    finally:
        network.plug(bed.lab, bed.node("n2"), Network.SYNC, LocalRunner())
        bed.ensure_power("n1")
    # Of the two configurations that meet now the newer one wins, which may be n1's.
    maintenance(bed, "n1", on=False)
    wait_for(
        "both replicas", lambda: collect.is_in_sync(bed, "n1", NAME), within_s=BACK_S, every_s=3.0
    )
    # Either may serve now.
    newer, older = words(bed, path, "newer"), words(bed, path, "older")
    assert (newer, older) == (WRITTEN // len("newer\n"), 0)


@pytest.mark.timeout(1800)
def test_a_node_that_begins_alone_fences_its_peer_before_any_start(
    bed: LabSession, path: str
) -> None:
    """n1 boots, does not see n2, which serves, and gets the device's vote; the sync network works.

    A replica that was started there at once would connect to that of n2, to which n1 is a node that
    was fenced: the safety model relies on Pacemaker for that (`starts-unfenced`).
    """
    wait_for("both replicas", lambda: collect.is_in_sync(bed, "n1", NAME), within_s=SOON_S)
    bed.sh("n2", f"sanctl device move {NAME} --to n1", timeout_s=180)
    write(bed, path, "older")
    # Corosync's packets alone: neither DRBD nor the way to the device is cut.
    cuts = frozenset[network_cuts.Cut]().union(
        *(
            network_cuts.partition(each, [["n1"], ["n2"]], is_udp_only=True)
            for each in (Network.HEARTBEAT, Network.SYNC)
        )
    )
    before_s = bed.powered_since_s("n2") or 0.0
    began_s = bed.cut_power("n1")
    network_cuts.change(bed.lab, LocalRunner(), add=cuts)
    try:
        write(bed, path, "newer")
        wait_for(
            "Corosync on n1",
            lambda: "Quorate:" in bed.sh("n1", "corosync-quorumtool -s", ok=range(256)).stdout,
            within_s=BACK_S,
            every_s=2.0,
        )
        # The device leaves its vote with n2 until n2 loses the way to it.
        lost = network_cuts.partition(Network.HEARTBEAT, [["n2"], ["q1"]])
        cuts |= lost
        network_cuts.change(bed.lab, LocalRunner(), add=lost)
        wait_for(
            "n2 to be fenced by n1",
            lambda: (bed.powered_since_s("n2") or 0.0) > before_s,
            within_s=BACK_S,
            every_s=2.0,
        )
        wait_for("n1's replica", lambda: disk(bed, "n1") == "Consistent", within_s=SOON_S)
    finally:
        mended_s = time.time()
        network_cuts.change(bed.lab, LocalRunner(), remove=cuts)
    wait_for(
        "both replicas", lambda: collect.is_in_sync(bed, "n2", NAME), within_s=BACK_S, every_s=3.0
    )
    assert words(bed, path, "older") == 0
    assert words(bed, path, "newer") > 0
    log = collect.journals(bed, ["n1"], began_s)
    fenced_s = [
        e.at_s
        for e in log
        if e.identifier == "pacemaker-fenced" and "targeting n2" in e.message and "OK" in e.message
    ]
    started_s = [e.at_s for e in log if e.device == NAME and e.action == "start"]
    connected_s = [e.at_s for e in log if NAME in e.message and "-> Connected" in e.message]
    print(f"  n2 fenced {fenced_s}, replica started {started_s}, connected {connected_s}")
    assert fenced_s and started_s and connected_s
    assert min(fenced_s) < min(started_s)
    assert min(connected_s) > mended_s
