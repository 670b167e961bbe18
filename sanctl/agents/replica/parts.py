# SPDX-License-Identifier: GPL-2.0-or-later
"""Which files and loop devices a replica has here: makes, grows, detaches them; reads all parts.

The device agent's actions are made of these functions. Each can be run again after an interruption
at any point and goes on from what is there.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from sanctl.agents.replica import gate_size
from sanctl.drivers import (
    backing_device,
    corosync,
    drbd_kernel,
    drbdadm,
    drbdsetup,
    gate,
    lio,
    loop,
    pool_files,
    ram_cache,
)
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.access import HostAccess
from sanctl.model.drbd import ResourceState
from sanctl.plan.drbd import state_line
from sanctl.system import journal, state_files
from sanctl.system.files import exists, is_folder, read_text_or
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    from sanctl.model.topology import Topology

CLUSTER = "/etc/sanctl/cluster.toml"
_MEMBERS_LOOK_S = 2.0
#: The kind of the note that a change of replica nodes is under way; its text is the lost node that
#: it waits for, if it does.
CHANGE_NOTE = "change-of-nodes"


_PATHS_WITHOUT_SUFFIX: dict[str, str] = {}


class Device(NamedTuple):
    """A device as the cluster describes it to an agent.

    Attributes:
        name: the device's name.
        uuid: 32 hex digits.
        size_bytes: the wanted size.
        pool: the pool's name.
        nodes: the replica nodes.
        minor: the DRBD minor.
        initiators: the initiators that may log in by their IQN alone.
        sync: its sync policy as text (sanctl/model/sync_policy.py).
        verify: the latest order to verify its replicas (sanctl/model/verify_result.py).
        cache: the cache policy, as the CIB holds it; empty: none.
        hosts: the hosts that may log in.
        unreadable_hosts: names of hosts that are not let in, as this release cannot read how.
        point: the latest order to make a restore point (sanctl/model/restore_point.py).
        restore: the order to go back to a restore point, while it keeps hosts out
            (sanctl/model/device_restore.py).
        origin: the restore point that it was made from (sanctl/model/clone_origin.py).
        awaits: the sites that have to say that it was not taken over before hosts are let in, after
            the whole cluster was started anew; empty: none.
        released: the runs of the cluster software in which hosts are let in by an order.
        held: no host is let in, as that is not known yet: the run, and why (admission.py).
        is_let_in: it is known that hosts are let in; of a device that awaits no site it is not set.
        leaves_list: the access list stays as it is, as it is not known what it is to be.
        reservations: hosts may make persistent reservations.
        clear_reservations: the latest order to clear them, a token; empty: none.
        lacks: words of its parameter `needs` that this release does not know.
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
    hosts: tuple[HostAccess, ...] = ()
    unreadable_hosts: tuple[str, ...] = ()
    point: str = ""
    restore: str = ""
    origin: str = ""
    awaits: str = ""
    released: str = ""
    held: str = ""
    is_let_in: bool = False
    leaves_list: bool = False
    reservations: bool = False
    clear_reservations: str = ""
    lacks: tuple[str, ...] = ()

    @property
    def all_initiators(self) -> tuple[str, ...]:
        """The initiators that may log in, by themselves or as one of a host."""
        return tuple(dict.fromkeys((*self.initiators, *(i for h in self.hosts for i in h.iqns))))

    @property
    def access(self) -> set[str]:
        """The entries of the access list, as they are published."""
        return {*self.initiators, *(word for host in self.hosts for word in host.words)}

    def closed(self, restore: str) -> Device:
        """Return this device with nobody on its access list, as it goes back to a restore point."""
        return self._replace(restore=restore, initiators=(), hosts=(), unreadable_hosts=())

    def held_back(self, held: str) -> Device:
        """Return this device with nobody on its access list, until a site or an order says so."""
        return self._replace(held=held, initiators=(), hosts=(), unreadable_hosts=())

    @property
    def drbd_device(self) -> str:
        """Path of the DRBD device."""
        return f"/dev/drbd{self.minor}"


class Health(NamedTuple):
    """Which parts of a device are up on this node, read from the kernel.

    Attributes:
        gate: `absent`, `error`, or what the gate leads onto.
        alua: `absent`, `Standby`, `Active/Optimized`, …
        is_exported: the target is enabled.
        drbd: the DRBD resource, None when it is not up.
        is_suspended: a device-mapper device holds I/O back.
    """

    gate: str
    alua: str
    is_exported: bool
    drbd: ResourceState | None
    is_suspended: bool

    @property
    def is_absent(self) -> bool:
        """No part of the device is up here."""
        return self.gate == "absent" and self.alua == "absent" and self.drbd is None

    @property
    def serves(self) -> bool:
        """At least one part is in the state of a node that serves, or could at once."""
        return (
            self.alua == "Active/Optimized"
            or self.gate not in {"absent", "error"}
            or (self.drbd is not None and self.drbd.is_primary)
        )

    @property
    def is_active(self) -> bool:
        """Every part is in the state of a node that serves the device."""
        return (
            self.drbd is not None
            and self.drbd.is_primary
            and self.gate.startswith("drbd")
            and self.alua == "Active/Optimized"
            and self.is_exported
            and not self.is_suspended
        )

    @property
    def is_standby(self) -> bool:
        """Every part is in place, and none of them serves."""
        return (
            not self.serves
            and self.drbd is not None
            and self.gate == "error"
            and self.alua == "Standby"
            and self.is_exported
            and not self.is_suspended
        )


