# SPDX-License-Identifier: GPL-2.0-or-later
"""The write cache mode of a replica, on a fake kernel that records the order of the steps.

What real kernels do with these calls is shown in tests/lab/test_cache_policies.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from sanctl.agents import cluster_toml
from sanctl.agents.cache import write_cache, write_cache_status, write_cache_steps
from sanctl.agents.recovery import refill_suspect
from sanctl.agents.replica import device_files, lost_writes, reinitialize, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdsetup, loop, page_cache, pool_files
from sanctl.drivers.page_cache import WriteState
from sanctl.drivers.pool_files import DeviceFiles
from sanctl.errors import CommandError, Problem
from sanctl.model.cache_policy import CacheMode
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.parse.published_state import parse_replica_state
from sanctl.system import journal, state_files
from tests.fakes.runner import Answer, FakeRunner
from tests.fakes.topology import topology

UUID = "a" * 32
BACK = "write-back"


def device(policy: str) -> Device:
    return Device("vm1", UUID, 1 << 20, "main", ("n1", "n2"), 3, (), cache=policy)


def state(disk: str = "UpToDate", role: str = "Primary", **changes: Any) -> ResourceState:
    peer = PeerState("peer", "Connected", role, "Established", disk, 0)
    return ResourceState(
        "vm1",
        "Secondary",
        "no",
        "UpToDate",
        1024,
        (peer._replace(**changes),),
        write_ordering="flush",
    )


ALONE = state("DUnknown", "Unknown", connection="Connecting", replication="Off")


class Kernel:
    """The loop device and the file of one replica, and what happened to them."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / f"vm1.{UUID}.data")
        self.held: WriteState | None = WriteState(is_buffered=False, is_synchronous=False)
        self.done: list[str] = []
        self.drbd: list[ResourceState | None] = [state()]
        self.dies_at = ""
        self.flush_fails = False
        self.unfinished = 0
        self.limits: list[float | None] = []
        self.refuses_direct = False
        self.limit: int | None = None

    def step(self, word: str) -> None:
        self.done.append(word)
        if word == self.dies_at:
            raise KeyboardInterrupt

    def observe(self, path: str) -> WriteState | None:
        return self.held if path == self.path else None

    def is_written_back(self, path: str) -> bool:
        held = self.observe(path)
        return held is not None and held.mode is CacheMode.WRITE_BACK

    def set_synchronous(self, _: str, *, on: bool) -> None:
        assert self.held is not None
        self.held = self.held._replace(is_synchronous=on)
        self.step("synchronous" if on else "free")
        self.check()

    def set_buffered(self, _: str, *, on: bool) -> bool:
        assert self.held is not None
        if on or not self.refuses_direct:
            self.held = self.held._replace(is_buffered=on)
        self.step("buffered" if on else "direct")
        self.check()
        return self.held.is_buffered

    def drain(self, _: str) -> None:
        self.step("drain")

    def flush(self, path: str, *, within_s: float | None = None) -> None:
        self.limits.append(within_s)
        if within_s is not None and self.unfinished:
            self.unfinished -= 1
            self.step("piece")
            raise page_cache.unfinished(f"{path} was not flushed")
        self.step("flush")
        if self.flush_fails:
            self.flush_fails = False  # The kernel reports it once.
            raise CommandError(Problem("SAN-CACHE-001", f"{path} could not be flushed"))

    def set_limit(self, limit: int | None, *, saved_in: str) -> None:
        self.limit = limit

    def check(self) -> None:
        """What must hold at every moment: no write-back without marker and limit."""
        assert self.held is not None
        if self.held.mode is CacheMode.WRITE_BACK:
            assert lost_writes.has_marker(self.path)
            assert self.limit is not None

    def observe_drbd(self, *_: object) -> ResourceState | None:
        return self.drbd.pop(0) if len(self.drbd) > 1 else self.drbd[0]

    @property
    def mode(self) -> CacheMode | None:
        return None if self.held is None else self.held.mode


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel(tmp_path)
    boot = tmp_path / "boot_id"
    boot.write_text("this boot\n")
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(lost_writes, "_BOOT_ID", str(boot))
    monkeypatch.setattr(loop, "backing_files", lambda: [made.path] if made.held else [])
    for name in (
        "observe",
        "is_written_back",
        "set_synchronous",
        "set_buffered",
        "drain",
        "flush",
    ):
        monkeypatch.setattr(page_cache, name, getattr(made, name))
    monkeypatch.setattr(page_cache, "set_dirty_limit", made.set_limit)
    monkeypatch.setattr(page_cache, "usage", lambda _: page_cache.Usage(5 << 20, 3 << 20))
    monkeypatch.setattr(page_cache, "flush_rate_bytes_s", lambda _: 1 << 20)
    monkeypatch.setattr(drbdsetup, "observe", made.observe_drbd)
    monkeypatch.setattr(journal, "write", lambda *_, **__: None)
    monkeypatch.setattr(os, "uname", lambda: type("Uname", (), {"nodename": "n2"}))
    return made


