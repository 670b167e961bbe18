# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `snapshot export` and `unexport`: on this node, and past the cluster's resources."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from sanctl.drivers import host_secrets, lio_export, point_files, pool_files
from sanctl.drivers.lio_acl import Chap
from sanctl.drivers.lio_export import Export, NewExport
from sanctl.errors import Busy, CommandError, Problem, Refused
from sanctl.model.host import HostName
from sanctl.model.names import DeviceName, Iqn
from sanctl.model.restore_point import RestorePoint
from sanctl.model.topology import Topology
from sanctl.ops.session import Session
from sanctl.plan.device import discovery
from sanctl.plan.device.export_access import ExportAccess, note_text
from sanctl.plan.device.point_export import (
    check_exporter,
    choose_port_id,
    export_access,
    not_exported,
    serial_of,
)
from sanctl.plan.device.restore_points import existing_point
from sanctl.system import state_files

_LOCK_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What a command asks for.

    Attributes:
        device: the device.
        point: the name of the restore point.
        here: this node.
        initiators: who may log in, by IQN.
        hosts: and by the name of a host.
        may_be_active: also where this node serves the device.
    """

    device: DeviceName
    point: str
    here: str
    initiators: tuple[Iqn, ...]
    hosts: tuple[HostName, ...]
    may_be_active: bool = False


def export_point(session: Session, topology: Topology, request: ExportRequest) -> NewExport:
    """Export a restore point on this node, read-only; return what is exported.

    One that is exported already is, from now on, to these hosts alone. What was begun and failed is
    removed again.

    Raises:
        Refused: it cannot be exported here.
        Busy: another command is exporting.
        CommandError, OSError: the kernel refused a step, or the file cannot be read.
    """
    cluster = session.observe()
    point = existing_point(cluster, request.device, request.point)
    check_exporter(cluster, point, request.here, may_be_active=request.may_be_active)
    access = export_access(cluster, request.initiators, request.hosts)
    wanted = _new_export(topology, point, request.here, access)
    with _locked():
        was_there = any(_is(each, point.device, point.name) for each in lio_export.listed())
        note = lio_export.access_note(point.device, point.name)
        noted = note.read()
        # Without it who is in the kernel's list is let in, and nobody else
        # (plan/device/export_access.py): so it is where this process dies before the end.
        note.remove()
        try:
            lio_export.create(wanted, choose_port_id)
            note.write(note_text(access))
        except BaseException as error:
            if not was_there:
                lio_export.remove(point.device, point.name)
            elif noted and isinstance(error, Refused):
                # The list is as it was.
                note.write(noted)
            raise
    return wanted


def unexport_point(device: DeviceName, point: str, here: str) -> None:
    """End the export of a restore point on this node; hosts that are logged in lose it.

    Raises:
        Refused: this node does not export it.
        Busy: another command is exporting.
        CommandError, OSError: the kernel refused a step; a new call goes on.
    """
    with _locked():
        if not lio_export.remove(device.value, point):
            others = [f"{each.device}@{each.point}" for each in lio_export.listed()]
            raise Refused(not_exported(device.value, point, here, others))


def _is(export: Export, device: str, point: str) -> bool:
    return (export.device, export.point) == (device, point)


def _new_export(
    topology: Topology, point: RestorePoint, here: str, access: ExportAccess
) -> NewExport:
    node, pool = topology.node(here), topology.pool(point.pool)
    if node is None or pool is None:
        raise CommandError(
            Problem(
                "SAN-AGENT-004",
                f"/etc/sanctl/cluster.toml does not know this node or the pool {point.pool}",
                "run the playbook again on every node",
            )
        )
    file = point_files.final_path(str(pool.path), point.device, point.uuid, point.token)
    found_bytes = pool_files.size_bytes(file)
    if found_bytes is None:
        raise CommandError(
            Problem(
                "SAN-EXP-006",
                f"{file}: the file of restore point {point.device}@{point.name} is not there",
                f"'sanctl snapshot show {point.device}@{point.name}' names the nodes that have it",
            )
        )
    if found_bytes < point.size_bytes:
        raise CommandError(
            Problem(
                "SAN-EXP-006",
                f"restore point {point.device}@{point.name}: "
                f"{point_files.shorter_text(found_bytes, point.size_bytes)}: {file}",
                f"'sanctl snapshot show {point.device}@{point.name}' names the nodes that have it: "
                "export it on another one",
            )
        )
    logins: dict[str, Chap | None] = dict.fromkeys(access.initiators)
    for host in access.hosts:
        found = host_secrets.login(host) if host.chap_user else None
        if isinstance(found, str):
            raise Refused(
                Problem(
                    "SAN-HOST-011",
                    f"host {host.name}: {host_secrets.FOLDER}/{host.name}: {found}",
                    "put it into sanctl_host_secrets and run the playbook",
                )
            )
        logins |= dict.fromkeys(host.iqns, found)
    return NewExport(
        device=point.device,
        point=point.name,
        file=file,
        iqn=Iqn.parse(f"{topology.iqn_prefix}.{point.device}.{point.name}").value,
        serial=serial_of(point),
        node_id=node.id,
        portals=tuple(map(discovery.portal, node.iscsi)),
        logins=logins,
    )


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    with state_files.locked(state_files.node_lock("exports"), wait_s=_LOCK_S) as is_mine:
        if not is_mine:
            raise Busy(
                Problem(
                    "SAN-EXP-007",
                    f"another command has been exporting a restore point for {_LOCK_S:g} s",
                    "try again",
                )
            )
        yield
