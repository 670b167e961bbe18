# SPDX-License-Identifier: GPL-2.0-or-later
"""`device restore` from the order to its end: what it refuses, keeps, waits for, and says."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace

import click
import pytest

import sanctl.cli.environment
from sanctl.cli.main import main
from sanctl.errors import CommandError, NotConverged, Refused
from sanctl.model.cib_change import AddMove, ClearParameter, SetParameter, SetPoint
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec, access_digest
from sanctl.model.device_restore import (
    COPYING,
    DONE,
    GIVEN_UP,
    OLDER_KEY,
    REPORT_PREFIX,
    RestoreOrder,
    RestoreReport,
    packed,
)
from sanctl.model.host_session import SESSIONS_ATTRIBUTE
from sanctl.model.names import ByteSize, DeviceName
from sanctl.model.restore_point import PointOrder, RestorePoint
from sanctl.model.site_copy import SiteCopy
from sanctl.ops import noted_state
from sanctl.ops.device_change import DeviceOutcome
from sanctl.ops.device_restore import check_restore, order_progress, restore_device
from sanctl.ops.session import Session
from sanctl.ops.snapshot import create_point, delete_point
from sanctl.plan.cluster.cib_size import added_text
from sanctl.plan.device.alteration import plan_move, plan_resize
from sanctl.plan.device.restore_request import RestoreRequest, plan_restore
from sanctl.render.cib import render_patchset
from tests.fakes.pacemaker import FakeReporter
from tests.unit.cli.test_commands import I1, FakeEnvironment

NAME = DeviceName.parse("web")
IPC = 128 << 10


class Bed:
    """A device with the restore point `good`."""

    def __init__(self, run: Callable[..., tuple[int, str, str]], env: FakeEnvironment) -> None:
        self.env, self.run = env, run
        self.cluster = env.pacemaker
        self.session = Session(self.cluster, env.clock, FakeReporter())
        assert run("device", "create", "web", "--size", "64M", "--initiator", I1)[0] == 0
        self.good = self.point("good", 1)
        for node in ("n1", "n2"):
            self.cluster.private_attributes[node, SESSIONS_ATTRIBUTE] = ""

    def point(self, name: str, number: int) -> RestorePoint:
        order = PointOrder(name, f"{number:016x}", int(self.env.clock.wall_s()))
        return create_point(self.session, NAME, order, ipc_buffer_bytes=IPC, timeout_s=30)[1]

    def request(
        self, point: str = "good", number: int = 50, *, keeps: bool = True
    ) -> RestoreRequest:
        kept = PointOrder(f"kept{number}", f"{number + 1:016x}", 0)
        return RestoreRequest(
            device=NAME, point=point, token=f"{number:016x}", kept=kept if keeps else None
        )

    def restore(self, request: RestoreRequest, timeout_s: float = 60.0) -> DeviceOutcome:
        return restore_device(self.session, request, ipc_buffer_bytes=IPC, timeout_s=timeout_s)

    def seen(self) -> Cluster:
        return self.session.observe()

    def device(self) -> DeviceSpec:
        found = self.seen().cib.device("web")
        assert found is not None
        return found

    def order(self) -> RestoreOrder:
        found = self.device().restore
        assert found is not None
        return found

    def set_restore(self, value: str) -> None:
        change = SetParameter(name=NAME, parameter="restore", value=value)
        self.cluster.patch(render_patchset(self.cluster.root, (change,)))
        self.cluster.tick()

    def begun(self, **changes: object) -> None:
        """Let a restore be under way, and copy nothing."""
        self.cluster.ignores_restores = True
        with pytest.raises(NotConverged, match="goes on by itself"):
            self.restore(self.request(), timeout_s=5)
        self.set_restore(str(self.order()._replace(state=COPYING, **changes)))  # type: ignore[arg-type]


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bed:
    env = FakeEnvironment()
    monkeypatch.setattr(sanctl.cli.environment, "Environment", lambda: env)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sanctl", *words])
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        return int(stop.value.code or 0), output.out, output.err

    return Bed(run, env)


def test_restored_and_what_was_there_is_kept(bed: Bed) -> None:
    outcome = bed.restore(bed.request())
    assert outcome.changed and not outcome.device.is_restoring
    assert bed.order().state == DONE
    assert [point.name for point in bed.seen().cib.points] == ["good", "kept50"]
    assert bed.order().kept_token == bed.seen().cib.points[1].token
    # The way back, and nothing is kept.
    bed.restore(bed.request("kept50", 60, keeps=False))
    assert [point.name for point in bed.seen().cib.points] == ["good", "kept50"]
    # The same point once more is another restore.
    assert bed.restore(bed.request("good", 70)).changed


def test_the_order_counts_in_the_cibs_room(bed: Bed) -> None:
    changes = plan_restore(bed.seen(), bed.request(), {"n1": (), "n2": ()}, 1.0)
    order = next(c for c in changes if isinstance(c, SetParameter) and c.parameter == "restore")
    assert order.value in added_text(bed.seen(), changes)


def test_hosts_are_kept_out_by_the_order(bed: Bed) -> None:
    bed.begun()
    published = bed.seen().cib.replicas["web", "n1"].access
    assert published == access_digest(()) != access_digest((I1,))
    assert bed.device().access == frozenset() and bed.device().initiators
    # What changes meanwhile is stored, and the command does not wait in vain.
    assert bed.run("target", "deny", "web", I1)[0] == 0
    assert bed.device().initiators == ()


def test_the_same_command_waits_for_what_is_under_way(bed: Bed) -> None:
    bed.begun()
    assert check_restore(bed.session, bed.request(number=80)).is_under_way
    bed.cluster.ignores_restores = False
    outcome = bed.restore(bed.request(number=80))
    assert not outcome.changed
    assert bed.order().token == f"{50:016x}"


def test_another_point_is_the_way_out_of_one_that_cannot_be_read(bed: Bed) -> None:
    other = bed.point("other", 5)
    bed.begun()
    with pytest.raises(NotConverged):
        bed.restore(bed.request("other", 90), timeout_s=5)
    assert bed.order().point_token == other.token
    assert bed.order().kept_token == f"{51:016x}", "half a state is not kept once more"
    assert bed.order().state == COPYING


def test_not_to_another_point_before_the_copy_begins(bed: Bed) -> None:
    bed.point("other", 5)
    bed.cluster.ignores_restores = True
    with pytest.raises(NotConverged):
        bed.restore(bed.request(), timeout_s=5)
    with pytest.raises(Refused, match="SAN-REST-005"):
        check_restore(bed.session, bed.request("other", 90))


def test_given_up_where_the_present_state_cannot_be_kept(bed: Bed) -> None:
    bed.cluster.point_failure = ("SAN-SNAP-003", "no room")
    with pytest.raises(CommandError, match="SAN-SNAP-003: no room; nothing was written"):
        bed.restore(bed.request())
    assert not bed.device().is_restoring
    bed.cluster.attribute("n1", f"{REPORT_PREFIX}web", None)
    bed.cluster.point_failure = None
    bed.restore(bed.request(number=60))


def test_an_order_that_was_replaced_or_is_gone(bed: Bed) -> None:
    bed.cluster.ignores_restores = True
    bed.env.clock.on_sleep = lambda: bed.set_restore(str(bed.order()._replace(token="f" * 16)))
    with pytest.raises(CommandError, match="SAN-REST-006"):
        bed.restore(bed.request())


@pytest.mark.parametrize(
    ("sessions", "who"),
    [
        ({"n1": f"{I1},10.0.0.7=web", "n2": ""}, I1),
        ({"n1": "", "n2": None}, "hosts of n2, which does not say"),
        ({"n1": "?", "n2": ""}, "hosts of n1, which does not say"),
    ],
)
def test_hosts_that_are_logged_in(bed: Bed, sessions: dict[str, str | None], who: str) -> None:
    for node, value in sessions.items():
        bed.cluster.private_attributes.pop((node, SESSIONS_ATTRIBUTE), None)
        if value is not None:
            bed.cluster.private_attributes[node, SESSIONS_ATTRIBUTE] = value
    with pytest.raises(Refused, match=f"SAN-REST-001: .*{who}"):
        bed.restore(bed.request())
    assert bed.device().restore is None
    bed.restore(replace(bed.request(), accepted=("SAN-REST-001",)))


def test_hosts_of_other_devices_do_not_matter(bed: Bed) -> None:
    bed.cluster.private_attributes["n1", SESSIONS_ATTRIBUTE] = f"{I1},10.0.0.7=db"
    assert not check_restore(bed.session, bed.request()).is_under_way


def test_what_is_to_be_kept_is_decided_when_the_order_is_given(bed: Bed) -> None:
    """The node with the newer CIB may be back by then, and have let hosts in."""
    bed.point("before", 7)
    (point,) = [each for each in bed.seen().cib.points if each.name == "before"]
    copy = SiteCopy("far", "web", "e" * 32, "to-far", "4" * 16, "c" * 64)
    half = RestoreOrder("5" * 16, str(copy), "5" * 16, point.token, 9000, COPYING, holds=True)
    for node in ("n1", "n2"):
        bed.cluster.in_contact[node] = f" {OLDER_KEY}={packed(str(half))}"
    bed.cluster.tick()
    checked = check_restore(bed.session, bed.request())
    assert checked.is_lost and checked.request.kept == bed.request().kept
    bed.cluster.in_contact.clear()
    bed.cluster.tick()
    bed.restore(checked.request)
    assert bed.order().kept_token == f"{51:016x}"


def test_a_node_that_does_not_say_what_it_has_noted_is_waited_for(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a moment after a restart of its attrd."""
    said: list[Cluster] = []
    own = bed.session.observe

    def observe() -> Cluster:
        seen = own()
        said.append(seen)
        if len(said) > 3:
            return seen
        replicas = {key: each for key, each in seen.cib.replicas.items() if key[1] != "n2"}
        return replace(seen, cib=replace(seen.cib, replicas=replicas))

    monkeypatch.setattr(bed.session, "observe", observe)
    assert not check_restore(bed.session, bed.request()).is_under_way
    said.clear()
    monkeypatch.setattr(noted_state, "_SAID_S", 0.0)
    with pytest.raises(Refused, match="SAN-REST-019"):
        check_restore(bed.session, bed.request())


