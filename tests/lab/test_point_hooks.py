# SPDX-License-Identifier: GPL-2.0-or-later
"""Hooks of restore points: a host's filesystem is frozen meanwhile, and never stays so.

A host has ext4 with a database of SQLite on a device, and writes to it all the time. The hook is
that of docs/samples/hooks.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import failover
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

NAME, HOST, MOUNT = "hook0", "i1", "/srv/hook0"
#: The unit and its program start once more, on a busy machine.
SLACK_S = 25.0
_LOG = "/var/tmp/hook-writer.log"
_WRITER = """
import os, sqlite3, sys, time
base = sqlite3.connect(sys.argv[1], timeout=60)
base.execute("pragma synchronous=full")
base.execute("create table if not exists t(n integer primary key, filler blob)")
base.execute("create table if not exists total(rows integer)")
if base.execute("select count(*) from total").fetchone()[0] == 0:
    base.execute("insert into total values (0)")
base.commit()
with open(sys.argv[2], "a", buffering=1) as log:
    while True:
        with base:
            base.execute("insert into t(filler) values (?)", (os.urandom(400),))
            base.execute("update total set rows = rows + 1")
        rows = base.execute("select rows from total").fetchone()[0]
        log.write(f"{time.time():.3f} {rows}\\n")
"""
#: Prints whether SQLite's check is clean, the rows, and the rows that it should have.
_CHECK = """
import sqlite3, sys
base = sqlite3.connect(sys.argv[1])
print(base.execute("pragma integrity_check").fetchone()[0],
      base.execute("select count(*) from t").fetchone()[0],
      base.execute("select rows from total").fetchone()[0])
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
    """Have the host write to a database on a device, and let the nodes freeze its filesystem."""
    bed = scenario.bed
    path = scenario.host.login(scenario.create(NAME, "256M", prefer="n1"), scenario.portals())
    bed.sh(HOST, f"mkfs.ext4 -q {path} && mkdir -p {MOUNT} && mount {path} {MOUNT}", timeout_s=120)
    let_freeze(bed, HOST, (MOUNT,))
    put(bed, HOST, "/var/tmp/hook-writer.py", _WRITER)
    put(bed, HOST, "/var/tmp/hook-check.py", _CHECK)
    for node in NODES:
        put(bed, node, "/var/tmp/hook-check.py", _CHECK)
    bed.sh(
        HOST,
        f"rm -f {_LOG}; systemd-run --collect --unit hook-writer"
        f" python3 /var/tmp/hook-writer.py {MOUNT}/base {_LOG}",
    )
    await_writes(bed)
    yield scenario.host
    bed.sh(HOST, f"systemctl stop hook-writer; fsfreeze -u {MOUNT}", ok=range(256))
    bed.sh(HOST, f"umount {MOUNT}")
    scenario.host.logout(f"{scenario.iqn_prefix()}.{NAME}")
    bed.sh(
        "n3", f"sanctl device delete {NAME} --yes --accept SAN-DEV-023 --with-points", timeout_s=240
    )
    forget(bed, HOST)


def rows(bed: LabSession) -> list[tuple[float, int]]:
    """Return when the host wrote each row that its database has acknowledged."""
    lines = bed.sh(HOST, f"cat {_LOG} 2>/dev/null || true").stdout.splitlines()
    # The last line may be written just now.
    return [(float(line.split()[0]), int(line.split()[1])) for line in lines[:-1]]


def await_writes(bed: LabSession) -> None:
    """Wait until the host has written 20 rows more."""
    before = len(rows(bed))
    wait_for("the host's writes", lambda: len(rows(bed)) > before + 20, within_s=60)


def longest_pause_s(bed: LabSession, since_s: float) -> float:
    """Return the longest that the host did not write since a moment; it writes again."""
    await_writes(bed)
    moments = [moment for moment, _ in rows(bed) if moment > since_s - 1.0]
    return max(b - a for a, b in itertools.pairwise(moments))


def snapshot(bed: LabSession, words: str, *, status: int = 0) -> Any:
    """Run a command; a busy machine may not make a point within half a second."""

    def once() -> Any:
        done = bed.sh("n3", f"sanctl snapshot {words} --output json", timeout_s=240, ok=range(256))
        found = json.loads(done.stdout)
        if "SAN-SNAP-007" in done.stdout:
            return None
        assert done.status == status, done.stdout + done.stderr
        assert breaches(" ".join(["snapshot", words.split(maxsplit=1)[0]]), done.stdout) == []
        return [found["problems"] if status else found["data"]]

    found = wait_for(f"snapshot {words}", once, within_s=240)[0]
    if status:
        print(f"  {found[0]['code']}: {found[0]['text']}")
    return found


