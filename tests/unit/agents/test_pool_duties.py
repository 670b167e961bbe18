# SPDX-License-Identifier: GPL-2.0-or-later
"""What one duty of the pool agent's monitor cannot do keeps no other one from its turn."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from sanctl.agents import cib_check, deleted_devices, ocf, pool, pool_attributes, pool_space
from sanctl.agents.node import clocks, links, members, own_disk, votes
from sanctl.agents.publish import failed_logins, host_sessions, node_states
from sanctl.agents.recovery import pool_remount
from sanctl.drivers import pool_files, pool_mount
from sanctl.errors import CommandError, ConfigError, Problem
from tests.fakes.node import FakeNode

#: In their order: module and function.
DUTIES: tuple[tuple[object, str], ...] = (
    (pool_attributes, "refresh_lost"),
    (cib_check, "have_done"),
    (node_states, "publish_if_due"),
    (node_states, "delete_of_earlier_release"),
    (pool_remount, "remount"),
    (pool_attributes, "publish_pools"),
    (deleted_devices, "delete_files"),
    (pool, "_keep_points_up"),
    (pool, "_keep_exports_up"),
    (host_sessions, "publish"),
    (failed_logins, "log"),
    (pool, "_clean_up"),
    (members, "drop_or_log"),
    (votes, "apply_or_log"),
    (pool_space, "reserve_device_files"),
)
NAMES = [name for _, name in DUTIES]
ERRORS: tuple[Exception, ...] = (
    CommandError(Problem("SAN-CMD-002", "no answer within 5 s: attrd_updater")),
    OSError(errno.ENOSPC, "No space left on device"),
    ValueError("not enough values to unpack"),
    MemoryError(),
)


class Monitor:
    """A monitor of the pool agent of a node with one pool, whose duties are recorded."""

    def __init__(self, node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node = node
        self.done: list[str] = []
        self.fails: dict[str, Exception] = {}
        # No probe, which does nothing.
        monkeypatch.setenv("OCF_RESKEY_CRM_meta_interval", "10000")
        for module, name in DUTIES:
            monkeypatch.setattr(module, name, self._duty(name))
        monkeypatch.setattr(pool_attributes, "read", lambda _runner: {})
        monkeypatch.setattr(pool_files, "check_marker", lambda *_: None)
        monkeypatch.setattr(pool_files, "space_bytes", lambda _path: (1 << 30, 1 << 29))
        monkeypatch.setattr(pool_space, "own_bytes", lambda *_: 0)
        monkeypatch.setattr(pool_space, "daily_growth", lambda *_, **__: None)
        pool._running_note().write()

    def run(self) -> list[str]:
        self.done.clear()
        assert pool.monitor() == ocf.SUCCESS
        return self.done

    def _duty(self, name: str) -> Callable[..., None]:
        def carry_out(*_: object, **__: object) -> None:
            self.done.append(name)
            if name in self.fails:
                raise self.fails[name]

        return carry_out


@pytest.fixture
def monitor(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> Monitor:
    return Monitor(fake_node, monkeypatch)


def test_a_monitor_has_these_duties(monitor: Monitor) -> None:
    assert monitor.run() == NAMES
    assert monitor.node.journal == []


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("name", NAMES)
def test_a_duty_that_fails_keeps_no_other_from_its_turn(
    monitor: Monitor, name: str, error: Exception
) -> None:
    """What broke: states that could not be published left pools unmounted, devices undeleted."""
    monitor.fails = {name: error}
    assert monitor.run() == NAMES
    assert len(monitor.node.journal) == 1


def test_all_of_them_may_fail(monitor: Monitor) -> None:
    monitor.fails = dict.fromkeys(NAMES, KeyError("id"))
    assert monitor.run() == NAMES
    assert len(monitor.node.journal) == len(NAMES)


def test_a_pool_of_which_an_error_of_sanctl_says_nothing_is_not_called_a_failed_one(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other nodes keep a disk that they should give up while a peer's pool has failed."""
    said: list[list[str]] = []
    monkeypatch.setattr(pool_attributes, "publish_pools", lambda _, lines, **__: said.append(lines))
    monitor.fails = {"remount": ValueError("?")}
    monitor.run()
    monitor.fails = {"remount": OSError(errno.EIO, "I/O error")}
    monitor.run()
    assert said == [[], ["main=error=SAN-POOL-003"]]