@pytest.fixture
def runner() -> FakeRunner:
    return FakeRunner()


def enter(kernel: Kernel, runner: FakeRunner) -> None:
    write_cache.apply_policy(runner, device(BACK), state())
    assert kernel.mode is CacheMode.WRITE_BACK
    kernel.done.clear()


def test_a_device_without_a_cache_policy_is_left_alone(kernel: Kernel, runner: FakeRunner) -> None:
    for policy in ("", "none"):
        write_cache.apply_policy(runner, device(policy), state())
        write_cache.leave_write_back(runner, "vm1")
        write_cache.leave_write_back_unless_in_sync(runner, "vm1")
        write_cache.before_stop(runner, device(policy))
    assert kernel.done == [] and runner.calls == []
    assert write_cache_status.published_fields(device("none"), state()) == " cache=none"


def test_write_through_flushes_earlier_writes(kernel: Kernel, runner: FakeRunner) -> None:
    write_cache.apply_policy(runner, device("write-through"), ALONE)
    # A write in flight began before the file was synchronous, and may end without being stable.
    assert kernel.done == ["synchronous", "drain", "flush"]
    write_cache.apply_policy(runner, device("write-through"), ALONE)
    assert len(kernel.done) == 3
    write_cache.apply_policy(runner, device("none"), ALONE)
    assert kernel.mode is CacheMode.NONE


def test_write_back_is_entered_and_left(kernel: Kernel, runner: FakeRunner) -> None:
    enter(kernel, runner)
    words = write_cache_status.published_fields(device(BACK), state())
    assert words == " cache=write-back limit=67108864 dirty=4194304 flush-s=4"
    write_cache.apply_policy(runner, device("write-through"), state())
    assert kernel.done == ["synchronous", "flush", "direct"]
    assert kernel.limit is None and not lost_writes.has_marker(kernel.path)
    enter(kernel, runner)
    write_cache.apply_policy(runner, device("none"), state())
    assert kernel.done == ["synchronous", "flush", "direct", "free"]


def test_a_changed_limit_is_set_in_write_back(kernel: Kernel, runner: FakeRunner) -> None:
    enter(kernel, runner)
    write_cache.apply_policy(runner, device(f"{BACK},dirty=8388608"), state())
    assert kernel.limit == 8 << 20 and kernel.done == []


@pytest.mark.parametrize(
    "seen", [[ALONE], [state(), ALONE], [state(), state("Inconsistent")]], ids=len
)
def test_write_back_ends_at_once_if_the_peer_is_lost_meanwhile(
    kernel: Kernel, runner: FakeRunner, seen: list[ResourceState | None]
) -> None:
    kernel.drbd = list(seen)
    write_cache.apply_policy(runner, device(BACK), state())
    assert kernel.mode is CacheMode.WRITE_THROUGH
    assert not lost_writes.has_marker(kernel.path)
    assert "cache-wanted=write-back cache-why=one-copy" in write_cache_status.published_fields(
        device(BACK), ALONE
    )


def test_the_only_replica_left_leaves_write_back(kernel: Kernel, runner: FakeRunner) -> None:
    enter(kernel, runner)
    write_cache.leave_write_back(runner, "vm1")
    assert kernel.done == ["synchronous", "flush", "direct"]
    assert kernel.mode is CacheMode.WRITE_THROUGH


@pytest.mark.parametrize("step", ["synchronous", "flush", "direct"])
def test_leaving_write_back_is_finished_after_a_kill(
    kernel: Kernel, runner: FakeRunner, step: str
) -> None:
    enter(kernel, runner)
    kernel.dies_at = step
    with pytest.raises(KeyboardInterrupt):
        write_cache.leave_write_back(runner, "vm1")
    assert lost_writes.has_marker(kernel.path)
    kernel.dies_at = ""
    kernel.done.clear()
    write_cache.leave_write_back(runner, "vm1")
    assert "flush" in kernel.done and not lost_writes.has_marker(kernel.path)


