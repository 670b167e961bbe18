# SPDX-License-Identifier: GPL-2.0-or-later
"""A fingerprint is left by a monitor that found its replica whole and did nothing; no other."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sanctl.agents import device, device_monitor, fingerprint, ocf
from sanctl.agents.cache import flush_unit
from sanctl.agents.fingerprint import Fingerprint
from sanctl.agents.promotion import forgotten_role
from sanctl.agents.publish import attrd_cache
from sanctl.agents.replica import device_files
from sanctl.agents.replica.parts import Device
from sanctl.agents.sync import verify
from sanctl.drivers import drbdadm, lio, loop, pool_mount
from sanctl.model import resync_record
from sanctl.model.resync_record import FAST, ResyncRecord
from sanctl.model.verify_result import RUNNING, VerifyResult
from sanctl.parse.drbd import ProcLine
from sanctl.plan.device.short_monitor import MINUTE_S, Period, Seen
from sanctl.render.fingerprint import record
from sanctl.system import state_files
from tests.fakes.node import FakeNode

SEEN = Seen(
    drbd=ProcLine("cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----", "f", 0),
    lower="drbd3",
    is_suspended=False,
    alua="0",
    is_enabled=True,
    drbd_bytes=1 << 20,
    target_bytes=1 << 20,
    notes=frozenset({"attrd-cache.state", "connected", "published"}),
)
FOUND = Fingerprint(SEEN, (record("file", "/proc/x", "y"),))
_KINDS = ("attrd-cache.state", "attrd-cache.score")


class Monitor:
    """A monitor of vol1 that says what it is told, on a node whose replica is whole."""

    def __init__(self, node: FakeNode) -> None:
        self.node = node
        self.found: list[Fingerprint | None] = [FOUND, FOUND]
        self.status = ocf.RUNNING_PROMOTED
        self.work: Callable[[ocf.Steps], object] = lambda _steps: None
        self.periods = {True: Period(200.0, 145.0), False: Period(30.0, 25.0)}

    def period(self, _name: str, *, is_in_sync: bool) -> Period:
        return self.periods[is_in_sync]

    def holds_s(self) -> float:
        """Return for how long the fingerprint holds that a monitor leaves."""
        until, *_ = self.run().splitlines()
        return float(bytes.fromhex(until.split()[1])) - self.node.clock.now_s

    def run(self) -> str:
        """Return the fingerprint's text that is there then; empty where there is none."""
        assert device.main(["device", "monitor"]) == self.status
        return state_files.of_device("vol1", "fingerprint").read()


