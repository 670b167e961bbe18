# SPDX-License-Identifier: GPL-2.0-or-later
"""While monitors are short for minutes, the pool agent sees what the CIB has lost, or has too much.

A score that is gone and a mark that nobody clears keep a standby from taking over. Neither changes
anything that a short monitor reads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sanctl.lab.harness.failover import await_healthy
from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.model.outdated_mark import mark_attributes

NAME = "seen0"
ACTIVE, STANDBY, WITNESS = "n1", "n2", "n3"
#: A period, the start of another one, and some monitors.
_SHORT_WITHIN_S = 180.0
#: Two monitors, of the pools and of the device, each eleven seconds at most; a busy machine.
_RIGHT_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def device(scenario: Scenario) -> Iterator[Scenario]:
    """A device that n1 serves, in sync with n2."""
    scenario.create(NAME, "64M", prefer=ACTIVE, nodes=(ACTIVE, STANDBY))
    try:
        await_healthy(scenario.bed, ACTIVE)
        yield scenario
    finally:
        scenario.delete(NAME)


def fingerprint(scenario: Scenario, node: str) -> tuple[str, float]:
    """Return what tells one fingerprint from another, and how long it holds; empty without one."""
    folder = f"/run/sanctl/devices/{NAME}"
    found = scenario.bed.sh(
        node,
        f"stat -c %i:%y {folder}/fingerprint && head -n 1 {folder}/fingerprint && cat /proc/uptime",
        ok=range(256),
    )
    if found.status != 0:
        return "", 0.0
    identity, until, uptime = found.stdout.splitlines()
    until_s = float(bytes.fromhex(until.split()[1]).decode())
    return identity, until_s - float(uptime.split()[0])


def await_long_one(scenario: Scenario, node: str) -> str:
    """Wait for a fingerprint that outlives what is awaited next, and that is of some time ago.

    What was published is expected in the CIB half a minute later.
    """

    def found() -> str:
        identity, left_s = fingerprint(scenario, node)
        age = f"expr $(date +%s) - $(stat -c %Y /run/sanctl/devices/{NAME}/attrd-cache.score)"
        age_s = int(scenario.bed.sh(node, age, ok=range(256)).stdout.strip() or 0)
        return identity if left_s > 35 and age_s > 35 else ""

    return wait_for(f"a short monitor on {node} for some time", found, within_s=_SHORT_WITHIN_S)


def score(scenario: Scenario) -> str:
    xpath = f"//node_state[@uname='{STANDBY}']/transient_attributes//nvpair[@name='master-{NAME}']"
    found = scenario.bed.sh(WITNESS, f'cibadmin --query --xpath "{xpath}"', ok=range(256))
    _, _, value = found.stdout.partition('value="')
    return value.partition('"')[0]


def has_mark(scenario: Scenario) -> bool:
    xpath = f"//rsc_location[starts-with(@id,'sanctl-outdated-{NAME}.')]"
    found = scenario.bed.sh(WITNESS, f'cibadmin --query --xpath "{xpath}"', ok=range(256))
    return found.status == 0


def test_a_lost_score_is_published_again(device: Scenario) -> None:
    bed = device.bed
    before = await_long_one(device, STANDBY)
    published = score(device)
    assert published
    bed.sh(STANDBY, f"attrd_updater --name master-{NAME} --delete")
    wait_for("the CIB without it", lambda: not score(device), within_s=20)
    # Nothing that its client reads has changed: it is the pool agent that removes it.
    assert fingerprint(device, STANDBY)[0] in {before, ""}
    begin = time.monotonic()
    wait_for("the score", lambda: score(device) == published, within_s=_RIGHT_WITHIN_S)
    print(f"published again after {time.monotonic() - begin:.0f} s")
    wait_for(
        "a short monitor again",
        lambda: fingerprint(device, STANDBY)[0] not in {"", before},
        within_s=_RIGHT_WITHIN_S,
    )


def test_a_mark_of_a_peer_in_sync_is_cleared(device: Scenario) -> None:
    """As one that stays after a connection that was lost and made again between two monitors."""
    bed = device.bed
    before = await_long_one(device, ACTIVE)
    uuid = bed.sh(WITNESS, f"crm_resource --resource {NAME} --get-parameter uuid").stdout.split()[
        -1
    ]
    attributes = " ".join(
        f'{key}="{value}"' for key, value in mark_attributes(NAME, STANDBY, uuid).items()
    )
    begin = time.monotonic()
    bed.sh(
        WITNESS,
        "cibadmin --modify --allow-create --scope constraints --xml-pipe",
        stdin=f"<constraints><rsc_location {attributes}/></constraints>",
    )
    assert fingerprint(device, ACTIVE)[0] in {before, ""}
    wait_for("no mark", lambda: not has_mark(device), within_s=_RIGHT_WITHIN_S)
    print(f"cleared after {time.monotonic() - begin:.0f} s")
    wait_for(
        "a short monitor again",
        lambda: fingerprint(device, ACTIVE)[0] not in {"", before},
        within_s=_RIGHT_WITHIN_S,
    )
