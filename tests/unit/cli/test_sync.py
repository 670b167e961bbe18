# SPDX-License-Identifier: GPL-2.0-or-later
"""What the commands about resyncs and verifies say to people."""

from __future__ import annotations

import pytest

from tests.unit.cli.test_commands import FakeEnvironment, Run, data_of, env, run

__all__ = ["env", "run"]

LATEST = "fast,6%+is+marked,done,1800000000,1800000003,16384,16500"


@pytest.fixture
def syncing(run: Run, env: FakeEnvironment) -> None:
    """A device whose copy on n2 is behind, and has been before."""
    run("device", "create", "vm1", "--size", "1G")
    env.pacemaker.is_frozen = True
    env.pacemaker.private_attributes["n2", "sanctl.sync"] = "vm1,full,,250,1000,50,5"
    env.pacemaker.attribute(
        "n2",
        "sanctl-vm1",
        f"disk=Inconsistent connection=Connected replication=SyncTarget peer-disk=UpToDate"
        f" out-of-sync=250 role=Secondary size=1073741824 policy=default resync={LATEST}",
    )
    env.pacemaker.attribute("n1", "sanctl.verify.vm1", "7,differs,1,1800000000,8,4096+8192")


@pytest.mark.usefixtures("syncing")
def test_status(run: Run) -> None:
    status, out, _ = run("sync", "status")
    assert status == 0
    assert "full      [###############.....]  75%  250 KiB  50 KiB/s  0:05" in out
    assert (
        "vm1 on n2: latest resync fast (6% is marked), 16 MiB marked, 16.1 MiB received, ended"
        " 2027-01-15T08:00:03Z" in out
    )
    assert "vm1 on n1: latest verify differs 8 KiB, 2027-01-15T08:00:00Z" in out
    (active, standby) = data_of(run("sync", "status", "--output", "json")[1])
    assert active["verify"]["ranges"] == [{"first": 4096, "bytes": 8192}]
    assert standby["running"]["done_percent"] == 75.0
    assert standby["latest"]["received_bytes"] == 16500 * 1024


@pytest.mark.usefixtures("syncing")
def test_watch_ends_with_the_last_one(run: Run, env: FakeEnvironment) -> None:
    def end() -> None:
        env.pacemaker.private_attributes.clear()

    env.clock.on_sleep = end
    status, out, _ = run("sync", "watch")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("vm1  n2  full  [####")
    assert lines[1:] == ["no resync or verify runs"]


@pytest.mark.usefixtures("syncing")
def test_watch_on_a_terminal_shows_the_bar(
    run: Run, env: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bar that has begun looks like markup of the library that draws the table."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    env.clock.on_sleep = env.pacemaker.private_attributes.clear
    status, out, _ = run("sync", "watch")
    assert status == 0
    assert "[###############.....]  75%" in out
    assert "no resync or verify runs" in out.splitlines()[-2]


@pytest.mark.usefixtures("syncing")
def test_what_waits_is_shown_and_a_wait_says_how_far_it_is(run: Run, env: FakeEnvironment) -> None:
    _, _, _ = run("device", "sync", "vm1", "--priority", "70", "--timeout", "1")
    assert any("; vm1 full 75%, 5 s left" in line for line in env.reporter.lines)
    env.pacemaker.private_attributes["n2", "sanctl.sync"] = "vm1,full,for+vm2,250,1000,0,5"
    assert "waits for vm2" in run("sync", "status")[1]


def test_a_verify_for_people(run: Run, env: FakeEnvironment) -> None:
    run("device", "create", "vm1", "--size", "1G")
    assert "its replicas are the same" in run("device", "verify", "vm1")[1]
    env.pacemaker.differences = ("4096+4096",)
    status, out, _ = run("device", "verify", "vm1")
    assert status == 1
    assert "4 KiB differ" in out
    assert "4096 bytes at byte 4096" in out
    assert "on n1: 'sanctl device move vm1 --to NODE' first" in out and "--repair' sends" in out
    status, _, err = run("device", "verify", "vm1", "--repair")
    assert status == 2 and "but the one on n1" in err and "device move vm1" in err, "nobody to ask"
    assert run("status")[1].count("SAN-HLT-039") == 1, "nothing was repaired"
    status, out, _ = run("device", "verify", "vm1", "--repair", "--yes")
    assert (status, out.splitlines()[-1]) == (0, "repaired: 4 KiB were sent again")
    status, out, _ = run("device", "verify", "vm1", "--schedule", "sun@03")
    assert (status, out) == (0, "device vm1: verified sun@03\n")
    status, _, err = run("device", "verify", "vm1", "--schedule", "sun@03", "--repair")
    assert (status, err[:12]) == (2, "SAN-SYNC-005")
    assert "verified sun@03" in run("device", "sync", "vm1")[1]
