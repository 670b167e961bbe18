# SPDX-License-Identifier: GPL-2.0-or-later
"""Power lost on all nodes in write-back: no node serves until an operator names the replica.

The row of docs/explanation/cache.md for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario

pytestmark = pytest.mark.faults

NAME = "power0"
MIB = 2**20
PATTERN_AT_MIB, PATTERN_MIB = 100, 8
BACK_DEADLINE_S = 400.0


@pytest.fixture(scope="module")
def device(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """The target, and its path on the host."""
    target = scenario.create(NAME, "128M", prefer="n1")
    yield target, scenario.host.login(target, scenario.portals())
    scenario.delete(NAME)


def set_cache(bed: LabSession, mode: str) -> None:
    """Return when both replicas are in a mode; asked where no replica is."""
    bed.sh("n3", f"sanctl device cache {NAME} {mode}", timeout_s=150)

    def reached() -> bool:
        reported = bed.sh("n3", f"sanctl device show {NAME} --output json", timeout_s=60).stdout
        return {one["cache"]["mode"] for one in json.loads(reported)["data"]["replicas"]} == {mode}

    wait_for(f"both replicas in {mode}", reached, within_s=150, every_s=2.0)


def cut_all(bed: LabSession) -> None:
    """Cut the power of all storage nodes, the one that serves last, and give it back."""
    active = collect.active_node(bed, NAME)
    for name in sorted((node.name for node in bed.storage), key=lambda name: name == active):
        bed.cut_power(name)
    for node in bed.storage:
        bed.ensure_power(node.name)


def test_write_back_waits_for_an_operator_and_has_what_was_flushed(
    scenario: Scenario, device: tuple[str, str]
) -> None:
    bed, host = scenario.bed, scenario.host
    set_cache(bed, "write-back")
    active = collect.active_node(bed, NAME)
    content = f"yes flushed | head -c {PATTERN_MIB * MIB}"
    host.sh(
        f"{content} | dd of={device[1]} bs=1M seek={PATTERN_AT_MIB} oflag=direct"
        " iflag=fullblock conv=notrunc,fsync",
        timeout_s=120,
    )
    cut_all(bed)

    def blocked() -> dict[str, Any] | None:
        text = bed.sh("n3", f"sanctl device heal {NAME} --output json", ok=range(256)).stdout
        reported = json.loads(text)["data"]
        if not reported or reported["condition"] != "blocked":
            return None
        known = (replica["suspect"] and replica["generation"] for replica in reported["copies"])
        return dict(reported) if all(known) else None

    shown = wait_for("both replicas to be suspect", blocked, within_s=BACK_DEADLINE_S, every_s=5.0)
    assert [replica["node"] for replica in shown["copies"] if replica["served_last"]] == [active]
    assert not any(replica["serves"] for replica in shown["copies"])
    bed.sh("n3", f"sanctl device heal {NAME} --keep {active} --yes", timeout_s=240)
    assert collect.active_node(bed, NAME) == active
    wait_for(
        "the other replica to be filled",
        lambda: collect.is_in_sync(bed, active, NAME),
        within_s=BACK_DEADLINE_S,
        every_s=3.0,
    )
    read = host.sh(
        f"dd if={device[1]} bs=1M skip={PATTERN_AT_MIB} count={PATTERN_MIB} iflag=direct"
        " 2>/dev/null | sha256sum",
        timeout_s=120,
    )
    assert read == host.sh(f"{content} | sha256sum")
