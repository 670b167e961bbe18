# SPDX-License-Identifier: GPL-2.0-or-later
"""Restore points made one after the other while the device is verified, grown, moved and deleted.

Each is whole and the same on both nodes, or refused for a reason that says to try again; and the
operation ends as it would without them.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from sanctl.lab.harness import collect, point_copies
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import ledgers, steps

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME, NODES = "ops0", ("n1", "n2")
SIZE_MIB, STEP_MIB, GROWN_TIMES = 96, 16, 4
REGION_BYTES = 8 << 20
FOLDER = "/run/sanctl-test-points"
#: Hosts' I/O was not held, or not for longer than half a second; another one was being made; the
#: device was changed meanwhile. Nothing is left, and a later one is made.
MAY_FAIL = frozenset({"SAN-SNAP-004", "SAN-SNAP-005", "SAN-SNAP-007", "SAN-SNAP-012"})
#: The device is gone, is going, or the order went with it.
MAY_FAIL_AT_THE_END = MAY_FAIL | {"SAN-DEV-002", "SAN-DEV-014", "SAN-SNAP-006"}
_MAKER = """
cd {folder}; number=0
while [ ! -e stop ]; do
    number=$((number + 1))
    sanctl snapshot create {device} --name {prefix}$number --output json \\
        >$number 2>/dev/null </dev/null