def observe(runner: Runner, device: Device) -> Health:
    """Read from the kernel which parts of the device are up here.

    Raises:
        CommandError: a part did not answer.
    """
    # First: a hold for a restore point is waited for, and what is read afterwards is of then.
    is_suspended = gate.stays_suspended(device.name)
    return Health(
        gate=gate.gate_table(device.name),
        alua=lio.alua_state(device.name, device.minor),
        is_exported=lio.is_exported(device.name),
        drbd=drbdsetup.observe(runner, device.name),
        is_suspended=is_suspended,
    )


def load_topology() -> Topology:
    """Read cluster.toml. What this release does not know in it is logged once, and passed over.

    The file may be of a newer release: before the code is exchanged, or after the way back to an
    older one. No replica here would start. `sanctl status` still lists it as a mistake.

    Raises:
        ConfigError: the file is missing or wrong.
    """
    from sanctl.config.cluster import parse  # noqa: PLC0415 - monitors do not pay for it

    passed_over: list[Problem] = []
    found = parse(read_text_or(CLUSTER, ""), source=CLUSTER, passed_over=passed_over)
    if passed_over:
        _log_passed_over("\n".join(map(str, passed_over)))
    return found


def _log_passed_over(text: str) -> None:
    logged = state_files.of_node("topology-passed-over")
    with contextlib.suppress(OSError):
        if logged.read() == text:
            return
        logged.write(text)
    journal.write(
        f"passed over, as the release of sanctl here does not know it: {text}",
        priority=journal.WARNING,
        action="cluster.toml",
    )


def topology_version() -> str:
    """Return a text that changes with cluster.toml, without reading the file."""
    try:
        found = os.stat(CLUSTER)
    except FileNotFoundError:
        return "none"
    return f"{found.st_ino}.{found.st_size}.{found.st_mtime_ns}"


