# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `device create`: waits until the devices are served and all replicas are in sync."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from sanctl.drivers import drbd_kernel
from sanctl.errors import CommandError, Problem, Refused, Unreachable, UsageError
from sanctl.model.cib_change import AddDevice, Change
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName
from sanctl.model.topology import Topology
from sanctl.ops.device_change import DeviceOutcome, change_devices
from sanctl.ops.session import Session
from sanctl.plan.cluster.cib_size import cib_size_problem, has_size_limit
from sanctl.plan.cluster.convergence import (
    Progress,
    creation_progress,
    kernel_has_created,
    not_created,
    seems_created,
)
from sanctl.plan.device.creation import creation_problems, plan_creations
from sanctl.plan.device.creation_request import DeviceArguments, DeviceRequest, parse_device_request


def create_devices(
    session: Session,
    topology: Topology,
    wanted: Sequence[DeviceArguments],
    *,
    new_uuid: Callable[[], str],
    drbd_version: str | None,
    ipc_buffer_bytes: int,
    timeout_s: float,
) -> tuple[DeviceOutcome, ...]:
    """Create devices by one change of the CIB; wait until all are served, their replicas in sync.

    `new_uuid` makes a UUID of 32 hex digits, `ipc_buffer_bytes` is the IPC buffer of the Pacemaker
    that runs here. After `timeout_s` the wait is given up, and the devices stay.

    Raises:
        UsageError: arguments are malformed, or a name is given twice; all problems are listed.
        Refused: the cluster's state stands against one of the devices; all reasons are listed, and
            no device is created.
        CommandError: an agent failed, with its reason.
        NotConverged: the devices are created, and not yet all served with all replicas in sync.
    """
    requests = tuple(parse_device_request(each) for each in wanted)
    names = tuple(request.name for request in requests if request.name is not None)
    malformed = [problem for request in requests for problem in request.malformed]
    malformed += [
        Problem("SAN-DEV-021", f"device {name} is named twice", "name each device once")
        for name in sorted({name for name in names if names.count(name) > 1}, key=str)
    ]
    if malformed:
        raise UsageError(
            *dict.fromkeys(
                (*malformed, *_cluster_objections(session, topology, requests, drbd_version))
            )
        )
    with_uuids = tuple((request, new_uuid()) for request in requests)
    planned: dict[DeviceName, DeviceSpec] = {}
    awaited: dict[DeviceName, DeviceSpec] = {}

    def plan(cluster: Cluster) -> tuple[Change, ...]:
        devices = plan_creations(with_uuids, cluster, topology, drbd_version=drbd_version)
        if has_size_limit(cluster.cib.properties.get("dc-version", "")):
            too_large = cib_size_problem(
                compressed_bytes=session.compressed_cib_bytes(),
                new_devices=len(devices),
                nodes=len(cluster.cib.nodes),
                ipc_buffer_bytes=ipc_buffer_bytes,
            )
            if too_large is not None:
                raise Refused(too_large)
        planned.clear()
        planned.update((device.name, device) for device in devices)
        awaited.clear()
        awaited.update(planned)
        for device in devices:
            session.reporter.update(
                f"creating {device.name}: {device.size} in pool {device.pool} "
                f"on {', '.join(map(str, device.nodes))}"
            )
        return tuple(AddDevice(device=device) for device in devices)

    def progress(cluster: Cluster) -> Progress:
        awaited.clear()
        awaited.update((name, planned[name]) for name in not_created(cluster, names))
        return creation_progress(cluster, names)

    def may_be_done() -> bool:
        # Device by device, each until it seems to be there: an observation of the whole cluster
        # takes as long as the creation of a device.
        while awaited:
            name = next(iter(awaited))
            try:
                if _kernel_says_not_yet(awaited[name]):
                    return False
                if not seems_created(awaited[name], session.published_replicas(name)):
                    return False
            except CommandError:
                return True
            del awaited[name]
            if len(names) > 1:
                session.reporter.update(f"{len(names) - len(awaited)} of {len(names)} seem done")
        return True

    shown = f"device {names[0]}" if len(names) == 1 else f"{len(names)} devices"
    return change_devices(
        session,
        names,
        plan,
        progress,
        waiting_for=f"{shown} to be served with all replicas in sync",
        timeout_s=timeout_s,
        look=f"what is created goes on by itself: 'sanctl device show {names[0]}', "
        f"'journalctl SANCTL_DEVICE={names[0]}' on its nodes",
        may_be_done=may_be_done,
    )


def _kernel_says_not_yet(device: DeviceSpec) -> bool:
    """Whether this node has a replica and its kernel knows that the device is not there yet.

    A look at /proc/drbd costs no process, which a question to Pacemaker does: on the processors on
    which the device is created. DRBD 9 lists no devices there.
    """
    if len(device.nodes) != 2 or os.uname().nodename not in map(str, device.nodes):
        return False
    state = drbd_kernel.proc_state(device.minor)
    if state is not None:
        return not kernel_has_created(state)
    return drbd_kernel.is_loaded() and drbd_kernel.generation() == 8


def _cluster_objections(
    session: Session,
    topology: Topology,
    requests: Sequence[DeviceRequest],
    drbd_version: str | None,
) -> tuple[Problem, ...]:
    """What else is wrong, if the cluster can be asked: one attempt should show all of it."""
    try:
        cluster = session.observe()
    except Unreachable:
        return ()
    return tuple(
        problem
        for request in requests
        for problem in creation_problems(request, cluster, topology, drbd_version=drbd_version)
    )
