# SPDX-License-Identifier: GPL-2.0-or-later
"""One device's replica on this node: its parts, from the device file up to the gate.

The agent's actions are put together from these. Each can be run again after an interruption at
any point and goes on from what is there.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from sanctl.drivers import (
    backing_device,
    drbdadm,
    drbdsetup,
    gate,
    lio,
    loop,
    pool_files,
    ram_cache,
)
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import ResourceState
from sanctl.system import state_files
from sanctl.system.files import exists, is_folder, read_text_or
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    from sanctl.model.topology import Topology

_CLUSTER = "/etc/sanctl/cluster.toml"


_STEMS: dict[str, str] = {}


class Device(NamedTuple):
    """A device as the cluster describes it to an agent.

    Attributes:
        name: the device's name.
        uuid: 32 hex digits.
        size_bytes: the wanted size.
        pool: the pool's name.
        nodes: the replica nodes.
        minor: the DRBD minor.
        initiators: who may log in.
        sync: its sync policy, in words (sanctl/model/sync_policy.py).
        verify: the latest order to compare its replicas (sanctl/model/verify_result.py).
        cache: the cache policy, as the CIB holds it; empty: none.
    """

    name: str
    uuid: str
    size_bytes: int
    pool: str
    nodes: tuple[str, ...]
    minor: int
    initiators: tuple[str, ...]
    sync: str = ""
    verify: str = ""
    cache: str = ""

    @property
    def drbd_device(self) -> str:
        """Path of the DRBD device."""
        return f"/dev/drbd{self.minor}"


class Health(NamedTuple):
    """What of a device is there on this node, read from the kernel.

    Attributes:
        gate: `absent`, `error`, or what the gate leads onto.
        alua: `absent`, `Standby`, `Active/Optimized`, …
        exported: the target is enabled.
        drbd: the DRBD resource, None when it is not up.
        suspended: a device-mapper device holds I/O back.
    """

    gate: str
    alua: str
    exported: bool
    drbd: ResourceState | None
    suspended: bool

    @property
    def is_absent(self) -> bool:
        """Nothing of the device is here."""
        return self.gate == "absent" and self.alua == "absent" and self.drbd is None

    @property
    def serves(self) -> bool:
        """Some part says that this node serves the device, or could at once."""
        return (
            self.alua == "Active/Optimized"
            or self.gate not in {"absent", "error"}
            or (self.drbd is not None and self.drbd.is_primary)
        )

    @property
    def is_active(self) -> bool:
        """Every part says that this node serves the device."""
        return (
            self.drbd is not None
            and self.drbd.is_primary
            and self.gate.startswith("drbd")
            and self.alua == "Active/Optimized"
            and self.exported
            and not self.suspended
        )

    @property
    def is_standby(self) -> bool:
        """Every part is in place, and none of them serves."""
        return (
            not self.serves
            and self.drbd is not None
            and self.gate == "error"
            and self.alua == "Standby"
            and self.exported
            and not self.suspended
        )


def observe(runner: Runner, device: Device) -> Health:
    """Read from the kernel what of the device is here.

    Raises:
        CommandError: a part did not answer.
    """
    return Health(
        gate=gate.gate_table(device.name),
        alua=lio.alua_state(device.name, device.minor),
        exported=lio.is_exported(device.name),
        drbd=drbdsetup.observe(runner, device.name),
        suspended=gate.is_suspended(device.name),
    )


def load_topology() -> Topology:
    """Read cluster.toml.

    Raises:
        ConfigError: it is missing or wrong.
    """
    from sanctl.config.cluster import parse  # noqa: PLC0415 - monitors do not pay for it

    return parse(read_text_or(_CLUSTER, ""), source=_CLUSTER)


def load_modules(runner: Runner) -> None:
    """Load what the data path is made of, where the node's boot has not.

    Raises:
        CommandError: the kernel has one of them not; `sanctl doctor` names it.
    """
    present = drbdsetup.is_loaded() and all(
        is_folder(f"/sys/module/{name}") for name in ("loop", "dm_mod", "target_core_iblock")
    )
    if not present or not is_folder("/sys/kernel/config/target/iscsi"):
        runner.run(
            [
                "modprobe",
                "--all",
                "drbd",
                "loop",
                "dm_mod",
                "target_core_iblock",
                "iscsi_target_mod",
            ],
            timeout_s=30.0,
        )


def prepare_files(runner: Runner, device: Device, pool_path: str) -> pool_files.DeviceFiles:
    """Make what is missing of the device's files, with loop devices over them.

    A metadata file has its final name only once it holds metadata, and before DRBD attaches it: a
    start that died between begins again with new metadata, which makes the replica Inconsistent
    and so harmless.

    Raises:
        SanctlError: a loop device could not be made or taken away; the data file lost its end.
        OSError: it is not known whether a file is there, and so nothing is made or removed; or the
            pool takes no writes.
    """
    files = pool_files.files_of(pool_path, device.name, device.uuid)
    os.makedirs(os.path.dirname(files.data), mode=0o700, exist_ok=True)
    if not exists(files.data):
        # First the metadata goes, then the empty file comes: it joins as what it is, Inconsistent.
        loop.detach(files.metadata)
        pool_files.delete_metadata(files)
    _refuse_truncated(runner, device, files)
    grown = pool_files.allocate(files.data, device.size_bytes)
    data = loop.attach(runner, files.data)
    if exists(files.metadata):
        pool_files.allocate(files.metadata, pool_files.metadata_bytes(device.size_bytes))
        metadata = loop.attach(runner, files.metadata)
    else:
        loop.detach(f"{files.metadata}.new")
        # Made anew: the loop device over what was left may be held open, and go only later. It
        # would be found for the new metadata, and its number may be another replica's by then.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{files.metadata}.new")
        pool_files.allocate(f"{files.metadata}.new", pool_files.metadata_bytes(device.size_bytes))
        metadata = loop.attach(runner, f"{files.metadata}.new")
    if grown:
        loop.grow(runner, data)
        loop.grow(runner, metadata)
    if drbdsetup.observe(runner, device.name) is None:
        # What is up keeps what it stands on: a replica of an older release, its loop device.
        backing_device.create(runner, device.name, over=data)
        ram_cache.remove_parts(runner, device.name)
    return files


def _refuse_truncated(runner: Runner, device: Device, files: pool_files.DeviceFiles) -> None:
    """Make sure that a data file which has to grow is not one that has lost its end.

    Grown back with zeros, it would pass for the up-to-date replica that its metadata calls it.
    A file too small for the device as it is wanted is normal after a resize; one too small for
    the device as DRBD knew it is not. Not asked of an attached replica: DRBD holds the metadata
    then, and would fail the disk itself.
    """
    present = pool_files.size_bytes(files.data)
    is_attached = loop.find(files.data) is not None
    if present is None or present >= device.size_bytes or is_attached:
        return
    if not exists(files.metadata):
        return
    recorded = drbdadm.recorded_size_bytes(
        runner, loop.attach(runner, files.metadata), kernel_generation=drbdsetup.generation()
    )
    if present < recorded:
        raise CommandError(
            Problem(
                "SAN-AGENT-009",
                f"{files.data} holds {present} bytes, the replica had {recorded}: its end is lost",
                "find out what cut it off; then remove the file, and the replica is filled from "
                "its peer",
            )
        )


def detach_files(runner: Runner, device: Device) -> None:
    """Detach every loop device over this device's files, in whatever pool they lie."""
    backing_device.remove(runner, device.name)
    ram_cache.remove_parts(runner, device.name)
    for path in attached_files(device):
        loop.detach(path)
    drop_shape(device.name)


