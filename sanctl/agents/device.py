# SPDX-License-Identifier: GPL-2.0-or-later
"""OCF agent ocf:sanctl:device: what Pacemaker calls, and the order of steps of start.

Pacemaker runs each action as one short process. The process may be killed after any step, and the
action is then run again: what is there is read from the kernel, never remembered.

The order of the steps (DRBD, gate, ALUA) keeps data safe: in promote and demote see device_role.py,
in stop device_stop.py.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sanctl.agents import cluster_toml, device_monitor, device_role, device_stop, fingerprint, ocf
from sanctl.agents.cache import read_cache, write_cache
from sanctl.agents.connections import isolation, peers, start_connection
from sanctl.agents.converge import converge
from sanctl.agents.device_metadata import METADATA
from sanctl.agents.fencing import (
    failed_stop_reboot,
    joined_peers,
    outdate,
)
from sanctl.agents.node import failure_cleanup, start_turn
from sanctl.agents.promotion import (
    admission,
    compared_data,
    forgotten_role,
    needed_release,
)
from sanctl.agents.publish import replica_state
from sanctl.agents.recovery import fs_shutdown, pool_remount
from sanctl.agents.replica import (
    access_list,
    device_files,
    gate_size,
    kernel_modules,
    listed_portals,
    lost_writes,
    parts,
    peer_contact,
    resource_file,
    sync_policy,
)
from sanctl.agents.replica.parts import Device
from sanctl.agents.reservations import hooks
from sanctl.agents.restore import closure as restore_closure
from sanctl.agents.sync import settling, verify_history
from sanctl.drivers import (
    drbd_kernel,
    drbdsetup,
    gate,
    lio,
    pool_files,
    pool_mount,
)
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model import published_reservations, release_needs
from sanctl.model.access import split_hosts
from sanctl.model.cache_policy import parse_cache_policy
from sanctl.plan.device import discovery
from sanctl.system import state_files
from sanctl.system.files import exists
from sanctl.system.runner import DeadlineRunner, LocalRunner

if TYPE_CHECKING:
    from sanctl.model.topology import Node, Pool, Topology

_RUNNER = LocalRunner()
_SETTLE_S = 8.0
#: How long a start asks who has joined.
_ASK_S = 5.0
#: A new replica waits so much longer for its peers' nodes, which start theirs.
_SETTLE_NEW_S = 25.0
_GROWTH_WAIT_S = 20.0
#: What the client answers for, where time alone would take the last node that serves from hosts.
_UNANSWERED = frozenset({"monitor", "reload-agent"})


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
        device_role.demote(_RUNNER, device, steps)
    kernel_modules.load(_RUNNER)
    with contextlib.ExitStack() as mounted:
        with failure_cleanup.note_start_failure(device):
            topology, here, pool = _place(device)
            mounted.enter_context(pool_remount.usable_for_start(_RUNNER, pool))
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
        files = device_files.prepare(_RUNNER, device, str(pool.path))
    # Before the target is made, which lets hosts in. What cannot be read may say that it is held.
    with failure_cleanup.note_start_failure(device):
        # It needs room, so it may fail where the pool is full, and not for good.
        device = restore_closure.at_start(_RUNNER, device, files.data)
    is_new = not exists(files.metadata)
    steps.done("files", f"device files in {pool.path}")
    only_peer = isolation.first_peer(_RUNNER, device)
    al_extents = None if found.drbd is None else resource_file.al_extents(device.name)
    resource_file.write(_RUNNER, device, files, al_extents=al_extents, only=only_peer or "")
    joined_peers.remove_notes(device.name)
    # Before it connects: its peer may die right after that. Not known, a connected one asks later.
    with contextlib.suppress(SanctlError, OSError):
        joined_peers.record_others(
            DeadlineRunner(_RUNNER, time.monotonic() + _ASK_S),
            sorted(set(device.nodes) - {os.uname().nodename}),
        )
    compared_data.forget(device.name)
    settling.prepare(device.name, files.data)
    outdate.make_lock(device.name)
    write_cache.prepare_start(_RUNNER, device, files, is_protected=here.is_power_protected)
    is_suspect = lost_writes.is_suspect(device.name, files.data)
    connects = start_connection.choose(
        _RUNNER, device, only_peer, files.metadata, is_suspect=is_suspect, is_new=is_new
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
    state = peer_contact.wait_until_settled(_RUNNER, device, _SETTLE_S)
    if is_new and only_peer is not None and not is_suspect:
        within_s = min(_SETTLE_NEW_S, ocf.remaining_s(60.0) / 4)
        state = peer_contact.await_starting_peers(_RUNNER, device, state, within_s)
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
    topology = cluster_toml.load_topology()
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
    with failure_cleanup.note_refused_promotion(device):
        device_role.promote(_RUNNER, device)
    return ocf.SUCCESS


def demote() -> int:
    """Make this node a standby of the device."""
    device = _device()
    steps = ocf.Steps(device.name, "demote")
    if not gate.exists_any(device.name) and not lio.exists_any(device.name, device.minor):
        return ocf.NOT_RUNNING
    with failure_cleanup.note_frozen_demotion(device):
        device_role.demote(_RUNNER, device, steps)
    # The state is published by the monitor that follows: the other node is waiting.
    steps.ended("standby")
    return ocf.SUCCESS


def stop() -> int:
    """Take the replica down; its files stay."""
    device = _device()
    try:
        device_stop.take_down(_RUNNER, device)
    except Exception as error:
        failed_stop_reboot.reboot_after_failed_stop(_RUNNER, device.name, str(error) or repr(error))
        raise
    return ocf.SUCCESS


def monitor() -> int:
    """Report the true role to Pacemaker (sanctl/agents/device_monitor.py)."""
    device = _device()
    if not ocf.is_probe():
        device = needed_release.while_up(admission.while_up(_RUNNER, device))
        steps = ocf.Steps(device.name, "monitor")
        forgotten_role.demote_for_promotion(
            _RUNNER, device, lambda: device_role.demote(_RUNNER, device, steps)
        )
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
        # A probe is told no guess.
        unanswered=() if ocf.is_probe() and argv[1:] == ["monitor"] else _UNANSWERED,
    )


def _note_not_begun(action: str) -> None:
    """Have a start that was not begun tried again: Pacemaker does not repeat a failed start."""
    if action == "start":
        failure_cleanup.note_start_not_begun(_device())


def _without_fingerprint(name: str, action: Callable[[], int]) -> int:
    """Run an action; whatever becomes of it, the monitor after it does all of its work."""
    fingerprint.remove(name)
    return action()