@pytest.mark.parametrize("step", ["buffered", "free"])
@pytest.mark.parametrize("how", ["leave", "policy"])
def test_entering_write_back_is_undone_after_a_kill(
    kernel: Kernel, runner: FakeRunner, step: str, how: str
) -> None:
    kernel.dies_at = step
    with pytest.raises(KeyboardInterrupt):
        write_cache.apply_policy(runner, device(BACK), state())
    kernel.dies_at = ""
    if how == "leave":
        write_cache.leave_write_back(runner, "vm1")
    else:
        write_cache.apply_policy(runner, device("write-through"), ALONE)
    assert kernel.mode is CacheMode.WRITE_THROUGH and not lost_writes.has_marker(kernel.path)


def test_a_replica_stays_suspect_after_a_failed_flush(kernel: Kernel, runner: FakeRunner) -> None:
    enter(kernel, runner)
    kernel.flush_fails = True
    for _ in range(3):
        with pytest.raises(CommandError):
            write_cache.leave_write_back(runner, "vm1")
    assert lost_writes.has_marker(kernel.path)
    assert "suspect=1" in write_cache_status.published_fields(device(BACK), ALONE)
    with pytest.raises(CommandError, match="SAN-CACHE-003"):
        write_cache_steps.refuse_suspect("vm1")


def test_a_flush_that_failed_in_drbd_before_leaving_is_found(
    kernel: Kernel, runner: FakeRunner
) -> None:
    """DRBD met it after the monitor had observed DRBD."""
    enter(kernel, runner)
    kernel.drbd = [state()._replace(write_ordering="drain")]
    with pytest.raises(CommandError, match="SAN-CACHE-003"):
        write_cache.apply_policy(runner, device("write-through"), state())
    assert lost_writes.has_marker(kernel.path)
    assert "suspect=1" in write_cache_status.published_fields(device(BACK), state())


@pytest.mark.parametrize("policy", ["write-through", BACK])
def test_a_replica_known_to_be_suspect_leaves_write_back(
    kernel: Kernel, runner: FakeRunner, policy: str
) -> None:
    """Refused at each monitor, the replica would never be resynced by a later step of it."""
    enter(kernel, runner)
    failed = state()._replace(write_ordering="drain")
    kernel.drbd = [failed]
    with pytest.raises(CommandError, match="SAN-CACHE-003"):
        write_cache.apply_policy(runner, device(policy), failed)
    write_cache.apply_policy(runner, device(policy), failed)
    assert kernel.held == WriteState(is_buffered=False, is_synchronous=True)
    assert lost_writes.has_marker(kernel.path)
    assert "suspect=1" in write_cache_status.published_fields(device(BACK), failed)


@pytest.mark.parametrize("is_in_sync", [True, False])
def test_a_flush_that_failed_in_drbd_is_found_before_the_node_serves(
    kernel: Kernel, runner: FakeRunner, is_in_sync: bool
) -> None:
    enter(kernel, runner)
    seen = state() if is_in_sync else ALONE
    kernel.drbd = [seen._replace(write_ordering="drain")]
    with pytest.raises(CommandError, match="SAN-CACHE-003"):
        write_cache.leave_write_back_unless_in_sync(runner, "vm1")


def test_after_a_reboot_in_write_back_the_replica_is_suspect(
    kernel: Kernel, runner: FakeRunner, tmp_path: Path
) -> None:
    enter(kernel, runner)
    (tmp_path / "boot_id").write_text("the next boot\n")
    kernel.held = WriteState(is_buffered=False, is_synchronous=False)
    files = DeviceFiles(kernel.path, str(tmp_path / f"vm1.{UUID}.meta"))
    Path(files.metadata).touch()
    write_cache.prepare_start(runner, device(BACK), files, is_protected=False)
    assert lost_writes.is_suspect("vm1", kernel.path)
    assert kernel.mode is CacheMode.WRITE_THROUGH
    assert (
        "suspect=1 suspect-of=cache cache-wanted=write-back cache-why=suspect"
        in write_cache_status.published_fields(device(BACK), ALONE)
    )
    with pytest.raises(CommandError, match="SAN-CACHE-003"):
        write_cache.leave_write_back(runner, "vm1")
    # A stop changes nothing about that, and must not fail.
    write_cache.before_stop(runner, device(BACK))
    assert lost_writes.is_suspect("vm1", kernel.path)
    # With new metadata the replica has no data that counts.
    os.unlink(files.metadata)
    write_cache.prepare_start(runner, device(BACK), files, is_protected=False)
    assert not lost_writes.is_suspect("vm1", kernel.path)


