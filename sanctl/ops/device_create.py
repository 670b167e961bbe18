# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl device create`: creates a device, waits until it is served with every replica in sync."""

from __future__ import annotations

from collections.abc import Callable

from sanctl.errors import Problem, Refused, Unreachable, UsageError
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.topology import Topology
from sanctl.ops.device_change import DeviceOutcome, change_device
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import creation_progress
from sanctl.plan.device.creation import (
    DeviceArguments,
    DeviceRequest,
    creation_problems,
    parse_device_request,
    plan_creation,
)


def create_device(
    session: Session,
    topology: Topology,
    arguments: DeviceArguments,
    *,
    new_uuid: Callable[[], str],
    drbd_version: str | None,
    timeout_s: float,
) -> DeviceOutcome:
    """Create a device and wait until it is served and all its replicas are in sync.

    Raises:
        UsageError: the arguments are malformed; all their problems are listed.
        Refused: the cluster's state stands against the device; all reasons are listed.
        CommandError: an agent failed, with its reason.
        NotConverged: the device is created, and not yet served with all replicas in sync.
    """
    request = parse_device_request(arguments)
    uuid = new_uuid()
    name = request.name
    if request.malformed or name is None:
        raise UsageError(
            *request.malformed, *_cluster_objections(session, topology, request, drbd_version)
        )

    def plan(cluster: Cluster) -> tuple[Change, ...]:
        problems = creation_problems(request, cluster, topology, drbd_version=drbd_version)
        if problems:
            raise Refused(*problems)
        result = plan_creation(request, cluster, topology, uuid=uuid)
        if isinstance(result, Problem):
            raise Refused(result)
        device, changes = result
        session.reporter.update(
            f"creating {device.name}: {device.size} in pool {device.pool} "
            f"on {', '.join(map(str, device.nodes))}"
        )
        return changes

    return change_device(
        session,
        name,
        plan,
        lambda seen: creation_progress(seen, name),
        waiting_for=f"device {name} to be served with all replicas in sync",
        timeout_s=timeout_s,
        look=f"the device is created and goes on by itself: 'sanctl device show {name}', "
        f"'journalctl SANCTL_DEVICE={name}' on its nodes",
    )


def _cluster_objections(
    session: Session, topology: Topology, request: DeviceRequest, drbd_version: str | None
) -> tuple[Problem, ...]:
    """What else is wrong, if the cluster can be asked: one attempt should show all of it."""
    try:
        cluster = session.observe()
    except Unreachable:
        return ()
    return creation_problems(request, cluster, topology, drbd_version=drbd_version)