@pytest.fixture
def monitor(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> Monitor:
    fake_node.ask_for_monitor(monkeypatch)
    it = Monitor(fake_node)

    def work(_runner: object, _device: object, steps: ocf.Steps) -> int:
        assert not state_files.of_device("vol1", "fingerprint").exists()
        it.work(steps)
        return it.status

    monkeypatch.setattr(device_monitor, "_monitor", work)
    monkeypatch.setattr(fingerprint, "read", lambda _device: it.found.pop(0))
    monkeypatch.setattr(attrd_cache, "attrd_pid", lambda: "7")
    for kind in _KINDS:
        state_files.of_device("vol1", kind).write("7 x")
    in_force("")
    monkeypatch.setattr(attrd_cache, "period_of_device", it.period)
    return it


def in_force(policy: str) -> None:
    state_files.of_device("vol1", "sync-policy").write(f"1 {policy}\nx\n\n")


def test_a_monitor_that_found_all_whole_leaves_one(monitor: Monitor) -> None:
    lines = monitor.run().splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["until", "file", "status", "end"]
    assert lines[2] == f"status {b'8'.hex()}"


@pytest.mark.parametrize(
    "found",
    [
        [None, FOUND],
        [FOUND, None],
        [FOUND, FOUND._replace(records=())],
        [FOUND._replace(seen=SEEN._replace(alua="2"))] * 2,
    ],
)
def test_what_changed_meanwhile_or_is_not_whole_leaves_none(
    monitor: Monitor, found: list[Fingerprint | None]
) -> None:
    monitor.found = list(found)
    assert monitor.run() == ""


def test_a_step_that_was_made_leaves_none(monitor: Monitor) -> None:
    monitor.work = lambda steps: steps.done("initiators", "access list")
    assert monitor.run() == ""


@pytest.mark.parametrize(
    ("role", "is_left"), [("Promoted", True), ("Unpromoted", False), ("Slave", False)]
)
def test_one_that_serves_and_is_taken_for_a_standby_leaves_none(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch, role: str, *, is_left: bool
) -> None:
    """The next monitor has to look whether another replica is being promoted."""
    monkeypatch.setattr(forgotten_role, "demote_for_promotion", lambda *_: None)
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_role", role)
    assert bool(monitor.run()) is is_left


@pytest.mark.parametrize("status", [ocf.SUCCESS, ocf.ERR_GENERIC, ocf.FAILED_PROMOTED])
def test_another_status_than_the_kernel_shows_leaves_none(monitor: Monitor, status: int) -> None:
    monitor.status = status
    assert monitor.run() == ""


@pytest.mark.parametrize("kind", _KINDS)
def test_what_is_not_published_to_this_attrd_leaves_none(monitor: Monitor, kind: str) -> None:
    state_files.of_device("vol1", kind).write("6 x")
    assert monitor.run() == ""


@pytest.mark.parametrize("kind", _KINDS)
def test_what_was_not_published_in_this_period_leaves_none(monitor: Monitor, kind: str) -> None:
    monitor.node.age("vol1", kind, 199.0)
    assert monitor.holds_s() == 145.0
    monitor.found = [FOUND, FOUND]
    monitor.node.age("vol1", kind, 201.0)
    assert monitor.run() == ""


def test_a_primary_without_its_peer_has_its_minute(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_unit, "is_unwatched", lambda _name: False)
    state = "cs:WFConnection ro:Primary/Unknown ds:UpToDate/Outdated C r-----"
    alone = FOUND._replace(seen=SEEN._replace(drbd=ProcLine(state, "f", 0)))
    monitor.found = [alone, alone]
    assert monitor.holds_s() == 25.0


@pytest.mark.parametrize("status", [ocf.RUNNING_PROMOTED, ocf.SUCCESS])
def test_a_verify_that_is_due_by_schedule_is_looked_for_each_minute_where_it_may_begin(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    schedule = f"verify=daily@{time.localtime().tm_hour:02}"
    monkeypatch.setenv("OCF_RESKEY_sync", schedule)
    in_force(schedule)
    monitor.status = status
    if status == ocf.SUCCESS:
        standby = SEEN._replace(
            drbd=ProcLine(
                "cs:Connected ro:Secondary/Primary ds:UpToDate/UpToDate C r-----", "f", 0
            ),
            lower="",
            alua="2",
        )
        monitor.found = [FOUND._replace(seen=standby)] * 2
    assert monitor.holds_s() == (MINUTE_S if status == ocf.RUNNING_PROMOTED else 145.0)


def test_an_entry_that_the_kernel_refused_is_tried_again_within_a_minute(monitor: Monitor) -> None:
    state_files.of_device("vol1", "refused-entries").write("iqn.2026-11.net.example:x: refused")
    assert monitor.holds_s() == MINUTE_S


@pytest.mark.parametrize("kind", ["verify", "sync"])
def test_what_the_resync_service_has_left_open_is_seen_to_by_each_monitor(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """It was killed, say; and again, after a monitor had started it."""
    monkeypatch.setattr(device_files, "note_path", lambda _device, each: str(tmp_path / each))
    now_s = int(time.time())
    left = {
        "verify": VerifyResult(now_s, RUNNING, now_s),
        "sync": ResyncRecord(FAST, "reconnected", resync_record.RUNNING, now_s),
    }
    (tmp_path / kind).write_text(f"{left[kind]}\n")
    assert monitor.run() == ""
    (tmp_path / kind).unlink()
    monitor.found = [FOUND, FOUND]
    assert monitor.run()


def test_results_of_verifies_that_cannot_be_read_leave_none_and_fail_nothing(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_device: object) -> float | None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(verify, "looks_within_s", fail)
    assert monitor.run() == ""


def test_an_access_list_that_is_not_the_wanted_one_leaves_none(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lio, "access", lambda _name: ("iqn.2026-11.net.example:x",))
    assert monitor.run() == ""


def test_any_action_removes_the_one_of_before(monitor: Monitor) -> None:
    assert monitor.run()
    assert device.main(["device", "demote"]) in {ocf.NOT_RUNNING, ocf.ERR_GENERIC}
    assert not state_files.of_device("vol1", "fingerprint").exists()


@pytest.mark.parametrize("is_there", [True, False])
def test_what_a_resync_notes_beside_the_data_counts(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_there: bool
) -> None:
    """A resync between two monitors leaves DRBD's state as it was, and data that is not flushed."""
    device = Device("vol1", "0" * 32, 8192, "main", ("n1", "n2"), 1, ())
    data = tmp_path / "vol1.data"
    note = tmp_path / "vol1.filling"
    mount = pool_mount.Mount(str(tmp_path), "8:1", "/", "x", "xfs", frozenset(), frozenset())
    for module, name, answer in (
        (shutil, "which", __file__),
        (pool_mount, "mount_and_line_of", (mount, "x")),
        (drbdadm, "registry_links", []),
        (loop, "find", "/dev/loop0"),
        (fingerprint, "_content", record("file", "x", "y")),
    ):
        monkeypatch.setattr(module, name, lambda *_, _answer=answer, **__: _answer)
    monkeypatch.setattr(fingerprint, "_stat", lambda path: record("stat", path, "1"))
    if is_there:
        note.write_text("-\n")
    records = fingerprint._of_files(device, str(data), is_alone=False)
    kind = record("stat", str(note), "1") if is_there else record("absent", str(note))
    assert kind in records
