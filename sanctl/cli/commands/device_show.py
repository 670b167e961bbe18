# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl device show`: one device in full."""

from __future__ import annotations

from collections.abc import Iterator

import click

from sanctl.cli.commands.device_cache import cache_lines
from sanctl.cli.environment import environment
from sanctl.cli.options import output_option
from sanctl.cli.output import finish
from sanctl.cli.views.device import (
    active_text,
    device_data,
    device_state,
    extents_text,
    replica_flush_text,
)
from sanctl.cli.views.point_schedule import schedule_data, schedule_text
from sanctl.cli.views.restore import restore_text
from sanctl.cli.views.site import hold_text
from sanctl.cli.views.sync_policy import sync_policy_text
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.drbd import PORT_BASE
from sanctl.model.host import HostName
from sanctl.model.names import DeviceName, Iqn
from sanctl.model.topology import Topology
from sanctl.plan.cache.policy_request import cache_policy_text
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.following import guest_nodes
from sanctl.plan.replicas.pending_change import pending_change_of


@click.command()
@click.argument("name")
@output_option
def show(name: str, output: str) -> None:
    """Show one device in full."""
    env = environment()
    wanted = DeviceName.parse(name)
    topology = env.topology()
    with env.session() as session:
        cluster = session.observe()
    found = existing_device(cluster, wanted)
    now_s = env.clock.wall_s()
    finish(
        output,
        data={
            **device_data(cluster, found, topology),
            "schedule": schedule_data(cluster, found.name.value, now_s),
            "follows": guest.resource if (guest := cluster.cib.follow(wanted)) else None,
        },
        text=lambda: _print_device(cluster, found, topology, now_s),
    )


def _users_of(found: DeviceSpec) -> tuple[HostName | Iqn, ...]:
    return (*(host.name for host in found.hosts), *found.initiators)


def _print_device(cluster: Cluster, found: DeviceSpec, topology: Topology, now_s: float) -> None:
    move = cluster.cib.move(found.name)
    left = pending_change_of(cluster, found)
    lines = [
        ("device", found.name.value),
        ("state", device_state(cluster, found)),
        ("size", f"{found.size} ({found.size.bytes} bytes)"),
        ("pool", found.pool.value),
        *((("made from", f"restore point {found.origin.name}"),) if found.origin else ()),
        ("active", active_text(cluster, found)),
        ("preferred", str(found.prefer or "-")),
        *_follow_lines(cluster, found),
        *((f"replica {n}", replica_flush_text(cluster, found, n)) for n in found.nodes),
        ("cache", cache_policy_text(found.cache)),
        *(("", line) for line in cache_lines(cluster, found)),
        ("target", topology.target_iqn(found.name).value),
        ("wwid", found.wwid),
        ("hosts", ", ".join(map(str, _users_of(found))) or "none may use it"),
        *(("host group", str(group)) for group in found.host_groups),
        ("reservations", "on" if found.reservations else "off"),
        ("sync", sync_policy_text(found.sync)),
        ("drbd", f"minor {found.minor}, port {PORT_BASE + found.minor}"),
        ("uuid", found.uuid),
    ]
    if found.is_restoring:
        lines.append(("restoring", restore_text(cluster, found)))
    if found.awaits:
        lines.append(("awaits", hold_text(cluster, found)))
    if found.name.value in cluster.cib.schedules:
        lines.append(("snapshots", schedule_text(cluster, found.name.value, now_s)))
    if extents := extents_text(cluster, found):
        lines.append(("extents", extents))
    if left is not None:
        lines += [("unfinished", left[0]), ("next", left[1])]
    if move is not None:
        lines.append(("moving to", f"{move.node} (until {move.until})"))
    for label, value in lines:
        print(f"{label + ':' if label else '':<14}{value}")


def _follow_lines(cluster: Cluster, found: DeviceSpec) -> Iterator[tuple[str, str]]:
    guest = cluster.cib.follow(found.name)
    if guest is not None:
        nodes = guest_nodes(cluster, guest.resource)
        runs = f"runs on {', '.join(nodes)}" if nodes else "is stopped"
        yield "follows", f"{guest.resource}, which {runs}"