def test_in_the_same_boot_the_pages_are_flushed(kernel: Kernel, runner: FakeRunner) -> None:
    """As after a crash of Pacemaker: the pages are still there, and only have to be flushed."""
    enter(kernel, runner)
    kernel.held = WriteState(is_buffered=False, is_synchronous=False)
    write_cache.apply_policy(runner, device("none"), None)
    assert "flush" in kernel.done and not lost_writes.has_marker(kernel.path)


def test_writes_stay_synchronous_where_direct_io_is_refused(
    kernel: Kernel, runner: FakeRunner
) -> None:
    enter(kernel, runner)
    kernel.refuses_direct = True
    write_cache.apply_policy(runner, device("none"), state())
    assert kernel.held == WriteState(is_buffered=True, is_synchronous=True)
    assert not lost_writes.has_marker(kernel.path)
    assert write_cache_status.published_fields(device("none"), state()) == (
        " cache=write-through cache-wanted=none cache-why=blocks"
    )
    for policy in ("none", "write-through"):
        kernel.done.clear()
        write_cache.apply_policy(runner, device(policy), state())
        assert kernel.done == ["direct"], "asked for, and nothing is flushed again"
    kernel.refuses_direct = False
    write_cache.apply_policy(runner, device("none"), state())
    assert kernel.held == WriteState(is_buffered=False, is_synchronous=False)


def test_a_start_where_direct_io_is_refused_makes_writes_synchronous(
    kernel: Kernel, runner: FakeRunner, tmp_path: Path
) -> None:
    kernel.held, kernel.refuses_direct = WriteState(is_buffered=True, is_synchronous=False), True
    files = DeviceFiles(kernel.path, str(tmp_path / "none.meta"))
    kernel.check = lambda: None  # type: ignore[method-assign]
    write_cache.prepare_start(runner, device("none"), files, is_protected=True)
    assert kernel.held == WriteState(is_buffered=True, is_synchronous=True)


def test_protected_power_makes_a_disks_own_cache_as_good_as_the_disk(
    kernel: Kernel, runner: FakeRunner, tmp_path: Path
) -> None:
    files = DeviceFiles(kernel.path, str(tmp_path / "none.meta"))
    write_cache.prepare_start(runner, device("write-through"), files, is_protected=True)
    assert kernel.done == []
    assert (
        write_cache_status.published_fields(device("write-through"), ALONE)
        == " cache=write-through"
    )
    write_cache.apply_policy(runner, device(BACK), state())
    write_cache.leave_write_back(runner, "vm1")
    assert kernel.mode is CacheMode.WRITE_THROUGH, (
        "leaving write-back does not rely on protected power"
    )


def test_a_standby_that_stops_cuts_the_connection_to_its_primary(
    kernel: Kernel, runner: FakeRunner
) -> None:
    enter(kernel, runner)
    write_cache.before_stop(runner, device(BACK))
    assert kernel.done[:2] == ["synchronous", "flush"]
    assert [argv[:3] for argv, _ in runner.calls] == [("drbdadm", "disconnect", "--force")]


def test_a_primary_that_stops_flushes_and_disconnects_in_order(
    kernel: Kernel, runner: FakeRunner
) -> None:
    enter(kernel, runner)
    kernel.drbd = [state(role="Secondary")]
    write_cache.before_stop(runner, device(BACK))
    assert "flush" in kernel.done and runner.calls == []


def test_a_stop_goes_on_after_a_flush_that_fails(kernel: Kernel, runner: FakeRunner) -> None:
    enter(kernel, runner)
    kernel.flush_fails = True
    write_cache.before_stop(runner, device(BACK))
    assert lost_writes.is_suspect("vm1", kernel.path)


def cib(score: str) -> str:
    return (
        '<node_state uname="n1"><transient_attributes><instance_attributes>'
        f'<nvpair name="master-vm1" value="{score}"/>'
        "</instance_attributes></transient_attributes></node_state>"
    )


