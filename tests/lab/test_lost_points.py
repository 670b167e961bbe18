# SPDX-License-Identifier: GPL-2.0-or-later
"""Restore points whose files are gone from a node: the CIB counts on that node no more.

A pool that begins anew on a new disk, and a file that is missing for another reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import steps

pytestmark = pytest.mark.faults

NAME = "anew0"
PATH = "/srv/sanctl/main"
#: A monitor of the pool agent every ten seconds, on a busy machine.
MONITORS_S = 90.0


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    """Return a laboratory whose pools are XFS."""
    return xfs_bed


@pytest.fixture(scope="module")
def device(bed: LabSession) -> Iterator[str]:
    """A device that n1 serves, with a replica on n2."""
    scenario = Scenario(bed, Initiator(bed, "i1"))
    scenario.create(NAME, "64M", prefer="n1", nodes=("n1", "n2"))
    yield NAME
    bed.sh(
        "n3",
        f"sanctl device delete {NAME} --yes --accept SAN-DEV-023 --with-points",
        timeout_s=240,
        ok=(0, 4),
    )


def run(bed: LabSession, words: str, *, node: str = "n3", status: int = 0) -> Any:
    """Run a command; return its data, or the problems of one that is to fail."""
    done = bed.sh(node, f"sanctl {words} --output json", timeout_s=300, ok=range(256))
    assert done.status == status, done.stdout + done.stderr
    told = json.loads(done.stdout)
    return told["problems"] if status else told["data"]


def create(bed: LabSession, point: str) -> None:
    """Make a restore point; a busy machine may not make it within half a second."""

    def once() -> bool:
        words = f"sanctl snapshot create {NAME} --name {point} --output json"
        done = bed.sh("n3", words, timeout_s=120, ok=range(256))
        assert done.status == 0 or "SAN-SNAP-007" in done.stdout, done.stdout
        return done.status == 0

    wait_for(f"restore point {point}", once, within_s=240)


def nodes(bed: LabSession, point: str) -> list[str]:
    return [each["node"] for each in run(bed, f"snapshot show {NAME}@{point}")["nodes"]]


def await_in_sync(bed: LabSession) -> None:
    wait_for(
        "both replicas in sync",
        lambda: collect.is_in_sync(bed, "n1", NAME),
        within_s=240,
        every_s=2.0,
    )


def remove_file(bed: LabSession, node: str, point: str) -> None:
    file = run(bed, f"snapshot show {NAME}@{point}")["file"]
    bed.sh(node, f"test -f {file} && rm {file}")


def make_older(bed: LabSession, point: str) -> None:
    """Have the CIB say that a restore point was made an hour before it was."""
    name = f"sanctl-point.{NAME}.{point}"
    found = bed.sh("n3", f"cibadmin --query --xpath \"//nvpair[@id='{name}']\"").stdout
    words = found.partition('value="')[2].partition('"')[0].split(" ")
    words[3] = str(int(words[3]) - 3600)
    bed.sh(
        "n3",
        "cibadmin --modify --scope crm_config --xml-text '<cluster_property_set"
        f' id="sanctl.points"><nvpair id="{name}" name="{name}" value="{" ".join(words)}"/>'
        "</cluster_property_set>'",
    )


def lost(bed: LabSession) -> dict[str, str]:
    found = steps.findings(bed, "n3", "status")
    return {subject: what for subject, what in found.items() if "SAN-HLT-124" in subject}


@pytest.mark.usefixtures("device")
def test_a_pool_that_begins_anew_has_none_of_them(bed: LabSession) -> None:
    create(bed, "kept")
    assert nodes(bed, "kept") == ["n1", "n2"]
    bed.sh("n3", "sanctl node standby n2", timeout_s=240)
    bed.sh(
        "n2",
        f"disk=$(findmnt -n -o SOURCE {PATH}) && umount {PATH} && mkfs.xfs -q -f $disk"
        f" && mount {PATH} && mountpoint -q {PATH}",
        timeout_s=120,
    )
    assert nodes(bed, "kept") == ["n1", "n2"]
    done = run(bed, "pool prepare main --anew --yes", node="n2")["done"]
    assert any("restore points" in each and f"{NAME}@kept" in each for each in done), done
    assert nodes(bed, "kept") == ["n1"]
    # The last node that has it is not emptied, and keeps its replica.
    problems = run(bed, "pool prepare main --anew --yes", node="n1", status=4)
    assert "SAN-SNAP-014" in {each["code"] for each in problems}
    bed.sh("n3", "sanctl node online n2", timeout_s=400)
    await_in_sync(bed)
    problems = run(bed, f"device replicas {NAME} 1 --drop n1 --yes", status=4)
    assert "SAN-SNAP-014" in {each["code"] for each in problems}
    assert lost(bed) == {}
    create(bed, "later")
    assert nodes(bed, "later") == ["n1", "n2"]
    for point in ("kept", "later"):
        run(bed, f"snapshot delete {NAME}@{point} --yes")


@pytest.mark.usefixtures("device")
def test_a_file_that_is_gone_takes_its_node_off(bed: LabSession) -> None:
    await_in_sync(bed)
    for point in ("young", "old", "last"):
        create(bed, point)
    remove_file(bed, "n2", "young")
    remove_file(bed, "n2", "old")
    for node in ("n1", "n2"):
        remove_file(bed, node, "last")
    for point in ("old", "last"):
        make_older(bed, point)
    wait_for("n2 to be taken off", lambda: nodes(bed, "old") == ["n1"], within_s=MONITORS_S)
    wanted = {
        f"SAN-HLT-124 device {NAME}": f"{NAME}@last",
        "SAN-HLT-124 node n2": f"{NAME}@old",
    }
    wait_for(
        "both findings",
        lambda: {key: text.rpartition(": ")[2] for key, text in lost(bed).items()} == wanted,
        within_s=MONITORS_S,
        every_s=2.0,
    )
    assert nodes(bed, "young") == ["n1", "n2"], "it is not ten minutes old"
    assert len(nodes(bed, "last")) == 1, "only an operator forgets it"
    for point in ("young", "old", "last"):
        run(bed, f"snapshot delete {NAME}@{point} --yes")
    wait_for("no finding", lambda: lost(bed) == {}, within_s=MONITORS_S, every_s=2.0)


@pytest.mark.usefixtures("device")
def test_a_file_that_is_there_again_brings_its_node_back(bed: LabSession) -> None:
    """As where an older copy of the filesystem was mounted for a moment."""
    await_in_sync(bed)
    create(bed, "back")
    file, aside = run(bed, f"snapshot show {NAME}@back")["file"], f"{PATH}/aside"
    bed.sh("n2", f"mv {file} {aside}")
    make_older(bed, "back")
    wait_for("n2 to be taken off", lambda: nodes(bed, "back") == ["n1"], within_s=MONITORS_S)
    bed.sh("n2", f"mv {aside} {file}")
    wait_for("n2 to be back", lambda: nodes(bed, "back") == ["n1", "n2"], within_s=MONITORS_S)
    wait_for("no finding", lambda: lost(bed) == {}, within_s=MONITORS_S, every_s=2.0)
    run(bed, f"snapshot delete {NAME}@back --yes")
    wait_for(
        "the file to be removed",
        lambda: bed.sh("n2", f"test -e {file}", ok=(0, 1)).status == 1,
        within_s=MONITORS_S,
    )


@pytest.mark.usefixtures("device")
def test_a_file_goes_whose_point_was_deleted_without_its_node(bed: LabSession) -> None:
    """The named node finishes first, while the other one is away; nothing in the CIB tells then."""
    await_in_sync(bed)
    create(bed, "left")
    file, aside = run(bed, f"snapshot show {NAME}@left")["file"], f"{PATH}/aside"
    bed.sh("n2", f"mv {file} {aside}")
    make_older(bed, "left")
    wait_for("n2 to be taken off", lambda: nodes(bed, "left") == ["n1"], within_s=MONITORS_S)
    bed.sh("n3", "sanctl node standby n2", timeout_s=240)
    bed.sh("n2", f"mv {aside} {file}")
    run(bed, f"snapshot delete {NAME}@left --yes")
    assert run(bed, f"snapshot list {NAME}") == []
    bed.sh("n2", f"test -f {file}")
    bed.sh("n3", "sanctl node online n2", timeout_s=400)
    wait_for(
        "the file to be removed",
        lambda: bed.sh("n2", f"test -e {file}", ok=(0, 1)).status == 1,
        within_s=MONITORS_S,
    )
    await_in_sync(bed)


@pytest.mark.usefixtures("device")
def test_a_filesystem_that_the_pool_had_before_is_not_used(bed: LabSession) -> None:
    """It has the pool's marker and old replicas; what differs is the id alone."""
    await_in_sync(bed)
    bed.sh("n3", "sanctl node standby n2", timeout_s=240)
    bed.sh(
        "n2",
        "mkdir -p -m 700 /var/lib/sanctl/pools"
        f" && echo {'5' * 32} >/var/lib/sanctl/pools/$(cat {PATH}/.sanctl-pool).filesystem"
        f" && rm -f {PATH}/.sanctl-filesystem && sync",
    )
    bed.sh("n3", "sanctl node online n2 --timeout 1", timeout_s=60, ok=range(256))
    wait_for(
        "n2's pool to be refused",
        lambda: any(
            "SAN-HLT-061" in subject and "SAN-POOL-033" in what
            for subject, what in steps.findings(bed, "n3", "status").items()
        ),
        within_s=MONITORS_S,
        every_s=2.0,
    )
    assert bed.sh("n2", f"losetup --list | grep -c {PATH}/devices", ok=(0, 1)).stdout == "0\n"
    bed.sh("n3", "sanctl node standby n2", timeout_s=240)
    done = run(bed, "pool prepare main --accept SAN-POOL-033 --yes", node="n2")["done"]
    assert any("suspect" in each for each in done), done
    bed.sh("n3", "sanctl node online n2", timeout_s=400)
    await_in_sync(bed)
    log = bed.sh("n2", "journalctl --boot --no-pager SANCTL_ACTION=fs-shutdown").stdout
    assert "its replicas may lack writes and get all data again" in log


@pytest.mark.usefixtures("device")
def test_a_restore_without_its_file_is_given_up(bed: LabSession) -> None:
    """It kept hosts out for good."""
    await_in_sync(bed)
    active = collect.active_node(bed, NAME)
    create(bed, "gone")
    remove_file(bed, active, "gone")
    problems = run(bed, f"device restore {NAME} --to gone --no-keep --yes", status=5)
    assert problems[0]["code"] == "SAN-REST-002", problems
    assert run(bed, f"device show {NAME}")["restore"] is None
    entries = f"cd /sys/kernel/config/target/iscsi/*.{NAME} && ls tpgt_*/acls"
    wait_for("hosts to be let in", lambda: "iqn" in bed.sh(active, entries).stdout, within_s=60)
    run(bed, f"snapshot delete {NAME}@gone --yes")