def wait_until_detached(device: Device) -> None:
    """Give loop devices a moment to go: one that a probe holds open goes when the probe ends."""
    deadline = time.monotonic() + 5.0
    while attached_files(device) and time.monotonic() < deadline:
        time.sleep(0.1)


def attached_files(device: Device) -> list[str]:
    """Return the device's files that have a loop device."""
    mark = f"/{device.name}.{device.uuid}."
    return [path for path in loop.backing_files() if mark in path]


def note_path(device: Device, kind: str) -> str | None:
    """Return the path of a note beside the device's data, None when that is not attached.

    Looked for once in a process: every loop device of the node has to be asked.
    """
    key = f"{device.name}.{device.uuid}"
    if key not in _STEMS or not _is_there(f"{_STEMS[key]}.data"):
        found = [path for path in attached_files(device) if path.endswith(".data")]
        if not found:
            return None
        _STEMS[key] = found[0].removesuffix(".data")
    return f"{_STEMS[key]}.{kind}"


def _is_there(path: str) -> bool:
    try:
        return exists(path)
    except OSError:
        return False  # Not known: the loop devices are asked again, who need no disk to answer.


def grow_files(runner: Runner, device: Device) -> bool:
    """Grow this replica's attached files to what the wanted size needs; return if any was less."""
    grown = False
    for path in attached_files(device):
        wanted = device.size_bytes
        if not path.endswith(".data"):
            wanted = pool_files.metadata_bytes(device.size_bytes)
        grown |= pool_files.allocate(path, wanted, create=False)
        over = loop.find(path)
        if over is not None:
            loop.grow(runner, over)
            if path.endswith(".data"):
                if backing_device.is_too_small(device.name, over=over) and ram_cache.size_bytes(
                    device.name
                ):
                    ram_cache.remove(runner, device.name, over=over)
                backing_device.grow(runner, device.name, over=over)
    return grown


