# SPDX-License-Identifier: GPL-2.0-or-later
"""One hook freezes two filesystems of a host for restore points of both at one moment.

The host has ext4 on each of two devices, and writes a number to a file on the first, then to one on
the second, then the next number: a copy of the second never holds one that the first does not. The
hook is that of docs/samples/hooks, for both filesystems.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support.json_contract import breaches
from tests.support.quiesced_host import (
    FOLDER,
    NODES,
    forget,
    hook,
    is_frozen,
    let_freeze,
    needs_recovery,
    put,
)

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

HOST = "i1"
#: The first device's process runs the hook.
FIRST, OTHER = NAMES = ("ghk0", "ghk1")
MOUNTS = ("/srv/ghk0", "/srv/ghk1")
GROUP = f"{FIRST} {OTHER} --group"
#: Units and their programs start once more, on a busy machine; two filesystems are frozen by ssh.
SLACK_S = 30.0
ATTEMPTS = 6
_NOTED = "/run/hook-phases"
_LOG = "/var/tmp/hook-writer.log"
_WRITER = """
import os, sys, time
files = [os.open(f"{path}/number", os.O_RDWR | os.O_CREAT) for path in sys.argv[2:]]
number = 0
with open(sys.argv[1], "a", buffering=1) as log:
    while True:
        number += 1
        for file in files:
            os.pwrite(file, f"{number:012}".encode(), 0)
            os.fsync(file)
        log.write(f"{time.time():.3f} {number}\\n")
