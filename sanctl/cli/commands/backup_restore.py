# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl backup restore`."""

from __future__ import annotations

import click

from sanctl.cli import backup_options
from sanctl.cli.environment import environment
from sanctl.cli.options import output_option, timeout_option
from sanctl.cli.output import finish
from sanctl.cli.views.device import device_data
from sanctl.model.backup import BackupName
from sanctl.ops.backup_restore import restore_backup
from sanctl.ops.repository_wait import say_waits
from sanctl.plan.device.creation_request import DeviceArguments


@click.command()
@click.argument("name", metavar="BACKUP")
@click.option("--to", "device", required=True, metavar="DEVICE", help="The device to create.")
@backup_options.repository_option
@click.option("--replicas", default="2", show_default=True, metavar="N", help="Its replicas.")
@click.option("--pool", metavar="POOL", help="Its pool; required when there are several.")
@click.option("--nodes", metavar="A,B", help="The nodes that hold a replica.")
@click.option("--prefer", metavar="NODE", help="The node that serves it at first.")
@click.option(
    "--initiator",
    "initiators",
    multiple=True,
    metavar="IQN",
    help="A host that may use it afterwards; may be given several times. Default: no host.",
)
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="The same by its name.")
@click.option(
    "--host-group", "host_groups", multiple=True, metavar="GROUP", help="All hosts of a group."
)
@timeout_option(86400)
@output_option
def restore(
    *,
    name: str,
    device: str,
    repository: str | None,
    replicas: str,
    pool: str | None,
    nodes: str | None,
    prefer: str | None,
    initiators: tuple[str, ...],
    hosts: tuple[str, ...],
    host_groups: tuple[str, ...],
    timeout_s: float,
    output: str,
) -> None:
    """Create a device from a backup; hosts are let in when it has the backup's digest.

    The node that serves the new device reads the repository. Whatever dies meanwhile, it goes on.
    """
    env = environment()
    wanted = BackupName.parse(name)
    borg = backup_options.borg_of(env, repository)
    arguments = DeviceArguments(
        name=device,
        size="",
        replicas=replicas,
        pool=pool,
        nodes=tuple(part.strip() for part in nodes.split(",")) if nodes is not None else (),
        prefer=prefer,
        initiators=initiators,
        hosts=hosts,
        host_groups=host_groups,
    )
    topology = env.topology()
    command_line = f"backup restore {name} --to {device}"
    with env.session() as session, env.logged("backup", device=device, command_line=command_line):
        say_waits(session, borg)
        outcome, digest = restore_backup(
            session,
            topology,
            borg,
            wanted,
            arguments,
            new_uuid=env.new_uuid,
            drbd_version=env.drbd_version(),
            ipc_buffer_bytes=env.ipc_buffer_bytes(),
            timeout_s=timeout_s,
        )
    made = outcome.device

    def text() -> None:
        print(
            f"device {made.name} holds backup {name}: {made.size}, {outcome.duration_s:.0f} s; "
            f"SHA-256 {digest}"
        )
        print(f"target {topology.target_iqn(made.name)}, LUN 0, WWID {made.wwid}")

    finish(
        output,
        data={
            **device_data(outcome.cluster, made, topology),
            "sha256": digest,
            "duration_s": round(outcome.duration_s, 3),
        },
        text=text,
    )
