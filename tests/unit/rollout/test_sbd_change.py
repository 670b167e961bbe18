# SPDX-License-Identifier: GPL-2.0-or-later
"""Another SBD is not written under a cluster whose fencing would no longer reach the nodes."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from sanctl.rollout.sbd_change import names_of_disk, reaches, sbd_refusals, unobeyed
from tests.unit.ansible.test_modules import ANSIBLE

A, B, C, D = (f"/dev/disk/by-id/{letter}" for letter in "abcd")
NONE: dict[str, Any] = {"source": "none"}
UNKNOWN: dict[str, Any] = {"source": "unknown"}


def cib(*disks: str, wait: str = "", source: str = "live", epoch: int = 7) -> dict[str, Any]:
    """What the cluster relies on: a wait for watchdogs, and messages on these disks."""
    return {
        "source": source, "version": [0, epoch, 0], "wait": wait,
        "disks": [list(disks)] if disks else [],
    }  # fmt: skip


BMC = cib()
DISKLESS = cib(wait="10s")


def states(found: dict[str, Any], *, runs: bool = True) -> dict[str, Any]:
    return {node: {"corosync": runs, "disks": [], "cib": found} for node in ("n1", "n2", "n3")}


@pytest.mark.parametrize(
    ("written", "watched", "expected"),
    [
        ([A], [A], True),
        ([A, B, C], [C, B, A], True),
        ([A], [B], False),
        # The node goes on with the other two when it has lost the one that is written to.
        ([A], [A, B, C], False),
        ([A], [A, B], False),
        ([A, B], [A, B], True),
        # The message counts once it is on the two others.
        ([A, B, C], [A], False),
        ([A, B, C], [A, B, D], False),
        ([A], [], False),
        ([], [A], False),
        ([], [], False),
    ],
)
def test_a_message_reaches_whoever_reads_a_majority(
    written: list[str], watched: list[str], expected: bool
) -> None:
    assert reaches(written, watched) is expected


@pytest.mark.parametrize("count", [1, 3])
def test_no_choice_of_lost_disks_gets_by(count: int) -> None:
    """The rule against every way in which writer and node may each have lost some of theirs."""
    disks = [A, B, C, D]
    written = disks[:count]
    for watched in product(*[[False, True]] * 4):
        read = [disk for disk, is_read in zip(disks, watched, strict=True) if is_read]
        if not read:
            continue
        needs = 1 if len(read) == 2 else len(read) // 2 + 1
        may_miss = any(
            2 * sum(has_message) > count
            and sum(is_healthy) >= needs
            and not {d for d, has in zip(written, has_message, strict=True) if has}
            & {d for d, has in zip(read, is_healthy, strict=True) if has}
            for has_message in product([False, True], repeat=count)
            for is_healthy in product([False, True], repeat=len(read))
        )
        assert reaches(written, read) is not may_miss


@pytest.mark.parametrize(
    ("found", "mode", "disks", "text"),
    [
        # Unchanged, and first installations.
        (DISKLESS, "diskless", [], ""),
        (cib(A), "disk", [A], ""),
        (cib(A, B, C), "disk", [C, A, B], ""),
        (NONE, "disk", [A], ""),
        (NONE, "diskless", [], ""),
        # BMCs alone fence: what SBD does is not counted on.
        (BMC, "disk", [A], ""),
        (BMC, "diskless", [], ""),
        (cib(wait="0"), "disk", [A], ""),
        (cib(wait="0s"), "disk", [A], ""),
        # Another mode, or other disks.
        (DISKLESS, "disk", [A], "does not reset it"),
        (cib(wait="-1"), "disk", [A], "does not reset it"),
        (cib(wait="x"), "disk", [A], "does not reset it"),
        (cib(A), "diskless", [], "read no disk"),
        (cib(A), "disk", [B], f"messages on {A}, and by the inventory nodes read {B}"),
        (cib(A, B, C), "disk", [A], "by messages"),
        (cib(A), "disk", [A, B, C], "by messages"),
        (cib(A, wait="10s"), "disk", [A], "does not reset it"),
        # One that somebody made without its disks.
        ({**BMC, "disks": [[]]}, "disk", [A], "messages on no disk"),
        (UNKNOWN, "disk", [A], "cannot be read from the CIB of n1, n2, n3"),
    ],
)
def test_settings_that_fencing_does_not_reach_are_refused(
    found: dict[str, Any], mode: str, disks: list[str], text: str
) -> None:
    refused = sbd_refusals(states(found), [], mode, disks)
    assert len(refused) == bool(text)
    assert all(text in each for each in refused)
    # With the cluster stopped on all nodes, all of which were asked, nothing is counted on.
    stopped = states({**found, "source": "file"} if "version" in found else found, runs=False)
    assert sbd_refusals(stopped, [], mode, disks) == []
    # A node that was not asked may run, and rely on SBD by a CIB that no stopped node has.
    relies = "wait" in found and (found["wait"] not in {"", "0", "0s"} or found["disks"])
    assert bool(sbd_refusals(stopped, ["n4"], mode, disks)) is bool(text or not relies)


def test_one_node_that_runs_is_enough() -> None:
    seen = states(cib(A, source="file"), runs=False)
    assert sbd_refusals(seen, [], "disk", [B]) == []
    seen["n3"] = {"corosync": True, "disks": [A], "cib": cib(A)}
    assert len(sbd_refusals(seen, [], "disk", [B])) == 1


def test_the_cib_of_a_stopped_node_is_old() -> None:
    seen = states(cib(B, epoch=9))
    seen["n3"] = {"corosync": False, "disks": [], "cib": cib(A, source="file", epoch=3)}
    assert sbd_refusals(seen, [], "disk", [B]) == []
    seen["n3"]["cib"] = UNKNOWN
    assert sbd_refusals(seen, [], "disk", [B]) == []
    # Of those that answer the latest counts.
    seen["n2"] = {**seen["n2"], "cib": cib(A, epoch=10)}
    assert len(sbd_refusals(seen, [], "disk", [B])) == 1


@pytest.mark.parametrize(
    ("watched", "mode", "disks", "text"),
    [
        ([], "diskless", [], ""),
        ([A], "diskless", [], f"runs with {A}: it does not reset"),
        ([A], "disk", [A], ""),
        ([C, B, A], "disk", [A, B, C], ""),
        ([], "disk", [A], "runs with no disk"),
        # It watches the disk of the inventory, and two more that it was started with.
        ([A, B, C], "disk", [A], "may not reach it"),
        ([A, B], "disk", [A], "may not reach it"),
    ],
)
def test_the_cluster_does_not_rely_on_an_sbd_that_does_something_else(
    watched: list[str], mode: str, disks: list[str], text: str
) -> None:
    found = unobeyed(watched, mode, disks)
    assert bool(found) is bool(text)
    assert text in found


SDB = "/dev/sdb"


def test_another_name_of_the_disk_is_no_other_disk() -> None:
    """By-id in the place of /dev/sdb was refused as another disk."""
    seen = states(cib(SDB))
    for state in seen.values():
        state["paths"] = {SDB: SDB, A: SDB, B: "/dev/sdc"}
    assert sbd_refusals(seen, [], "disk", [A]) == []
    assert len(sbd_refusals(seen, [], "disk", [B])) == 1
    assert sbd_refusals(seen, [], "disk", [SDB]) == []
    assert len(sbd_refusals(seen, ["n4"], "disk", [A])) == 1, "nobody knows what it is there"
    seen["n3"]["paths"] = {SDB: SDB, A: "/dev/sdc"}
    assert len(sbd_refusals(seen, [], "disk", [A])) == 1, "on n3 it is another one"
    del seen["n3"]["paths"][A]
    assert len(sbd_refusals(seen, [], "disk", [A])) == 1


def test_nor_is_it_for_a_node_whose_sbd_watches_it() -> None:
    paths = {SDB: SDB, A: SDB, B: "/dev/sdc"}
    assert unobeyed([SDB], "disk", [A], paths) == ""
    assert unobeyed([SDB], "disk", [A], {}) != ""
    assert unobeyed([SDB], "disk", [A], {SDB: SDB}) != ""
    assert unobeyed([SDB], "disk", [B], paths) != ""
    assert unobeyed([A, SDB, B], "disk", [A], paths) != "", "of two disks it may go on with B"


def test_a_watcher_is_looked_for_by_each_name_of_its_disk() -> None:
    assert names_of_disk(A, {SDB: SDB, A: SDB, B: "/dev/sdc"}) == [A, SDB]
    assert names_of_disk(A, {SDB: SDB}) == [A] and names_of_disk(A, {}) == [A]
    asked = (ANSIBLE / "roles/sanctl_pacemaker/tasks/sbd.yml").read_text()
    assert "item | sanctl.san.names_of_disk(sanctl_pacemaker_sbd_named.paths)" in asked


def test_names_that_lead_nowhere_are_their_own_disks() -> None:
    seen = states(cib(A))
    assert sbd_refusals(seen, [], "disk", [A]) == [] and unobeyed([A], "disk", [A]) == ""
