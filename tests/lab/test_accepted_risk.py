# SPDX-License-Identifier: GPL-2.0-or-later
"""The strategy `heartbeat` without fencing, by the code of its risk: what is kept, and what is not.

A crash is survived with every write. When all links are lost both nodes serve, and what one of them
has written since is given up by an operator.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from sanctl.errors import CommandError
from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import await_healthy
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import network, rollout
from sanctl.lab.machines.spec import LabSpec, Network, Witness
from sanctl.lab.measure import kernel_audit
from sanctl.model.topology import RISK_NO_FENCING
from sanctl.system.runner import LocalRunner
from tests.support import ledgers, steps
from tests.support.laboratory import own_or_new_laboratory

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME = "risk0"
MIB = 2**20
LINKS = (Network.SYNC, Network.HEARTBEAT)
FENCING_OFF = "SAN-HLT-010"
SERVED_WITHIN_S, WHOLE_WITHIN_S = 90.0, 300.0
#: Where each node writes while they are apart, in MiB.
AT = {"n1": 64, "n2": 80}


def without_fencing(bed: LabSession, *accepted: str) -> dict[str, Any]:
    """Return the laboratory's inventory without fence devices, and with risks accepted."""
    made = copy.deepcopy(dict(rollout.inventory_of(bed.lab)))
    nodes = made["all"]["children"]["sanctl_nodes"]
    nodes["vars"]["sanctl_accept_risks"] = list(accepted)
    for group in nodes["children"].values():
        for variables in group["hosts"].values():
            del variables["sanctl_fence_options"], variables["sanctl_fence_password"]
    return made


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    """A laboratory of two nodes alone, in place of the shared one."""
    spec = LabSpec(name="testrisk", nodes=2, witness=Witness.NONE.value)
    for made in own_or_new_laboratory(
        request, spec, fits=lambda own: own.nodes == 2 and own.witness_kind is Witness.NONE
    ):
        try:
            yield made
        finally:
            rollout.run(made.lab)


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Iterator[Scenario]:
    made = Scenario(bed, Initiator(bed, "i1"))
    yield made
    if made.exists(NAME):
        made.delete(NAME)


def await_in_sync(bed: LabSession, node: str) -> None:
    wait_for(
        "both replicas in sync",
        partial(collect.is_in_sync, bed, node, NAME),
        within_s=WHOLE_WITHIN_S,
        every_s=1.0,
    )


def serving(bed: LabSession) -> list[str]:
    return kernel_audit.active_nodes(collect.kernel_views(bed), NAME)


def heal(bed: LabSession, *arguments: str) -> dict[str, Any]:
    words = " ".join(["sanctl device heal", NAME, "--output json", *arguments])
    data = json.loads(bed.sh("n1", words, timeout_s=180, ok=(0, 1)).stdout)["data"]
    assert isinstance(data, dict)
    return data


def write(bed: LabSession, node: str, value: str, *, at: int, to: str) -> None:
    """Fill a MiB with one byte value, on a node or a host, once it is served."""
    bed.sh(
        node,
        f"head -c {MIB} /dev/zero | tr '\\0' '{value}' | dd of={to} bs=1M"
        f" seek={at} oflag=direct conv=nocreat iflag=fullblock",
        timeout_s=SERVED_WITHIN_S,
    )


def written(bed: LabSession, node: str, source: str) -> str:
    """Return the first byte of each node's MiB, as a node or a host reads it."""
    read = "; ".join(
        f"dd if={source} bs=1M count=1 skip={at} iflag=direct 2>/dev/null | head -c 1"
        for at in AT.values()
    )
    return bed.sh(node, read).stdout.replace("\0", "-")


def test_it_is_refused_without_the_code(bed: LabSession) -> None:
    before = bed.sh("n1", "cibadmin --query --scope crm_config").stdout
    with pytest.raises(CommandError) as refused:
        rollout.run(bed.lab, inventory=without_fencing(bed))
    assert "SAN-CONF-031" in str(refused.value)
    assert RISK_NO_FENCING in str(refused.value)
    assert bed.sh("n1", "cibadmin --query --scope crm_config").stdout == before


