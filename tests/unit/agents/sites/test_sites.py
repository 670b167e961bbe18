# SPDX-License-Identifier: GPL-2.0-or-later
"""Copies by schedule: begun on a standby, one attempt for an interval, by one node."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sanctl.agents import cluster_toml, deleted_devices, pool
from sanctl.agents.sites import due, program
from sanctl.drivers import gate, point_files
from sanctl.drivers.node_facts import NodeFacts
from sanctl.errors import CommandError, Problem
from sanctl.model.cib_change import SetCopy, SetCopySchedule, SetGroupRecord, SetSite
from sanctl.model.copy_progress import PROGRESS_PREFIX, SENDING, CopyProgress, CopyStep
from sanctl.model.packed_states import STATES_ATTRIBUTE, pack
from sanctl.model.point_schedule import PointSchedule, Rule
from sanctl.model.site import CopyRecord, CopySchedule
from sanctl.model.site_group import CompleteMoment, GroupRecord
from sanctl.ops.copy_run import CopyMade
from sanctl.system import state_files
from sanctl.system.runner import CommandResult, LocalRunner
from tests.unit.model.test_site import COPY, SITE
from tests.unit.ops.test_snapshot import Bed, bed_with_device

NOW = 1_764_072_000.0
SCHEDULE = CopySchedule("web", "far", 0, Rule(900, 7))
PROPERTIES = {SCHEDULE.id: SCHEDULE.value, "dc-version": "3.0.0", "sanctl-copying.x.far": "?"}
UNIT = "sanctl-copy@web.far.service"


class Recorder(LocalRunner):
    def __init__(self, *, fails: bool = False) -> None:
        self.started: list[str] = []
        self.fails = fails

    def run(self, argv: Sequence[str], **_: object) -> CommandResult:
        self.started.append(argv[-1])
        if self.fails:
            raise CommandError(Problem("SAN-CMD-002", "systemd does not answer"))
        return CommandResult(tuple(argv), 0, "", "", 0.0)


@pytest.fixture(autouse=True)
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    state_files.make_folder()
    now = [NOW]
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(gate, "gate_table", lambda _: "error")
    return now


def started(properties: dict[str, str], *, fails: bool = False) -> list[str]:
    runner = Recorder(fails=fails)
    due.start_due(runner, properties)
    return runner.started


def test_started_on_a_standby_once_in_an_interval(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert started({}) == []
    assert started(PROPERTIES) == [UNIT] == started(PROPERTIES, fails=True)
    for table in ("drbd1", "absent"):
        monkeypatch.setattr(gate, "gate_table", lambda _, table=table: table)
        assert started(PROPERTIES) == []
    monkeypatch.setattr(gate, "gate_table", lambda _: "error")
    record = CopyRecord("web", "far", "d" * 32, "", COPY._replace(made_s=int(NOW)))
    assert started({**PROPERTIES, record.id: record.value}) == []
    due.note_attempt(due.Turn.of_device(SCHEDULE))
    assert started(PROPERTIES) == []
    clock[0] += 900
    assert started(PROPERTIES) == [UNIT]


def test_the_sites_are_asked_after_a_boot_and_now_and_then(clock: list[float]) -> None:
    record = CopyRecord("web", "far", "d" * 32, "", COPY)
    properties = {record.id: record.value}

    def asked(properties: dict[str, str], *, fails: bool = False) -> list[str]:
        runner = Recorder(fails=fails)
        due.start_look(runner, properties)
        return runner.started

    assert asked({}) == [] == asked({SCHEDULE.id: SCHEDULE.value})
    assert asked(properties, fails=True) == ["sanctl-sites.service"]
    assert asked(properties) == ["sanctl-sites.service"], "it was not started"
    assert asked(properties) == []
    clock[0] += 600
    assert asked(properties) == ["sanctl-sites.service"]


def test_one_for_each_monitor() -> None:
    other = SCHEDULE._replace(device="web2")
    both = {**PROPERTIES, other.id: other.value}
    assert started(both) == [UNIT]
    # The first one is due still: its process has left it alone, or has made a copy and is due anew.
    assert started(both) == ["sanctl-copy@web2.far.service"]
    assert started(both) == [UNIT]


def test_none_is_started_while_one_is_under_way() -> None:
    with state_files.locked(due.lock_path(), wait_s=0.0):
        assert started(PROPERTIES) == []
    assert started(PROPERTIES) == [UNIT]


def test_without_room_for_the_note_it_is_started_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state_files.StateFile, "write", fail)
    assert started(PROPERTIES) == [UNIT] == started(PROPERTIES)


@pytest.mark.parametrize(("is_quorate", "wanted"), [(True, [UNIT]), (False, [])])
def test_the_monitor_starts_it_with_quorum(
    monkeypatch: pytest.MonkeyPatch, wanted: list[str], *, is_quorate: bool
) -> None:
    runner: Any = Recorder()
    monkeypatch.setattr(deleted_devices, "is_quorate", lambda: is_quorate)
    monkeypatch.setattr(point_files, "listed", lambda _: [])
    monkeypatch.setattr("sanctl.agents.points.upkeep.keep_up", lambda *_, **__: None)
    pool._keep_points_up(runner, {}, PROPERTIES)
    assert runner.started == wanted


class Runs:
    """The program on a node, and the copies that it has made."""

    def __init__(self, bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bed, self.made = bed, list[str]()
        self.error: Exception | None = None
        self.patch = monkeypatch
        monkeypatch.setattr(program, "Pacemaker", lambda _: bed.cluster)
        monkeypatch.setattr(program, "SystemClock", lambda: bed.env.clock)
        monkeypatch.setattr(program, "replicate", self.replicate)
        monkeypatch.setattr(NodeFacts, "ipc_buffer_bytes", lambda _: None)
        monkeypatch.setattr(sys, "argv", ["copy-to-site", "web.far"])

    def replicate(
        self, _session: Any, name: Any, site: str, order: Any, node: Any, **w: Any
    ) -> Any:
        assert (str(name), site, w["keep"], w["from_active"]) == ("web", "far", 7, False)
        self.made.append(f"{node.name} {order.name}")
        if self.error is not None:
            raise self.error
        return CopyMade(COPY, None, True, ())

    def on(self, node: str) -> list[str]:
        self.made.clear()
        self.patch.setattr(os, "uname", lambda: os.uname_result(("Linux", node, "", "", "")))
        assert program.main() == 0
        return list(self.made)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(bed_with_device(monkeypatch), monkeypatch)


def test_the_first_standby_makes_it(runs: Runs, clock: list[float]) -> None:
    assert runs.on("n2") == [], "there is no schedule"
    runs.bed.session.change(lambda _: (SetSite(site=SITE),))
    runs.bed.session.change(lambda _: (SetCopySchedule(schedule=SCHEDULE),))
    assert runs.on("n1") == [], "it serves"
    assert runs.on("n2") == ["n2 to-far-20251125-120000"]
    assert runs.on("n2") == [], "one attempt for an interval"
    clock[0] += 900
    with state_files.locked(due.lock_path(), wait_s=0.0):
        assert runs.on("n2") == [], "another copy is under way"
    runs.error = CommandError(Problem("SAN-SITE-005", "no route"))
    assert len(runs.on("n2")) == 1
    assert runs.on("n2") == [], "also one that failed is an attempt"


def test_that_no_standby_is_in_sync_is_said_once(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: status sent to the journal, which had no line."""
    said: list[str] = []
    monkeypatch.setattr(program, "_log", lambda name, text, **_: said.append(f"{name}: {text}"))
    runs.bed.session.change(lambda _: (SetSite(site=SITE),))
    runs.bed.session.change(lambda _: (SetCopySchedule(schedule=SCHEDULE),))
    in_sync = runs.bed.cluster
    behind = "disk=Inconsistent connection=Connected replication=SyncTarget out-of-sync=9"

    def publish(text: str) -> None:
        in_sync.private_attributes["n2", STATES_ATTRIBUTE] = pack({"web": text})

    publish(behind)
    assert runs.on("n2") == runs.on("n2") == []
    assert said == ["web: no copy at site far: no standby is in sync; the copy waits for that"]
    del in_sync.private_attributes["n2", STATES_ATTRIBUTE]
    assert len(runs.on("n2")) == 1
    # It has become so again.
    assert due.note_wait(due.Turn.of_device(SCHEDULE), "so")
    assert not due.note_wait(due.Turn.of_device(SCHEDULE), "so")


