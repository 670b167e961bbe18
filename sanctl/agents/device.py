# SPDX-License-Identifier: GPL-2.0-or-later
"""OCF agent ocf:sanctl:device: order of steps (DRBD, gate, ALUA) in start, promote, stop, ...

Pacemaker runs each action as one short process. The process may be killed after any step, and the
action is then run again: what is there is read from the kernel, never remembered.

The orders that keep data safe:

* promote: DRBD Primary, then the gate onto DRBD, then ALUA. Hosts see Active/Optimized only when
  this node serves.
* demote: ALUA Standby, then the gate to `error` (which waits for the I/O in flight), then DRBD
  Secondary. This node acknowledges no write once the peer may serve.
* stop succeeds only when no part of the device is left on the node. A failed stop makes the cluster
  fence this node, and that is right. Without quorum no node can fence, and this node reboots
  itself.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sanctl.agents import device_monitor, fingerprint, ocf
from sanctl.agents.cache import read_cache, write_cache, write_cache_steps
from sanctl.agents.connections import isolation, peers, start_connection
from sanctl.agents.converge import converge
from sanctl.agents.device_metadata import METADATA
from sanctl.agents.fencing import (
    failed_stop_reboot,
    outdate,
    quorum_overlap,
    shared_marks,
)
from sanctl.agents.node import failure_cleanup, start_turn
from sanctl.agents.promotion import (
    admission,
    compared_data,
    first_activation,
    forgotten_role,
    needed_release,
    set_role,
)
from sanctl.agents.publish import replica_state
from sanctl.agents.recovery import fs_shutdown
from sanctl.agents.replica import (
    access_list,
    gate_size,
    listed_portals,
    lost_writes,
    parts,
    resource_file,
    sync_policy,
)
from sanctl.agents.replica.parts import Device
from sanctl.agents.reservations import hooks
from sanctl.agents.restore import closure as restore_closure
from sanctl.agents.restore import unit as restore_unit
from sanctl.agents.sync import settling, verify_history
from sanctl.drivers import (
    backing_device,
    drbd_kernel,
    drbdadm,
    drbdsetup,
    gate,
    lio,
    pool_files,
    pool_mount,
    ram_cache,
)
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model import published_reservations, release_needs
from sanctl.model.access import split_hosts
from sanctl.model.cache_policy import parse_cache_policy
from sanctl.model.drbd import ResourceState
from sanctl.plan.device import discovery
from sanctl.system import state_files
from sanctl.system.files import exists
from sanctl.system.runner import LocalRunner

if TYPE_CHECKING:
    from sanctl.model.topology import Node, Pool, Topology

_RUNNER = LocalRunner()
_SETTLE_S = 8.0
#: A new replica waits so much longer for its peers' nodes, which start theirs.
_SETTLE_NEW_S = 25.0
_GROWTH_WAIT_S = 20.0
#: How long an action waits for DRBD or for I/O in flight. Less than its timeout, the rest of which
#: is for programs that are slow to start beside many others.
_WAIT_S = 57.0


def _device() -> Device:
    instance = os.environ.get("OCF_RESOURCE_INSTANCE", "")
    name = instance.partition(":")[0]
    if not name:
        raise ocf.MissingParameter("OCF_RESOURCE_INSTANCE")
    hosts, unreadable_hosts = split_hosts(ocf.parameter("hosts", ""))
    device = Device(
        name=name,
        uuid=ocf.parameter("uuid"),
        size_bytes=int(ocf.parameter("size")),
        pool=ocf.parameter("pool"),
        nodes=tuple(ocf.parameter("nodes").split()),
        minor=int(ocf.parameter("minor")),
        initiators=tuple(ocf.parameter("initiators", "").split()),
        sync=ocf.parameter("sync", ""),
        verify=ocf.parameter("verify", ""),
        cache=ocf.parameter("cache", ""),
        hosts=hosts,
        unreadable_hosts=unreadable_hosts,
        point=ocf.parameter("point", ""),
        origin=ocf.parameter("origin", ""),
        awaits=ocf.parameter("awaits", ""),
        released=ocf.parameter("released", ""),
        reservations=published_reservations.are_on(
            ocf.parameter(published_reservations.PARAMETER, "")
        ),
        clear_reservations=ocf.parameter(published_reservations.CLEAR_PARAMETER, ""),
        lacks=release_needs.not_known(ocf.parameter(release_needs.PARAMETER, "")),
    )
    return restore_closure.as_ordered(device, ocf.parameter("restore", ""))


def start() -> int:
    """Bring the replica up: Secondary, exported as Standby, connected to its peers."""
    device = _device()
    # Without a turn: other devices' starts go on meanwhile.
    admission.wait_for_others(_RUNNER, device)
    with (
        failure_cleanup.note_start_out_of_time(device),
        start_turn.taken(_RUNNER, device) as turn,
    ):
        return _start(device, turn)


def _start(device: Device, turn: contextlib.ExitStack) -> int:
    steps = ocf.Steps(device.name, "start")
    state_files.make_folder()
    device = needed_release.at_start(admission.at_start(_RUNNER, device))
    found = parts.observe(_RUNNER, device)
    if found.is_standby:
        replica_state.publish(_RUNNER, device, found.drbd)
        return ocf.SUCCESS
    if found.serves:
        # A crash of the cluster software here left it Primary: the cluster asked for a standby.
        _demote(device, steps)
    parts.load_modules(_RUNNER)
    with contextlib.ExitStack() as mounted:
        with failure_cleanup.note_start_failure(device):
            topology, here, pool = _place(device)
            mounted.enter_context(fs_shutdown.usable_for_start(_RUNNER, pool))
            pool_files.check_marker(str(pool.path), pool.uuid)
            pool_mount.refuse_read_only(device.pool, str(pool.path))
        fs_shutdown.trust_only_replica(pool, device)
        peers.disconnect_removed(_RUNNER, device)
        if found.drbd is None:
            # An interrupted action may have left a resource file; the loop devices that the file
            # names may be over other files by now.
            resource_file.clear_disk(device.name)
        if device.origin:
            # Imported here: few devices are clones.
            from sanctl.agents.points import clone_file  # noqa: PLC0415

            clone_file.make(_RUNNER, device, str(pool.path))
        files = parts.prepare_files(_RUNNER, device, str(pool.path))
    is_new = not exists(files.metadata)
    steps.done("files", f"device files in {pool.path}")
    only_peer = isolation.first_peer(_RUNNER, device)
    al_extents = None if found.drbd is None else resource_file.al_extents(device.name)
    resource_file.write(_RUNNER, device, files, al_extents=al_extents, only=only_peer or "")
    quorum_overlap.remove_notes(device.name)
    compared_data.forget(device.name)
    settling.prepare(device.name, files.data)
    outdate.make_lock(device.name)
    write_cache.prepare_start(_RUNNER, device, files, is_protected=here.is_power_protected)
    is_suspect = lost_writes.is_suspect(device.name, files.data)
    connects = start_connection.choose(
        _RUNNER, device, only_peer, is_suspect=is_suspect, is_new=is_new
    )
    bring_up = partial(
        isolation.bring_up, _RUNNER, device, files, only_peer,
        is_alone=connects is not start_connection.Connects.NOW,
    )  # fmt: skip
    try:
        bring_up()
    except CommandError:
        if not peers.make_room(_RUNNER, device):
            raise
        bring_up()
    peers.forget_removed(_RUNNER, device)
    sync_policy.record(device)
    steps.done("drbd", f"DRBD attached{connects.value}")
    if not gate.is_complete(device.name) or gate.is_suspended(device.name):
        lio.remove(device.name, device.minor)
        gate_size.make_gate(device)
    steps.done("gate", "gate closed")
    reservations = hooks.at_start(_RUNNER, device)
    refused = lio.create(
        lio.Target(
            name=device.name,
            minor=device.minor,
            iqn=f"{topology.iqn_prefix}.{device.name}",
            node_id=here.id,
            uuid=device.uuid,
            portals=tuple(map(discovery.portal, here.iscsi)),
            initiators=device.all_initiators,
            chap=access_list.chap_logins(device),
            offers_unmap=read_cache.offers_unmap(device),
            reservations=reservations,
        ),
        gate.target_device(device.name),
    )
    access_list.log_refused(device, refused)
    steps.done("target", "target exported, Standby")
    listed_portals.list_anew(device)
    steps.done("listing", "portals of the other replica nodes listed")
    verify_history.publish(_RUNNER, device)
    turn.close()
    state = parts.wait_until_settled(_RUNNER, device, _SETTLE_S)
    if is_new and only_peer is not None and not is_suspect:
        within_s = min(_SETTLE_NEW_S, ocf.remaining_s(60.0) / 4)
        state = parts.await_starting_peers(_RUNNER, device, state, within_s)
    # Of a new replica the promotion, or the first monitor, publishes another state a moment later:
    # each attribute that changes is a change of the CIB, which aborts what the cluster is doing.
    replica_state.publish(_RUNNER, device, state, score_alone=is_new)
    steps.ended(f"standby, {replica_state.published_value(state)}")
    return ocf.SUCCESS


def _place(device: Device) -> tuple[Topology, Node, Pool]:
    """Return the cluster's layout, with this node and the device's pool in it.

    Raises:
        SanctlError: cluster.toml is wrong, or lacks one of them. The start is tried again once a
            rollout has written another one: it may have come before the release, or after it.
    """
    topology = parts.load_topology()
    here = topology.node(os.uname().nodename)
    pool = topology.pool(device.pool)
    if here is None or pool is None:
        raise CommandError(
            Problem(
                "SAN-AGENT-004",
                f"/etc/sanctl/cluster.toml does not know this node or the pool {device.pool}",
                "run the playbook again on every node",
            )
        )
    return topology, here, pool


def promote() -> int:
    """Make this node serve the device."""
    device = _device()
    with shared_marks.promotion_begun(device.name) as begun:
        return _promote(device, begun)


def _promote(device: Device, begun: contextlib.ExitStack) -> int:
    steps = ocf.Steps(device.name, "promote")
    # The handler that has marked the peers takes the note away. Without room there is none.
    is_noted = shared_marks.is_begun(device.name)
    deadline = time.monotonic() + min(_WAIT_S, ocf.remaining_s(50.0))
    size = gate.size_bytes(device.name)
    # Before DRBD is: what is read of it is then of the moment at which the cluster has answered.
    # Not of a device that is not started here, of which nothing may be noted.
    is_first = size is not None and first_activation.is_new(
        _RUNNER, device, timeout_s=first_activation.PROMOTION_TIMEOUT_S
    )
    state = drbdsetup.observe(_RUNNER, device.name)
    if state is None or size is None:
        raise CommandError(
            Problem("SAN-AGENT-005", f"{device.name} is not started here; it cannot be promoted")
        )
    # Before anything is changed, here or in the CIB. What serves goes on: a change of parameters
    # promotes it once more.
    if not state.is_primary:
        needed_release.refuse_promotion(device)
    write_cache_steps.refuse_suspect(device.name)
    fs_shutdown.refuse_promotion(device)
    # Before the cluster is told that the device is not new any more.
    hooks.check_before_promotion(device, is_first=is_first, was_primary=state.is_primary)
    if is_first:
        first_activation.activate(_RUNNER, device, state, steps)
    device = admission.at_promotion(_RUNNER, device)
    restore_closure.close_before_promotion(device)
    if not state.is_primary:
        compared_data.refuse_promotion(_RUNNER, device, state)
        isolation.connect_all_peers(_RUNNER, device, within_s=_SETTLE_S)
        # A killed process may have left it on, and the fence-peer handler of this promotion could
        # not take it off.
        write_cache.clear_minimum_redundancy(_RUNNER, device.name)
        set_role.promote(_RUNNER, device.name, device.minor, deadline)
        steps.done("primary", "DRBD Primary")
    has_marked = is_noted and not shared_marks.is_begun(device.name)
    begun.close()
    write_cache.leave_write_back_unless_in_sync(_RUNNER, device.name)
    if not gate.gate_table(device.name).startswith("drbd"):
        size = gate_size.grow_closed_gate(device, size)
        gate.open_gate(device.name, below=device.drbd_device, size_bytes=size)
        steps.done("gate", "gate leads onto DRBD")
    gate.resume(device.name)
    with hooks.promoting(_RUNNER, device, steps, deadline, was_primary=state.is_primary):
        lio.set_alua_state(device.name, device.minor, lio.ACTIVE_OPTIMIZED)
    steps.done("alua", "ALUA Active/Optimized")
    found = parts.observe(_RUNNER, device)
    # Published before the action ends: until then the other node's score is the higher one, and
    # the cluster would move the device there. Where the peers are marked and out of contact no
    # other replica may be promoted, and the first monitor publishes: of twenty devices that fail
    # over together each publication would take the processor, and each score a change of the CIB,
    # before the last one is served. What clears a peer's mark publishes the score first.
    if not has_marked or _sees_a_peer(device, found.drbd):
        # A device that was new until now has no marks.
        replica_state.publish(_RUNNER, device, found.drbd, clears_marks=not is_first)
    if not found.is_active:
        raise CommandError(
            Problem("SAN-AGENT-007", f"{device.name} was promoted, but does not serve: {found}")
        )
    steps.ended("serving, and no host is let in yet" if device.held else "serving")
    return ocf.SUCCESS


def _sees_a_peer(device: Device, state: ResourceState | None) -> bool:
    """Whether a peer is in contact, or there is none to wait for."""
    return len(device.nodes) < 2 or state is None or any(peer.is_connected for peer in state.peers)


def demote() -> int:
    """Make this node a standby of the device."""
    device = _device()
    steps = ocf.Steps(device.name, "demote")
    if not gate.exists_any(device.name) and not lio.exists_any(device.name, device.minor):
        return ocf.NOT_RUNNING
    _demote(device, steps)
    # The state is published by the monitor that follows: the other node is waiting.
    steps.ended("standby")
    return ocf.SUCCESS


def _demote(device: Device, steps: ocf.Steps) -> None:
    deadline = time.monotonic() + min(_WAIT_S, ocf.remaining_s(50.0))
    write_cache.resume_io_before_demotion(_RUNNER, device.name)
    if lio.alua_state(device.name, device.minor) not in {"absent", "Standby"}:
        lio.set_alua_state(device.name, device.minor, lio.STANDBY)
        steps.done("alua", "ALUA Standby")
    restore_unit.end(_RUNNER, device.name)
    size = gate.size_bytes(device.name)
    if gate.gate_table(device.name) not in {"absent", "error"} or gate.is_suspended(device.name):
        if size is None:
            # Only a gate, nothing above it: an interrupted start.
            gate.remove(device.name)
        else:
            left = max(1.0, deadline - time.monotonic())
            gate.close_gate(device.name, size_bytes=size, timeout_s=left)
            # After the gate is closed: requests that were held back fail here and reach no disk.
            gate.resume(device.name)
        steps.done("gate", "gate closed")
    if drbd_kernel.is_loaded():
        with hooks.demoting(device):
            set_role.demote(_RUNNER, device.name, device.minor, deadline)
        write_cache.clear_minimum_redundancy(_RUNNER, device.name)
        steps.done("secondary", "DRBD Secondary")


def stop() -> int:
    """Take the replica down; its files stay."""
    device = _device()
    try:
        take_down(device)
    except Exception as error:
        failed_stop_reboot.reboot_after_failed_stop(_RUNNER, device.name, str(error) or repr(error))
        raise
    return ocf.SUCCESS


def take_down(device: Device) -> None:
    """Take down every part of a replica that is up, in the order that keeps data safe.

    Raises:
        SanctlError: a part of the replica is left.
    """
    steps = ocf.Steps(device.name, "stop")
    fs_shutdown.before_stop(device)
    _demote(device, steps)
    # One that had looked before the gate was closed may have opened the device.
    restore_unit.end(_RUNNER, device.name)
    lio.remove(device.name, device.minor)
    steps.done("target", "target removed")
    gate.remove(device.name)
    steps.done("gate", "gate removed")
    write_cache.before_stop(_RUNNER, device)
    try:
        drbdsetup.down(_RUNNER, device.name)
    except CommandError:
        if drbd_kernel.generation() < 9:
            raise
        # With quorum-minimum-redundancy a Primary refuses to let the last other UpToDate replica
        # disconnect.
        drbdadm.force_disconnect(_RUNNER, device.name)
        drbdsetup.down(_RUNNER, device.name)
    steps.done("drbd", "DRBD down")
    settling.settle_when_down(device.name)
    resource_file.let_disk_go(device.name)
    parts.detach_files(device)
    resource_file.remove(device.name)
    replica_state.withdraw(_RUNNER, device)
    hooks.at_stop(_RUNNER, device)
    # Before remove_device: the device's share of the dirty limit is one of its state files.
    write_cache.after_stop(device.name)
    state_files.remove_device(device.name)
    verify_history.withdraw(_RUNNER, device)
    parts.wait_until_detached(device)
    left = parts.observe(_RUNNER, device)
    if (
        not left.is_absent
        or gate.exists_any(device.name)
        or backing_device.exists(device.name)
        or ram_cache.exists_any(device.name)
        or lio.exists_any(device.name, device.minor)
        or parts.attached_files(device)
    ):
        raise CommandError(
            Problem("SAN-AGENT-006", f"{device.name} could not be stopped, left over: {left}")
        )
    steps.ended("stopped")


def monitor() -> int:
    """Report the true role to Pacemaker (sanctl/agents/device_monitor.py)."""
    device = _device()
    if not ocf.is_probe():
        device = needed_release.while_up(admission.while_up(_RUNNER, device))
        steps = ocf.Steps(device.name, "monitor")
        forgotten_role.demote_for_promotion(_RUNNER, device, lambda: _demote(device, steps))
    return device_monitor.monitor(_RUNNER, device)


def reload_agent() -> int:
    """Apply changed replica nodes, size, access list, sync or cache policy to the running replica.

    A device grows once the files of all replicas have grown; if that takes too long here, the
    monitor finishes it. A failed reload would count as a failed start, and the cluster would stop
    a device that serves.
    """
    device = needed_release.while_up(admission.while_up(_RUNNER, _device()))
    steps = ocf.Steps(device.name, "reload-agent")
    deadline = time.monotonic() + min(_GROWTH_WAIT_S, ocf.remaining_s(50.0))
    while True:
        state = drbdsetup.observe(_RUNNER, device.name)
        if state is None or gate.size_bytes(device.name) is None:
            raise CommandError(Problem("SAN-AGENT-005", f"{device.name} is not started here"))
        try:
            state = converge(_RUNNER, device, steps, state)
            device_monitor.look_after_reservations(_RUNNER, device, steps, state)
        except (SanctlError, OSError) as error:
            steps.done(
                "refused", f"a change could not be applied: {error}; the monitor tries again"
            )
            break
        if (gate.size_bytes(device.name) or 0) >= device.size_bytes:
            break
        if time.monotonic() > deadline:
            steps.done(
                "waiting", "not grown yet: not all replicas are ready; the monitor tries again"
            )
            break
        time.sleep(0.3)
    replica_state.publish(_RUNNER, device, state)
    steps.ended("applied")
    return ocf.SUCCESS


def validate_all() -> int:
    """Check the parameters, and that the node has DRBD."""
    from sanctl.model.names import ByteSize, DeviceName, Iqn  # noqa: PLC0415 - not on hot paths

    device = _device()
    DeviceName.parse(device.name)
    ByteSize.parse(str(device.size_bytes))
    for initiator in device.all_initiators:
        Iqn.parse(initiator)
    parse_cache_policy(device.cache)
    drbd_kernel.generation()
    return ocf.SUCCESS


def main(argv: list[str]) -> int:
    """Carry out one action and return its OCF exit code."""
    name = os.environ.get("OCF_RESOURCE_INSTANCE", "device").partition(":")[0]
    actions = {
        "start": start,
        "promote": promote,
        "demote": demote,
        "stop": stop,
        "monitor": monitor,
        "reload-agent": reload_agent,
        "validate-all": validate_all,
    }
    return ocf.run(
        name,
        argv,
        {action: partial(_without_fingerprint, name, run) for action, run in actions.items()},
        METADATA,
        not_begun=_note_not_begun,
    )


def _note_not_begun(action: str) -> None:
    """Have a start that was not begun tried again: Pacemaker does not repeat a failed start."""
    if action == "start":
        failure_cleanup.note_start_not_begun(_device())


def _without_fingerprint(name: str, action: Callable[[], int]) -> int:
    """Run an action; whatever becomes of it, the monitor after it does all of its work."""
    fingerprint.remove(name)
    return action()
