# SPDX-License-Identifier: GPL-2.0-or-later
"""drbdadm with one device's resource file alone, beside files that cannot be parsed.

Its neighbours' files may be in the middle of a change, and there may be more of them than drbdadm
for DRBD 8.4 can hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.measure import kernel_audit
from sanctl.model.outdated_mark import PREFIX

NAME = "amid"
FOLDER = "/run/sanctl/drbd.d"
CONFIGURATION = f"--config-file {FOLDER}/{NAME}.conf"


@pytest.fixture
def amid_what_cannot_be_read(scenario: Scenario) -> Iterator[LabSession]:
    """Storage nodes on which drbdadm by itself fails, whatever it is asked about."""
    bed = scenario.bed
    nodes = [node.name for node in bed.storage]
    broken = f"{FOLDER}/broken.res"
    text = "resource broken { nothing of drbd.conf; }"
    for node in nodes:
        bed.sh(node, f"mkdir -p -m 700 {FOLDER} && echo '{text}' >{broken}")
    try:
        yield bed
    finally:
        for node in nodes:
            bed.sh(node, f"rm -f {broken}")
        if scenario.exists(NAME):
            scenario.delete(NAME)


def test_a_life_beside_a_file_that_cannot_be_read(
    scenario: Scenario, amid_what_cannot_be_read: LabSession
) -> None:
    """Created, parted, resynced, moved and deleted: by the agents, and by the kernel's handlers."""
    bed = amid_what_cannot_be_read
    first, second = (node.name for node in bed.storage[:2])
    scenario.create(NAME, "64M", prefer=first)
    assert bed.sh(first, "drbdadm dump all", ok=range(256)).status == 10
    # As a broken link: the Primary is frozen until its fence-peer handler has returned.
    bed.sh(second, f"drbdadm {CONFIGURATION} disconnect --force {NAME}")
    bed.sh(
        first,
        f"dd if=/dev/urandom of=/dev/mapper/sanctl-{NAME} bs=1M count=4 oflag=direct conv=nocreat",
        timeout_s=60,
    )
    reported = f"journalctl -o cat SANCTL_ACTION=fence-peer SANCTL_DEVICE={NAME}"

    def has_told() -> bool:
        return bool(bed.sh(first, reported).stdout.strip())

    def is_unmarked() -> bool:
        constraints = bed.sh(first, "cibadmin --query --scope constraints").stdout
        return f'<rsc_location id="{PREFIX}{NAME}.{second}.' not in constraints

    wait_for("the handler's journal line", has_told, within_s=30)
    # As the agents do it, with the one file.
    bed.sh(second, f"drbdadm {CONFIGURATION} adjust {NAME}")
    wait_for("the replicas", lambda: collect.is_in_sync(bed, first, NAME), within_s=60)
    # The mark from before the resync goes a moment after it; until then a move is refused.
    wait_for("the end of the mark", is_unmarked, within_s=60)
    scenario.sanctl("device", "move", NAME, "--to", second, timeout_s=90)
    assert collect.active_node(bed, NAME) == second
    assert kernel_audit.violations(collect.kernel_views(bed)) == []
    shown = json.loads(scenario.sanctl("device", "show", NAME, "--output", "json"))
    assert shown["data"]["state"] == "ok"
    scenario.delete(NAME)
    for node in (first, second):
        assert NAME not in bed.sh(node, f"ls {FOLDER}").stdout