def wait_until_settled(runner: Runner, device: Device, timeout_s: float) -> ResourceState | None:
    """Wait for the peers for a moment, so that the first promotion score tells the truth.

    Not for long, and not for success: a peer may be away for good.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        state = drbdsetup.observe(runner, device.name)
        settled = len(device.nodes) == 1 or (
            state is not None
            and all(
                peer.connection in {"Connected", "StandAlone"} and peer.disk != "DUnknown"
                for peer in state.peers
            )
        )
        if settled or time.monotonic() > deadline:
            return state
        time.sleep(0.25)


def make_gate(runner: Runner, device: Device, state: ResourceState | None) -> None:
    """Make the two device-mapper devices, closed, in the size that DRBD has."""
    size = (state.size_kib or 0) * 1024 if state else 0
    with _shape(runner, device.name, size or device.size_bytes) as shape:
        gate.create(runner, device.name, shape=shape, size_bytes=size or device.size_bytes)


@contextlib.contextmanager
def _shape(runner: Runner, name: str, size_bytes: int) -> Iterator[str]:
    """An empty loop device with the limits of a device file, for a moment."""
    path = state_files.size_file(name)
    drop_shape(name)
    pool_files.allocate(path, size_bytes)
    try:
        yield loop.attach(runner, path, direct_io=False)
    finally:
        drop_shape(name)


def drop_shape(name: str) -> None:
    """Take away the momentary loop device, also one that an interrupted action left."""
    loop.detach(state_files.size_file(name))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(state_files.size_file(name))


def finish_growth(runner: Runner, device: Device, state: ResourceState) -> bool:
    """Make the device-mapper devices as large as DRBD has become; return whether they were not."""
    size = (state.size_kib or 0) * 1024
    present = gate.size_bytes(device.name)
    if present is None or size <= present:
        return False
    if gate.gate_table(device.name).startswith("drbd"):
        gate.grow_active(runner, device.name, below=device.drbd_device, size_bytes=size)
    else:
        with _shape(runner, device.name, size) as shape:
            gate.grow_standby(runner, device.name, shape=shape, size_bytes=size)
    return True