def test_a_node_that_is_silent_after_the_question_is_waited_for(bed: Bed) -> None:
    checked = check_restore(bed.session, bed.request())
    bed.cluster.attribute("n2", "sanctl-web", None)
    bed.restore(checked.request)
    assert bed.order().state == DONE


def test_points_that_cannot_be_used(bed: Bed) -> None:
    with pytest.raises(Refused, match="SAN-SNAP-009"):
        bed.restore(bed.request("none"))
    for name, point, code in (
        ("on-n2", bed.good._replace(nodes=("n2",)), "SAN-REST-002: .*device move web --to n2"),
        ("nowhere", bed.good._replace(nodes=("n9",)), "SAN-REST-002: .*choose another"),
        ("large", bed.good._replace(size_bytes=1 << 40), "SAN-REST-003: .*1 TiB"),
        ("going", bed.good._replace(is_deleting=True, nodes=("n1", "n9")), "SAN-REST-003"),
    ):
        each = point._replace(name=name, token=f"{len(name):016x}")
        bed.cluster.patch(render_patchset(bed.cluster.root, (SetPoint(point=each),)))
        with pytest.raises(Refused, match=f"(?s){code}"):
            check_restore(bed.session, bed.request(name))


def test_a_device_that_no_node_serves(bed: Bed) -> None:
    for node in ("n1", "n2"):
        bed.cluster.crash(node)
    with pytest.raises(Refused):
        bed.restore(bed.request())


