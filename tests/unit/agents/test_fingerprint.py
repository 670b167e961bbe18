# SPDX-License-Identifier: GPL-2.0-or-later
"""A fingerprint is left by a monitor that found its replica whole and did nothing; no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sanctl.agents import device, device_monitor, fingerprint, ocf
from sanctl.agents.fingerprint import Fingerprint
from sanctl.agents.publish import attrd_cache
from sanctl.drivers import lio
from sanctl.parse.drbd import ProcLine
from sanctl.plan.device.short_monitor import Seen
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
    notes=frozenset({"attrd-cache.state", "published"}),
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
    sync_policy = state_files.of_device("vol1", "sync-policy")
    sync_policy.write("1 \nx\n\n")
    return it


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


@pytest.mark.parametrize("status", [ocf.SUCCESS, ocf.ERR_GENERIC, ocf.FAILED_PROMOTED])
def test_another_status_than_the_kernel_shows_leaves_none(monitor: Monitor, status: int) -> None:
    monitor.status = status
    assert monitor.run() == ""


@pytest.mark.parametrize("kind", _KINDS)
def test_what_is_not_published_to_this_attrd_leaves_none(monitor: Monitor, kind: str) -> None:
    state_files.of_device("vol1", kind).write("6 x")
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