"""


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    """Return a laboratory whose pools are XFS."""
    return xfs_bed


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    return Scenario(bed, Initiator(bed, HOST))


@pytest.fixture(scope="module")
def host(scenario: Scenario) -> Iterator[Initiator]:
    """Have the host write to both filesystems, and let the nodes freeze them."""
    bed = scenario.bed
    targets = [scenario.create(name, "128M", prefer="n1", nodes=NODES) for name in NAMES]
    for target, mount in zip(targets, MOUNTS, strict=True):
        path = scenario.host.login(target, scenario.portals())
        words = f"mkfs.ext4 -q {path} && mkdir -p {mount} && mount {path} {mount}"
        bed.sh(HOST, words, timeout_s=120)
    let_freeze(bed, HOST, MOUNTS)
    hook(bed, "noted", f'echo "$1 $SANCTL_DEVICES" >>{_NOTED}; exec {FOLDER}/freeze $1')
    put(bed, HOST, "/var/tmp/hook-writer.py", _WRITER)
    bed.sh(
        HOST,
        f"rm -f {_LOG}; systemd-run --collect --unit hook-writer"
        f" python3 /var/tmp/hook-writer.py {_LOG} {' '.join(MOUNTS)}",
    )
    await_writes(bed)
    yield scenario.host
    bed.sh(HOST, "systemctl stop hook-writer", ok=range(256), timeout_s=120)
    for target, mount in zip(targets, MOUNTS, strict=True):
        bed.sh(HOST, f"fsfreeze -u {mount}; umount {mount}", ok=range(256), timeout_s=120)
        scenario.host.logout(target)
    for name in NAMES:
        bed.sh(
            "n3",
            f"sanctl device delete {name} --yes --accept SAN-DEV-023 --with-points",
            timeout_s=240,
        )
    forget(bed, HOST)


def written(bed: LabSession) -> list[tuple[float, int]]:
    """Return when the host had written each number to both filesystems."""
    lines = bed.sh(HOST, f"cat {_LOG} 2>/dev/null || true").stdout.splitlines()
    # The last line may be written just now.
    return [(float(line.split()[0]), int(line.split()[1])) for line in lines[:-1]]


def await_writes(bed: LabSession) -> None:
    before = len(written(bed))
    wait_for("the host's writes", lambda: len(written(bed)) > before + 20, within_s=60)


def snapshot(bed: LabSession, words: str, *, status: int = 0) -> Any:
    """Run a command; again where a hold took longer than it may, on a busy machine."""
    for _ in range(ATTEMPTS):
        bed.sh("n1", f"rm -f {_NOTED}")
        done = bed.sh("n3", f"sanctl snapshot {words} --output json", timeout_s=240, ok=range(256))
        found = json.loads(done.stdout)
        if not re.search("SAN-SNAP-007|was not [a-z]+ within", done.stdout):
            break
    assert done.status == status, done.stdout + done.stderr
    assert breaches(" ".join(["snapshot", words.split(maxsplit=1)[0]]), done.stdout) == []
    if status:
        print(f"  {found['problems'][0]['code']}: {found['problems'][0]['text']}")
    return found["problems"] if status else found["data"]


def phases(bed: LabSession) -> list[str]:
    """Return which runs of the hook there were since the last command began."""
    return bed.sh("n1", f"cat {_NOTED} 2>/dev/null || true").stdout.splitlines()


def points(bed: LabSession, name: str) -> list[dict[str, Any]]:
    return [
        each
        for each in snapshot(bed, "list")
        if each["device"] in NAMES and each["name"] == name and not each["deleting"]
    ]


def number(bed: LabSession, node: str, file: str) -> int:
    """Return the number in a restore point, as it is without any recovery."""
    words = f"mkdir -p /run/look && mount -o loop,ro,noload {file} /run/look"
    return int(bed.sh(node, f"{words} && cat /run/look/number; umount /run/look").stdout)


def assert_left_alone(bed: LabSession, since_s: float, limit_s: float) -> None:
    """Check that the host writes again, and did not wait for longer than the hook may keep it."""
    await_writes(bed)
    moments = [moment for moment, _ in written(bed) if moment > since_s - 1.0]
    pause_s = max(b - a for a, b in itertools.pairwise(moments))
    print(f"  the host's longest pause: {pause_s:.1f} s")
    assert pause_s <= limit_s
    assert not any(is_frozen(bed, HOST, mount) for mount in MOUNTS)
    assert bed.sh(HOST, "ls /run/sanctl-quiesce").stdout == ""


def assert_one_run(bed: LabSession) -> None:
    both = " ".join(NAMES)
    assert phases(bed) == [f"before {both}", f"after {both}"]


def assert_both(made: list[dict[str, Any]], *, before: str | None, name: str = "noted") -> None:
    """Check that both devices have a point, of the same kind."""
    assert [each["device"] for each in made] == list(NAMES)
    for point in made:
        assert point["consistency"] == ("crash" if before else "application")
        assert point["hook"] == {"name": name, "before": before, "after": None}
        assert [each["node"] for each in point["nodes"]] == list(NODES)


def test_one_hook_freezes_both_filesystems(scenario: Scenario, host: Initiator) -> None:
    bed = scenario.bed
    assert all(collect.active_node(bed, name) == "n1" for name in NAMES)
    crash = snapshot(bed, f"create {GROUP} --name crash")
    assert all(point["consistency"] == "crash" for point in crash)
    began_s, last = time.time(), written(bed)[-1][1]
    quiet = snapshot(bed, f"create {GROUP} --name quiet --hook noted")
    assert_one_run(bed)
    assert_both(quiet, before=None)
    assert_left_alone(bed, began_s, SLACK_S)
    for node in NODES:
        assert all(needs_recovery(bed, node, point["file"]) for point in crash)
        assert not any(needs_recovery(bed, node, point["file"]) for point in quiet)
        data, log = (number(bed, node, point["file"]) for point in quiet)
        print(f"  {node}: numbers {data} and {log}, {last} before the command")
        assert last <= log <= data <= log + 1
    print(f"  held {[point['pause_ms'] for point in quiet]} ms")
    text = bed.sh("n3", f"sanctl snapshot show {OTHER}@quiet").stdout
    assert "application, by hook noted" in text and f"{FIRST}@quiet" in text


def killer(name: str) -> str:
    """Return a hook that kills the process of a device's point while it makes the host quiet."""
    return (
        f'echo "$1 $SANCTL_DEVICES" >>{_NOTED}; {FOLDER}/freeze $1 || exit 1\n'
        f"[ $1 = after ] || kill -9 $(systemctl show -P MainPID sanctl-point@{name})"
    )


def killer_in_hold(name: str) -> str:
    """Return a hook that has that process killed as soon as the device is held."""
    return f"""echo "$1 $SANCTL_DEVICES" >>{_NOTED}; {FOLDER}/freeze $1
[ $1 = before ] || exit 0
pid=$(systemctl show -P MainPID sanctl-point@{name})
device=$(dmsetup info -c --noheadings --separator : -o major,minor sanctl-{name}-gate)
(until read held </sys/dev/block/$device/dm/suspended && [ $held = 1 ]; do :; done
kill -9 $pid) &"""


