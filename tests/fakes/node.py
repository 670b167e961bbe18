# SPDX-License-Identifier: GPL-2.0-or-later
"""The node on which an agent runs, in memory: DRBD, loop devices, /run/sanctl, journal, clock.

The programs that an agent starts are answered as by any FakeRunner. What an agent reads or does
without a program (sysfs, ioctls, files below /run, sleeping, a reboot) is replaced by `install`,
and follows the attributes of the node: a test sets these, at any time.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Self

import pytest

from sanctl.agents import cluster_toml
from sanctl.agents.cache import lost_flash, read_cache, write_cache_status
from sanctl.agents.fencing import joined_peers
from sanctl.agents.publish import attrd_cache
from sanctl.agents.replica import lost_writes, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import (
    bcache,
    cluster_files,
    corosync,
    drbd_kernel,
    drbdadm,
    drbdsetup,
    icmp_clock,
    lio,
    loop,
    own_disk,
    pool_files,
    pool_notes,
    self_fence,
)
from sanctl.model.drbd import ResourceState
from sanctl.model.topology import Topology
from sanctl.parse.corosync import Membership
from sanctl.plan.device.short_monitor import period
from sanctl.system import journal, state_files
from sanctl.system.runner import LocalRunner, Runner
from tests.fakes.runner import FakeRunner
from tests.fakes.topology import topology

_observe, _membership = drbdsetup.observe, corosync.membership


class Rebooted(BaseException):
    """The node reboots: nothing that the agent would do afterwards happens."""


class Clock:
    """A monotonic clock that moves in `sleep` alone; the node acts meanwhile, in `on_sleep`."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.begin_s = self.now_s
        self.on_sleep: Callable[[], None] = lambda: None

    @property
    def passed_s(self) -> float:
        """How long the agent has slept so far."""
        return self.now_s - self.begin_s

    def sleep(self, duration_s: float) -> None:
        """Let time pass; fails the test of an agent that sleeps for ever."""
        self.now_s += duration_s
        self.on_sleep()
        assert self.passed_s < 900.0, "it waits for ever"