@pytest.mark.parametrize(
    ("score", "quorate", "is_refilled"),
    [
        ("10000", "Yes", True),
        ("10000", "No", False),
        ("9000", "Yes", False),  # a standby in sync
        ("-INFINITY", "Yes", False),  # suspect, or behind
        ("3000", "Yes", False),  # a Primary without its disk
        ("", "Yes", False),
    ],
)
def test_a_suspect_replica_is_refilled_once_another_serves(
    kernel: Kernel,
    monkeypatch: pytest.MonkeyPatch,
    score: str,
    quorate: str,
    is_refilled: bool,
) -> None:
    def answer(argv: Sequence[str]) -> Answer:
        if argv[0] == "corosync-quorumtool":
            return f"Quorate:          {quorate}\n"
        return cib(score) if score else (105, "", "no such object")

    begun: list[str] = []
    monkeypatch.setattr(reinitialize, "reset", lambda _, it: begun.append(it.name))
    lost_writes.record_failed_flush("vm1")
    runner = FakeRunner(answer)
    refill_suspect.refill_if_suspect(runner, device(BACK), ALONE)
    assert begun == (["vm1"] if is_refilled else [])
    lost_writes.clear_marker("vm1", kernel.path)
    begun.clear()
    refill_suspect.refill_if_suspect(runner, device(BACK), ALONE)
    assert begun == []


@pytest.fixture
def refill(
    kernel: Kernel, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[], None]:
    """Gives the replica new metadata, as `refill_if_suspect` does; DRBD and files are fakes."""
    pool = replace(topology().pools[0], path=PurePosixPath(tmp_path))
    files = DeviceFiles(kernel.path, str(tmp_path / f"vm1.{UUID}.meta"))
    monkeypatch.setattr(cluster_toml, "load_topology", lambda: replace(topology(), pools=(pool,)))
    monkeypatch.setattr(pool_files, "files_of", lambda *_: files)
    monkeypatch.setattr(pool_files, "delete_metadata", lambda *_: None)
    monkeypatch.setattr(device_files, "prepare", lambda *_: None)
    monkeypatch.setattr(loop, "detach", lambda *_: None)
    for name in ("clear_disk", "write", "bring_up"):
        monkeypatch.setattr(resource_file, name, lambda *_: kernel.check())
    return lambda: reinitialize.reset(runner, device(BACK))


def test_a_replica_refilled_between_two_monitors_is_not_in_write_back_unmarked(
    kernel: Kernel, runner: FakeRunner, refill: Callable[[], None]
) -> None:
    """DRBD met the failed flush, and the monitor refused the replica before the mode changed."""
    enter(kernel, runner)
    failed = state()._replace(write_ordering="drain")
    kernel.drbd = [failed]
    with pytest.raises(CommandError, match="SAN-CACHE-003"):
        write_cache.apply_policy(runner, device(BACK), failed)
    assert kernel.mode is CacheMode.WRITE_BACK
    refill()
    assert not lost_writes.is_suspect("vm1", kernel.path)
    assert kernel.held == WriteState(is_buffered=True, is_synchronous=True), "in the resync, too"
    # It is in sync already.
    kernel.drbd = [state()]
    write_cache.apply_policy(runner, device(BACK), state())
    assert kernel.mode is CacheMode.WRITE_BACK and lost_writes.has_marker(kernel.path)


def test_a_replica_of_another_mode_is_refilled_as_it_is(
    kernel: Kernel, refill: Callable[[], None]
) -> None:
    for held in (WriteState(False, False), WriteState(True, True), WriteState(False, True)):
        kernel.held = held
        refill()
        assert kernel.held == held and kernel.done == []


def without_marker(kernel: Kernel, runner: FakeRunner) -> None:
    """As a release that left it so did; also where an operator takes a suspect replica for good."""
    enter(kernel, runner)
    lost_writes.clear_marker("vm1", kernel.path)
    assert kernel.mode is CacheMode.WRITE_BACK


def test_write_back_without_its_marker_is_marked(kernel: Kernel, runner: FakeRunner) -> None:
    without_marker(kernel, runner)
    write_cache.apply_policy(runner, device(BACK), state())
    assert kernel.mode is CacheMode.WRITE_BACK and lost_writes.has_marker(kernel.path)
    kernel.done.clear()
    write_cache.apply_policy(runner, device(BACK), state())
    assert kernel.done == [], "once"


