# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl snapshot create`, `list`, `show`, `delete`; the group."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from sanctl.cli.commands.snapshot_export import export, exports, unexport
from sanctl.cli.commands.snapshot_schedule import prune, schedule
from sanctl.cli.environment import environment, topology_or_none
from sanctl.cli.options import hook_options, output_option, timeout_option, yes_option
from sanctl.cli.output import finish, print_table
from sanctl.cli.views.point_hook import consistency, consistency_text, result_data
from sanctl.cli.views.point_schedule import schedule_text
from sanctl.drivers.point_files import final_path
from sanctl.errors import Problem, UsageError
from sanctl.model.backup import refuse_own_name
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName, format_bytes
from sanctl.model.point_hook import PointHook
from sanctl.model.restore_point import PointOrder, RestorePoint, parse_point_name
from sanctl.model.topology import Topology
from sanctl.ops.snapshot import create_group, create_point, delete_point
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.point_group import group_orders
from sanctl.plan.device.restore_points import existing_point, plan_point_deletion, split_point

if TYPE_CHECKING:
    from sanctl.cli.documents import snapshot as snapshot_documents


@click.group(no_args_is_help=False)
def snapshot() -> None:
    """Restore points of devices: what a device held at one moment."""


snapshot.add_command(schedule)
snapshot.add_command(prune)
for _command in (export, exports, unexport):
    snapshot.add_command(_command)


@snapshot.command()
@click.argument("devices", metavar="DEVICE...", nargs=-1, required=True)
@click.option("--name", metavar="POINT", help="Its name. [the time, such as 20261124-133000]")
@click.option("--group", is_flag=True, help="Of several devices, at one moment: all, or none.")
@hook_options
@timeout_option(120)
@output_option
def create(
    devices: tuple[str, ...],
    *,
    name: str | None,
    group: bool,
    hook: PointHook | None,
    timeout_s: float,
    output: str,
) -> None:
    """Make a restore point of DEVICE, on every replica in sync.

    It holds what is on the device at one moment, as after a power cut; with a hook that keeps the
    application quiet meanwhile it is application-consistent. Hosts' I/O waits for some
    milliseconds. The pools must be XFS. What the hook's limit allows for comes on top of --timeout.
    With --group the hook is run once for all devices.
    """
    env = environment()
    wanted = [DeviceName.parse(device) for device in devices]
    now_s = int(env.clock.wall_s())
    point_name = parse_point_name(name) if name is not None else _name_of(now_s)
    refuse_own_name(point_name)
    token = env.new_uuid()[:16]
    timeout_s += 3 * hook.limit_s if hook else 0
    if group:
        orders = group_orders(wanted, point_name, token, now_s, hook)
    elif len(wanted) > 1:
        raise UsageError(
            Problem(
                "SAN-SNAP-016",
                "restore points of several devices are made with --group: at one moment",
                "or give one command for each device: then each is of a moment of its own",
            )
        )
    words = " ".join((*devices, *(("--group",) if group else ())))
    command_line = f"snapshot create {words} --name {point_name}" + (
        f" --hook {hook.name}" if hook else ""
    )
    with (
        env.session() as session,
        env.logged(
            "snapshot",
            device=devices[0] if len(devices) == 1 else "",
            command_line=command_line,
        ),
    ):
        if group:
            cluster, points = create_group(
                session, orders, ipc_buffer_bytes=env.ipc_buffer_bytes(), timeout_s=timeout_s
            )
        else:
            cluster, point = create_point(
                session,
                wanted[0],
                PointOrder(point_name, token, now_s, hook),
                ipc_buffer_bytes=env.ipc_buffer_bytes(),
                timeout_s=timeout_s,
            )
    topology = topology_or_none(env)
    if not group:
        _finish(output, cluster, point, topology)
        return

    def text() -> None:
        longest = max(point.pause_ms for point in points)
        print(f"{len(points)} restore points of one moment; I/O waited for {longest} ms at most:")
        for point in points:
            print(f"  {point.device}@{point.name} on {', '.join(point.nodes)}")
        print(f"consistency: {consistency_text(points[0])}")

    finish(output, data=[_point_data(cluster, point, topology) for point in points], text=text)


@snapshot.command("list")
@click.argument("device", required=False)
@output_option
def list_points(device: str | None, output: str) -> None:
    """List the restore points of DEVICE, or of all devices, and the schedules."""
    env = environment()
    with env.session() as session:
        cluster = session.observe()
    topology = topology_or_none(env)
    points = cluster.cib.points
    if device is not None:
        points = cluster.cib.points_of(existing_device(cluster, DeviceName.parse(device)).name)

    now_s = env.clock.wall_s()

    def text() -> None:
        for name in sorted(cluster.cib.schedules):
            if device is None or name == device:
                print(f"schedule of {name}: {schedule_text(cluster, name, now_s)}")
        if not points:
            print("there are no restore points")
            return
        print_table(
            ("RESTORE POINT", "MADE (UTC)", "FOR", "CONSISTENCY", "SIZE", "HOLDS ALONE", "NODES"),
            (
                (
                    f"{point.device}@{point.name}",
                    _time_text(point.made_s) + (" (being deleted)" if point.is_deleting else ""),
                    ", ".join(point.slot.intervals) if point.slot else "-",
                    consistency(point),
                    format_bytes(point.size_bytes),
                    _held_text(cluster, point),
                    ", ".join(point.nodes),
                )
                for point in points
            ),
        )

    finish(output, data=[_point_data(cluster, point, topology) for point in points], text=text)


