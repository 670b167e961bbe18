# SPDX-License-Identifier: GPL-2.0-or-later
"""A flush that takes longer than an action has: the action ends in time, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sanctl.agents import ocf
from sanctl.agents.cache import flush_time, write_cache, write_cache_status, write_cache_steps
from sanctl.agents.replica import lost_writes
from sanctl.drivers import page_cache
from sanctl.drivers.pool_files import DeviceFiles
from sanctl.model.cache_policy import CacheMode
from sanctl.system import state_files
from tests.fakes.runner import FakeRunner
from tests.unit.agents.cache import test_write_cache
from tests.unit.agents.cache.test_write_cache import ALONE, BACK, Kernel, device, enter, state

kernel, runner = test_write_cache.kernel, test_write_cache.runner

TIMEOUT = "OCF_RESKEY_CRM_meta_timeout"


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the steps that are logged, in an action that has two minutes."""
    made: list[str] = []

    def log(*_: object, step: str, **__: object) -> None:
        made.append(step)

    monkeypatch.setattr(write_cache, "log", log)
    monkeypatch.setattr(write_cache_steps, "log", log)
    monkeypatch.setattr(ocf._Begin, "at_s", None)
    monkeypatch.setenv(TIMEOUT, "120000")
    return made


def test_the_next_monitor_goes_on(kernel: Kernel, runner: FakeRunner, said: list[str]) -> None:
    """What broke: the monitor was killed, and the device that serves was recovered."""
    enter(kernel, runner)
    kernel.unfinished = 2
    for _ in range(2):
        with pytest.raises(page_cache.FlushUnfinished, match="SAN-CACHE-012"):
            write_cache.apply_policy(runner, device("write-through"), state())
        # Each write is stable, what is in RAM is marked, the limit stays, and nothing is lost.
        assert kernel.held == page_cache.WriteState(is_buffered=True, is_synchronous=True)
        assert lost_writes.has_marker(kernel.path) and kernel.limit is not None
        assert not lost_writes.is_suspect("vm1", kernel.path)
        words = write_cache_status.published_fields(device("write-through"), state())
        assert words.startswith(" cache=write-back cache-wanted=write-through")
        assert said[-1] == "flushing-on"
    write_cache.apply_policy(runner, device("write-through"), state())
    assert not lost_writes.has_marker(kernel.path) and kernel.limit is None
    assert kernel.mode is CacheMode.WRITE_THROUGH and said[-1] == "write-through"
    assert kernel.limits == [25.0] * 3


def test_write_back_may_begin_again_meanwhile(
    kernel: Kernel, runner: FakeRunner, said: list[str]
) -> None:
    enter(kernel, runner)
    kernel.unfinished = 1
    with pytest.raises(page_cache.FlushUnfinished):
        write_cache.apply_policy(runner, device(BACK), ALONE)
    write_cache.apply_policy(runner, device(BACK), state())
    assert kernel.mode is CacheMode.WRITE_BACK and lost_writes.has_marker(kernel.path)
    assert said[-1] == "write-back"


def test_a_connection_is_not_ended_before_all_is_on_the_disk(
    kernel: Kernel, runner: FakeRunner, said: list[str]
) -> None:
    enter(kernel, runner)
    kernel.unfinished = 1
    with pytest.raises(page_cache.FlushUnfinished):
        write_cache.leave_write_back(runner, "vm1")
    assert said[-1] == "flushing-on"
    write_cache.leave_write_back(runner, "vm1")
    assert not lost_writes.has_marker(kernel.path)


def test_a_stop_goes_on_with_its_marker(
    kernel: Kernel, runner: FakeRunner, said: list[str]
) -> None:
    """What broke: the stop was killed, the node fenced, and all that it had in RAM was lost."""
    enter(kernel, runner)
    kernel.unfinished = 1
    write_cache.before_stop(runner, device(BACK))
    assert 80.0 < (kernel.limits[-1] or 0.0) <= 87.0
    assert said[-1] == "unflushed" and "lost" not in said
    # The peer flushes all the same before it goes on alone.
    assert [argv[:3] for argv, _ in runner.calls] == [("drbdadm", "disconnect", "--force")]
    # In this boot it is as good as it was, in another one it is not.
    assert kernel.held == page_cache.WriteState(is_buffered=True, is_synchronous=True)
    assert lost_writes.has_marker(kernel.path)
    assert not lost_writes.is_suspect("vm1", kernel.path)
    with open(lost_writes._BOOT_ID, "w") as file:
        file.write("another boot\n")
    assert lost_writes.is_suspect("vm1", kernel.path)


