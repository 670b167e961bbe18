# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl device create`, `list`, `show`, `resize`, `move`, ..."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TextIO

import click

from sanctl.cli.commands.device_cache import (
    CACHE_MODES,
    DIRTY_LIMIT_OPTION,
    READ_CACHE_OPTION,
    cache,
    cache_lines,
    parse_cache_change,
)
from sanctl.cli.commands.device_delete import delete
from sanctl.cli.commands.device_find import find
from sanctl.cli.commands.device_follow import follow
from sanctl.cli.commands.device_heal import heal
from sanctl.cli.commands.device_place import place
from sanctl.cli.commands.device_replicas import replicas
from sanctl.cli.commands.device_restore import restore
from sanctl.cli.commands.device_set import ON_OFF, set_device
from sanctl.cli.commands.device_sync import given_sync_options, sync, sync_policy_options
from sanctl.cli.commands.device_verify import verify
from sanctl.cli.environment import environment, topology_or_none
from sanctl.cli.help_sections import SectionedGroup
from sanctl.cli.options import (
    ask_before_one_replica,
    devices_timeout_option,
    output_option,
    timeout_option,
    yes_option,
)
from sanctl.cli.output import finish, print_table
from sanctl.cli.views.device import (
    DEVICE_COLUMNS,
    active_text,
    device_data,
    device_row,
    device_state,
    extents_text,
    replica_flush_text,
)
from sanctl.cli.views.point_schedule import schedule_data, schedule_text
from sanctl.cli.views.restore import restore_text
from sanctl.cli.views.site import hold_text
from sanctl.cli.views.sync_policy import sync_policy_text
from sanctl.errors import Problem, UsageError
from sanctl.model.cache_policy import NO_CACHE
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.drbd import PORT_BASE
from sanctl.model.host import HostName
from sanctl.model.names import ByteSize, DeviceName, Iqn, NodeName
from sanctl.model.published_reservations import NEW_DEVICES_HAVE_RESERVATIONS
from sanctl.model.topology import Topology
from sanctl.ops.device_complete import complete_devices
from sanctl.ops.device_create import create_devices
from sanctl.ops.device_move import move_device
from sanctl.ops.device_resize import resize_device
from sanctl.plan.cache.cache_status import single_replica_text
from sanctl.plan.cache.policy_request import cache_policy_text
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.creation_request import DeviceArguments
from sanctl.plan.device.following import guest_nodes
from sanctl.plan.replicas.pending_change import pending_change_of


@click.group(
    cls=SectionedGroup,
    no_args_is_help=False,
    sections={
        "See": ("list", "show", "find", "place"),
        "Create, change, delete": ("create", "resize", "set", "cache", "sync", "restore", "delete"),
        "Replicas": ("move", "follow", "replicas", "verify", "heal"),
        "For the playbook": ("complete",),
    },
)
def device() -> None:
    """Block devices and their replicas: create, show, grow, move, verify, restore, delete."""


device.add_command(delete)
device.add_command(find)
device.add_command(follow)
device.add_command(heal)
device.add_command(place)
device.add_command(replicas)
device.add_command(restore)
device.add_command(set_device)
device.add_command(sync)
device.add_command(verify)
device.add_command(cache)


