# SPDX-License-Identifier: GPL-2.0-or-later
"""One device's resource file, whatever lies beside it: drbdadm is asked about that one alone.

Its neighbours' files may be in the middle of a change, and there may be more of them than drbdadm
for DRBD 8.4 can hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import Bed, wait_for
from sanctl.lab.harness.scenario import Scene
from sanctl.lab.measure import audit

NAME = "amid"
FOLDER = "/run/sanctl/drbd.d"
CONFIGURATION = f"--config-file {FOLDER}/{NAME}.conf"


@pytest.fixture
def amid_what_cannot_be_read(scene: Scene) -> Iterator[Bed]:
    """Storage nodes on which drbdadm by itself fails, whatever it is asked about."""
    bed = scene.bed
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
        if scene.exists(NAME):
            scene.delete(NAME)


def test_a_life_beside_a_file_that_cannot_be_read(
    scene: Scene, amid_what_cannot_be_read: Bed
) -> None:
    """Created, parted, resynced, moved and deleted: by the agents, and by the kernel's handlers."""
    bed = amid_what_cannot_be_read
    first, second = (node.name for node in bed.storage[:2])
    scene.create(NAME, "64M", prefer=first)
    assert bed.sh(first, "drbdadm dump all", ok=range(256)).status == 10
    # As a broken link: who serves is frozen until its handler has let it go on.
    bed.sh(second, f"drbdadm {CONFIGURATION} disconnect --force {NAME}")
    bed.sh(
        first,
        f"dd if=/dev/urandom of=/dev/mapper/sanctl-{NAME} bs=1M count=4 oflag=direct conv=nocreat",
        timeout_s=60,
    )
    told = f"journalctl -o cat SANCTL_ACTION=fence-peer SANCTL_DEVICE={NAME}"

    def has_told() -> bool:
        return bool(bed.sh(first, told).stdout.strip())

    wait_for("the handler's word", has_told, within_s=30)
    # The monitor's and the handlers' way back.
    bed.sh(second, f"drbdadm {CONFIGURATION} adjust {NAME}")
    wait_for("the copies", lambda: collect.in_sync(bed, first, NAME), within_s=60)
    scene.sanctl("device", "move", NAME, "--to", second, timeout_s=90)
    assert collect.active_node(bed, NAME) == second
    assert audit.violations(collect.views(bed)) == []
    shown = json.loads(scene.sanctl("device", "show", NAME, "--output", "json"))
    assert shown["data"]["state"] == "ok"
    scene.delete(NAME)
    for node in (first, second):
        assert NAME not in bed.sh(node, f"ls {FOLDER}").stdout