def test_the_start_after_such_a_stop_goes_on(
    kernel: Kernel, runner: FakeRunner, said: list[str]
) -> None:
    enter(kernel, runner)
    kernel.unfinished = 1
    write_cache.before_stop(runner, device(BACK))
    state_files.remove_device("vm1")
    kernel.done.clear()
    # A new loop device, which writes past the page cache.
    kernel.held = page_cache.WriteState(is_buffered=False, is_synchronous=True)
    write_cache.leave_write_back_unless_in_sync(runner, "vm1")
    kernel.drbd = [ALONE]
    write_cache.leave_write_back_unless_in_sync(runner, "vm1")
    assert "flush" in kernel.done and not lost_writes.has_marker(kernel.path)
    assert said[-1] == "write-through"


def test_the_start_itself_does_not_fail_for_it(
    kernel: Kernel, runner: FakeRunner, said: list[str], tmp_path: Path
) -> None:
    """What broke: Pacemaker tries no failed start again, so the replica stayed down."""
    enter(kernel, runner)
    kernel.unfinished = 2
    write_cache.before_stop(runner, device(BACK))
    state_files.remove_device("vm1")
    kernel.held = page_cache.WriteState(is_buffered=False, is_synchronous=True)
    files = DeviceFiles(kernel.path, str(tmp_path / "vm1.meta"))
    Path(files.metadata).touch()
    kernel.drbd = [None]
    write_cache.prepare_start(runner, device(BACK), files, is_protected=False)
    assert said[-1] == "flushing-on" and lost_writes.has_marker(kernel.path)
    assert kernel.held == page_cache.WriteState(is_buffered=False, is_synchronous=True)
    # A monitor goes on with it.
    kernel.drbd = [state()]
    write_cache.apply_policy(runner, device("write-through"), state())
    assert kernel.mode is CacheMode.WRITE_THROUGH and not lost_writes.has_marker(kernel.path)


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize(
    ("leave", "least_s"),
    [
        (lambda runner: write_cache.leave_write_back(runner, "vm1"), 24.0),
        (lambda runner: write_cache.leave_write_back_unless_two(runner, "vm1"), 80.0),
        (lambda runner: write_cache.leave_write_back_unless_in_sync(runner, "vm1"), 95.0),
    ],
    ids=["change", "demotion", "promotion"],
)
def test_an_action_has_its_time_and_a_handler_all_of_it(
    kernel: Kernel,
    runner: FakeRunner,
    monkeypatch: pytest.MonkeyPatch,
    leave: Callable[[FakeRunner], None],
    least_s: float,
) -> None:
    enter(kernel, runner)
    kernel.drbd, kernel.unfinished = [ALONE], 1
    with pytest.raises(page_cache.FlushUnfinished):
        leave(runner)
    assert least_s < (kernel.limits[-1] or 0.0) <= least_s + 8.0
    # I/O is frozen, and DRBD calls the handler once.
    monkeypatch.delenv(TIMEOUT)
    kernel.unfinished = 1
    leave(runner)
    assert kernel.limits[-1] is None and not lost_writes.has_marker(kernel.path)


def test_an_action_does_not_wait_for_ever_for_who_flushes(
    kernel: Kernel, runner: FakeRunner, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler flushes for as long as it takes; a stop that waits for it would be killed."""
    enter(kernel, runner)
    monkeypatch.setattr(flush_time, "of_stop", lambda: 0.2)
    monkeypatch.setattr(flush_time, "of_monitor", lambda: 0.2)
    with state_files.locked(state_files.device_lock("vm1", "cache")):
        with pytest.raises(page_cache.FlushUnfinished, match="another process"):
            write_cache.leave_write_back(runner, "vm1")
        write_cache.before_stop(runner, device(BACK))
    assert kernel.done == [] and said[-1] == "unflushed"
    assert lost_writes.has_marker(kernel.path)


def test_a_piece_that_fails_makes_the_replica_suspect(
    kernel: Kernel, runner: FakeRunner, said: list[str]
) -> None:
    enter(kernel, runner)
    kernel.unfinished = 1
    with pytest.raises(page_cache.FlushUnfinished):
        write_cache.apply_policy(runner, device("write-through"), state())
    kernel.flush_fails = True
    with pytest.raises(Exception, match="SAN-CACHE-001"):
        write_cache.apply_policy(runner, device("write-through"), state())
    assert lost_writes.is_suspect("vm1", kernel.path)
    assert said[-1] == "flushing-on"