def test_a_device_that_is_being_moved(bed: Bed) -> None:
    move = AddMove(name=NAME, node=bed.device().nodes[1], until="2099-01-01 00:00:00Z")
    bed.cluster.patch(render_patchset(bed.cluster.root, (move,)))
    with pytest.raises(Refused, match="SAN-REST-004"):
        check_restore(bed.session, bed.request())


def test_a_move_that_is_over_keeps_no_device_from_being_restored(bed: Bed) -> None:
    """Its command was killed, and the constraint stays in the CIB until the next move."""
    move = AddMove(name=NAME, node=bed.device().nodes[1], until="2001-01-01 00:00:00Z")
    bed.cluster.patch(render_patchset(bed.cluster.root, (move,)))
    check_restore(bed.session, bed.request())


def test_what_goes_meanwhile_and_what_does_not(bed: Bed) -> None:
    bed.begun()
    for point in ("good", "kept50"):
        with pytest.raises(Refused, match="SAN-REST-005"):
            delete_point(bed.session, NAME, point, timeout_s=5)
    with pytest.raises(Refused, match="SAN-REST-005"):
        bed.point("more", 7)
    with pytest.raises(Refused, match="SAN-REST-005"):
        plan_resize(bed.seen(), NAME, ByteSize.parse("1G"))
    assert "SAN-REST-005" in bed.run("device", "replicas", "web", "1", "--yes")[2]
    assert plan_move(bed.seen(), NAME, bed.device().nodes[1], now_s=0)
    assert bed.run("device", "move", "web", "--to", "n2")[0] == 0
    assert bed.run("device", "delete", "web", "--yes", "--with-points")[0] == 0


