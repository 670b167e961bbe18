# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl device create`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TextIO

import click

from sanctl.cli.commands.device_cache import (
    CACHE_MODES,
    DIRTY_LIMIT_OPTION,
    READ_CACHE_OPTION,
    parse_cache_change,
)
from sanctl.cli.commands.device_set import ON_OFF
from sanctl.cli.commands.device_sync import given_sync_options, sync_policy_options
from sanctl.cli.environment import environment
from sanctl.cli.options import (
    ask_before_one_replica,
    devices_timeout_option,
    output_option,
    yes_option,
)
from sanctl.cli.output import finish
from sanctl.cli.views.device import device_data
from sanctl.model.cache_policy import NO_CACHE
from sanctl.model.device import DeviceSpec
from sanctl.model.published_reservations import NEW_DEVICES_HAVE_RESERVATIONS
from sanctl.model.topology import Topology
from sanctl.ops.device_create import create_devices
from sanctl.plan.cache.cache_status import single_replica_text
from sanctl.plan.cache.policy_request import cache_policy_text
from sanctl.plan.device.creation_request import DeviceArguments


@click.command(short_help="Create devices and wait until they are served.")
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


def _print_access(made: DeviceSpec, topology: Topology) -> None:
    print(f"target {topology.target_iqn(made.name)}, LUN 0, WWID {made.wwid}")
    if not made.initiators and not made.hosts and not made.host_groups:
        print(f"no host may use the device yet: 'sanctl target allow {made.name} IQN' allows one")
