# SPDX-License-Identifier: GPL-2.0-or-later
"""Having the replicas of a device compared."""

from __future__ import annotations

import contextlib

import pytest

from sanctl.errors import NotConverged, Refused
from sanctl.model.names import DeviceName
from sanctl.model.verify_result import VerifyRequest, VerifyResult
from sanctl.ops.device_verify import verify_device
from sanctl.plan.health.device_health import device_findings
from tests.unit.ops.test_device import Bench, codes

VM1 = DeviceName.parse("vm1")


def findings(bench: Bench) -> list[str]:
    cluster = bench.session.observe()
    return [finding.code for finding in device_findings(cluster, cluster.cib.devices[0], now_s=0.0)]


def test_replicas_that_are_the_same() -> None:
    bench = Bench()
    bench.create()
    done = verify_device(bench.session, VM1, is_repair=True, timeout_s=60)
    assert (done.node, done.verification.result, done.repair) == ("n1", "same", None)
    assert findings(bench) == []


def test_what_differs_is_named_and_stays_a_finding_until_it_is_repaired() -> None:
    bench = Bench()
    bench.create()
    bench.cluster.differences = ("4096+4096", "8192+4096")
    done = verify_device(bench.session, VM1, is_repair=False, timeout_s=60)
    assert done.verification.ranges == ("4096+4096", "8192+4096")
    assert (done.verification.found_kib, done.repair) == (8, None)
    assert findings(bench) == ["SAN-HLT-039"]
    mended = verify_device(bench.session, VM1, is_repair=True, timeout_s=60)
    assert mended.repair is not None
    assert mended.repair.found_kib == 8
    assert findings(bench) == []


def test_a_repair_ends_when_all_replicas_are_known_to_be_in_sync() -> None:
    """Who repairs says so before the other has told that its resync is over."""
    bench = Bench()
    bench.create()
    bench.cluster.differences = ("4096+4096",)
    begun = bench.clock.now
    left = [3]

    def tick() -> None:
        left[0] -= 1
        if left[0] == 0:
            del bench.cluster.disks["n2"]
        bench.cluster.tick()

    def order_is_taken() -> None:
        bench.cluster.disks["n2"] = "Inconsistent"

    bench.cluster.after_patch = order_is_taken
    bench.clock.on_sleep = tick
    assert verify_device(bench.session, VM1, is_repair=True, timeout_s=60).repair is not None
    assert left[0] <= 0
    assert bench.clock.now > begun
    assert verify_device(bench.session, VM1, is_repair=False, timeout_s=60)


def test_with_drbd_9_a_repair_ends_no_sooner() -> None:
    """Who compares repairs there, and says so before its copies are known to be in sync."""
    bench = Bench()
    bench.create()
    tells(bench, n1="repaired 8")
    looks = [0]

    def tick() -> None:
        looks[0] += 1
        if looks[0] == 3:
            del bench.cluster.disks["n2"]
        bench.cluster.tick()

    bench.cluster.after_patch = lambda: bench.cluster.disks.update(n2="Inconsistent")
    bench.clock.on_sleep = tick
    done = verify_device(bench.session, VM1, is_repair=True, timeout_s=60)
    assert done.repair is not None
    assert looks[0] >= 3


def test_no_verify_without_both_replicas() -> None:
    bench = Bench()
    bench.create()
    bench.cluster.crash("n2")
    with pytest.raises(Refused) as caught:
        verify_device(bench.session, VM1, is_repair=False, timeout_s=60)
    assert "SAN-DEV-013" in codes(caught.value)


def test_a_node_tells_what_runs_there() -> None:
    bench = Bench()
    bench.cluster.private_attributes["n2", "sanctl.sync"] = "vm1,fast,for+vm2,10,20,0,5;odd"
    ((node, running),) = bench.session.running()
    assert (node, running.device, running.waits) == ("n2", "vm1", "for vm2")


def tells(bench: Bench, **results: str) -> None:
    """Have nodes tell these results of the next order, in place of what the cluster would."""

    def told(name: str, nodes: list[str], asked: str) -> None:
        order = VerifyRequest.parse(asked)
        for node, text in results.items():
            if order is None or node not in nodes:
                continue
            result, _, found = text.partition(" ")
            entry = VerifyResult(order.number, result, 1, 2, int(found or 0))
            bench.cluster.attribute(node, f"sanctl.verify.{name}", entry.published)

    bench.cluster._verify = told  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("told", "node", "result", "is_repaired"),
    [
        ({"n1": "interrupted"}, "n1", "interrupted", False),
        # It served when the verify began; who serves now has begun again, and ended.
        ({"n1": "same", "n2": "interrupted"}, "n1", "same", False),
        ({"n1": "differs 8", "n2": "repaired 8"}, "n1", "differs", True),
        ({"n1": "repaired 8", "n2": "interrupted"}, "n1", "repaired", True),
        # The standby had begun to repair.
        ({"n1": "differs 8", "n2": "interrupted 8"}, "n1", "differs", False),
    ],
)
def test_which_result_counts(
    told: dict[str, str], node: str, result: str, is_repaired: bool
) -> None:
    bench = Bench()
    bench.create()
    tells(bench, **told)
    done = verify_device(bench.session, VM1, is_repair=True, timeout_s=60)
    assert (done.node, done.verification.result) == (node, result)
    assert (done.repair is not None) is is_repaired


@pytest.mark.parametrize(
    "told",
    [
        # Another node serves now, and begins again.
        {"n2": "interrupted"},
        {"n1": "running", "n2": "interrupted"},
        # It was interrupted as it served; it repairs what the other one has found since.
        {"n1": "differs 8", "n2": "interrupted"},
    ],
)
def test_a_verify_goes_on_elsewhere(told: dict[str, str]) -> None:
    bench = Bench()
    bench.create()
    tells(bench, **told)
    with pytest.raises(NotConverged):
        verify_device(bench.session, VM1, is_repair=True, timeout_s=60)


@pytest.mark.parametrize(
    ("told", "is_found"),
    [
        ({"n1": "differs 8"}, True),
        ({"n1": "differs 8", "n2": "interrupted"}, True),
        ({"n1": "interrupted", "n2": "differs 8"}, True),
        ({"n1": "differs 8", "n2": "interrupted 8"}, True),
        ({"n1": "differs 8", "n2": "repairing 8"}, False),
        ({"n1": "differs 8", "n2": "repaired 8"}, False),
        ({"n1": "same", "n2": "interrupted"}, False),
    ],
)
def test_the_result_is_shown_whichever_node_was_interrupted(
    told: dict[str, str], is_found: bool
) -> None:
    bench = Bench()
    bench.create()
    tells(bench, **told)
    with contextlib.suppress(NotConverged):
        verify_device(bench.session, VM1, is_repair=False, timeout_s=60)
    assert ("SAN-HLT-039" in findings(bench)) is is_found
