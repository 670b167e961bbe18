# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl replicate set` and `sanctl replicate release`."""

from __future__ import annotations

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import output_option, timeout_option, yes_option
from sanctl.cli.output import finish
from sanctl.model.names import DeviceName
from sanctl.model.site import parse_site_name
from sanctl.ops import site_hold
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.site.holding import held, held_text
from sanctl.plan.site.takeover import takeover_text


@click.command("set", short_help="Let no host in after a restart before the site has answered.")
@click.argument("device")
@click.option("--to", "site", required=True, metavar="SITE", help="The second site.")
@click.option(
    "--hold-after-restart/--no-hold-after-restart",
    "holds",
    required=True,
    help="Whether hosts wait until the site has said that DEVICE was not taken over.",
)
@timeout_option(60)
@output_option
def set_(*, device: str, site: str, holds: bool, timeout_s: float, output: str) -> None:
    """Have DEVICE await a second site after the whole cluster was started anew.

    Where all its nodes were without power, or without the cluster's software, no host is let in
    before the site has said that no other device has taken DEVICE over, or 'sanctl replicate
    release' has. A move, the restart of one node while another one serves, and a failover keep
    nobody out, but for a failover within seconds of the other node's start.
    """
    env = environment()
    name, to = DeviceName.parse(device), parse_site_name(site)
    option = "--hold-after-restart" if holds else "--no-hold-after-restart"
    command_line = f"replicate set {device} --to {to} {option}"
    with (
        env.session() as session,
        env.logged("replicate", device=device, command_line=command_line),
    ):
        outcome = site_hold.set_hold(
            session,
            name,
            to,
            holds=holds,
            ipc_buffer_bytes=env.ipc_buffer_bytes(),
            timeout_s=timeout_s,
        )

    def text() -> None:
        print(
            f"after a restart of the whole cluster device {name} "
            + ("lets no host in before" if holds else "lets hosts in without asking")
            + f" site {to}"
            + (" has answered" if holds else "")
            + ("" if outcome.changed else ": it was so before")
        )

    finish(
        output,
        data={
            "device": name.value,
            "site": to,
            "hold_after_restart": holds,
            "changed": outcome.changed,
        },
        text=text,
    )


@click.command(short_help="Let hosts in without the second site's answer.")
@click.argument("device")
@yes_option
@timeout_option(60)
@output_option
def release(*, device: str, yes: bool, timeout_s: float, output: str) -> None:
    """Let hosts in to DEVICE although its second site has not said that it was not taken over.

    If another device goes on instead of it, hosts of both sites write, and what one of both has
    written is given up. Holds until the whole cluster is started anew.
    """
    env = environment()
    name = DeviceName.parse(device)
    with env.session() as session:
        cluster = session.observe()
        found = existing_device(cluster, name)
        kept_out = held(cluster, found)
        ends_setting = kept_out is not None and not kept_out.runs
        if kept_out is not None and not yes:
            click.echo(f"No host is let in to device {name}: {held_text(kept_out)}.", err=True)
            for takeover in cluster.cib.takeovers:
                if takeover == cluster.cib.takeover(name.value, takeover.site):
                    who = takeover_text(takeover.site, takeover.successor, is_lost=takeover.is_lost)
                    click.echo(f"{who}.", err=True)
            click.echo("If hosts write there, too, what one of both has written is lost.", err=True)
            if ends_setting:
                click.echo(
                    "Its nodes cannot tell one start of Pacemaker from another, so the device "
                    "awaits no site any more.",
                    err=True,
                )
            click.confirm(f"Let hosts in to {name}?", abort=True, err=True)
        with env.logged("replicate", device=device, command_line=f"replicate release {device}"):
            outcome = site_hold.release(
                session,
                name,
                shown=None if yes else kept_out,
                ipc_buffer_bytes=env.ipc_buffer_bytes(),
                timeout_s=timeout_s,
            )

    def text() -> None:
        print(
            f"hosts are let in to device {name}" + ", which awaits no site now" * ends_setting
            if outcome.changed
            else f"hosts were not kept out of device {name}"
        )

    finish(output, data={"device": name.value, "changed": outcome.changed}, text=text)
