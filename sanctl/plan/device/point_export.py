# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which node exports a restore point to a backup host, to whom, and under which names.

A standby exports: then hosts' I/O, which the active node serves, shares neither a disk nor the sync
network with the backup.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from sanctl.errors import Problem, Refused
from sanctl.model.access import split_host
from sanctl.model.cluster import Cluster
from sanctl.model.host import HostName
from sanctl.model.names import Iqn
from sanctl.model.restore_point import RestorePoint
from sanctl.plan.device.backups import point_problem
from sanctl.plan.device.export_access import ExportAccess
from sanctl.plan.host.access import host_iqn_problems
from sanctl.plan.host.definition import existing_host

#: Relative target port ids that no device has: theirs end at 2046 x 32 + 32 (drivers/lio.py).
PORT_IDS = range(65505, 65536)


def check_exporter(
    cluster: Cluster, point: RestorePoint, here: str, *, may_be_active: bool
) -> None:
    """Check that this node is one to export a restore point.

    Args:
        cluster: as observed.
        point: the restore point.
        here: this node.
        may_be_active: also where it serves the device.

    Raises:
        Refused: the restore point is being deleted; this node has no file of it, or serves the
            device.
    """
    problem = point_problem(point)
    if problem is not None:
        raise Refused(problem)
    device = cluster.cib.device(point.device)
    active = cluster.serving_node(device.name) if device is not None else None
    others = [node for node in point.nodes if node not in {here, active}]
    if here not in point.nodes:
        raise Refused(
            Problem(
                "SAN-EXP-001",
                f"{here} has no file of restore point {point.device}@{point.name}",
                f"run it on {' or '.join(others or point.nodes)}",
            )
        )
    if here == active and not may_be_active:
        raise Refused(
            Problem(
                "SAN-EXP-002",
                f"{here} serves device {point.device}, and the backup host would read its disks",
                f"run it on {others[0]}"
                if others
                else "no other node has it; --on-active exports it here all the same",
            )
        )


def export_access(
    cluster: Cluster, initiators: Collection[Iqn], hosts: Collection[HostName]
) -> ExportAccess:
    """Return who may log in.

    Raises:
        Refused: nobody is named; there is no such host; or an IQN is one of a host's.
    """
    if not initiators and not hosts:
        raise Refused(
            Problem(
                "SAN-EXP-003",
                "nobody could log in",
                "name the backup host: --initiator IQN, or --host NAME",
            )
        )
    found = [existing_host(cluster, name) for name in sorted(set(hosts))]
    problems = host_iqn_problems(cluster, initiators)
    if problems:
        raise Refused(*problems)
    return ExportAccess(
        tuple(sorted({iqn.value for iqn in initiators})),
        tuple(split_host(str(host)) for host in found),
    )


def serial_of(point: RestorePoint) -> str:
    """Return 32 hex digits, the same on each node: the unit serial of an exported restore point."""
    return hashlib.sha256(f"{point.uuid} {point.token}".encode()).hexdigest()[:32]


def choose_port_id(taken: Collection[int]) -> int:
    """Return a relative target port id for one more export.

    Raises:
        Refused: each is taken.
    """
    free = next((number for number in PORT_IDS if number not in taken), None)
    if free is None:
        raise Refused(
            Problem(
                "SAN-EXP-004",
                f"this node exports {len(PORT_IDS)} restore points already",
                "end one: 'sanctl snapshot unexport'",
            )
        )
    return free


def not_exported(device: str, point: str, here: str, others: Sequence[str]) -> Problem:
    """Return the problem of an export that is to end and that this node does not have."""
    return Problem(
        "SAN-EXP-005",
        f"{here} does not export {device}@{point}",
        f"it exports {', '.join(others)}"
        if others
        else "exports are those of one node: it has none",
    )
