"""Having the replicas of a device compared."""

from __future__ import annotations

import pytest

from sanctl.errors import Refused
from sanctl.model.names import DeviceName
from sanctl.ops.verify import verify_device
from sanctl.plan.device_health import device_findings
from tests.unit.ops.test_device import Bench, codes

VM1 = DeviceName.parse("vm1")


def findings(bench: Bench) -> list[str]:
    cluster = bench.session.observe()
    return [finding.code for finding in device_findings(cluster, cluster.cib.devices[0])]


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


def test_a_repair_ends_when_all_copies_are_known_to_be_in_sync() -> None:
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


def test_no_verify_without_both_replicas() -> None:
    bench = Bench()
    bench.create()
    bench.cluster.crash("n2")
    with pytest.raises(Refused) as caught:
        verify_device(bench.session, VM1, is_repair=False, timeout_s=60)
    assert "SAN-DEV-013" in codes(caught.value)


def test_a_node_tells_what_runs_there() -> None:
    bench = Bench()
    bench.cluster.whispers["n2", "sanctl.sync"] = "vm1,fast,for+vm2,10,20,0,5;odd"
    ((node, running),) = bench.session.running()
    assert (node, running.device, running.waits) == ("n2", "vm1", "for vm2")