def points(bed: LabSession) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in snapshot(bed, f"list {NAME}") if not each["deleting"]}


def check_base(bed: LabSession, node: str, file: str, *, replay: bool) -> int:
    """Check the database of a restore point, and that it has all rows; return how many."""
    options = "loop" if replay else "loop,ro,noload"
    copy = f"{file.partition('/points/')[0]}/look.img"
    done = bed.sh(
        node,
        f"cp --reflink=always {file} {copy} && mkdir -p /run/look /run/base"
        f" && mount -o {options} {copy} /run/look && cp /run/look/base* /run/base/"
        " && python3 /var/tmp/hook-check.py /run/base/base;"
        f" umount /run/look; rm -rf {copy} /run/base",
        timeout_s=120,
    ).stdout.split()
    assert done[0] == "ok" and done[1] == done[2], done
    return int(done[1])


def assert_left_alone(bed: LabSession, since_s: float, limit_s: float) -> None:
    """Check that the host writes again, and did not wait for longer than the hook may keep it."""
    pause_s = longest_pause_s(bed, since_s)
    print(f"  the host's longest pause: {pause_s:.1f} s")
    assert pause_s <= limit_s
    assert not is_frozen(bed, HOST, MOUNT)
    assert bed.sh(HOST, "ls /run/sanctl-quiesce").stdout == ""


def test_a_point_with_the_hook_needs_no_recovery(scenario: Scenario, host: Initiator) -> None:
    bed = scenario.bed
    made = snapshot(bed, f"create {NAME} --name crash")
    assert made["consistency"] == "crash" and made["hook"] is None
    began_s = time.time()
    written = rows(bed)[-1][1]
    made = snapshot(bed, f"create {NAME} --name quiet --hook freeze")
    assert made["consistency"] == "application"
    assert made["hook"] == {"name": "freeze", "before": None, "after": None}
    assert [each["node"] for each in made["nodes"]] == list(NODES)
    assert_left_alone(bed, began_s, SLACK_S)
    crash, quiet = (points(bed)[name]["file"] for name in ("crash", "quiet"))
    for node in NODES:
        assert needs_recovery(bed, node, crash)
        assert not needs_recovery(bed, node, quiet)
        assert check_base(bed, node, quiet, replay=False) >= written
        check_base(bed, node, crash, replay=True)
    text = bed.sh("n3", f"sanctl snapshot show {NAME}@quiet; sanctl snapshot list {NAME}").stdout
    assert "application, by hook freeze" in text
    print(text)


def test_a_file_that_others_could_change_is_not_run(scenario: Scenario, host: Initiator) -> None:
    bed = scenario.bed
    (problem,) = snapshot(bed, f"create {NAME} --name none --hook ../freeze", status=2)
    assert problem["code"] == "SAN-HOOK-001"
    (problem,) = snapshot(bed, f"create {NAME} --name none --hook nothing", status=5)
    assert problem["code"] == "SAN-HOOK-002" and "n1" in problem["text"]
    ran = "/run/hook-ran"
    hook(bed, "bad", f"touch {ran}")
    for spoil, repair in (
        (f"chmod 0770 {FOLDER}/bad", f"chmod 0700 {FOLDER}/bad"),
        (f"chmod 0777 {FOLDER}", f"chmod 0755 {FOLDER}"),
        (f"chown daemon {FOLDER}/bad", f"chown root {FOLDER}/bad"),
        (f"mv {FOLDER}/bad /root/bad; ln -s /root/bad {FOLDER}/bad", "true"),
    ):
        bed.sh("n1", spoil)
        (problem,) = snapshot(bed, f"create {NAME} --name none --hook bad", status=5)
        assert problem["code"] == "SAN-HOOK-002"
        bed.sh("n1", repair)
    assert bed.sh("n1", f"ls {ran}", ok=(0, 2)).status == 2
    made = snapshot(bed, f"create {NAME} --name instead --hook bad --or-crash")
    assert made["consistency"] == "crash"
    assert made["hook"] == {"name": "bad", "before": "SAN-HOOK-002", "after": None}
    assert "none" not in points(bed) and "instead" in points(bed)


