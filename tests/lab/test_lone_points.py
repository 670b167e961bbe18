# SPDX-License-Identifier: GPL-2.0-or-later
"""Restore points of a device with one replica: DRBD 8.4 shows no protocol of it in /proc/drbd."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness.lab_session import LabSession

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME, CLONE = "lone0", "lone1"


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> Iterator[LabSession]:
    """Return a laboratory whose pools are XFS, with a device of one replica, on n1."""
    xfs_bed.sh(
        "n3",
        f"sanctl device create {NAME} --size 64M --replicas 1 --nodes n1 --yes",
        timeout_s=180,
    )
    yield xfs_bed
    for name in (CLONE, NAME):
        xfs_bed.sh(
            "n3", f"sanctl device delete {name} --yes --with-points", timeout_s=240, ok=range(256)
        )


def ask(bed: LabSession, command: str) -> Any:
    done = bed.sh("n3", f"sanctl {command} --output json", timeout_s=180, ok=range(256))
    assert done.status == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["data"]


def digest_of_data(bed: LabSession, name: str) -> str:
    data = f"$(ls /srv/sanctl/main/devices/{name}.*.data)"
    return bed.sh("n1", f"sha256sum < {data}", timeout_s=120).stdout.split()[0]


def test_a_restore_point_is_made_and_gone_back_to(bed: LabSession) -> None:
    """What broke: SAN-SNAP-005, 'DRBD says nothing of it', for each point, backup and clone."""
    gate = f"/dev/mapper/sanctl-{NAME}"
    fill = "dd if=/dev/urandom bs=1M count=8 oflag=direct conv=nocreat,notrunc,fsync status=none"
    bed.sh("n1", f"{fill} of={gate}", timeout_s=60)
    good = digest_of_data(bed, NAME)
    made = ask(bed, f"snapshot create {NAME} --name good")
    assert [each["node"] for each in made["nodes"]] == ["n1"]
    bed.sh("n1", f"{fill} of={gate}", timeout_s=60)
    assert digest_of_data(bed, NAME) != good
    ask(bed, f"device restore {NAME} --to good --yes")
    assert digest_of_data(bed, NAME) == good


def test_a_clone_with_one_replica_begins_where_the_point_is(bed: LabSession) -> None:
    ask(bed, f"device create {CLONE} --from {NAME}@good --replicas 1 --yes")
    assert digest_of_data(bed, CLONE) == digest_of_data(bed, NAME)