class FakeNode(FakeRunner):
    """A storage node of tests.fakes.topology with DRBD loaded and nothing attached.

    Attributes:
        folder: what is /run/sanctl on a real node, and has in folders of their own what lies
            elsewhere there: notes of pools (`notes`), drbdadm's registry (`registry`).
        name: the node's name, as uname(2) has it.
        topology: what cluster.toml says.
        generation: DRBD's: 8 or 9.
        has_drbdsetup: the program is installed.
        states: of replicas; one that is not named here is asked for with `drbdsetup events2`.
        membership: what corosync says; None: what corosync-quorumtool is answered.
        loops: the loop devices, by the path of their backing file.
        claimed: loop devices that are in use by another than the loop driver.
        flash_cache: what the kernel says of the slow disk under a flash cache.
        journal: the lines in the journal.
        programs: answers the agents that have a LocalRunner of their own; the node itself.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.name = "n1"
        self.topology = self.with_own_pool(topology())
        self.generation = 8
        self.has_drbdsetup = True
        self.states: dict[str, ResourceState | None] = {}
        self.membership: Membership | None = None
        self.loops: dict[str, str] = {}
        self.claimed: set[str] = set()
        self.flash_cache: bcache.OriginState | None = None
        self.journal: list[str] = []
        self.clock = Clock()
        self.programs: FakeRunner = self

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Self:
        """Have the agents find this node in place of the real one."""
        for module, name, value in self.replacements():
            monkeypatch.setattr(module, name, value)
        return self

    def replacements(self) -> list[tuple[object, str, object]]:
        """Return what is replaced: module, name there, and by what; for a subclass to add to."""
        return [
            (state_files, "RUNTIME", f"{self.folder}"),
            (pool_notes, "_FOLDER", f"{self.folder}/notes"),
            (joined_peers, "_MET_UNNOTED", set[tuple[str, str]]()),
            (own_disk, "live_cib_version", lambda _runner: (0, 1)),
            (own_disk, "written_cib_version", lambda: (0, 1)),
            (own_disk, "space_bytes", lambda: (100 << 30, 50 << 30)),
            (own_disk, "run_space_bytes", lambda: (1 << 30, 1 << 29)),
            (cluster_files, "topology_digest", lambda: ""),
            (cluster_files, "secret_digest", lambda: ""),
            (icmp_clock, "offsets_s", lambda _peers, **_: {}),
            (drbdadm, "RESOURCE_FILES", f"{self.folder}/drbd.d"),
            (drbdadm, "_REGISTRY", f"{self.folder}/registry"),
            (resource_file, "INCLUDE", f"{self.folder}/sanctl.res"),
            (resource_file, "_SECRET", self._file("secret", "s3cret\n")),
            (lost_writes, "_BOOT_ID", self._file("boot_id", "this boot\n")),
            (LocalRunner, "run", lambda _, argv, **options: self.programs.run(argv, **options)),
            (os, "uname", lambda: os.uname_result(("Linux", self.name, "", "", ""))),
            (time, "monotonic", lambda: self.clock.now_s),
            (time, "clock_gettime", lambda _clock: self.clock.now_s),
            (time, "sleep", self.clock.sleep),
            (cluster_toml, "load_topology", lambda: self.topology),
            (lost_flash, "load_topology", lambda: self.topology),
            (drbd_kernel, "generation", lambda: self.generation),
            (drbd_kernel, "is_loaded", lambda: True),
            (drbdsetup, "is_installed", lambda: self.has_drbdsetup),
            (drbdsetup, "observe", self.observe),
            (corosync, "CONF", f"{self.folder}/corosync.conf"),
            (corosync, "membership", lambda runner: self.membership or _membership(runner)),
            (loop, "backing_files", lambda: list(self.loops)),
            (loop, "find", self.loop_of),
            (loop, "attachments", lambda: dict(self.loops)),
            (loop, "is_over", lambda path: path in self.loops),
            (loop, "is_claimed", lambda device: device in self.claimed),
            (loop, "attach", self.attach),
            (loop, "detach", lambda path: self.loops.pop(path, None)),
            (loop, "grow", lambda *_: None),
            (bcache, "observe", lambda _origin: self.flash_cache),
            (lio, "access", lambda _name: ()),
            (self_fence, "reboot", self._reboot),
            (journal, "write", lambda text, **_: self.journal.append(text)),
        ]

    def ask_for_monitor(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Set the environment as Pacemaker does for a monitor of vol1."""
        monkeypatch.setenv("OCF_RESOURCE_INSTANCE", "vol1")
        for key, value in (
            ("uuid", "a" * 32),
            ("size", "1048576"),
            ("pool", "main"),
            ("nodes", "n1 n2"),
            ("minor", "3"),
            ("CRM_meta_interval", "10000"),
        ):
            monkeypatch.setenv(f"OCF_RESKEY_{key}", value)

    def meet(self, *peers: str) -> None:
        """Have these nodes have joined Pacemaker since its start here."""
        for peer in peers:
            note = state_files.of_node(f"joined.{peer}")
            note.write(joined_peers.cluster_start_id())

    def start_attrd(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have an attrd run, for replicas that publish no host and no cache."""
        for module, name, answer in (
            (attrd_cache, "attrd_pid", "7"),
            (write_cache_status, "published_fields", ""),
            (read_cache, "published_fields", ""),
        ):
            monkeypatch.setattr(module, name, lambda *_, answer=answer: answer)

    def enter_period_of_vol1(self) -> None:
        """Have it be within vol1's period, of whatever length: what is recorded stays as it is."""

        def is_within(now_s: float) -> bool:
            present = partial(period, name="vol1", replicas_here=1, now_s=now_s)
            return all(30 < present(is_in_sync=each).passed_s < 50 for each in (True, False))

        self.clock.now_s = next(filter(is_within, map(float, range(1000, 9000))))

    def observe(self, runner: Runner, name: str) -> ResourceState | None:
        """Return what DRBD says of a replica; a model of DRBD has a method of its own."""
        return self.states[name] if name in self.states else _observe(runner, name)

    def with_own_pool(self, found: Topology) -> Topology:
        """Return a topology with its pool in the folder of the node."""
        pools = (replace(pool, path=PurePosixPath(self.folder / "pool")) for pool in found.pools)
        return replace(found, pools=tuple(pools))

    def loop_of(self, path: str) -> str | None:
        """Return the loop device over a file, if there is one."""
        return self.loops.get(path)

    def attach(self, path: str, *, direct_io: bool = True, block_bytes: int = 0) -> str:
        """Put a loop device over a file."""
        taken = set(self.loops.values())
        free = (name for number in itertools.count() if (name := f"/dev/loop{number}") not in taken)
        return self.loops.setdefault(path, next(free))

    def attach_files(self, device: Device) -> pool_files.DeviceFiles:
        """Put loop devices over a replica's files in the pool, which need not exist."""
        files = pool_files.files_of(f"{self.folder}/pool", device.name, device.uuid)
        for path in (files.data, files.metadata):
            self.attach(path)
        return files

    def age(self, device: str, kind: str, age_s: float) -> None:
        """Have a state file of a device be as old as that."""
        then = time.time() - age_s
        os.utime(state_files.of_device(device, kind).path, (then, then))

    def commands(self, *programs: str) -> list[str]:
        """Return the command lines so far; of these programs only, where any are named."""
        return [" ".join(argv) for argv, _ in self.calls if not programs or argv[0] in programs]

    def _file(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return f"{self.folder}/{name}"

    def _reboot(self, _runner: Runner, reason: str, *, device: str) -> None:
        raise Rebooted(reason)
