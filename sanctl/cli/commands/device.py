# SPDX-License-Identifier: GPL-2.0-or-later
"""Group `sanctl device` of commands; options and output of `list`, `resize`, `move`, `complete`."""

from __future__ import annotations

import click

from sanctl.cli.commands.device_cache import cache
from sanctl.cli.commands.device_create import create
from sanctl.cli.commands.device_delete import delete
from sanctl.cli.commands.device_find import find
from sanctl.cli.commands.device_follow import follow
from sanctl.cli.commands.device_heal import heal
from sanctl.cli.commands.device_place import place
from sanctl.cli.commands.device_replicas import replicas
from sanctl.cli.commands.device_restore import restore
from sanctl.cli.commands.device_set import set_device
from sanctl.cli.commands.device_show import show
from sanctl.cli.commands.device_sync import sync
from sanctl.cli.commands.device_verify import verify
from sanctl.cli.environment import environment, topology_or_none
from sanctl.cli.help_sections import SectionedGroup
from sanctl.cli.options import output_option, timeout_option
from sanctl.cli.output import finish, print_table
from sanctl.cli.views.device import DEVICE_COLUMNS, device_data, device_row
from sanctl.errors import Problem, UsageError
from sanctl.model.names import ByteSize, DeviceName, NodeName
from sanctl.ops.device_complete import complete_devices
from sanctl.ops.device_move import move_device
from sanctl.ops.device_resize import resize_device


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


device.add_command(create)
device.add_command(delete)
device.add_command(find)
device.add_command(follow)
device.add_command(heal)
device.add_command(place)
device.add_command(replicas)
device.add_command(restore)
device.add_command(set_device)
device.add_command(show)
device.add_command(sync)
device.add_command(verify)
device.add_command(cache)


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