def test_a_pool_that_is_mounted_read_only_is_none_with_room(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was published as a good one: devices were placed there, and failed starts not repeated."""
    said: list[list[str]] = []
    listed = monitor.node.folder / "mountinfo"
    monkeypatch.setattr(pool_attributes, "publish_pools", lambda _, lines, **__: said.append(lines))
    monkeypatch.setattr(pool_mount, "MOUNTS", str(listed))
    usable: list[object] = []
    monkeypatch.setattr(pool, "_clean_up", lambda _runner, found: usable.append({*found}))
    line = f"41 20 253:0 / {monitor.node.folder}/pool {{}} - ext4 /dev/sdb {{}}\n"
    listed.write_text(line.format("ro", "ro"))
    monitor.run()
    listed.write_text(line.format("rw", "rw"))
    monitor.run()
    assert said[0] == ["main=error=SAN-POOL-036"]
    assert said[1][0].startswith("main=total=")
    assert usable == [set(), {"main"}], "a start that failed for it is cleaned up afterwards"


def test_a_pool_whose_disk_bcache_has_stopped_is_remounted_before_its_flash_is_asked_for(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked first it was called missing, with every monitor, and the pool was never remounted."""
    said: list[list[str]] = []
    waits = True

    def remount(*_: object, **__: object) -> None:
        nonlocal waits
        waits = False

    def cache_fields(*_: object) -> str:
        assert not waits
        return " cache=write-through"

    monkeypatch.setattr(pool_attributes, "publish_pools", lambda _, lines, **__: said.append(lines))
    monkeypatch.setattr(pool_remount, "awaits_mount", lambda _pool: waits)
    monkeypatch.setattr(pool_remount, "remount", remount)
    monkeypatch.setattr(pool, "_cache_fields", cache_fields)
    assert pool.start() == ocf.SUCCESS
    assert said == [["main=error=SAN-POOL-023"]], "a start has no time for it"
    monitor.run()
    assert said[1][0].startswith("main=total=") and said[1][0].endswith("cache=write-through")


@pytest.mark.parametrize(("passed_s", "is_over"), [(21.0, False), (23.0, True)])
def test_what_no_time_is_left_for_is_the_next_monitors(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch, passed_s: float, is_over: bool
) -> None:
    """A monitor that times out is a failed one, and the agent is restarted."""
    monkeypatch.setattr(ocf, "remaining_s", lambda default_s: default_s - passed_s)
    monitor.fails = {"delete_files": ERRORS[0]}
    assert monitor.run() == (NAMES[:7] if is_over else NAMES)
    # One that was merely slow leaves the others their turn.
    monitor.fails = {}
    assert monitor.run() == NAMES


def test_a_broken_configuration_is_reported(monitor: Monitor) -> None:
    """It does not pass by itself."""
    monitor.fails = {"publish_if_due": ConfigError(Problem("SAN-CFG-001", "cluster.toml: line 3"))}
    with pytest.raises(ConfigError):
        monitor.run()


def test_what_is_not_known_of_the_cib_is_not_acted_on(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attribute that could not be read is not one that is gone."""

    def be_silent(_runner: object) -> dict[str, str]:
        raise ERRORS[0]

    monkeypatch.setattr(pool_attributes, "read", be_silent)
    assert monitor.run() == []
    assert "could not be looked at" in monitor.node.journal[-1]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("module", [own_disk, links, clocks])
def test_what_cannot_be_said_of_the_node_keeps_nothing_from_being_said_of_its_pools(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch, module: object, error: Exception
) -> None:
    """What broke: it was asked for outside of what catches errors, and no pool was looked at."""

    def fails(*_: object) -> str:
        raise error

    monkeypatch.setattr(module, "fields" if module is own_disk else "field", fails)
    assert "publish_pools" in monitor.run()
    assert monitor.done[-1] == NAMES[-1]
