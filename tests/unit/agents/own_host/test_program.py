# SPDX-License-Identifier: GPL-2.0-or-later
"""A storage node as a host: what it logs in to, and that it never takes a disk from a guest."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace

import pytest

from sanctl.agents import cluster_toml
from sanctl.agents.own_host import program
from sanctl.drivers import initiator, node_stop
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.own_session import Record, Session
from sanctl.plan.host.logins import Attempts
from sanctl.system import parallel_calls
from sanctl.system.runner import CommandResult
from tests.fakes.pacemaker import FakePacemaker

_TARGET = "iqn.2026-11.net.example:lab.vol1"
_OWN, _PEER = Record(_TARGET, "10.77.1.1:3260"), Record(_TARGET, "10.77.1.2:3260")
_BOTH = (Session(1, _OWN), Session(2, _PEER))


class FakeRunner:
    """Answers by the first words of a command, and keeps what was run."""

    def __init__(self, answers: Mapping[str, str], *, fails: Collection[str] = ()) -> None:
        self.answers, self.fails, self.ran = answers, fails, list[str]()

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: str | None = None,
        ok: Collection[int] = (0,),
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        del timeout_s, stdin, ok, env
        line = " ".join(argv)
        self.ran.append(line)
        if any(line.startswith(each) for each in self.fails):
            raise CommandError(Problem("SAN-CMD-002", f"{line} failed"))
        found = [text for start, text in self.answers.items() if line.startswith(start)]
        return CommandResult(tuple(argv), 0, found[0] if found else "", "", 0.0)


@pytest.fixture(autouse=True)
def _disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initiator, "disks", lambda session: (f"sd{'abc'[session.sid]}",))
    monkeypatch.setattr(initiator, "maps_over", lambda _: ("36001405aa",))
    node = SimpleNamespace(iscsi=("10.77.1.1",))
    topology = SimpleNamespace(iqn_prefix="iqn.2026-11.net.example:lab", node=lambda _: node)
    monkeypatch.setattr(cluster_toml, "load_topology", lambda: topology)
    monkeypatch.setattr(node_stop, "is_stopping", lambda _: True)


def test_it_logs_in_to_what_has_no_session_and_waits_before_the_next_attempt() -> None:
    runner = FakeRunner(
        {
            "iscsiadm -m session": f"tcp: [2] 10.77.1.2:3260,2 {_TARGET} (non-flash)\n",
            "iscsiadm -m node": f"10.77.1.1:3260,1 {_TARGET}\n10.77.1.2:3260,2 {_TARGET}\n",
        },
        fails=[f"iscsiadm -m node -T {_TARGET}"],
    )
    state = program.Logins(tried={_PEER: Attempts(4, 0.0)})
    program.log_in_once(runner, state, now_s=10.0)
    program.log_in_once(runner, state, now_s=11.0)
    logins = [line for line in runner.ran if "--login" in line]
    assert logins == [f"iscsiadm -m node -T {_TARGET} -p 10.77.1.1:3260 --login --no_wait"]
    # That one has a session: its attempts are forgotten. The other's login was refused.
    assert state.tried == {_OWN: Attempts(1, 10.0)}


def test_whoever_logs_out_has_a_minute_to_delete_the_record() -> None:
    answers = {
        "iscsiadm -m session": f"tcp: [1] 10.77.1.1:3260,1 {_TARGET} (non-flash)\n",
        "iscsiadm -m node": f"10.77.1.1:3260,1 {_TARGET}\n",
    }
    runner, state = FakeRunner(answers), program.Logins()
    program.log_in_once(runner, state, now_s=10.0)
    answers["iscsiadm -m session"] = ""
    program.log_in_once(runner, state, now_s=20.0)
    program.log_in_once(runner, state, now_s=79.0)
    assert not [line for line in runner.ran if "--login" in line]
    program.log_in_once(runner, state, now_s=80.0)
    assert [line for line in runner.ran if "--login" in line]


def test_a_map_that_is_open_keeps_all_its_sessions() -> None:
    runner = FakeRunner({"dmsetup info": "1\n"}, fails=["multipath -f"])
    with pytest.raises(SanctlError, match="/dev/mapper/36001405aa is open"):
        program.end_target(runner, _BOTH)
    assert not [line for line in runner.ran if "logout" in line]


def test_a_map_that_stays_for_another_reason_keeps_them_too() -> None:
    runner = FakeRunner({"dmsetup info": "0\n"}, fails=["multipath -f"])
    with pytest.raises(CommandError, match="multipath -f 36001405aa failed"):
        program.end_target(runner, _BOTH)
    assert not [line for line in runner.ran if "logout" in line]


def test_the_map_goes_before_its_sessions() -> None:
    runner = FakeRunner({"dmsetup info": "0\n"})
    program.end_target(runner, _BOTH)
    assert runner.ran[-3:] == [
        "multipath -f 36001405aa",
        "iscsiadm -m session -r 1 --logout",
        "iscsiadm -m session -r 2 --logout",
    ]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_session_that_has_ended_meanwhile_has_ended(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    monkeypatch.setattr(
        initiator, "is_folder", lambda path: is_there and path.endswith("/session1")
    )
    runner = FakeRunner({}, fails=["iscsiadm -m session -r"])
    if is_there:
        with pytest.raises(CommandError):
            program.end_target(runner, _BOTH)
    else:
        program.end_target(runner, _BOTH)


def test_a_disk_without_a_map_that_is_mounted_keeps_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(initiator, "maps_over", lambda _: ())
    monkeypatch.setattr(initiator, "is_claimed", lambda disk: disk == "sdc")
    runner = FakeRunner({})
    with pytest.raises(SanctlError, match="/dev/sdc is open"):
        program.end_target(runner, _BOTH)
    assert runner.ran == []


def test_what_is_not_known_is_no_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.log_out(FakeRunner({}, fails=["iscsiadm -m session"]), is_all=True) == 1
    assert "not known" in capsys.readouterr().out


@pytest.mark.parametrize("is_all", [True, False])
def test_no_session_ends_where_a_unit_is_restarted_on_a_node_that_goes_on(
    monkeypatch: pytest.MonkeyPatch, is_all: bool
) -> None:
    """After each release, and by needrestart: on all nodes at about the same time."""
    monkeypatch.setattr(node_stop, "is_stopping", lambda _: False)
    answer = f"tcp: [1] 10.77.1.1:3260,1 {_TARGET} (x)\n"
    runner = FakeRunner({"iscsiadm -m session": answer, "dmsetup info": "0\n"})
    assert program.log_out(runner, is_all=is_all) == 0
    assert runner.ran == []


@pytest.mark.parametrize("is_all", [True, False])
def test_the_disks_of_other_sans_go_last(monkeypatch: pytest.MonkeyPatch, is_all: bool) -> None:
    """SBD's may be one: it has no map, and no claim on it."""
    other = "iqn.2001-01.com.example:other"
    answer = f"tcp: [1] 10.77.1.1:3260,1 {_TARGET} (x)\ntcp: [2] 10.9.9.9:3260,1 {other} (x)\n"
    asked: list[str] = []

    def end_each(calls: Mapping[str, object], **_: object) -> list[object]:
        asked.extend(calls)
        return []

    monkeypatch.setattr(parallel_calls, "run_all", end_each)
    assert program.log_out(FakeRunner({"iscsiadm -m session": answer}), is_all=is_all) == 0
    assert asked == ([_TARGET, other] if is_all else [_TARGET])