def test_what_another_release_has_ordered(bed: Bed) -> None:
    bed.set_restore("as a later release writes it")
    assert bed.device().is_restoring and bed.device().restore is None
    with pytest.raises(Refused, match="SAN-REST-010"):
        check_restore(bed.session, bed.request())
    with pytest.raises(Refused, match="SAN-REST-005"):
        delete_point(bed.session, NAME, "good", timeout_s=5)
    status, out, _ = bed.run("status")
    assert status == 1 and "SAN-HLT-111" in out


def test_shown_while_it_is_under_way(bed: Bed) -> None:
    bed.begun()
    report = RestoreReport(bed.order().token, "", "", 16 << 20, 64 << 20, 8 << 20)
    bed.cluster.attribute("n1", f"{REPORT_PREFIX}web", str(report))
    _, out, _ = bed.run("device", "show", "web")
    shown = "restoring:    from restore point good: 25 % compared, 8 MiB differed so far; no host"
    assert shown in out
    status, out, _ = bed.run("status")
    assert status == 1 and "SAN-HLT-110" in out and "25 % compared" in out
    _, out, _ = bed.run("device", "show", "web", "--output", "json")
    assert json.loads(out)["data"]["state"] == "restoring"
    assert json.loads(out)["data"]["restore"] == {
        "point": "good", "copying": True, "held": False, "done_bytes": 16 << 20,
        "written_bytes": 8 << 20, "problem": None,
    }  # fmt: skip
    bed.cluster.attribute("n1", f"{REPORT_PREFIX}web", str(report._replace(token="9" * 16)))
    assert "not begun yet" in bed.run("device", "show", "web")[1]
    waits = RestoreReport(bed.order().token, text="n2 still lets hosts in")
    bed.cluster.attribute("n1", f"{REPORT_PREFIX}web", str(waits))
    assert "from restore point good: n2 still lets hosts in" in bed.run("device", "show", "web")[1]
    failed = RestoreReport(bed.order().token, "SAN-REST-008", "it cannot be read")
    bed.cluster.attribute("n1", f"{REPORT_PREFIX}web", str(failed))
    status, out, _ = bed.run("status")
    assert "SAN-HLT-111" in out and "it cannot be read" in out
    assert "SAN-REST-008: it cannot be read" in bed.run("device", "show", "web")[1]