@pytest.mark.parametrize(
    "leave",
    [
        lambda runner: write_cache.leave_write_back(runner, "vm1"),
        lambda runner: write_cache.leave_write_back_unless_two(runner, "vm1"),
        lambda runner: write_cache.leave_write_back_unless_in_sync(runner, "vm1"),
        lambda runner: write_cache.before_stop(runner, device("none")),
    ],
    ids=["leave", "lost peer", "promotion", "stop"],
)
def test_write_back_without_its_marker_ends_like_any(
    kernel: Kernel, runner: FakeRunner, leave: Callable[[FakeRunner], None]
) -> None:
    without_marker(kernel, runner)
    kernel.drbd = [ALONE]
    leave(runner)
    assert kernel.done == ["synchronous", "flush", "direct"]


def test_the_filesystem_is_not_asked_about_a_file_written_past_the_page_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may hang, and the handler of a lost peer asks."""
    monkeypatch.setattr(loop, "find", lambda _: "/dev/loop3")
    monkeypatch.setattr(loop, "uses_direct_io", lambda _: True)
    monkeypatch.setattr(page_cache, "_flags", lambda _: pytest.fail("asked"))
    assert not page_cache.is_written_back("/srv/some.data")


@pytest.mark.parametrize("step", ["synchronous", "flush"])
@pytest.mark.parametrize("policy", ["none", "write-through"])
def test_a_mode_is_published_once_the_flush_has_ended(
    kernel: Kernel, runner: FakeRunner, policy: str, step: str
) -> None:
    """`device cache` waits for it, and a drop of the other replica."""
    enter(kernel, runner)
    kernel.dies_at = step
    with pytest.raises(KeyboardInterrupt):
        write_cache.apply_policy(runner, device(policy), state())
    kernel.dies_at = ""
    found = parse_replica_state(write_cache_status.published_fields(device(policy), state()))
    assert (found.cache, found.cache_reason) == (BACK, "changing")
    write_cache.apply_policy(runner, device(policy), state())
    found = parse_replica_state(write_cache_status.published_fields(device(policy), state()))
    assert (found.cache, found.cache_reason) == (policy, None)


def test_a_suspect_replica_is_in_the_mode_that_it_is_in(kernel: Kernel, runner: FakeRunner) -> None:
    """Its marker stays: `device cache` would wait for it until it is refilled."""
    enter(kernel, runner)
    kernel.flush_fails = True
    with pytest.raises(CommandError):
        write_cache.apply_policy(runner, device("write-through"), state())
    found = parse_replica_state(
        write_cache_status.published_fields(device("write-through"), state())
    )
    assert found.cache == "write-through" and found.is_suspect


def test_a_suspect_primary_is_never_refilled(kernel: Kernel, runner: FakeRunner) -> None:
    lost_writes.record_failed_flush("vm1")
    refill_suspect.refill_if_suspect(runner, device(BACK), ALONE._replace(role="Primary"))
    assert runner.calls == []


NEWER = "write-around,tier=2"


def test_a_policy_of_a_newer_release_counts_as_write_through(
    kernel: Kernel, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    enter(kernel, runner)
    monkeypatch.setattr(journal, "write", lambda text, **_: logged.append(text))
    for _ in range(3):
        write_cache.apply_policy(runner, device(NEWER), state())
    assert kernel.mode is CacheMode.WRITE_THROUGH and "flush" in kernel.done
    assert sum("SAN-CACHE-004" in line for line in logged) == 1, "once, not with each monitor"
    found = parse_replica_state(write_cache_status.published_fields(device(NEWER), state()))
    assert (found.cache, found.cache_reason) == ("write-through", "unreadable")


@pytest.mark.parametrize("policy", [BACK, NEWER])
def test_a_stop_takes_a_policy_of_a_newer_release_for_write_back(
    kernel: Kernel, runner: FakeRunner, policy: str
) -> None:
    """The peer may be in write-back, if its release knows the policy: it has to flush, too."""
    enter(kernel, runner)
    write_cache.before_stop(runner, device(policy))
    assert kernel.done[:2] == ["synchronous", "flush"]
    assert [argv[:3] for argv, _ in runner.calls] == [("drbdadm", "disconnect", "--force")]
    runner.calls.clear()
    write_cache.disconnect_standby(runner, device(policy), state())
    assert [argv[:3] for argv, _ in runner.calls] == [("drbdadm", "disconnect", "--force")]