@pytest.mark.parametrize("text", [killer, killer_in_hold])
@pytest.mark.parametrize("name", NAMES)
def test_one_process_is_killed_while_the_host_is_quiet(
    scenario: Scenario, host: Initiator, name: str, text: Any
) -> None:
    """No device has a point, also where a crash-consistent one is allowed; the host writes on."""
    bed = scenario.bed
    hook(bed, "kills", text(name))
    for more in ("", " --or-crash"):
        await_writes(bed)
        began_s = time.time()
        words = f"create {GROUP} --name killed --hook kills --hook-limit 20 --timeout 20{more}"
        (problem,) = snapshot(bed, words, status=5)
        assert problem["code"] in {"SAN-SNAP-018", "SAN-SNAP-007"}
        wait_for("the hook after", lambda: len(phases(bed)) == 2, within_s=60)
        assert_one_run(bed)
        # Long before the limit and the time at which the host thaws by itself.
        assert_left_alone(bed, began_s, 19.0)
        assert points(bed, "killed") == []
    for each in NAMES:
        gate = f"dmsetup info -c --noheadings -o suspended sanctl-{each}-gate"
        assert "uspended" not in bed.sh("n1", gate).stdout


def test_a_hook_that_hangs_makes_none_or_both(scenario: Scenario, host: Initiator) -> None:
    bed = scenario.bed
    text = f'echo "$1 $SANCTL_DEVICES" >>{_NOTED}; {FOLDER}/freeze $1; [ $1 = after ] || sleep 600'
    hook(bed, "hangs", text)
    began_s = time.time()
    words = f"create {GROUP} --hook hangs --hook-limit 10 --name"
    (problem,) = snapshot(bed, f"{words} none", status=5)
    assert problem["code"] == "SAN-HOOK-004"
    assert_one_run(bed)
    assert_left_alone(bed, began_s, 10.0 + SLACK_S)
    assert points(bed, "none") == []
    made = snapshot(bed, f"{words} anyway --or-crash")
    assert_both(made, before="SAN-HOOK-004", name="hangs")
    assert_one_run(bed)
    assert bed.sh("n1", "pgrep -xf 'sleep 600'", ok=(0, 1)).status == 1, "its processes are killed"


def test_a_hook_that_fails_afterwards_stands_before_each_device(
    scenario: Scenario, host: Initiator
) -> None:
    """Also before the point of the device whose process did not run it."""
    bed = scenario.bed
    text = (
        f'echo "$1 $SANCTL_DEVICES" >>{_NOTED}; [ $1 = after ] && exit 9; exec {FOLDER}/freeze $1'
    )
    hook(bed, "stays", text)
    (problem,) = snapshot(
        bed, f"create {GROUP} --name stays --hook stays --hook-limit 20", status=5
    )
    assert problem["code"] == "SAN-HOOK-005" and "was made" in problem["text"]
    assert all(each["hook"]["after"] == "SAN-HOOK-005" for each in points(bed, "stays"))
    (problem,) = snapshot(bed, f"create {OTHER} --name refused --hook noted", status=5)
    assert problem["code"] == "SAN-HOOK-008" and "hook stays" in problem["text"]
    assert points(bed, "refused") == []
    hook(bed, "stays", f'echo "$1 $SANCTL_DEVICES" >>{_NOTED}; exec {FOLDER}/freeze $1')
    snapshot(bed, f"create {OTHER} --name again --hook noted")
    assert phases(bed)[-2:] == [f"before {OTHER}", f"after {OTHER}"]
    assert bed.sh("n1", "ls /run/sanctl/node/point-hook-held.*", ok=(0, 2)).status == 2
    await_writes(bed)


def test_a_schedule_runs_one_hook_for_both(scenario: Scenario, host: Initiator) -> None:
    bed = scenario.bed
    rules = shlex.quote("1m keep 2")
    shown = snapshot(bed, f"schedule {FIRST} {OTHER} {rules} --group --hook noted --hook-limit 20")
    for each in shown:
        assert each["schedule"]["hook"] == {"name": "noted", "limit_s": 20, "or_crash": False}
        assert each["schedule"]["group"] == list(NAMES)

    def scheduled() -> list[dict[str, Any]]:
        found = [each for each in snapshot(bed, "list") if each["scheduled"]]
        return sorted(found, key=lambda each: str(each["device"]))

    try:
        wait_for("a moment by schedule", scheduled, within_s=420)
    finally:
        snapshot(bed, f"schedule {FIRST} {OTHER} off --group")
    made = scheduled()
    for name in {each["name"] for each in made}:
        assert_both([each for each in made if each["name"] == name], before=None)