def test_a_node_that_lacks_the_point_is_a_finding(bed: Bed) -> None:
    bed.begun()
    alone = bed.good._replace(nodes=("n2",))
    bed.cluster.patch(render_patchset(bed.cluster.root, (SetPoint(point=alone),)))
    _, out, _ = bed.run("device", "show", "web", "--output", "json")
    assert "SAN-REST-002" in json.loads(out)["data"]["restore"]["problem"]
    _, out, _ = bed.run("status")
    assert "SAN-HLT-111" in out and "sanctl device move web --to n2" in out
    bed.cluster.crash("n1")
    bed.cluster.crash("n2")
    _, out, _ = bed.run("status")
    assert "SAN-HLT-110" in out and "no node serves it" in out


def test_the_command_asks(bed: Bed) -> None:
    status, _, err = bed.run("device", "restore", "web", "--to", "good")
    assert status == 2 and "SAN-CLI-002" in err and "is kept as web@before-restore-" in err
    assert "also those without a session now, will write over it" in err
    assert bed.device().restore is None
    status, out, _ = bed.run("device", "restore", "web", "--to", "good", "--yes")
    assert status == 0 and "device web is back at restore point good" in out
    assert "also those without a session now" in out
    assert "--to before-restore-2027" in out
    status, _, err = bed.run("device", "restore", "web", "--to", "good", "--no-keep")
    assert status == 2 and "what is on it now is lost" in err
    status, out, _ = bed.run("device", "restore", "web", "--to", "good", "--no-keep", "--yes")
    assert status == 0 and "kept" not in out


@pytest.mark.parametrize("changed", ["device", "point"])
def test_what_was_made_anew_while_the_question_was_open_is_left_alone(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    def answer(*_: object, **__: object) -> bool:
        if changed == "device":
            assert bed.run("device", "delete", "web", "--yes", "--with-points")[0] == 0
            assert bed.run("device", "create", "web", "--size", "64M")[0] == 0
        else:
            delete_point(bed.session, NAME, "good", timeout_s=30)
        bed.point("good", 9)
        return True

    monkeypatch.setattr(click, "confirm", answer)
    status, _, err = bed.run("device", "restore", "web", "--to", "good")
    assert status == 4, err
    assert {"device": "SAN-DEV-022", "point": "SAN-SNAP-020"}[changed] in err
    assert bed.device().restore is None


def test_it_is_withdrawn_until_something_is_written(bed: Bed) -> None:
    status, out, _ = bed.run("device", "restore", "web", "--cancel")
    assert status == 0 and "no restore is under way" in out
    bed.cluster.ignores_restores = True
    with pytest.raises(NotConverged):
        bed.restore(bed.request(), timeout_s=5)
    assert "restore web --cancel" in bed.run("device", "resize", "web", "1G")[2]
    status, out, _ = bed.run("device", "restore", "web", "--cancel")
    assert status == 0 and "hosts are let in" in out and "delete web@kept50" in out
    assert bed.order().state == GIVEN_UP and bed.device().access == {I1}
    # The command that waits for it learns of that.
    with pytest.raises(CommandError, match=r"SAN-REST-007.*nothing was written"):
        order_progress(bed.seen(), NAME, bed.order().token)
    bed.set_restore(str(bed.order()._replace(state=COPYING)))
    status, _, err = bed.run("device", "restore", "web", "--cancel")
    assert status == 4 and "SAN-REST-013" in err and bed.order().state == COPYING


@pytest.mark.parametrize(
    "words", [("--no-keep", "--yes"), ("--cancel", "--to", "good"), ("--cancel", "--no-keep")]
)
def test_either_a_goal_or_the_withdrawal(bed: Bed, words: tuple[str, ...]) -> None:
    status, _, err = bed.run("device", "restore", "web", *words)
    assert status == 2 and "either '--to POINT' or '--cancel'" in err


def test_an_order_that_is_gone_from_the_cib(bed: Bed) -> None:
    bed.cluster.ignores_restores = True

    def clear() -> None:
        gone = ClearParameter(name=NAME, parameter="restore")
        bed.cluster.patch(render_patchset(bed.cluster.root, (gone,)))

    bed.env.clock.on_sleep = clear
    with pytest.raises(CommandError, match="SAN-REST-006"):
        bed.restore(bed.request())
