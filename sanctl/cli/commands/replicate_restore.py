# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl replicate restore` and `sanctl replicate failback`."""

from __future__ import annotations

import time

import click

from sanctl.cli.environment import environment, topology_or_none
from sanctl.cli.options import accept_option, output_option, timeout_option, yes_option
from sanctl.cli.output import finish
from sanctl.cli.views.device import device_data
from sanctl.cli.views.restore import kept_point
from sanctl.cli.views.site import utc
from sanctl.model.device_restore import KEPT_PREFIX
from sanctl.model.names import DeviceName
from sanctl.model.restore_point import PointOrder
from sanctl.model.site import parse_site_name
from sanctl.model.site_copy import WantedCopy
from sanctl.ops.device_restore import check_restore, restore_device
from sanctl.ops.site_restore import find_copy, restore_copy
from sanctl.plan.device.creation_request import DeviceArguments
from sanctl.plan.device.restore_request import STILL_MOUNTED, RestoreRequest
from sanctl.plan.site.group_choice import Choice

_COPY = "DEVICE[.UUID][@POINT]"
_mix_option = click.option(
    "--allow-mix",
    "allows_mix",
    is_flag=True,
    help="Of a device that is copied with others: any copy, although they may not belong together.",
)


@click.command(short_help="Create a device from a copy at a second site.")
@click.argument("copy", metavar=_COPY)
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
@_mix_option
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
        _say(choice)
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


@click.command(short_help="Put a device back to a copy at a second site.")
@click.argument("name", metavar="DEVICE")
@click.option("--from", "site", required=True, metavar="SITE", help="The second site.")
@click.option("--copy", required=True, metavar=_COPY, help="The copy that it is to hold.")
@click.option(
    "--no-keep",
    is_flag=True,
    help="Make no restore point of what is on the device now: it is lost.",
)
@_mix_option
@yes_option
@accept_option
@timeout_option(86400)
@output_option
def failback(
    *,
    name: str,
    site: str,
    copy: str,
    no_keep: bool,
    allows_mix: bool,
    yes: bool,
    accepted: tuple[str, ...],
    timeout_s: float,
    output: str,
) -> None:
    """Make DEVICE what a copy at a second site is; only what differs is sent.

    Of a device that is copied with others that is the copy of the newest complete moment.

    No host may be logged in, and none is let in before the device has the copy's digest. What is on
    it now becomes a restore point first: 'sanctl device restore' goes back to that. Whatever dies
    meanwhile, it goes on; run again, the command waits for it.
    """
    env = environment()
    device, source, wanted = (
        DeviceName.parse(name),
        parse_site_name(site),
        WantedCopy.parse(copy),
    )
    now_s = int(env.clock.wall_s())
    kept_name = KEPT_PREFIX + time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_s))
    command_line = f"replicate failback {name} --from {site} --copy {copy}"
    with env.session() as session:
        choice = find_copy(
            session, source, wanted, env.site_link, filled=device, allows_mix=allows_mix
        )
        found, proven = choice.copy, choice.proven
        _say(choice)
        request = RestoreRequest(
            device=device,
            point=(found, proven.size_bytes),
            token=env.new_uuid()[-16:],
            kept=None if no_keep else PointOrder(kept_name, env.new_uuid()[-16:], now_s),
            accepted=accepted,
        )
        request, is_under_way = check_restore(session, request)
        if not yes and not is_under_way:
            kept = "is lost" if no_keep else f"is kept as {device}@{kept_name}"
            click.echo(
                f"device {device}: what is on it now {kept}, and copy {found.name}, of "
                f"{utc(proven.made_s)}, takes its place. No host is let in meanwhile; "
                f"{STILL_MOUNTED}.",
                err=True,
            )
            click.confirm(f"Fill device {device}?", abort=True, err=True)
        with env.logged("replicate", device=name, command_line=command_line):
            outcome = restore_device(
                session, request, ipc_buffer_bytes=env.ipc_buffer_bytes(), timeout_s=timeout_s
            )
    kept_name_or_none = kept_point(outcome.cluster, outcome.device)

    def text() -> None:
        print(f"device {device} holds copy {found.name}, after {outcome.duration_s:.1f} s")
        print(STILL_MOUNTED)
        if kept_name_or_none is not None:
            print(
                "what it held before is kept: 'sanctl device restore "
                f"{device} --to {kept_name_or_none}'"
            )

    finish(
        output,
        data={
            "changed": outcome.changed,
            "copy": str(found),
            "made": utc(proven.made_s),
            "duration_s": round(outcome.duration_s, 3),
            "kept": kept_name_or_none,
            **device_data(outcome.cluster, outcome.device, topology_or_none(env)),
        },
        text=text,
    )


def _say(choice: Choice) -> None:
    """Say of which moment the copy is, before anything is done: what is later will be missing."""
    for note in choice.notes:
        click.echo(note, err=True)