@snapshot.command()
@click.argument("point", metavar="DEVICE@POINT")
@output_option
def show(point: str, output: str) -> None:
    """Show one restore point: when it was made, where it is, what it alone holds."""
    device, name = split_point(point)
    env = environment()
    with env.session() as session:
        cluster = session.observe()
    found = existing_point(cluster, device, name)
    _finish(output, cluster, found, topology_or_none(env))


@snapshot.command()
@click.argument("point", metavar="DEVICE@POINT")
@yes_option
@timeout_option(60)
@output_option
def delete(*, point: str, yes: bool, timeout_s: float, output: str) -> None:
    """Delete a restore point on all nodes; a node that is away does so when it is back."""
    device, name = split_point(point)
    env = environment()
    with env.session() as session:
        cluster = session.observe()
        found = existing_point(cluster, device, name)
        # One that is being deleted is on its way: run again, the command waits for its end.
        if not yes and not found.is_deleting:
            plan_point_deletion(cluster, device, name)
            _ask(cluster, found)
        with env.logged("snapshot", device=device.value, command_line=f"snapshot delete {point}"):
            away = delete_point(session, device, name, timeout_s=timeout_s, shown=found)

    def text() -> None:
        print(f"restore point {point} is deleted")
        if away:
            print(f"on {', '.join(away)}, which is away, as soon as it is back")

    finish(output, data={"device": device.value, "name": name, "away": list(away)}, text=text)


def _ask(cluster: Cluster, point: RestorePoint) -> None:
    """Say what will be lost, and ask; no answer but yes goes on."""
    group = ", ".join(_together(cluster, point))
    click.echo(
        f"restore point {point.device}@{point.name} of {_time_text(point.made_s)} UTC, "
        f"{consistency(point)}, {format_bytes(point.size_bytes)}, on {', '.join(point.nodes)}: "
        f"what it holds alone ({_held_text(cluster, point)}) will be lost"
        + (f"; of the same moment: {group}" if group else ""),
        err=True,
    )
    click.confirm(f"Delete restore point {point.device}@{point.name}?", abort=True, err=True)


def _finish(output: str, cluster: Cluster, point: RestorePoint, topology: Topology | None) -> None:
    data = _point_data(cluster, point, topology)
    finish(output, data=data, text=lambda: _print_point(cluster, point, data["file"]))


def _file_of(point: RestorePoint, topology: Topology | None) -> str | None:
    pool = topology.pool(point.pool) if topology else None
    if pool is None:
        return None
    return final_path(str(pool.path), point.device, point.uuid, point.token)


def _name_of(moment_s: int) -> str:
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(moment_s))


def _time_text(moment_s: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment_s))


def _held_text(cluster: Cluster, point: RestorePoint) -> str:
    known = [
        size
        for node in point.nodes
        if (size := cluster.cib.point_bytes.get((point.token, node))) is not None
    ]
    return format_bytes(max(known)) if known else "?"


def _missing_on(cluster: Cluster, point: RestorePoint) -> list[str]:
    device = cluster.cib.device(point.device)
    nodes = device.nodes if device else ()
    return [node.value for node in nodes if node.value not in point.nodes]


def _together(cluster: Cluster, point: RestorePoint) -> list[str]:
    return [
        f"{other.device}@{other.name}"
        for other in cluster.cib.points
        if other.is_of_same_moment(point)
    ]


def _point_data(
    cluster: Cluster, point: RestorePoint, topology: Topology | None
) -> snapshot_documents.Point:
    return {
        "device": point.device,
        "name": point.name,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(point.made_s)),
        "size_bytes": point.size_bytes,
        "pause_ms": point.pause_ms,
        "file": _file_of(point, topology),
        "deleting": point.is_deleting,
        "group": _together(cluster, point),
        "scheduled": list(point.slot.intervals) if point.slot else [],
        "consistency": consistency(point),
        "hook": result_data(point),
        "nodes": [
            {"node": node, "own_bytes": cluster.cib.point_bytes.get((point.token, node))}
            for node in point.nodes
        ],
        "missing_on": _missing_on(cluster, point),
    }


def _print_point(cluster: Cluster, point: RestorePoint, file: str | None) -> None:
    missing = ", ".join(_missing_on(cluster, point))
    group = ", ".join(_together(cluster, point))
    for label, value in (
        ("restore point", f"{point.device}@{point.name}"),
        ("made", f"{_time_text(point.made_s)} UTC; I/O waited for {point.pause_ms} ms"),
        *((("made by", f"schedule, {', '.join(point.slot.intervals)}"),) if point.slot else ()),
        ("consistency", consistency_text(point)),
        *((("same moment", group),) if group else ()),
        ("size", format_bytes(point.size_bytes)),
        ("on", ", ".join(point.nodes)),
        ("file", file or "?"),
        *(
            (("not on", f"{missing}: not in sync then, a later replica, or lost since"),)
            if missing
            else ()
        ),
        ("holds alone", _held_text(cluster, point)),
        *((("state", "being deleted"),) if point.is_deleting else ()),
    ):
        print(f"{label + ':':<16}{value}")
