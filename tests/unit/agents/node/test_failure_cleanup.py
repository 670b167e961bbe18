# SPDX-License-Identifier: GPL-2.0-or-later
"""Failures whose cause is gone are cleaned up, each once, and no others."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sanctl.agents import device as agent
from sanctl.agents import ocf
from sanctl.agents.node import failure_cleanup
from sanctl.agents.node.failure_cleanup import DEMOTE, MONITOR, PROMOTE, START
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdsetup
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system import journal, state_files
from tests.fakes.runner import Answer, FakeRunner

GONE = CommandError(Problem("SAN-POOL-003", "pool main is not mounted"))
NO_ANSWER = CommandError(Problem("SAN-CMD-003", "no answer"))
PEER = PeerState("peer", "Connected", "Primary", "Established", "UpToDate", 0)
IN_SYNC = ResourceState("a", "Secondary", "no", "UpToDate", 1024, (PEER,))


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(drbdsetup, "observe", lambda _runner, _name: IN_SYNC)
    return tmp_path


def device(name: str, pool: str = "main") -> Device:
    return Device(
        name=name, uuid="0" * 32, size_bytes=0, pool=pool, nodes=("n1", "n2"), minor=7,
        initiators=(),
    )  # fmt: skip


def fail(name: str, pool: str = "main") -> None:
    with (
        pytest.raises(CommandError, match="not mounted"),
        failure_cleanup.note_start_failure(device(name, pool)),
    ):
        raise GONE


def fail_monitor(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as within:
        within.setenv("OCF_RESKEY_CRM_meta_interval", "11000")
        failure_cleanup.write_note(device(name), MONITOR)


def age(folder: Path, by_s: float = 11.0) -> None:
    for path in (folder / "node").iterdir():
        os.utime(path, (time.time() - by_s,) * 2)


NONE_ORDERED: Answer = (105, "", "")


def asked(during: Callable[[], Answer] = lambda: "", ordered: Answer = NONE_ORDERED) -> list[str]:
    """Run the pool agent's cleanup, with pool main usable; return the cleanups it ran."""

    def run(argv: Sequence[str]) -> Answer:
        return ordered if argv[0] == "cibadmin" else during()

    runner = FakeRunner(run)
    failure_cleanup.clean_up(runner, failure_cleanup.resolved_failures(runner, {"main"}))
    return [" ".join(argv) for argv, _ in runner.calls if argv[0] != "cibadmin"]


def cleanup(name: str, operation: str = START, interval: str = "0ms") -> str:
    return (
        f"crm_resource --cleanup --resource {name} --node {os.uname().nodename}"
        f" --operation {operation} --interval {interval}"
    )


def test_a_failed_start_is_cleaned_up_once_its_pool_is_usable(runtime: Path) -> None:
    fail("b")
    fail("a")
    fail("elsewhere", "other")
    age(runtime)
    assert asked() == [cleanup("a"), cleanup("b")]
    assert asked() == []
    assert [one.device for one in failure_cleanup.resolved_failures(FakeRunner(), {"other"})] == [
        "elsewhere"
    ]


@pytest.mark.parametrize(("age_s", "is_asked"), [(3.0, False), (11.0, True), (-3600.0, True)])
def test_a_failure_that_may_not_be_in_the_cib_yet_waits(
    runtime: Path, age_s: float, is_asked: bool
) -> None:
    fail("a")
    age(runtime, age_s)
    assert asked() == ([cleanup("a")] if is_asked else [])


def test_the_age_of_a_note_counts_from_the_failure(runtime: Path) -> None:
    """A start may wait for its pool for longer than that."""
    with (
        pytest.raises(CommandError, match="not mounted"),
        failure_cleanup.note_start_failure(device("a")),
    ):
        age(runtime)
        raise GONE
    assert asked() == []


def test_a_start_that_succeeds_has_no_failure(runtime: Path) -> None:
    fail("a")
    with failure_cleanup.note_start_failure(device("a")):
        pass
    age(runtime)
    assert asked() == []