def test_a_hook_that_fails_or_hangs_makes_no_point(scenario: Scenario, host: Initiator) -> None:
    bed = scenario.bed
    noted = "/run/hook-phases"
    hook(bed, "fails", f"echo $1 >>{noted}; {FOLDER}/freeze $1 && [ $1 = after ] || exit 3")
    hook(bed, "hangs", f"echo $1 >>{noted}; {FOLDER}/freeze $1; [ $1 = after ] || sleep 600")
    for name, code in (("fails", "SAN-HOOK-003"), ("hangs", "SAN-HOOK-004")):
        bed.sh("n1", f"rm -f {noted}")
        began_s = time.time()
        words = f"create {NAME} --name {name} --hook {name} --hook-limit 10"
        (problem,) = snapshot(bed, words, status=5)
        assert problem["code"] == code
        assert bed.sh("n1", f"cat {noted}").stdout.split() == ["before", "after"]
        assert_left_alone(bed, began_s, 10.0 + SLACK_S)
        assert name not in points(bed)
    made = snapshot(bed, f"create {NAME} --name anyway --hook fails --or-crash")
    assert (made["consistency"], made["hook"]["before"]) == ("crash", "SAN-HOOK-003")
    # The standby waits for all of it: the longest limit, and a slow hook after.
    slow = f"[ $1 = before ] && sleep 600; {FOLDER}/freeze after; sleep 20"
    hook(bed, "slow", f"{FOLDER}/freeze $1; {slow}")
    words = f"create {NAME} --name late --hook slow --hook-limit 45 --or-crash"
    made = snapshot(bed, words)
    assert (made["consistency"], made["hook"]["before"]) == ("crash", "SAN-HOOK-004")
    assert [each["node"] for each in made["nodes"]] == list(NODES)
    assert bed.sh("n1", "pgrep -xf 'sleep 600'", ok=(0, 1)).status == 1, "its processes are killed"


@pytest.mark.parametrize(
    ("step", "status"),
    [
        ("hook-noted", 5),
        ("hook-begun", 5),
        ("point-quiet", 7),
        ("point-held", 7),
    ],
)
def test_whatever_is_killed_the_host_writes_on(
    scenario: Scenario, host: Initiator, step: str, status: int
) -> None:
    bed = scenario.bed
    began_s = time.time()
    bed.sh("n1", f"mkdir -p /run/sanctl/die-after && touch /run/sanctl/die-after/{step}")
    try:
        words = f"create {NAME} --name killed --hook freeze --hook-limit 20 --timeout 1"
        snapshot(bed, words, status=status)
        seen = bed.sh("n1", f"ls /run/sanctl/die-after/{step}", ok=(0, 2))
        assert seen.status == 2, "not killed"
    finally:
        bed.sh("n1", f"rm -f /run/sanctl/die-after/{step}")
    assert "killed" not in points(bed)
    # Long before the limit: systemd runs the hook after.
    assert_left_alone(bed, began_s, 19.0)


def test_what_keeps_it_quiet_is_killed_in_the_hold(scenario: Scenario, host: Initiator) -> None:
    """The copies are made, and are no application-consistent point: that process is gone."""
    bed = scenario.bed
    # Left running by the hook before: it kills its parent as soon as the gate is suspended.
    hook(
        bed,
        "killer",
        f"""{FOLDER}/freeze $1
[ $1 = before ] || exit 0
device=$(dmsetup info -c --noheadings --separator : -o major,minor sanctl-{NAME}-gate)
(until read held </sys/dev/block/$device/dm/suspended && [ $held = 1 ]; do :; done
kill -9 $PPID) &""",
    )
    began_s = time.time()
    (problem,) = snapshot(bed, f"create {NAME} --name lost --hook killer", status=5)
    assert problem["code"] == "SAN-HOOK-006"
    assert "lost" not in points(bed)
    made = snapshot(bed, f"create {NAME} --name lost --hook killer --or-crash")
    assert (made["consistency"], made["hook"]["before"]) == ("crash", "SAN-HOOK-006")
    assert_left_alone(bed, began_s, SLACK_S)


