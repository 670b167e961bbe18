# SPDX-License-Identifier: GPL-2.0-or-later
"""Marks of replicas that have every write do not outlive the moment they are needed.

Every replica of a device is marked: the device is served again by itself. Two plain power cuts led
there, and the device stayed down until an operator healed it. One is marked that has been filled
since: a promotion clears that mark before hosts write.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.measure import kernel_audit
from sanctl.model.outdated_mark import mark_attributes

NAME = "marks2"
HOLD = f"crm_resource --resource sanctl-{NAME} --meta {{does}}"


@pytest.fixture(scope="module")
def device(scenario: Scenario) -> Iterator[str]:
    scenario.create(NAME, "64M", prefer="n1")
    yield NAME
    # Pacemaker takes the first of two sets that name a target-role: ours, or that of the test.
    scenario.bed.sh("n3", HOLD.format(does="--delete-parameter target-role"), ok=range(256))
    scenario.delete(NAME)


def active(bed: LabSession) -> list[str]:
    return kernel_audit.active_nodes(collect.kernel_views(bed), NAME)


def marks(bed: LabSession) -> int:
    mark = f"(name=.sanctl-outdated-{NAME}.|id=.sanctl-outdated-{NAME}[.])"
    found = bed.sh("n3", f"cibadmin --query | grep -cE '{mark}'", ok=(0, 1))
    return int(found.stdout.strip() or 0)


def in_sync(bed: LabSession, node: str) -> bool:
    """Whether a node, which may boot still, is in sync with the other one."""
    up = bed.sh(node, f"drbdsetup events2 --now {NAME}", ok=range(256))
    return up.status == 0 and collect.is_in_sync(bed, node, NAME)


@pytest.mark.quick
def test_all_replicas_are_marked_and_none_is_primary(scenario: Scenario, device: str) -> None:
    bed = scenario.bed
    # Either: just after a rollout the preferred one may not have published yet that it is reached.
    wait_for("a node to serve", lambda: len(active(bed)) == 1, within_s=60)
    uuid = bed.sh(
        "n3", f"crm_resource --resource {device} --get-parameter uuid"
    ).stdout.split()[-1]  # fmt: skip
    held = "--set-parameter target-role --parameter-value Unpromoted"
    bed.sh("n3", HOLD.format(does=held))
    wait_for("nobody to serve", lambda: active(bed) == [], within_s=60)
    # One mark as releases before 0.1.0 have written it: both forms count, and both go.
    bed.sh("n3", f"crm_attribute --node n1 --name sanctl-outdated-{device} --update {uuid}")
    attributes = " ".join(
        f'{key}="{value}"' for key, value in mark_attributes(device, "n2", uuid).items()
    )
    bed.sh(
        "n3",
        "cibadmin --modify --allow-create --scope constraints --xml-pipe",
        stdin=f"<constraints><rsc_location {attributes}/></constraints>",
    )
    bed.sh("n3", HOLD.format(does="--delete-parameter target-role"))
    wait_for("one to serve", lambda: len(active(bed)) == 1, within_s=90)
    assert kernel_audit.violations(collect.kernel_views(bed)) == []
    wait_for("no mark to be left", lambda: not marks(bed), within_s=120)
    logged = "journalctl -q -o cat SANCTL_ACTION=unmark"
    assert any(device in bed.sh(node.name, logged).stdout for node in bed.storage)
    assert bed.sh("n3", f"sanctl device heal {device}").status == 0


def test_a_standby_that_was_filled_is_marked_no_more_before_hosts_write(
    scenario: Scenario, device: str
) -> None:
    """What broke: the node that served was lost again, and the standby could not be promoted.

    Then that node was back, was the source of the resync, and its disk lacked what was acknowledged
    right before.
    """
    bed, host = scenario.bed, scenario.host
    wait_for("a node to serve", lambda: len(active(bed)) == 1, within_s=60)
    [serves] = active(bed)
    standby = next(node.name for node in bed.storage if node.name != serves)
    target = f"{scenario.iqn_prefix()}.{device}"
    path = host.login(target, scenario.portals())
    host.sh(f"dd if=/dev/urandom of={path} bs=4096 count=1 oflag=direct conv=notrunc,fsync")
    host.logout(target)
    began_s = bed.cut_power(serves)
    bed.cut_power(standby)
    # Of what n3 knows: nobody is promoted before both have met.
    held = "--set-parameter target-role --parameter-value Unpromoted"
    bed.sh("n3", HOLD.format(does=held))
    for node in (serves, standby):
        bed.ensure_power(node)
    wait_for("both in sync", lambda: in_sync(bed, serves), within_s=240)
    assert marks(bed) == 1, "the target of the resync is marked"
    bed.sh("n3", HOLD.format(does="--delete-parameter target-role"))
    wait_for("a node to serve", lambda: len(active(bed)) == 1, within_s=90)
    assert active(bed) == [serves], "the one that crashed as Primary is the source"
    log = collect.journals(bed, [serves], began_s)
    steps = [
        entry.step
        for entry in sorted(log, key=lambda each: each.at_s)
        if (entry.device, entry.action) == (device, "promote")
    ]
    print(f"  {steps}")
    assert steps[:3] == ["primary", "marks", "gate"]
    wait_for("no mark to be left", lambda: not marks(bed), within_s=60)