class FakeClock:
    """Time that passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s


def test_what_starts_after_the_logins_finds_the_maps_or_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = "iqn.2001-01.com.example:other"
    answers = {
        "iscsiadm -m session": "",
        "iscsiadm -m node": f"10.77.1.1:3260,1 {_TARGET}\n10.9.9.9:3260,1 {other}\n",
    }
    runner, clock = FakeRunner(answers), FakeClock()
    monkeypatch.setattr(program, "exists", lambda _: True)
    assert program.noted_targets(runner) == {_TARGET}

    def wait() -> int:
        wanted = lambda: program.noted_targets(runner)  # noqa: E731
        return program.await_maps(runner, clock, wanted, within_s=60.0)

    assert wait() == 1 and clock.now_s == 60.0
    # One question a round, whatever number of devices there is.
    assert runner.ran.count("iscsiadm -m session") == 31
    answers["iscsiadm -m session"] = f"tcp: [1] 10.77.1.1:3260,1 {_TARGET} (x)\n"
    assert wait() == 0 and clock.now_s == 60.0
    answers["iscsiadm -m node"] = ""
    assert wait() == 0


def test_a_record_of_a_deleted_device_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one of a device that lets this node in no more; without the CIB all that is noted may."""
    fake = FakePacemaker(golden="one-device")
    (parameters,) = fake.root.findall("configuration//primitive[@id='vm1']/instance_attributes")
    own = "iqn.1993-08.org.debian:01:n1"
    ET.SubElement(parameters, "nvpair", id="i", name="initiators", value=own)
    prefix = _TARGET.removesuffix("vol1")
    answers = {
        "iscsiadm -m node": f"10.77.1.1:3260,1 {prefix}vm1\n10.77.1.1:3260,1 {prefix}gone\n",
        "cibadmin --query": fake.query(),
    }
    runner = FakeRunner(answers)

    def awaited(iqn: str, *, fails: Collection[str] = ()) -> set[str]:
        monkeypatch.setattr(initiator, "own_iqn", lambda: iqn)
        runner.fails = fails
        found = program.awaited_targets(runner)
        return {target.removeprefix(prefix) for target in found}

    assert awaited(own) == awaited("") == {"vm1"}
    assert awaited("iqn.2001-01.com.example:another") == set()
    assert awaited(own, fails=["cibadmin"]) == {"vm1", "gone"}
    with pytest.raises(SanctlError):
        awaited(own, fails=["iscsiadm"])


@pytest.mark.parametrize(
    ("text", "iqn"),
    [
        ("## x\nInitiatorName=iqn.1993-08.org.debian:01:Ab\n", "iqn.1993-08.org.debian:01:ab"),
        ("#InitiatorName=iqn.1993-08.org.debian:01:a\n", ""),
        ("", ""),
    ],
)
def test_the_initiators_name_as_open_iscsi_writes_it(
    monkeypatch: pytest.MonkeyPatch, text: str, iqn: str
) -> None:
    monkeypatch.setattr(initiator, "read_text_or", lambda *_: text)
    assert initiator.own_iqn() == iqn


def test_it_ends_where_another_release_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read at first is no end; sessions are left as they are."""
    left = iter([False, False, True])
    monkeypatch.setattr(program, "is_replaced", lambda _: next(left))
    runner, clock = FakeRunner({}, fails=["iscsiadm -m session"]), FakeClock()
    program.log_in_until_replaced(runner, clock)
    assert clock.now_s == 20.0
    assert not [line for line in runner.ran if "--log" in line]


def test_a_map_counts_once_it_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    there = set[str]()
    monkeypatch.setattr(program, "exists", there.__contains__)
    assert not program.has_map(_BOTH)
    there.add("/dev/mapper/36001405aa")
    assert program.has_map(_BOTH)
    assert not program.has_map(())
