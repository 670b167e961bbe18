# SPDX-License-Identifier: GPL-2.0-or-later
"""A schedule of restore points, one a minute: on whatever node serves, none twice, pruned."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import ledgers, steps

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME = "sched0"
#: Two slots of a minute, and attempts that a busy machine fails in between.
WITHIN_S = 240.0
KEEP = 2
_MADE = re.compile(r"restore point (auto-\S+) on ")


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    """Return a laboratory whose pools are XFS."""
    return xfs_bed


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    from sanctl.lab.harness.initiator import Initiator  # noqa: PLC0415

    return Scenario(bed, Initiator(bed, "i1"))


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    load = ledgers.start_on_new_device(scenario, NAME, "128M", rate=50.0, region_bytes=4 << 20)
    yield load
    ledgers.stop(load)
    load.host.logout(load.target)
    scenario.bed.sh(
        "n3", f"sanctl device delete {NAME} --yes --accept SAN-DEV-023 --with-points", timeout_s=240
    )


def sanctl(bed: LabSession, words: str, *, status: int = 0) -> Any:
    done = bed.sh("n3", f"sanctl {words} --output json", timeout_s=120, ok=range(256))
    found = json.loads(done.stdout)
    assert done.status == status, done.stdout + done.stderr
    return found["problems"] if status else found["data"]


def points(bed: LabSession) -> list[dict[str, Any]]:
    """Return the points that the schedule has made and keeps, the oldest first."""
    listed = sanctl(bed, f"snapshot list {NAME}")
    return [each for each in listed if each["scheduled"] and not each["deleting"]]


def await_next(bed: LabSession, *nodes: str) -> dict[str, Any]:
    """Wait for a point that is made from now on, on these nodes; return it."""
    before = {each["name"] for each in points(bed)}
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        found[:] = [
            each
            for each in points(bed)
            if each["name"] not in before and [on["node"] for on in each["nodes"]] == list(nodes)
        ]
        return bool(found)

    wait_for(f"a restore point on {', '.join(nodes)}", is_there, within_s=WITHIN_S)
    print(f"  {found[-1]['name']}: {found[-1]['made']}, held {found[-1]['pause_ms']} ms")
    return found[-1]


def made_on(bed: LabSession, node: str) -> list[str]:
    """Return the names of the points that a node has made since it runs."""
    text = bed.sh(node, f"journalctl -b -o cat SANCTL_DEVICE={NAME} SANCTL_ACTION=snapshot").stdout
    return _MADE.findall(text)


def test_a_schedule_that_cannot_be_kept_is_refused(scenario: Scenario, load: LedgerLoad) -> None:
    bed = scenario.bed
    del load
    for text, status, code in (
        ("every now and then", 2, "SAN-SCHED-001"),
        ("1m keep 0", 2, "SAN-SCHED-002"),
        ("1h keep 3, 60m keep 4", 2, "SAN-SCHED-002"),
        ("1m keep 64", 4, "SAN-SCHED-003"),
    ):
        (problem,) = sanctl(bed, f"snapshot schedule {NAME} '{text}'", status=status)
        assert problem["code"] == code, text
    assert sanctl(bed, f"snapshot schedule {NAME}")["schedule"] is None
    (problem,) = sanctl(bed, f"snapshot prune {NAME}", status=4)
    assert problem["code"] == "SAN-SCHED-005"


def test_the_serving_node_makes_points(scenario: Scenario, load: LedgerLoad) -> None:
    bed = scenario.bed
    steps.await_writes(load)
    steps.take_point(bed, "n3", NAME, "mine")
    given = sanctl(bed, f"snapshot schedule {NAME} '*/1m keep {KEEP}, 4w keep 1'")
    assert given["changed"] and given["schedule"]["text"] == f"1m keep {KEEP}, 4w keep 1"
    first = await_next(bed, "n1", "n2")
    assert first["scheduled"] == ["1m", "4w"]
    second = await_next(bed, "n1", "n2")
    assert second["scheduled"] == ["1m"]
    assert {first["name"], second["name"]} <= set(made_on(bed, "n1"))
    assert made_on(bed, "n2") == []
    shown = sanctl(bed, f"device show {NAME}")["schedule"]
    assert shown["last"] >= second["made"] and not any(rule["late"] for rule in shown["rules"])


def test_it_goes_on_after_a_move(scenario: Scenario, load: LedgerLoad) -> None:
    bed = scenario.bed
    bed.sh("n3", f"sanctl device move {NAME} --to n2", timeout_s=180)
    steps.await_writes(load)
    assert await_next(bed, "n1", "n2")["name"] in made_on(bed, "n2")


def test_what_is_beyond_the_rules_goes_and_nothing_else(
    scenario: Scenario, load: LedgerLoad
) -> None:
    bed = scenario.bed
    del load

    def is_pruned() -> bool:
        found = points(bed)
        # The newest of a minute, and the one of four weeks, which is the first.
        return len(found) == KEEP + 1 and found[0]["scheduled"] == ["1m", "4w"]

    wait_for("the points beyond the rules to go", is_pruned, within_s=WITHIN_S)
    assert "mine" in {each["name"] for each in sanctl(bed, f"snapshot list {NAME}")}
    files = {each["file"] for each in sanctl(bed, f"snapshot list {NAME}") if not each["deleting"]}
    for node in ("n1", "n2"):
        for file in files:
            bed.sh(node, f"test -f {file}")


def test_it_goes_on_after_the_power_cut_of_the_node_that_served(
    scenario: Scenario, load: LedgerLoad
) -> None:
    bed = scenario.bed
    before = made_on(bed, "n1") + made_on(bed, "n2")
    assert collect.active_node(bed, NAME) == "n2"
    bed.cut_power("n2")
    try:
        wait_for(
            "n1 to serve",
            lambda: bed.sh("n1", f"drbdadm role {NAME}").stdout.startswith("Primary"),
            within_s=240,
        )
        steps.await_writes(load)
        await_next(bed, "n1")
    finally:
        bed.ensure_power("n2")
    failover.await_healthy(bed, "n3")
    await_next(bed, "n1", "n2")
    # None was made twice, by whichever nodes.
    made = Counter(before + [name for name in made_on(bed, "n1") if name not in before])
    made.update(made_on(bed, "n2"))
    assert max(made.values()) == 1, made
    assert len(made) >= 5


def test_without_a_schedule_nothing_is_made_or_removed(
    scenario: Scenario, load: LedgerLoad
) -> None:
    bed = scenario.bed
    del load
    assert sanctl(bed, f"snapshot schedule {NAME} off")["schedule"] is None
    left = {each["name"] for each in points(bed)}
    (problem,) = sanctl(bed, f"snapshot prune {NAME}", status=4)
    assert problem["code"] == "SAN-SCHED-005"
    assert left and {each["name"] for each in points(bed)} >= left
    late = [key for key in steps.findings(bed, "n3", "status") if key.startswith("SAN-HLT-098")]
    assert late == []


@pytest.mark.concludes
def test_nothing_was_lost(load: LedgerLoad) -> None:
    ledgers.assert_nothing_lost(load)
