# SPDX-License-Identifier: GPL-2.0-or-later
"""Copies of two devices at a second site are of one moment, while a host writes to both in turn.

The host writes a number to the first device, then to the second, then the next number: copies of
one moment have the same number, or the first device's is one higher.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.lab.test_point_groups import _READ, _WRITE
from tests.support import second_site
from tests.support.second_site import PATH, SERVER, SITE, sanctl, state

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

LOG, DATA = "log0", "data0"
NAMES, MADE = (LOG, DATA), (f"{LOG}-dr", f"{DATA}-dr")
NODES = ("n1", "n2")
#: Slower than there: what a hold has to wait for is not what this is about.
_WRITER = _WRITE.replace("time.sleep(0.002)", "time.sleep(0.02)")


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    """Return a laboratory whose pools are XFS."""
    return xfs_bed


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    return Scenario(bed, Initiator(bed, "i1"))


@pytest.fixture(scope="module")
def paths(scenario: Scenario) -> Iterator[dict[str, str]]:
    """Create two devices that n1 serves, write to one after the other, and add the site.

    Yields the path that the host has of each.
    """
    bed, host = scenario.bed, scenario.host
    with second_site.server(bed) as server:
        targets = [scenario.create(name, "32M", prefer="n1", nodes=NODES) for name in NAMES]
        try:
            paths = [host.login(target, scenario.portals()) for target in targets]
            host.sh(
                "systemd-run --unit group-writer python3 -I -c "
                f"{shlex.quote(_WRITER)} {' '.join(paths)}"
            )
            sanctl(bed, "n1", f"site add {SITE} --ssh {server} --path {PATH}")
            yield dict(zip(NAMES, paths, strict=True))
        finally:
            host.sh("systemctl stop group-writer; true", timeout_s=120)
            for target in targets:
                host.logout(target)
            for name in (*MADE, *NAMES):
                bed.sh(
                    "n3",
                    f"sanctl device delete {name} --yes --accept SAN-DEV-023 --with-points",
                    timeout_s=240,
                    ok=range(256),
                )


@pytest.fixture
def writing(bed: LabSession, paths: dict[str, str]) -> LabSession:
    """Return the laboratory, in which a host writes to both devices."""
    del paths
    return bed


RUN = f"replicate run {' '.join(NAMES)} --to {SITE} --group"


def copy_both(bed: LabSession, more: str = "") -> Any:
    """Copy both; again where a hold took longer than it may, on a busy machine."""

    def once() -> Any:
        done = bed.sh("n2", f"sanctl {RUN} {more} --output json", timeout_s=400, ok=range(256))
        assert done.status == 0 or re.search("SAN-SNAP-007|SAN-SNAP-018", done.stdout), done.stdout
        return json.loads(done.stdout)["data"] if done.status == 0 else None

    return wait_for("copies of both", once, within_s=600)


def at_site(bed: LabSession, point: str) -> dict[str, str]:
    """Return the file of each device's copy of a restore point at the site."""
    found = [each for each in sanctl(bed, "n1", f"site copies {SITE}") if each["point"] == point]
    return {each["device"]: each["file"] for each in found}


def assert_of_one_moment(bed: LabSession, point: str) -> int:
    """Check the numbers that a moment's copies hold; return the later one."""
    files = at_site(bed, point)
    paths = " ".join(files[name] for name in NAMES)
    said = bed.sh(SERVER, f"python3 -I -c {shlex.quote(_READ)} {paths}", timeout_s=60)
    first, second = map(int, said.stdout.split())
    print(f"  {point}: {first} and {second}")
    assert second and first - second in {0, 1}
    return first


def test_copies_are_of_one_moment(writing: LabSession) -> None:
    first = copy_both(writing)
    assert {each["device"] for each in first} == set(NAMES)
    (point,) = {each["copy"]["point"] for each in first}
    number = assert_of_one_moment(writing, point)
    second = copy_both(writing, "--keep 1")
    assert {each["base"] for each in second} == {point}
    assert assert_of_one_moment(writing, second[0]["copy"]["point"]) > number


