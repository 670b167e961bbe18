# SPDX-License-Identifier: GPL-2.0-or-later
"""Having the replicas of a device compared."""

from __future__ import annotations

import contextlib

import pytest

from sanctl.errors import NotConverged, Refused
from sanctl.model.names import DeviceName, NodeName
from sanctl.model.verify_result import VerifyRecord, VerifyRequest, VerifyResult
from sanctl.ops.device_sync import change_sync_policy
from sanctl.ops.device_verify import verify_device
from sanctl.plan.health.device_health import device_findings
from tests.unit.ops.test_device import Bench, codes

VM1 = DeviceName.parse("vm1")


def findings(bench: Bench, *, now_s: float = 0.0) -> list[str]:
    cluster = bench.session.observe()
    return [each.code for each in device_findings(cluster, cluster.cib.devices[0], now_s=now_s)]


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


@pytest.mark.parametrize("later", ["running", "interrupted", "same", "repaired", "repairing"])
def test_what_a_verify_has_found_stays_until_a_later_one_ends(later: str) -> None:
    """The verify by schedule a week later is broken off, say, and nobody had looked before."""
    bench = Bench()
    bench.create()
    found = VerifyRecord(0, VerifyResult(5, "differs", 6, 7, 8))
    bench.cluster.attribute("n1", "sanctl.verified.vm1", str(found))
    latest = VerifyResult(9, later, 9, 0, 8 if later.startswith("repair") else 0)
    bench.cluster.attribute("n2", "sanctl.verify.vm1", latest.published)
    assert ("SAN-HLT-039" in findings(bench)) is (later in {"running", "interrupted"})
    interrupted_repair = VerifyResult(9, "interrupted", 9, 11, 8)
    bench.cluster.attribute("n2", "sanctl.verify.vm1", interrupted_repair.published)
    assert "SAN-HLT-039" in findings(bench)


def test_a_schedule_by_which_no_verify_ends_is_found() -> None:
    bench = Bench()
    bench.create()
    week_s = 7 * 86400
    late_s = 1000.0 + 2 * week_s + 1
    bench.cluster.attribute("n1", "sanctl.verified.vm1", str(VerifyRecord(1000, None)))
    assert "SAN-HLT-136" not in findings(bench, now_s=late_s), "there is no schedule"
    change_sync_policy(bench.session, VM1, {"verify": "sun@03"}, drbd_version="8.4.11", timeout_s=9)
    assert "SAN-HLT-136" in findings(bench, now_s=late_s)
    assert "SAN-HLT-136" not in findings(bench, now_s=late_s - 1)
    interrupted = VerifyResult(9, "interrupted", 3000, 4000)
    bench.cluster.attribute("n1", "sanctl.verify.vm1", interrupted.published)
    assert "SAN-HLT-136" in findings(bench, now_s=late_s), "that one came to no end"
    before = VerifyRecord(1000, VerifyResult(8, "same", 1900, 2000))
    bench.cluster.attribute("n2", "sanctl.verified.vm1", str(before))
    assert "SAN-HLT-136" not in findings(bench, now_s=late_s)
    assert "SAN-HLT-136" in findings(bench, now_s=late_s + 1000)
    change_sync_policy(bench.session, VM1, {"verify": "daily@03"}, drbd_version="8", timeout_s=9)
    assert "SAN-HLT-136" in findings(bench, now_s=2000 + 2 * 86400 + 1)


def test_a_schedule_by_which_none_ends_is_not_looked_for_while_a_node_is_silent() -> None:
    """A node that is stopped takes back what it published: its verifies may be the newest."""
    bench = Bench()
    bench.create()
    late_s = 1000.0 + 14 * 86400 + 1
    change_sync_policy(bench.session, VM1, {"verify": "sun@03"}, drbd_version="8.4.11", timeout_s=9)
    bench.cluster.attribute("n1", "sanctl.verified.vm1", str(VerifyRecord(1000, None)))
    assert "SAN-HLT-136" in findings(bench, now_s=late_s)
    bench.cluster.crash("n2")
    assert bench.session.observe().replica(VM1, NodeName.parse("n2")).disk is None
    assert "SAN-HLT-136" not in findings(bench, now_s=late_s)


def test_a_schedule_that_was_set_today_has_its_two_intervals() -> None:
    """Whatever the age of the verify that somebody ordered by hand before."""
    bench = Bench()
    bench.create()
    today_s = 1000.0 + 120 * 86400
    change_sync_policy(bench.session, VM1, {"verify": "sun@03"}, drbd_version="8.4.11", timeout_s=9)
    by_hand = VerifyResult(990, "same", 995, 1000)
    bench.cluster.attribute("n1", "sanctl.verify.vm1", by_hand.published)
    bench.cluster.attribute("n1", "sanctl.verified.vm1", str(VerifyRecord(0, by_hand)))
    assert "SAN-HLT-136" in findings(bench, now_s=today_s), "as an agent that notes nothing has it"
    noted = VerifyRecord(int(today_s), by_hand)
    bench.cluster.attribute("n1", "sanctl.verified.vm1", str(noted))
    assert "SAN-HLT-136" not in findings(bench, now_s=today_s + 60)
    assert "SAN-HLT-136" not in findings(bench, now_s=today_s + 14 * 86400)
    assert "SAN-HLT-136" in findings(bench, now_s=today_s + 14 * 86400 + 1)


def test_a_record_is_read_as_it_was_written() -> None:
    result = VerifyResult(8, "differs", 1900, 2000, 4, ("0+4096",))
    for record in (VerifyRecord(7, None), VerifyRecord(0, result._replace(ranges=()))):
        assert VerifyRecord.parse(str(record)) == record
    assert VerifyRecord.parse(str(VerifyRecord(0, result))) == VerifyRecord(
        0, result._replace(ranges=())
    )
    for text in ("", "7", "x@", "7@8,differs", "@"):
        assert VerifyRecord.parse(text) is None


def test_a_result_of_a_clock_that_was_ahead_hides_no_later_one() -> None:
    """What broke: differences that a verify had found were not shown for as long."""
    bench = Bench()
    bench.create()
    now_s = 1_800_000_000
    for node, order, result in (("n1", now_s, "differs"), ("n2", now_s + 10**6, "same")):
        entry = VerifyResult(order, result, 1, 2, 8)
        bench.cluster.attribute(node, "sanctl.verify.vm1", entry.published)
    cluster = bench.session.observe()
    for at_s, is_found in ((now_s + 5, True), (now_s + 10**6, False)):
        found = device_findings(cluster, cluster.cib.devices[0], now_s=float(at_s))
        assert ("SAN-HLT-039" in [each.code for each in found]) is is_found