@device.command(short_help="Create devices and wait until they are served.")
@click.argument("names", nargs=-1, metavar="NAME")
@click.option(
    "--names-from",
    "names_file",
    type=click.File(encoding="utf-8", errors="replace"),
    metavar="FILE",
    help="Create the devices named in this file, too, one in each line, with its size behind the"
    " name where that is not --size; - is standard input.",
)
@click.option(
    "--size",
    metavar="SIZE",
    help="For example 10G, 512MiB, 1.5T. Units are binary, as in LVM. Required, except for devices"
    " whose size is in the file, and with --from.",
)
@click.option(
    "--from",
    "origin",
    metavar="DEVICE@POINT",
    help="Make it from this restore point instead, whose size it has.",
)
@click.option(
    "--replicas",
    default="2",
    show_default=True,
    metavar="N",
    help="How many nodes hold a replica.",
)
@click.option(
    "--pool",
    metavar="POOL",
    help="The pool that holds the replicas; required when there are several.",
)
@click.option(
    "--nodes",
    metavar="A,B",
    help="The nodes that hold a replica. Default: those with most room, the least busy one active.",
)
@click.option(
    "--prefer",
    metavar="NODE",
    help="The node that serves the device at first. A device that is served stays where it is.",
)
@click.option(
    "--initiator",
    "initiators",
    multiple=True,
    metavar="IQN",
    help="A host that may use the device; may be given several times. Default: no host.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="The same by its name, see 'sanctl host'; may be given several times.",
)
@click.option(
    "--host-group",
    "host_groups",
    multiple=True,
    metavar="GROUP",
    help="All hosts of a group, see 'sanctl host group'; may be given several times.",
)
@sync_policy_options
@click.option(
    "--cache",
    "cache_mode",
    type=CACHE_MODES,
    default="none",
    show_default=True,
    help="Where acknowledged writes may be. None suits most devices: see 'device cache'.",
)
@DIRTY_LIMIT_OPTION
@READ_CACHE_OPTION
@click.option(
    "--reservations",
    type=ON_OFF,
    default="on" if NEW_DEVICES_HAVE_RESERVATIONS else "off",
    show_default=True,
    help="Whether hosts may make persistent reservations, see 'device set'.",
)
@yes_option
@devices_timeout_option
@output_option
def create(
    *,
    names: tuple[str, ...],
    names_file: TextIO | None,
    size: str | None,
    origin: str | None,
    replicas: str,
    pool: str | None,
    nodes: str | None,
    prefer: str | None,
    initiators: tuple[str, ...],
    hosts: tuple[str, ...],
    host_groups: tuple[str, ...],
    cache_mode: str,
    dirty_limit: str | None,
    read_cache: str | None,
    reservations: str,
    yes: bool,
    timeout_s: float | None,
    output: str,
    **policy: Any,
) -> None:
    """Create devices and wait until they are served and their replicas are in sync.

    Several devices are created by one change of the cluster, all of them or none, and start
    together. All get the same options; a file may give each its size.

    With --from each is a clone of a restore point: at once, with an identity of its own. It shares
    blocks with the device until one of them writes; each may then be deleted by itself.

    Before devices of one replica the command says what that means; on a terminal it asks.
    """
    env = environment()
    named = [(name, size) for name in names]
    if names_file is not None:
        named += [(name, own_size or size) for name, own_size in _devices_in(names_file)]
    if not named:
        raise click.UsageError("Missing argument 'NAME...'.")
    names = tuple(name for name, _ in named)
    without_size = [name for name, its_size in named if its_size is None]
    if without_size and origin is None:
        raise click.UsageError(f"Missing option '--size' for {', '.join(without_size)}.")
    common = DeviceArguments(
        name="",
        size="",
        origin=origin,
        replicas=replicas,
        pool=pool,
        nodes=tuple(part.strip() for part in nodes.split(",")) if nodes is not None else (),
        prefer=prefer,
        initiators=initiators,
        hosts=hosts,
        host_groups=host_groups,
        sync=given_sync_options(policy),
        cache=parse_cache_change(cache_mode, dirty_limit, read_cache).applied_to(NO_CACHE),
        reservations=reservations == "on",
    )
    topology = env.topology()
    is_one = len(names) == 1 and names_file is None
    if timeout_s is None:
        timeout_s = creation_wait_s(len(names))
    if replicas.strip() == "1":
        ask_before_one_replica(", ".join(names), common.cache.mode, yes=yes)
    with (
        env.logged(
            "create",
            device=names[0] if is_one else "",
            command_line=f"device create {' '.join(names)}",
        ),
        env.session() as session,
    ):
        outcomes = create_devices(
            session,
            topology,
            [replace(common, name=name, size=its_size or "") for name, its_size in named],
            new_uuid=env.new_uuid,
            drbd_version=env.drbd_version(),
            ipc_buffer_bytes=env.ipc_buffer_bytes(),
            timeout_s=timeout_s,
        )

    def text() -> None:
        for outcome in outcomes:
            made = outcome.device
            active = outcome.cluster.active_node(made.name)
            took = f", {outcome.duration_s:.1f} s" if is_one else ""
            print(f"device {made.name}: {made.size}, served by {active}{took}")
            note = single_replica_text(made)
            if note is not None:
                print(f"cache policy {cache_policy_text(made.cache)}: {note}")
            _print_access(made, topology)
        if not is_one:
            print(f"{len(outcomes)} devices, {outcomes[0].duration_s:.1f} s")

    data = [device_data(each.cluster, each.device, topology) for each in outcomes]
    finish(output, data=data[0] if is_one else data, text=text)