def test_nor_without_room_for_the_note(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    turn = due.Turn.of_device(SCHEDULE)
    monkeypatch.setattr(state_files.StateFile, "write", fail)
    assert not due.note_wait(turn, "so")


def test_a_copy_that_another_node_makes_is_left_alone(runs: Runs, clock: list[float]) -> None:
    """It was the first standby while this node was away, and may be at it for days."""
    token = "7" * 16
    record = CopyRecord("web", "far", "d" * 32, token, None)
    runs.bed.session.change(lambda _: (SetSite(site=SITE), SetCopySchedule(schedule=SCHEDULE)))
    runs.bed.session.change(lambda _: (SetCopy(record=record),))
    now_s = int(runs.bed.env.clock.wall_s())
    step = CopyStep(SENDING, 1, 2)
    said = runs.bed.cluster.private_attributes
    said["n1", f"{PROGRESS_PREFIX}web.far"] = str(CopyProgress(token, step, now_s, now_s))
    assert runs.on("n2") == []
    # No attempt is used up, and what is old is of a process that was killed.
    said["n1", f"{PROGRESS_PREFIX}web.far"] = str(CopyProgress(token, step, 0, now_s - 999))
    assert runs.on("n2") == ["n2 to-far-20251125-120000"]


GROUP = GroupRecord(("db.dddddddd", "web.00000000"), "far", 0, PointSchedule(0, (Rule(900, 7),)))


def test_a_group_is_started_where_all_its_devices_are_standbys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unit = "sanctl-copy@db.far.group.service"
    properties = {GROUP.id: GROUP.value}
    assert started(properties) == [unit]
    complete = GROUP._replace(complete=CompleteMoment("p", int(NOW), int(NOW)))
    assert started({GROUP.id: complete.value}) == []
    assert started({GROUP.id: GROUP._replace(schedule=None).value}) == []
    monkeypatch.setattr(gate, "gate_table", lambda name: "error" if name == "web" else "drbd1")
    assert started(properties) == []
    monkeypatch.setattr(gate, "gate_table", lambda _: "error")
    due.note_attempt(due.Turn.of_group(GROUP, Rule(900, 7)))
    assert started(properties) == []
    assert started({**properties, **PROPERTIES}) == [UNIT], "it has turns of its own"


def test_a_group_is_copied_by_its_unit(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    asked: list[tuple[str, ...]] = []

    def replicate_group(
        _session: Any, orders: Any, site: str, node: Any, **w: Any
    ) -> dict[str, CopyMade]:
        assert (site, node.name, w["keep"], w["without"]) == ("far", "n2", 7, ())
        asked.append(tuple(each.value for each in orders))
        return dict.fromkeys(asked[-1], CopyMade(COPY, None, True, ()))

    monkeypatch.setattr(program, "replicate_group", replicate_group)
    monkeypatch.setattr(sys, "argv", ["copy-to-site", "db.far.group"])
    runs.on("n2")
    assert asked == [], "there is no such group"
    runs.bed.session.change(lambda _: (SetSite(site=SITE), SetGroupRecord(record=GROUP)))
    runs.on("n2")
    assert asked == [], "there is no device db"
    monkeypatch.setattr(program, "sender_of_group", lambda *_: "n2")
    runs.on("n1")
    assert asked == []
    runs.on("n2")
    runs.on("n2")
    assert asked == [("db", "web")]
    clock[0] += 900
    runs.bed.session.change(lambda _: (SetGroupRecord(record=GROUP._replace(schedule=None)),))
    runs.on("n2")
    assert len(asked) == 1


def test_files_are_in_the_pool(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    point = runs.bed.create("one")

    class Pool:
        path = "/srv/main"

    class Topology:
        def pool(self, name: str) -> Pool | None:
            return Pool() if name == "main" else None

    monkeypatch.setattr(cluster_toml, "load_topology", Topology)
    assert program._file_of(point) == f"/srv/main/points/web.{point.uuid}.{point.token}"
    with pytest.raises(CommandError, match="SAN-AGENT-004"):
        program._file_of(point._replace(pool="other"))
