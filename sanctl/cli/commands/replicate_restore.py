# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl replicate restore`."""

from __future__ import annotations

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import output_option, timeout_option
from sanctl.cli.output import finish
from sanctl.cli.views.device import device_data
from sanctl.cli.views.site import utc
from sanctl.model.site import parse_site_name
from sanctl.model.site_copy import WantedCopy
from sanctl.ops.site_restore import find_copy, restore_copy
from sanctl.plan.device.creation_request import DeviceArguments
from sanctl.plan.site.group_choice import Choice

COPY = "DEVICE[.UUID][@POINT]"
mix_option = click.option(
    "--allow-mix",
    "allows_mix",
    is_flag=True,
    help="Of a device that is copied with others: any copy, although they may not belong together.",
)


@click.command(short_help="Create a device from a copy at a second site.")
@click.argument("copy", metavar=COPY)
@click.option("--from", "site", required=True, metavar="SITE", help="The second site.")
@click.option("--to", "device", required=True, metavar="DEVICE", help="The device to create.")
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
@mix_option
@timeout_option(86400)
@output_option
def restore(
    *,
    copy: str,
    site: str,
    device: str,
    replicas: str,
    pool: str | None,
    nodes: str | None,
    prefer: str | None,
    initiators: tuple[str, ...],
    hosts: tuple[str, ...],
    allows_mix: bool,
    timeout_s: float,
    output: str,
) -> None:
    """Create a device from a copy at a second site; hosts are let in when it has its digest.

    Without @POINT from the newest copy; of a device that is copied with others (replicate run
    --group) from the newest moment that is complete. The copy may be another cluster's. It stays as
    it is: what is written to the device changes nothing at the site. Whatever dies meanwhile, it
    goes on.
    """
    env = environment()
    wanted, source = WantedCopy.parse(copy), parse_site_name(site)
    arguments = DeviceArguments(
        name=device,
        size="",
        replicas=replicas,
        pool=pool,
        nodes=tuple(part.strip() for part in nodes.split(",")) if nodes is not None else (),
        prefer=prefer,
        initiators=initiators,
        hosts=hosts,
    )
    topology = env.topology()
    command_line = f"replicate restore {copy} --from {site} --to {device}"
    with (
        env.session() as session,
        env.logged("replicate", device=device, command_line=command_line),
    ):
        choice = find_copy(
            session, source, wanted, env.site_link, filled=None, allows_mix=allows_mix
        )
        found, proven = choice.copy, choice.proven
        say(choice)
        outcome = restore_copy(
            session,
            topology,
            found,
            proven.size_bytes,
            arguments,
            new_uuid=env.new_uuid,
            drbd_version=env.drbd_version(),
            ipc_buffer_bytes=env.ipc_buffer_bytes(),
            timeout_s=timeout_s,
        )
    made = outcome.device

    def text() -> None:
        print(
            f"device {made.name} holds copy {found.name}, of {utc(proven.made_s)}: {made.size}, "
            f"{outcome.duration_s:.0f} s"
        )
        print(f"target {topology.target_iqn(made.name)}, LUN 0, WWID {made.wwid}")
        print(
            f"if it is to go on instead of {found.device}: 'sanctl replicate takeover {made.name}' "
            "before hosts write to it"
        )

    finish(
        output,
        data={
            **device_data(outcome.cluster, made, topology),
            "copy": str(found),
            "made": utc(proven.made_s),
            "duration_s": round(outcome.duration_s, 3),
        },
        text=text,
    )


def say(choice: Choice) -> None:
    """Say of which moment the copy is, before anything is done: what is later will be missing."""
    for note in choice.notes:
        click.echo(note, err=True)