def test_a_start_that_is_killed_while_it_waits_for_its_pool_has_a_failure(runtime: Path) -> None:
    with pytest.raises(KeyboardInterrupt), failure_cleanup.note_start_failure(device("a")):
        raise KeyboardInterrupt
    age(runtime)
    assert asked() == [cleanup("a")]


@pytest.mark.parametrize(
    ("state", "is_over"),
    [
        (IN_SYNC, True),
        (IN_SYNC._replace(disk="Inconsistent"), False),
        (IN_SYNC._replace(peers=(PEER._replace(connection="Connecting"),)), False),
        # Its history is erased for a moment: not that of one that serves.
        (IN_SYNC._replace(role="Primary"), False),
        (None, False),
    ],
)
def test_a_failed_monitor_is_cleaned_up_once_the_replica_is_a_standby_in_sync(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, state: ResourceState | None, is_over: bool
) -> None:
    fail_monitor("a", monkeypatch)
    age(runtime)
    monkeypatch.setattr(drbdsetup, "observe", lambda _runner, _name: state)
    assert asked() == ([cleanup("a", MONITOR, "11000ms")] if is_over else [])


def test_none_is_cleaned_up_while_an_action_is_ordered_here(runtime: Path) -> None:
    """The history is erased as a whole, and the controller records no result of that action."""
    fail("a")
    age(runtime)
    promoting = '<lrm_rsc_op id="a_last_0" operation="promote" op-status="-1" interval="0"/>'
    assert asked(ordered=promoting) == []
    assert asked(ordered=NO_ANSWER) == []
    assert asked() == [cleanup("a")]