def test_a_hook_that_fails_afterwards_is_told(scenario: Scenario, host: Initiator) -> None:
    """The host thaws by itself: nobody asks it to."""
    bed = scenario.bed
    noted = "/run/hook-phases"
    hook(bed, "stays", f"echo $1 >>{noted}; [ $1 = before ] && exec {FOLDER}/freeze before; exit 9")
    bed.sh("n1", f"rm -f {noted}")
    began_s = time.time()
    (problem,) = snapshot(bed, f"create {NAME} --name stays --hook stays --hook-limit 45", status=5)
    assert problem["code"] == "SAN-HOOK-005" and "was made" in problem["text"]
    assert bed.sh("n1", f"cat {noted}").stdout.split() == ["before", "after", "after"]
    assert points(bed)["stays"]["hook"]["after"] == "SAN-HOOK-005"
    assert is_frozen(bed, HOST, MOUNT)
    assert_left_alone(bed, began_s, 45.0 + 10.0 + SLACK_S)
    assert "thawed" in bed.sh(HOST, "journalctl -b -o cat -t sanctl-quiesce").stdout
    # No hook begins before that one has succeeded: each later point runs it again first.
    bed.sh("n1", f"rm -f {noted}")
    (problem,) = snapshot(bed, f"create {NAME} --name refused --hook freeze", status=5)
    assert problem["code"] == "SAN-HOOK-008" and "hook stays" in problem["text"]
    assert bed.sh("n1", f"cat {noted}").stdout.split() == ["after", "after"]
    assert "refused" not in points(bed) and not is_frozen(bed, HOST, MOUNT)
    hook(bed, "stays", f"echo $1 >>{noted}; exec {FOLDER}/freeze $1")
    bed.sh("n1", f"rm -f {noted}")
    made = snapshot(bed, f"create {NAME} --name again --hook freeze")
    assert made["hook"] == {"name": "freeze", "before": None, "after": None}
    assert bed.sh("n1", f"cat {noted}").stdout.split() == ["after"]


def test_what_a_hook_says_is_in_the_journal_with_a_limit(
    scenario: Scenario, host: Initiator
) -> None:
    bed = scenario.bed
    hook(bed, "talks", "[ $1 = before ] && env && seq -f line-%g 5000; exit 0")
    snapshot(bed, f"create {NAME} --name talks --hook talks")
    said = bed.sh("n1", "journalctl -b -o cat -t sanctl-hook", timeout_s=60).stdout
    for line in (f"SANCTL_DEVICE={NAME}", "SANCTL_POINT=talks", "SANCTL_PHASE=before",
                 "SANCTL_NODE=n1"):  # fmt: skip
        assert line in said
    print(f"  {said.count('line-')} of 5000 lines")
    assert 10 < said.count("line-") <= 2000


def test_a_schedule_runs_it_where_the_device_is(scenario: Scenario, host: Initiator) -> None:
    bed = scenario.bed
    bed.sh("n3", f"sanctl device move {NAME} --to n2", timeout_s=180)
    given = snapshot(bed, f"schedule {NAME} '1m keep 2' --hook freeze --hook-limit 20")
    assert given["schedule"]["hook"] == {"name": "freeze", "limit_s": 20, "or_crash": False}
    made = wait_for(
        "a scheduled point",
        lambda: [each for each in points(bed).values() if each["scheduled"]],
        within_s=240,
    )
    assert made[0]["consistency"] == "application"
    assert not needs_recovery(bed, "n2", made[0]["file"])
    snapshot(bed, f"schedule {NAME} off")
    ran = bed.sh("n2", "journalctl -b -o cat SANCTL_ACTION=hook").stdout
    assert "hook freeze ran before restore point auto-" in ran


@pytest.mark.concludes
def test_a_node_that_dies_meanwhile_leaves_the_host_to_itself(
    scenario: Scenario, host: Initiator
) -> None:
    bed = scenario.bed
    hook(bed, "slow", f"{FOLDER}/freeze $1; [ $1 = after ] || sleep 60")
    began_s = time.time()
    command = f"sanctl snapshot create {NAME} --name dies --hook slow --hook-limit 30"
    with contextlib.ExitStack() as running:
        running.enter_context(bed.stream("n3", f"timeout 60 {command}; true"))
        wait_for(
            "the host's filesystem to be frozen", lambda: is_frozen(bed, HOST, MOUNT), within_s=60
        )
        bed.cut_power("n2")
        try:
            wait_for(
                "the host to thaw by itself",
                lambda: bed.sh(HOST, "ls /run/sanctl-quiesce").stdout == "",
                within_s=90,
            )
        finally:
            bed.ensure_power("n2")
    failover.await_healthy(bed, "n3")
    assert_left_alone(bed, began_s, 120.0)
    assert "dies" not in points(bed)