done
"""


class Made(NamedTuple):
    """What became of the restore points that were asked for: names, and codes of refusals."""

    names: list[str]
    refused: Counter[str]


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    return xfs_bed


@pytest.fixture(scope="module")
def load(bed: LabSession) -> Iterator[LedgerLoad]:
    scenario = Scenario(bed, Initiator(bed, "i1"))
    made = ledgers.start_on_new_device(
        scenario, NAME, f"{SIZE_MIB}M", rate=100.0, region_bytes=REGION_BYTES
    )
    yield made
    ledgers.stop(made)
    made.host.logout(made.target)
    # The last test has deleted it, unless one failed.
    bed.sh(
        "n3",
        f"sanctl device delete {NAME} --yes --accept SAN-DEV-023 --with-points",
        timeout_s=240,
        ok=(0, 4),
    )


@contextlib.contextmanager
def points_made(bed: LabSession, made: Made, prefix: str) -> Iterator[None]:
    """Make restore points as long as it lasts; `made` has what came of them after that."""
    on, maker = "n3", _MAKER.format(folder=FOLDER, device=NAME, prefix=prefix)
    bed.sh(on, f"rm -rf {FOLDER}; mkdir {FOLDER}")
    bed.sh(
        on, f"systemd-run --quiet --collect --unit sanctl-test-points sh -c {shlex.quote(maker)}"
    )
    try:
        yield
    finally:
        bed.sh(on, f"touch {FOLDER}/stop")
        wait_for(
            "the last restore point",
            lambda: (
                not bed.sh(
                    on, "systemctl is-active sanctl-test-points", ok=range(256)
                ).stdout.startswith("active")
            ),
            within_s=180,
        )
        shown = bed.sh(on, f"cd {FOLDER}; for n in $(ls | sort -n); do cat $n; done").stdout
        for each in _documents(shown):
            if each["data"] is not None:
                made.names.append(each["data"]["name"])
            else:
                made.refused.update(problem["code"] for problem in each["problems"])
        print(f"  made {len(made.names)}, refused {dict(made.refused)}")


def _documents(text: str) -> Iterator[Any]:
    decoder, text = json.JSONDecoder(), text.strip()
    while text:
        found, end = decoder.raw_decode(text)
        yield found
        text = text[end:].strip()


def listed(bed: LabSession) -> dict[str, dict[str, Any]]:
    done = bed.sh("n3", f"sanctl snapshot list {NAME} --output json", timeout_s=60)
    return {each["name"]: each for each in json.loads(done.stdout)["data"]}


def assert_right(load: LedgerLoad, made: Made) -> dict[str, dict[str, Any]]:
    """Check each that is listed; delete them all; return them."""
    bed, there = load.bed, listed(load.bed)
    assert {*made.names} <= {*there}, "one that was made is not listed"
    for name, point in there.items():
        nodes = [each["node"] for each in point["nodes"]]
        assert sorted([*nodes, *point["missing_on"]]) == [*NODES], point
        # While a device grows a node's file may be larger already: the point ends at its size.
        faults = point_copies.find_faults(
            load, point["file"], nodes, min_writes=20, size_bytes=point["size_bytes"]
        )
        assert faults == [], name
    for name in there:
        bed.sh("n3", f"sanctl snapshot delete {NAME}@{name} --yes", timeout_s=120)
    for node in NODES:
        assert bed.sh(node, f"ls /srv/sanctl/main/points | grep {NAME}. || true").stdout == ""
        assert (
            "uspended"
            not in bed.sh(
                node,
                f"dmsetup info -c --noheadings -o suspended sanctl-{NAME}-gate",
                ok=range(256),
            ).stdout
        )
    return there


def test_while_its_replicas_are_compared(load: LedgerLoad) -> None:
    made = Made([], Counter())
    steps.await_writes(load)
    with points_made(load.bed, made, "compared"):
        for _ in range(3):
            done = load.bed.sh("n3", f"sanctl device verify {NAME} --output json", timeout_s=400)
            assert json.loads(done.stdout)["status"] == "ok", done.stdout
    assert {*made.refused} <= MAY_FAIL
    assert len(made.names) >= 2, "none was made while the replicas were compared"
    assert_right(load, made)


def test_while_it_grows(load: LedgerLoad) -> None:
    made = Made([], Counter())
    steps.await_writes(load)
    with points_made(load.bed, made, "grown"):
        for number in range(1, GROWN_TIMES + 1):
            size_mib = SIZE_MIB + number * STEP_MIB
            load.bed.sh("n3", f"sanctl device resize {NAME} {size_mib}M", timeout_s=180)
    assert {*made.refused} <= MAY_FAIL
    assert made.names, "none was made while the device grew"
    there = assert_right(load, made)
    allowed = {(SIZE_MIB + number * STEP_MIB) << 20 for number in range(GROWN_TIMES + 1)}
    assert {each["size_bytes"] for each in there.values()} <= allowed
    print(f"  sizes: {sorted(each['size_bytes'] >> 20 for each in there.values())} MiB")


def test_while_it_moves(load: LedgerLoad) -> None:
    bed, made = load.bed, Made([], Counter())
    steps.await_writes(load)
    with points_made(bed, made, "moved"):
        for node in ("n2", "n1", "n2", "n1"):
            wait_for(
                f"the move to {node}",
                lambda node=node: (
                    not bed.sh(  # type: ignore[misc]
                        "n3", f"sanctl device move {NAME} --to {node}", timeout_s=180, ok=range(256)
                    ).status
                ),
                within_s=180,
                every_s=3.0,
            )
    assert collect.active_node(bed, NAME) == "n1"
    assert {*made.refused} <= MAY_FAIL | {"SAN-SNAP-006"}
    assert made.names, "none was made between the moves"
    assert_right(load, made)


@pytest.mark.concludes
def test_nothing_was_lost(load: LedgerLoad) -> None:
    ledgers.assert_nothing_lost(load)


def test_while_it_is_deleted(load: LedgerLoad) -> None:
    bed, made = load.bed, Made([], Counter())
    ledgers.stop(load)
    load.host.logout(load.target)
    with points_made(bed, made, "deleted"):
        wait_for("a restore point", lambda: listed(bed), within_s=120, every_s=0.5)
        bed.sh(
            "n3",
            f"sanctl device delete {NAME} --yes --accept SAN-DEV-023 --with-points",
            timeout_s=240,
        )
    assert {*made.refused} <= MAY_FAIL_AT_THE_END
    shown = json.loads(bed.sh("n3", "sanctl snapshot list --output json").stdout)["data"]
    assert [each for each in shown if each["device"] == NAME] == []
    for node in NODES:
        left = f"ls /srv/sanctl/main/points /srv/sanctl/main/devices | grep {NAME}. || true"
        wait_for(
            f"nothing of it on {node}",
            lambda node=node, left=left: not bed.sh(node, left).stdout,  # type: ignore[misc]
            within_s=60,
        )
        assert "sanctl-ops0" not in bed.sh(node, "dmsetup ls").stdout
