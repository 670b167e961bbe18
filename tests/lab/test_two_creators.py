# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl device create` on two nodes at one moment: other names, and the same name.

Each command sees a cibadmin of its own that holds back the first change of the CIB until both
commands have planned theirs: both are planned on the same CIB, and one of them comes too late.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online
from sanctl.system.runner import CommandResult

NODES = ("n1", "n2")
PREFIX = "creator"
CREATE_S = 150
FOLDER = "/root/creators"

#: In place of cibadmin, for the command alone.
_HELD_BACK = f"""\
#!/bin/sh
[ "$1" = --patch ] || exec {FOLDER}/cibadmin "$@"
if mkdir {FOLDER}/waits 2>/dev/null; then
    for i in $(seq 1000); do [ -e {FOLDER}/go ] && break; sleep 0.05; done
fi
{FOLDER}/cibadmin "$@"
status=$?
echo $status >>{FOLDER}/answers
exit $status
"""


@contextlib.contextmanager
def held_back(bed: LabSession) -> Iterator[None]:
    """Lay out on both nodes what the commands see in place of cibadmin."""
    for node in NODES:
        bed.sh(
            node,
            f"rm -rf {FOLDER}; mkdir {FOLDER}; cp /usr/sbin/cibadmin {FOLDER}/cibadmin;"
            f" cat >{FOLDER}/held-back; chmod 755 {FOLDER}/held-back",
            stdin=_HELD_BACK,
        )
    try:
        yield
    finally:
        for node in NODES:
            bed.sh(node, f"rm -rf {FOLDER}")


def create_at_once(scenario: Scenario, names: dict[str, str]) -> dict[str, CommandResult]:
    """Create a device on each node, both planned on one CIB; return what each command answered."""
    bed = scenario.bed

    def create(node: str) -> CommandResult:
        return bed.sh(
            node,
            f"unshare --mount sh -c 'mount --bind {FOLDER}/held-back /usr/sbin/cibadmin &&"
            f" exec sanctl device create {names[node]} --size 32M --prefer {node}"
            f" --timeout {CREATE_S}'",
            timeout_s=CREATE_S + 60,
            ok=range(256),
        )

    with held_back(bed), ThreadPoolExecutor() as pool:
        began = {node: pool.submit(create, node) for node in NODES}
        for node in NODES:
            wait_for(
                f"the command on {node} to have planned",
                lambda node=node: bed.sh(node, f"test -e {FOLDER}/waits").status == 0,  # type: ignore[misc]
                within_s=60,
                every_s=0.1,
            )
        list(pool.map(lambda node: bed.sh(node, f"touch {FOLDER}/go"), NODES))
        done = {node: began[node].result() for node in NODES}
        first = {
            node: bed.sh(node, f"cat {FOLDER}/answers").stdout.split()[0] == "0" for node in NODES
        }
    # Both do where something else has changed the CIB meanwhile.
    assert not all(first.values()), "none came too late: nothing is shown"
    return done


def left(bed: LabSession) -> dict[str, str]:
    """Return what there is of the devices of this test in the CIB and on each node."""
    script = (
        f"ls /srv/sanctl/main/devices /run/sanctl/drbd.d /run/sanctl/devices | grep {PREFIX};"
        f" losetup -a | grep {PREFIX}; dmsetup ls | grep {PREFIX};"
        f" drbdsetup events2 --now | grep name:{PREFIX};"
        f" find /sys/kernel/config/target -name '*{PREFIX}*'"
    )
    found = {node: bed.sh(node, script, ok=range(256)).stdout for node in NODES}
    found["CIB"] = bed.sh(
        "n3", f"cibadmin --query | grep -v lrm | grep '{PREFIX}'", ok=(0, 1)
    ).stdout
    return {where: text for where, text in found.items() if text}


def delete(scenario: Scenario, *names: str) -> None:
    """Delete what a test has made, and wait until nothing is left on any node."""
    for name in names:
        if scenario.exists(name):
            scenario.sanctl(
                "device", "delete", name, "--yes", "--accept", "SAN-DEV-023", timeout_s=CREATE_S
            )
    wait_for(
        "nothing to be left",
        lambda: not left(scenario.bed),
        within_s=60,
        every_s=1.0,
    )


def assert_whole(scenario: Scenario, names: list[str]) -> None:
    """Check that these devices, and no others, are there, whole, and the cluster healthy."""
    bed = scenario.bed
    listed = json.loads(scenario.sanctl("device", "list", "--output", "json"))["data"]
    assert [each["name"] for each in listed if each["name"].startswith(PREFIX)] == names
    for name in names:
        served = collect.active_node(bed, name)
        assert collect.is_in_sync(bed, served, name)
        for node in NODES:
            files = bed.sh(node, f"ls /srv/sanctl/main/devices | grep '^{name}[.]'").stdout.split()
            # One UUID: nobody has begun another device of that name.
            assert len({file.split(".")[1] for file in files}) == 1, files
    failover.await_healthy(bed, "n1")


@pytest.fixture(autouse=True)
def nothing_else(scenario: Scenario) -> Iterator[None]:
    await_members_online(scenario.bed)
    yield
    delete(scenario, f"{PREFIX}0", f"{PREFIX}1")


def test_the_same_name_on_two_nodes(scenario: Scenario) -> None:
    name = f"{PREFIX}0"
    done = create_at_once(scenario, dict.fromkeys(NODES, name))
    statuses = {node: result.status for node, result in done.items()}
    assert sorted(statuses.values()) == [0, 4], done
    loser = next(node for node in NODES if statuses[node] == 4)
    lines = done[loser].stderr.splitlines()
    print("  " + "\n  ".join(lines))
    assert [line for line in lines if "SAN-" in line] == [
        line for line in lines if "SAN-DEV-001" in line and name in line
    ]
    assert any("SAN-DEV-001" in line for line in lines)
    assert "Traceback" not in done[loser].stderr
    assert_whole(scenario, [name])


@pytest.mark.faults
def test_other_names_on_two_nodes(scenario: Scenario) -> None:
    """Both are created; each has a DRBD minor of its own."""
    names = {node: f"{PREFIX}{number}" for number, node in enumerate(NODES)}
    began_s = time.monotonic()
    done = create_at_once(scenario, names)
    assert [result.status for result in done.values()] == [0, 0], done
    print(f"  both in {time.monotonic() - began_s:.0f} s")
    assert_whole(scenario, list(names.values()))
    minors = {collect.drbd_minor(scenario.bed, "n1", name) for name in names.values()}
    assert len(minors) == 2
    for node, name in names.items():
        assert collect.active_node(scenario.bed, name) == node