@pytest.mark.timeout(900)
def test_with_the_code_the_cluster_stays_critical(bed: LabSession) -> None:
    assert rollout.run(bed.lab, inventory=without_fencing(bed, RISK_NO_FENCING)) > 0
    assert rollout.run(bed.lab, inventory=without_fencing(bed, RISK_NO_FENCING)) == 0
    shown = bed.sh("n1", "sanctl cluster show --output json").stdout
    assert json.loads(shown)["data"]["accepted_risks"] == [RISK_NO_FENCING]
    found = steps.findings(bed, "n1", "status")
    assert any(each.startswith(FENCING_OFF) for each in found), found
    status = json.loads(bed.sh("n1", "sanctl status --output json", ok=(0, 1)).stdout)["data"]
    assert {f["severity"] for f in status["findings"] if f["code"] == FENCING_OFF} == {"critical"}


@pytest.mark.timeout(1200)
def test_a_crash_loses_nothing(scenario: Scenario) -> None:
    bed = scenario.bed
    load = ledgers.start_on_new_device(scenario, NAME, "128M", rate=100, region_bytes=32 * MIB)
    await_in_sync(bed, "n1")
    bed.cut_power("n1")
    wait_for(
        "n2 to serve", lambda: collect.active_node(bed, NAME) == "n2", within_s=SERVED_WITHIN_S
    )
    steps.await_writes(load)
    bed.ensure_power("n1")
    await_in_sync(bed, "n2")
    ledgers.assert_nothing_lost(load)


@pytest.mark.timeout(1200)
def test_both_serve_when_all_links_are_lost_and_one_is_given_up(scenario: Scenario) -> None:
    """A host that had both paths would find both active, and write to both: it has one here."""
    bed, host, gate = scenario.bed, scenario.host, f"/dev/mapper/sanctl-{NAME}"
    target = f"{scenario.iqn_prefix()}.{NAME}"
    # multipathd makes no device of one path, and keeps one that had two.
    disk = host.login(target, scenario.portals())
    host.sh(f"iscsiadm -m node -T {target} -p {scenario.portals(['n1'])[0]} --logout")
    scenario.sanctl("device", "move", NAME, "--to", "n1", timeout_s=120)
    await_in_sync(bed, "n1")
    for link in LINKS:
        network.unplug(bed.lab, bed.node("n2"), link, LocalRunner())
    try:
        write(bed, host.name, "B", at=AT["n2"], to=disk)
        write(bed, "n1", "A", at=AT["n1"], to=gate)
        assert (written(bed, "n1", gate), written(bed, host.name, disk)) == ("A-", "-B")
    finally:
        for link in LINKS:
            network.plug(bed.lab, bed.node("n2"), link, LocalRunner())
    host.logout(target)
    data = wait_for(
        "the replicas to be called diverged",
        lambda: found if (found := heal(bed))["condition"] == "diverged" else None,
        within_s=WHOLE_WITHIN_S,
        every_s=3.0,
    )
    print(data)
    # A replica that serves gets more: nobody can say how much it has at most.
    for kept, other in (data["copies"], data["copies"][::-1]):
        assert not other["serves"] or kept["keeping_it"]["loses"]["bytes_at_most"] is None
    # Of two that serve one is put away at once; nothing that either has written is thrown away.
    wait_for("one to serve, or none", lambda: len(serving(bed)) <= 1, within_s=SERVED_WITHIN_S)
    accept = ("--accept", "SAN-HEAL-004") if serving(bed) == ["n2"] else ()
    heal(bed, "--keep", "n1", "--yes", *accept)
    await_in_sync(bed, "n1")
    wait_for("n1 to serve", lambda: serving(bed) == ["n1"], within_s=SERVED_WITHIN_S)
    assert written(bed, "n1", gate) == "A-"


@pytest.mark.timeout(900)
def test_back_to_fencing(bed: LabSession) -> None:
    assert rollout.run(bed.lab) > 0
    await_healthy(bed, "n1")
    assert not any(each.startswith(FENCING_OFF) for each in steps.findings(bed, "n1", "status"))