def creation_wait_s(devices: int) -> float:
    """Return how many seconds `create` waits where no --timeout is given: all start together."""
    return 180.0 + 20.0 * (devices - 1)


def _devices_in(file: TextIO) -> Iterator[tuple[str, str | None]]:
    """Yield the names in a file, with their sizes: one in each line, NAME or NAME SIZE.

    Empty lines and what follows a # are skipped.
    """
    for line in file:
        words = line.partition("#")[0].split()
        if words:
            yield words[0], " ".join(words[1:]) or None


def _users_of(found: DeviceSpec) -> tuple[HostName | Iqn, ...]:
    return (*(host.name for host in found.hosts), *found.initiators)


def _print_access(made: DeviceSpec, topology: Topology) -> None:
    print(f"target {topology.target_iqn(made.name)}, LUN 0, WWID {made.wwid}")
    if not made.initiators and not made.hosts and not made.host_groups:
        print(f"no host may use the device yet: 'sanctl target allow {made.name} IQN' allows one")


@device.command("list")
@output_option
def list_devices(output: str) -> None:
    """List all devices."""
    env = environment()
    with env.session() as session:
        cluster = session.observe()

    def text() -> None:
        if cluster.cib.devices:
            print_table(DEVICE_COLUMNS, (device_row(cluster, d) for d in cluster.cib.devices))
        else:
            print("there are no devices")

    topology = topology_or_none(env)
    finish(output, data=[device_data(cluster, d, topology) for d in cluster.cib.devices], text=text)


@device.command()
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


@device.command(short_help="Grow a device while hosts use it.")
@click.argument("name")
@click.argument("size")
@timeout_option(120)
@output_option
def resize(name: str, size: str, timeout_s: float, output: str) -> None:
    """Grow a device to SIZE while hosts use it; hosts see the new size after a rescan."""
    env = environment()
    problems: list[Problem] = []
    wanted = new_size = None
    try:
        wanted = DeviceName.parse(name)
    except UsageError as error:
        problems.extend(error.problems)
    try:
        new_size = ByteSize.parse(size)
    except UsageError as error:
        problems.extend(error.problems)
    if wanted is None or new_size is None:
        raise UsageError(*problems)
    command_line = f"device resize {name} {size}"
    with env.session() as session, env.logged("resize", device=name, command_line=command_line):
        outcome = resize_device(session, wanted, new_size, timeout_s=timeout_s)
    finish(
        output,
        data={
            "changed": outcome.changed,
            **device_data(outcome.cluster, outcome.device, topology_or_none(env)),
        },
        text=lambda: print(
            f"device {wanted} has {outcome.device.size}"
            + ("; hosts see the new size after a rescan" if outcome.changed else ": nothing to do")
        ),
    )


@device.command(short_help="Let another node serve a device.")
@click.argument("name")
@click.option(
    "--to", "node", required=True, metavar="NODE", help="The node that is to serve the device."
)
@timeout_option(60)
@output_option
def move(name: str, node: str, timeout_s: float, output: str) -> None:
    """Let another node serve a device. Hosts keep their sessions and see a short pause."""
    env = environment()
    wanted, target = DeviceName.parse(name), NodeName.parse(node)
    command_line = f"device move {name} --to {node}"
    with env.session() as session, env.logged("move", device=name, command_line=command_line):
        outcome = move_device(session, wanted, target, timeout_s=timeout_s)
    finish(
        output,
        data={
            "changed": outcome.changed,
            "duration_s": round(outcome.duration_s, 3),
            **device_data(outcome.cluster, outcome.device, topology_or_none(env)),
        },
        text=lambda: print(
            f"device {wanted} is served by {target}"
            + (f", after {outcome.duration_s:.1f} s" if outcome.changed else ": nothing to do")
        ),
    )


@device.command(short_help="Add CIB elements that devices of an older version lack.")
@output_option
def complete(output: str) -> None:
    """Add to devices that an older version created the CIB elements that this version gives them.

    These are constraints and priorities only: no device is moved or interrupted. The playbook runs
    this command at the end of each rollout.
    """
    env = environment()
    with env.session() as session, env.logged("complete"):
        names = complete_devices(session)
    finish(
        output,
        data={"changed": bool(names), "devices": list(names)},
        text=lambda: print("completed: " + " ".join(names) if names else "nothing to do"),
    )