def test_a_run_that_is_killed_in_between_leaves_the_moment_before(
    scenario: Scenario, writing: LabSession, paths: dict[str, str]
) -> None:
    """The newest complete moment stays, also when a copy of one device alone keeps one copy."""
    (before,) = {each["copy"]["point"] for each in copy_both(writing, "--keep 1")}
    whole = {path: found for path, found in state(writing).items() if before in path}
    assert len(whole) == len(NAMES)
    # So much of the second one that it takes a while.
    scenario.host.sh(
        f"dd if=/dev/urandom of={paths[DATA]} bs=1M seek=8 count=8 oflag=direct status=none"
    )
    start = f"systemd-run --collect --unit group-copy sanctl {RUN} --keep 1 --limit-rate 100K"

    def half() -> bool:
        # The first one is proven, and the second one is under way, slowly. A busy machine may not
        # make the points within half a second: then once more.
        listed = second_site.files(writing)
        if writing.sh("n2", "systemctl is-active group-copy", ok=range(256)).status:
            writing.sh("n2", start)
            return False
        names = [each for each in listed if before not in each and each.endswith(".json")]
        return bool(names) and any(each.endswith(".partial") for each in listed)

    wait_for("one of two copies", half, within_s=600)
    writing.sh("n2", "systemctl kill --signal=KILL group-copy; systemctl reset-failed", ok=range(9))
    now = state(writing)
    assert {path: now.get(path) for path in whole} == whole
    assert len([path for path in now if before not in path]) == 1
    alone = f"replicate run {NAMES[0]} --to {SITE} --keep 1"
    wait_for(
        "a copy of one alone",
        lambda: writing.sh("n2", f"sanctl {alone}", timeout_s=300, ok=range(256)).status == 0,
        within_s=400,
    )
    now = state(writing)
    assert {path: now.get(path) for path in whole} == whole
    assert_of_one_moment(writing, before)


def test_devices_are_made_from_that_moment_and_take_over_together(writing: LabSession) -> None:
    copies = sanctl(writing, "n1", f"site copies {SITE} {LOG}")
    points = [each["point"] for each in copies]
    (newest, moment) = points[0], points[-1]
    assert newest != moment
    line = f"replicate restore {LOG}@{newest} --from {SITE} --to {MADE[0]}"
    (problem,) = sanctl(writing, "n1", line, status=4)
    assert problem["code"] == "SAN-SITE-028", problem
    # Its newest copy is of it alone: an operator says which one it is to be.
    line = f"replicate restore {LOG} --from {SITE} --to {MADE[0]}"
    (problem,) = sanctl(writing, "n1", line, status=4)
    assert problem["code"] == "SAN-SITE-019", problem
    for name in NAMES:
        what = f"{LOG}@{moment}" if name == LOG else name
        made = sanctl(writing, "n1", f"replicate restore {what} --from {SITE} --to {name}-dr")
        assert f"/{moment}." in made["copy"]
        if name == NAMES[0]:
            (problem,) = sanctl(writing, "n1", f"replicate takeover {name}-dr", status=4)
            assert problem["code"] == "SAN-SITE-029", problem
    # The copy of it alone is newer, and is given up by that.
    line = f"replicate takeover {MADE[1]}"
    (problem,) = sanctl(writing, "n1", line, status=4)
    assert problem["code"] == "SAN-SITE-036" and newest in problem["text"], problem
    taken = sanctl(writing, "n1", f"{line} --allow-older")
    assert {each["device"] for each in taken} == set(MADE)
    (problem, *_) = sanctl(writing, "n2", RUN, status=4)
    assert problem["code"] == "SAN-SITE-021", problem
    assert len(sanctl(writing, "n1", f"replicate giveback {LOG} --at {SITE} --yes")) == len(NAMES)
    (point,) = {each["copy"]["point"] for each in copy_both(writing, "--keep 1")}
    assert_of_one_moment(writing, point)
