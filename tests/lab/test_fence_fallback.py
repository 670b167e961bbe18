# SPDX-License-Identifier: GPL-2.0-or-later
"""A second fencing level: the BMC loses its power together with its server."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import sanctl
from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import process, rollout
from sanctl.lab.machines.lab_state import BMC_USER
from sanctl.lab.machines.spec import Network
from sanctl.lab.measure import ledger_latency
from sanctl.system.runner import LocalRunner
from tests.support import ledgers
from tests.support.steps import dead_bmc, findings

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME = "strip0"
# Two ways, each with its 30 s, on a machine that does other things too.
TAKEOVER_DEADLINE_S = 150.0
# An outlet of the strip for each node: the address of its BMC, thirty further on.
OUTLET = "{{ sanctl_heartbeat | regex_replace('[.]([0-9])$', '.23\\1') }}"


@pytest.fixture(scope="module")
def strip(bed: LabSession) -> Iterator[None]:
    """Outlets that work the same switches as the BMCs, and a rollout that names them."""
    outlets = []
    try:
        for node in bed.cluster:
            address = f"{Network.HEARTBEAT.subnet}.{230 + node.id}"
            LocalRunner().run(
                bed.lab.enter("ip", "addr", "replace", f"{address}/32", "dev", Network.HEARTBEAT),
                timeout_s=10,
            )
            outlets.append(
                process.spawn(
                    bed.lab.enter(
                        sys.executable,
                        "-m",
                        "sanctl.lab.machines.bmc",
                        bed.lab.name,
                        node.name,
                        address,
                    ),
                    log=bed.lab.node_directory(node) / "outlet.log",
                    env={"PYTHONPATH": str(Path(sanctl.__file__).parent.parent)},
                )
            )
        settings = {
            "sanctl_fence_fallback_options": {"ip": OUTLET, "username": BMC_USER},
            "sanctl_fence_fallback_password": bed.lab.bmc_password(),
        }
        rollout.run(bed.lab, arguments=("--extra-vars", json.dumps(settings)))
        yield
    finally:
        for outlet in outlets:
            process.end_session(outlet)


@pytest.fixture(scope="module")
def load(strip: None, scenario: Scenario) -> Iterator[LedgerLoad]:
    with ledgers.ledger_on_new_device(
        scenario, NAME, "128M", rate=50, region_bytes=32 << 20
    ) as made:
        yield made


def configured(bed: LabSession) -> list[str]:
    """The parts of the cluster's configuration that are about a second way."""
    cib = bed.sh("n2", "cibadmin --query --scope configuration").stdout
    return re.findall(r'<(?:primitive|fencing-level) id="(fence-n\d_\w+)"', cib)


def test_each_node_has_two_ways_and_both_are_asked(bed: LabSession, load: LedgerLoad) -> None:
    del load
    assert sorted(configured(bed)) == sorted(
        name
        for node in ("n1", "n2", "n3")
        for name in (f"fence-{node}_fallback", f"fence-{node}_level1", f"fence-{node}_level2")
    )
    reported = bed.sh("n2", "sanctl node fence n1 --test", timeout_s=60).stdout
    assert "fence-n1" in reported and "fence-n1_fallback" in reported
    with dead_bmc(bed, "n1"):
        assert "SAN-FEN-002 fencing fence-n1" in findings(bed, "n2", "doctor")
        doctor = bed.sh("n2", "sanctl doctor", timeout_s=90, ok=(0, 1)).stdout
        assert "the only one left is fence-n1_fallback" in " ".join(doctor.split())


@pytest.mark.timeout(900)
def test_a_bmc_that_dies_with_its_server_costs_time_and_no_takeover(
    bed: LabSession, load: LedgerLoad
) -> None:
    began_s = time.time()
    assert collect.active_node(bed, NAME) == "n1"
    with dead_bmc(bed, "n1"):
        bed.cut_power("n1")
        wait_for(
            f"{NAME} on n2",
            lambda: collect.active_node(bed, NAME) == "n2",
            within_s=TAKEOVER_DEADLINE_S,
        )
        # The strip has given the power back, too.
        wait_for("both in sync", lambda: collect.is_in_sync(bed, "n2", NAME), within_s=300)
    history = bed.sh("n2", "stonith_admin --history n1 --verbose").stdout
    assert "n1" in history
    pauses = ledger_latency.find_pause(load.host.fetch_log(load.run)[1], began_s, time.time())
    print(f"  pause {pauses.seconds:.1f} s")
    assert pauses.errors == 0
    failover.await_healthy(bed, "n2")


@pytest.mark.timeout(900)
def test_without_it_in_the_inventory_nothing_of_it_is_left(
    bed: LabSession, load: LedgerLoad
) -> None:
    began_s = time.time()
    assert rollout.run(bed.lab) > 0
    assert configured(bed) == []
    assert bed.sh("n2", "sanctl node fence n1 --test", timeout_s=60).status == 0
    assert rollout.run(bed.lab) == 0
    pauses = ledger_latency.find_pause(load.host.fetch_log(load.run)[1], began_s, time.time())
    assert pauses.errors == 0