@pytest.mark.parametrize("operation", [START, MONITOR, PROMOTE])
def test_nor_while_one_runs(runtime: Path, monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    failure_cleanup.write_note(device("a"), operation)
    age(runtime)
    with monkeypatch.context() as within:
        within.setattr(ocf, "is_action_running", lambda name: name == "a")
        assert asked() == []
    assert asked() == [cleanup("a", operation)]


@pytest.mark.parametrize("operation", [MONITOR, PROMOTE])
def test_nor_where_this_replica_may_be_about_to_be_promoted(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    failure_cleanup.write_note(device("a"), operation)
    age(runtime)
    nobody = IN_SYNC._replace(peers=(PEER._replace(role="Secondary"),))
    monkeypatch.setattr(drbdsetup, "observe", lambda _runner, _name: nobody)
    assert asked() == []


def test_a_cleanup_that_fails_is_tried_again(runtime: Path) -> None:
    fail("a")
    age(runtime)
    assert len(asked(lambda: NO_ANSWER)) == 1
    assert len(asked()) == 1
    assert asked() == []


def test_a_start_that_fails_again_meanwhile_stays_noted(runtime: Path) -> None:
    """The cluster may start the device, and the start may fail, before the cleanup returns."""
    fail("a")
    age(runtime)

    def fails_again() -> Answer:
        fail("a")
        return ""

    assert len(asked(fails_again)) == 1
    age(runtime)
    assert len(asked()) == 1


def test_a_start_that_succeeded_meanwhile_is_not_noted_again(runtime: Path) -> None:
    fail("a")
    age(runtime)

    def starts() -> Answer:
        failure_cleanup.remove_notes("a", START)
        return NO_ANSWER

    assert len(asked(starts)) == 1
    assert list((runtime / "node").iterdir()) == []


TIMED_OUT = CommandError(Problem("SAN-CMD-002", "no answer within 20 s: dmsetup create"))
NO_SERVICE = CommandError(Problem("SAN-RES-006", "sanctl-reservations.service does not run"))
UNFINISHED = CommandError(Problem("SAN-CACHE-012", "not all that was in RAM is on the disk yet"))


def run_out_of_time(name: str, error: BaseException = TIMED_OUT) -> None:
    with pytest.raises(type(error)), failure_cleanup.note_start_out_of_time(device(name)):
        raise error


@pytest.mark.parametrize("error", [TIMED_OUT, UNFINISHED, NO_SERVICE])
def test_a_start_that_got_no_answer_in_time_is_tried_again(
    runtime: Path, error: CommandError
) -> None:
    run_out_of_time("a", error)
    assert asked() == []
    age(runtime)
    assert asked() == [cleanup("a")]
    assert asked() == []


def test_a_start_that_was_killed_at_its_timeout_is_tried_again(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_timeout", "120000")
    run_out_of_time("a", KeyboardInterrupt())
    age(runtime, 100.0)
    assert asked() == [], "the start may still run"
    age(runtime, 128.0)
    assert asked() == [cleanup("a")]


@pytest.mark.parametrize("error", [NO_ANSWER, OSError("no room")])
def test_a_start_that_failed_for_another_reason_is_an_operators(
    runtime: Path, error: BaseException
) -> None:
    run_out_of_time("a")
    run_out_of_time("a", error)
    age(runtime)
    assert asked() == []


DRBDMETA = CommandError(
    Problem(
        "SAN-CMD-003",
        "drbdmeta --force - v08 /dev/loop1 flex-external dump-md: exit status 20: "
        "pread(3,...,4096,0) in md_disk_read failed: Input/output error",
    )
)
ATTACH = CommandError(
    Problem(
        "SAN-CMD-003",
        "drbdadm attach a: exit status 1: a: Failure: (118) IO error(s) occurred during initial "
        "access to meta-data. additional info from kernel: Error while reading metadata.",
    )
)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error", "/srv/a.meta"),
        OSError(errno.EROFS, "Read-only file system", "/srv/a.meta"),
        OSError(errno.EUCLEAN, "Structure needs cleaning", "/srv/a.meta"),
        DRBDMETA,
        ATTACH,
    ],
)
def test_a_start_whose_disk_gave_an_error_is_tried_again_some_times(
    runtime: Path, error: BaseException
) -> None:
    """What broke: flash that failed beneath drbdmeta kept the replica down until a cleanup."""
    tried = []
    for attempt in range(9):
        run_out_of_time("a", error)
        assert asked() == []
        pauses = [each for each in (11.0, 41.0, 161.0, 641.0, 1e6) if age_asks(runtime, each)]
        tried += [(attempt, pauses[0])] if pauses else []
    assert tried == [(0, 11.0), (1, 41.0), (2, 161.0), (3, 641.0)], "further and further apart"
    with failure_cleanup.note_start_out_of_time(device("a")):
        pass
    run_out_of_time("a", OSError(errno.EIO, "Input/output error", "/srv/a.meta"))
    age(runtime)
    assert asked() == [cleanup("a")]


def age_asks(runtime: Path, by_s: float) -> bool:
    """Whether a failure of that age is cleaned up."""
    age(runtime, by_s)
    return bool(asked())


def test_one_that_met_it_in_its_pool_is_cleaned_up_once(runtime: Path) -> None:
    with (
        pytest.raises(OSError),
        failure_cleanup.note_start_out_of_time(device("a")),
        failure_cleanup.note_start_failure(device("a")),
    ):
        raise OSError(errno.EIO, "Input/output error", "/srv")
    age(runtime)
    assert asked() == [cleanup("a")]


def test_a_start_that_keeps_running_out_of_time_is_an_operators_in_the_end(runtime: Path) -> None:
    tried = 0
    for _ in range(9):
        run_out_of_time("a")
        age(runtime)
        tried += len(asked())
    assert tried == 4


def test_attempts_are_counted_from_the_last_start_that_succeeded(runtime: Path) -> None:
    for _ in range(3):
        run_out_of_time("a")
        age(runtime)
        asked()
        with failure_cleanup.note_start_out_of_time(device("a")):
            pass
        assert asked() == []
    for _ in range(4):
        run_out_of_time("a")
        age(runtime)
        assert asked() == [cleanup("a")]


def test_a_start_that_made_way_is_tried_again_after_the_failover(runtime: Path) -> None:
    made_way = CommandError(Problem("SAN-AGENT-017", "a node left the cluster"))
    for _ in range(9):  # It is no attempt.
        run_out_of_time("a", made_way)
        age(runtime, 45.0)
        assert asked() == []
        age(runtime, 65.0)
        assert asked() == [cleanup("a")]


def test_a_start_that_ran_out_of_time_waits_for_its_pool(runtime: Path) -> None:
    with pytest.raises(CommandError), failure_cleanup.note_start_out_of_time(device("a", "other")):
        raise TIMED_OUT
    age(runtime)
    assert asked() == []


def refuse(name: str) -> None:
    """Have a start refused that an action before it keeps waiting (SAN-AGENT-015)."""
    failure_cleanup.note_start_not_begun(device(name))


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The devices of which an action runs, or one that was killed has not ended."""
    found: set[str] = set()
    monkeypatch.setattr(ocf, "is_action_running", found.__contains__)
    return found


def test_a_start_that_was_not_begun_is_tried_again_once_the_former_action_has_ended(
    runtime: Path, running: set[str]
) -> None:
    """What broke: nobody repeated it, and the replica stayed down when its disk answered again."""
    running.add("a")
    refuse("a")
    refuse("b")
    assert asked() == [], "they may not be in the CIB yet"
    age(runtime)
    assert asked() == [cleanup("b")]
    age(runtime)
    assert asked() == [], "it would wait again, and the cluster with it"
    running.clear()
    assert asked() == [cleanup("a")]
    assert asked() == []


def test_nor_is_one_that_was_killed_tried_again_before_it_has_ended(
    runtime: Path, running: set[str]
) -> None:
    run_out_of_time("a", KeyboardInterrupt())
    age(runtime)
    running.add("a")
    assert asked() == []
    running.clear()
    assert asked() == [cleanup("a")]


def test_a_start_that_is_not_begun_again_and_again_is_an_operators_in_the_end(
    runtime: Path, running: set[str]
) -> None:
    tried = 0
    for number in range(9):
        refuse("a") if number % 2 else run_out_of_time("a")
        age(runtime)
        tried += len(asked())
    assert tried == 4 and not running


@pytest.mark.parametrize("action", ["start", "monitor", "promote", "demote"])
def test_only_of_a_start_is_that_noted(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """Pacemaker repeats the others by itself: it stops and starts the replica."""
    monkeypatch.setenv("OCF_RESOURCE_INSTANCE", "vol1")
    for key, value in (("uuid", "a" * 32), ("size", "1"), ("pool", "main"), ("nodes", "n1 n2")):
        monkeypatch.setenv(f"OCF_RESKEY_{key}", value)
    monkeypatch.setenv("OCF_RESKEY_minor", "3")
    monkeypatch.setattr(ocf, "_lock_in_time", lambda *_: False)
    monkeypatch.setattr(journal, "write", lambda *_, **__: None)
    assert agent.main(["device", action]) == ocf.ERR_GENERIC
    if action == "start":
        age(runtime)
    assert asked() == ([cleanup("vol1")] if action == "start" else [])


REFUSED = CommandError(
    Problem("SAN-CMD-003", "(-7) Refusing to be Primary while peer is not outdated")
)
NO_MAJORITY = CommandError(Problem("SAN-CMD-003", "State change failed: (-25) No quorum"))


@pytest.mark.parametrize(
    ("error", "is_noted"),
    [(REFUSED, True), (NO_MAJORITY, True), (NO_ANSWER, False), (GONE, False)],
)
def test_a_promotion_that_drbd_refuses_for_its_peer_is_cleaned_up(
    runtime: Path, error: CommandError, is_noted: bool
) -> None:
    """A mark and the order to promote came at one moment: nothing of it is left to be told."""
    with pytest.raises(CommandError), failure_cleanup.note_refused_promotion(device("vol1")):
        raise error
    if is_noted:
        assert asked() == [], "the failure may not be in the CIB yet"
        age(runtime)
    assert asked() == ([cleanup("vol1", PROMOTE)] if is_noted else [])
    assert asked() == []


@pytest.mark.parametrize("disk", ["Outdated", "Inconsistent"])
def test_a_refused_promotion_is_told_while_the_replica_is_behind(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, disk: str
) -> None:
    monkeypatch.setattr(drbdsetup, "observe", lambda _runner, _name: IN_SYNC._replace(disk=disk))
    with pytest.raises(CommandError), failure_cleanup.note_refused_promotion(device("vol1")):
        raise REFUSED
    age(runtime)
    assert asked() == []


def test_a_refused_promotion_is_told_while_the_next_one_serves(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CommandError), failure_cleanup.note_refused_promotion(device("vol1")):
        raise REFUSED
    with failure_cleanup.note_refused_promotion(device("vol1")):
        pass
    age(runtime)
    with monkeypatch.context() as within:
        primary = IN_SYNC._replace(role="Primary")
        within.setattr(drbdsetup, "observe", lambda _runner, _name: primary)
        assert asked() == []
    assert asked() == [cleanup("vol1", PROMOTE)]
    with failure_cleanup.note_refused_promotion(device("vol1")):
        pass
    age(runtime)
    assert asked() == []


def test_another_failed_promotion_is_not_cleaned_up_for_a_refused_one(runtime: Path) -> None:
    for error in (REFUSED, NO_ANSWER):
        with pytest.raises(CommandError), failure_cleanup.note_refused_promotion(device("vol1")):
            raise error
    age(runtime)
    assert asked() == []


@pytest.mark.parametrize(
    ("error", "is_noted"),
    [
        (CommandError(Problem("SAN-DM-002", "no answer within 57 s")), True),
        (CommandError(Problem("SAN-CMD-002", "no answer")), True),
        (NO_ANSWER, False),
    ],
)
def test_a_demotion_that_waited_for_frozen_io_is_cleaned_up(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, error: CommandError, is_noted: bool
) -> None:
    """What broke: quorum was back after a minute, and the failure was left for an operator."""
    with pytest.raises(CommandError), failure_cleanup.note_frozen_demotion(device("vol1")):
        raise error
    if is_noted:
        age(runtime)
    with monkeypatch.context() as within:
        primary = IN_SYNC._replace(role="Primary")
        within.setattr(drbdsetup, "observe", lambda _runner, _name: primary)
        assert asked() == []
    assert asked() == ([cleanup("vol1", DEMOTE)] if is_noted else [])
    with failure_cleanup.note_frozen_demotion(device("vol1")):
        pass
    assert asked() == []


def test_another_failed_demotion_is_an_operators(runtime: Path) -> None:
    for error in (CommandError(Problem("SAN-DM-002", "no answer")), GONE):
        with pytest.raises(CommandError), failure_cleanup.note_frozen_demotion(device("vol1")):
            raise error
    assert not list((runtime / "node").iterdir())
    assert asked() == []


def test_one_that_succeeds_later_leaves_the_failure_of_the_one_before(runtime: Path) -> None:
    with pytest.raises(CommandError), failure_cleanup.note_frozen_demotion(device("vol1")):
        raise CommandError(Problem("SAN-DM-002", "no answer"))
    with failure_cleanup.note_frozen_demotion(device("vol1")):
        pass
    age(runtime)
    assert asked() == [cleanup("vol1", DEMOTE)]
    # One that is killed is none that waited.
    failure_cleanup.write_note(device("vol1"), DEMOTE)
    with (
        pytest.raises(OSError, match="killed"),
        failure_cleanup.note_frozen_demotion(device("vol1")),
    ):
        raise OSError("killed")
    assert not list((runtime / "node").iterdir())