def load_modules(runner: Runner) -> None:
    """Load the kernel modules of the data path that are not loaded yet.

    Raises:
        CommandError: the kernel lacks one of them; `sanctl doctor` names it.
    """
    present = drbd_kernel.is_loaded() and all(
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
    """Make the device's missing files, with loop devices over them.

    A metadata file gets its final name only once it holds metadata, and before DRBD attaches it: a
    start that died in between begins again with new metadata, which makes the replica Inconsistent
    and so harmless.

    Files that are there and cannot grow to the wanted size stay as they are: the replica is to
    serve what it has. Its monitors try again.

    Raises:
        SanctlError: a loop device could not be made or removed; the data file lost its end.
        OSError: it is not known whether a file is there, and so none is made or removed; or the
            pool takes no writes.
    """
    files = pool_files.files_of(pool_path, device.name, device.uuid)
    os.makedirs(os.path.dirname(files.data), mode=0o700, exist_ok=True)
    if not exists(files.data):
        # The metadata goes before the empty data file is made: the replica is then Inconsistent.
        loop.detach(files.metadata)
        pool_files.delete_metadata(files)
    _refuse_truncated(runner, device, files)
    grown = _grow_or_leave(device, files.data, device.size_bytes)
    data = loop.attach(files.data, block_bytes=loop.HOST_BLOCK_BYTES)
    if exists(files.metadata):
        _grow_or_leave(device, files.metadata, pool_files.metadata_bytes(device.size_bytes))
        metadata = loop.attach(files.metadata)
    else:
        loop.detach(f"{files.metadata}.new")
        # A new file: the loop device over a left-over one may be held open, and go only later. It
        # would be found for the new metadata, and its number may be another replica's by then.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{files.metadata}.new")
        pool_files.allocate(f"{files.metadata}.new", pool_files.metadata_bytes(device.size_bytes))
        metadata = loop.attach(f"{files.metadata}.new")
    if grown:
        loop.grow(data)
        loop.grow(metadata)
    if not drbd_kernel.has_device(device.minor):
        # A replica that is up keeps its backing device: one of an older release, its loop device.
        backing_device.create(runner, device.name, over=data)
        ram_cache.remove_parts(device.name)
    return files


def _grow_or_leave(device: Device, path: str, size_bytes: int) -> bool:
    """Make a file, or grow it as far as its filesystem lets it; return whether it has changed.

    Raises:
        OSError: there is no such file yet, or nothing in it, and it could not be made.
    """
    try:
        return pool_files.allocate(path, size_bytes)
    except pool_files.GrowthRefused as error:
        present = pool_files.size_bytes(path)
        # One without a byte is of a replica that was being made.
        if not present:
            raise
        gate_size.log_not_grown(device, f"{path} stays at {present} bytes: {error}")
        return False


def _refuse_truncated(runner: Runner, device: Device, files: pool_files.DeviceFiles) -> None:
    """Make sure that a data file which has to grow is not one that has lost its end.

    Grown back with zeros, such a file would pass for the up-to-date replica that its metadata
    describes. A file smaller than the wanted size is normal after a resize; a file smaller than the
    size in DRBD's metadata is not. Not asked of an attached replica: DRBD holds the metadata then,
    and would fail the disk itself.
    """
    present = pool_files.size_bytes(files.data)
    is_attached = loop.find(files.data) is not None
    if present is None or present >= device.size_bytes or is_attached:
        return
    if not exists(files.metadata):
        return
    recorded = drbdadm.recorded_size_bytes(
        runner, loop.attach(files.metadata), kernel_generation=drbd_kernel.generation()
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


def detach_files(device: Device) -> None:
    """Detach every loop device over this device's files, in whichever pool the files are."""
    backing_device.remove(device.name)
    ram_cache.remove_parts(device.name)
    for path in attached_files(device):
        loop.detach(path)
    gate_size.remove_size_loop_device(device.name)


def wait_until_detached(device: Device) -> None:
    """Wait until loop devices are gone: one that a probe holds open goes when the probe ends."""
    deadline = time.monotonic() + 5.0
    while attached_files(device) and time.monotonic() < deadline:
        time.sleep(0.1)


def attached_files(device: Device) -> list[str]:
    """Return the device's files that have a loop device; not those of its restore points."""
    prefix = f"/devices/{device.name}.{device.uuid}."
    return [path for path in loop.backing_files() if prefix in path]


def note_path(device: Device, kind: str) -> str | None:
    """Return the path of a note beside the device's data file, None when that is not attached.

    The path is found once in a process: the search reads every loop device of the node.
    """
    key = f"{device.name}.{device.uuid}"
    if key not in _PATHS_WITHOUT_SUFFIX or not _is_known_to_exist(
        f"{_PATHS_WITHOUT_SUFFIX[key]}.data"
    ):
        found = [path for path in attached_files(device) if path.endswith(".data")]
        if not found:
            return None
        _PATHS_WITHOUT_SUFFIX[key] = found[0].removesuffix(".data")
    return f"{_PATHS_WITHOUT_SUFFIX[key]}.{kind}"


def _is_known_to_exist(path: str) -> bool:
    try:
        return exists(path)
    except OSError:
        return False  # Not known: the caller reads the loop devices again, which needs no disk.


def grow_files(device: Device) -> bool:
    """Grow this replica's attached files to the wanted size; return whether any was smaller."""
    grown = False
    for path in attached_files(device):
        wanted = device.size_bytes
        if not path.endswith(".data"):
            wanted = pool_files.metadata_bytes(device.size_bytes)
        grown |= pool_files.allocate(path, wanted, create=False)
        over = loop.find(path)
        if over is not None:
            loop.grow(over)
            if path.endswith(".data"):
                if backing_device.is_too_small(device.name, over=over) and ram_cache.size_bytes(
                    device.name
                ):
                    ram_cache.remove(device.name, over=over)
                backing_device.grow(device.name, over=over)
    return grown


def wait_until_settled(runner: Runner, device: Device, timeout_s: float) -> ResourceState | None:
    """Wait a moment until the peers are connected, so that the first promotion score is right.

    Not for long, and without an error: a peer may be away for good.
    """
    deadline = time.monotonic() + timeout_s
    if len(device.nodes) > 1:
        drbd_kernel.wait_while(device.minor, state_line.is_connecting, deadline)
    while True:
        before = drbd_kernel.state_line(device.minor)
        state = drbdsetup.observe(runner, device.name)
        if _is_settled(device, state) or time.monotonic() > deadline:
            return state
        drbd_kernel.wait_for_change(device.minor, before, deadline)


def await_starting_peers(
    runner: Runner, device: Device, state: ResourceState | None, within_s: float
) -> ResourceState | None:
    """Wait on for the peers of a new replica, while all their nodes are members of the cluster.

    Of many devices that are created together one node may start a replica long before the other
    does. Published without its peer it would be no candidate for the first promotion until the next
    monitor, and its peer, not the node that was chosen, would serve the device.

    `state` is from a wait until the peers are connected, which they may not be. Returns a newer one
    where it has waited.
    """
    deadline = time.monotonic() + within_s
    others = set(device.nodes) - {os.uname().nodename}
    while (
        not _is_settled(device, state)
        and time.monotonic() < deadline
        and _are_members(runner, others)
    ):
        left_s = deadline - time.monotonic()
        state = wait_until_settled(runner, device, min(_MEMBERS_LOOK_S, left_s))
    return state


def _are_members(runner: Runner, nodes: Collection[str]) -> bool:
    try:
        return set(nodes) <= set(corosync.membership(runner).members)
    except SanctlError:
        return False


def _is_settled(device: Device, state: ResourceState | None) -> bool:
    return len(device.nodes) == 1 or (
        state is not None
        and all(
            peer.connection in {"Connected", "StandAlone"} and peer.disk != "DUnknown"
            for peer in state.peers
        )
    )
