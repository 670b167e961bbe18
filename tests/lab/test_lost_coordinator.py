# SPDX-License-Identifier: GPL-2.0-or-later
"""The node that serves is lost together with Pacemaker's coordinator: it is fenced before all else.

The new coordinator says of it that it is down as expected, while it runs and is Primary
(docs/adr/0094). On a laboratory of five storage nodes: without two of them three have quorum.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online
from sanctl.lab.machines import network_cuts
from sanctl.lab.machines.spec import LabSpec, Network, Witness
from sanctl.lab.measure import kernel_audit
from sanctl.system.runner import LocalRunner
from tests.support import ledgers
from tests.support.laboratory import own_or_new_laboratory
from tests.support.steps import await_writes

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1200)]

NAME = "coord0"
_NODES = 5
_DEADLINE_S = 240.0
#: What a handler on this node knows of its peer, until that is fenced or two minutes are over.
_WATCH = """
cd /opt/sanctl/current && timeout 150 python3 -u - <<'SCRIPT'
import json, time
from sanctl.agents.fencing import outdate, quorum_overlap
from sanctl.drivers import outdated_marks
from sanctl.errors import SanctlError
from sanctl.system.runner import LocalRunner
device, peer, runner, last = {device!r}, {peer!r}, LocalRunner(), None
while last != "fenced":
    at_s = time.time()
    try:
        state = outdated_marks.read(runner, [device], peer).state
        seen = outdate.peer_membership(runner, device, peer), quorum_overlap.is_down(state)
    except SanctlError as error:
        seen = str(error), False
    last = seen[0]
    print(json.dumps([at_s, *seen]))
    time.sleep(0.2)
SCRIPT
"""


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    spec = LabSpec(name="testfive", nodes=_NODES, witness=Witness.NONE.value)
    yield from own_or_new_laboratory(
        request,
        spec,
        fits=lambda own: own.nodes == _NODES and own.witness_kind is Witness.NONE,
    )


def coordinator(bed: LabSession, node: str) -> str:
    found = re.search(r"Current DC: (\w+)", bed.sh(node, "crm_mon -1 --include=none,dc").stdout)
    assert found is not None
    return found[1]


def test_it_is_not_taken_for_fenced_before_it_is(bed: LabSession) -> None:
    scenario = Scenario(bed, Initiator(bed, "i1"))
    everybody = [node.name for node in bed.cluster]
    leads = coordinator(bed, everybody[0])
    serves, takes_over = [node for node in everybody if node != leads][:2]
    target = scenario.create(NAME, "128M", prefer=serves, nodes=[serves, takes_over])
    load = ledgers.start(
        scenario,
        NAME,
        target,
        scenario.host.login(target, scenario.portals([serves, takes_over])),
        rate=50,
        region_bytes=32 << 20,
    )
    assert collect.active_node(bed, NAME) == serves
    assert coordinator(bed, takes_over) == leads
    powered_s = bed.powered_since_s(serves)
    skew_s = bed.skew_s(takes_over)
    lost, left = [serves, leads], [node for node in everybody if node not in (serves, leads)]
    cuts = frozenset[network_cuts.Cut]().union(
        *(network_cuts.partition(each, (lost, left)) for each in (Network.HEARTBEAT, Network.SYNC))
    )
    answers: list[tuple[float, str, bool]] = []
    try:
        with bed.stream(takes_over, _WATCH.format(device=NAME, peer=serves)) as watch:
            network_cuts.change(bed.lab, LocalRunner(), add=cuts)
            assert watch.stdout is not None
            ran_s = time.time()
            for line in watch.stdout:
                at_s, membership, is_down = json.loads(line)
                answers.append((at_s - skew_s, membership, is_down))
                if bed.powered_since_s(serves) == powered_s:
                    ran_s = time.time()
        before = [each for each in answers if each[0] < ran_s - 0.5]
        early = [each for each in before if each[1] == "fenced"]
        claimed = [each for each in before if each[2]]
        print(f"  {serves} ran until {ran_s:.1f}; called down since {claimed[:1]}")
        print(f"  the last answers: {answers[-3:]}")
        assert not early, "a Primary that ran was taken for fenced"
        assert claimed, "nothing said that it was down: this test shows nothing"
        assert answers[-1][1] == "fenced", "it was never known to be fenced"
    finally:
        network_cuts.change(bed.lab, LocalRunner(), remove=cuts)
    wait_for(
        f"{takes_over} to serve",
        lambda: collect.active_node(bed, NAME) == takes_over,
        within_s=_DEADLINE_S,
    )
    await_writes(load)
    for node in lost:
        bed.ensure_power(node)
    await_members_online(bed)
    wait_for(
        "both replicas in sync",
        lambda: collect.is_in_sync(bed, takes_over, NAME),
        within_s=_DEADLINE_S,
        every_s=3.0,
    )
    assert kernel_audit.violations(collect.kernel_views(bed)) == []
    ledgers.assert_nothing_lost(load, delete=True)
