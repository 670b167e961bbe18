# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl replicate takeover` and `sanctl replicate giveback`."""

from __future__ import annotations

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import output_option, yes_option
from sanctl.cli.output import finish
from sanctl.cli.views.site import successor_data
from sanctl.model.names import DeviceName
from sanctl.model.site import parse_site_name
from sanctl.model.site_copy import WantedCopy
from sanctl.ops.site_takeover import find_taken, give_back, take_over
from sanctl.plan.site.takeover import successor_text


@click.command(short_help="Note at the site that a device goes on instead of the one copied.")
@click.argument("device")
@output_option
def takeover(device: str, output: str) -> None:
    """Note at the site that DEVICE goes on instead of the one whose copy it was made from.

    The cluster of that one makes no copy any more, removes none, and shows a critical finding once
    it has asked the site. Nothing keeps its hosts out. After a failback, at home: the roles turn,
    and the takeover from there ends.
    """
    env = environment()
    name = DeviceName.parse(device)
    with (
        env.session() as session,
        env.logged("replicate", device=device, command_line=f"replicate takeover {device}"),
    ):
        done = take_over(session, name, env.host.node_name(), env.site_link)
    copy = done.copy

    def text() -> None:
        print(
            f"device {name} goes on instead of {copy.device}.{copy.uuid[:8]}, from {copy.name}"
            + ("" if done.changed else ": it did before")
        )
        if done.took_back:
            print(f"{copy.device}.{copy.uuid[:8]} does not go on instead of {name} any more")

    finish(
        output,
        data={
            "device": name.value,
            "site": copy.site,
            "instead_of": copy.folder,
            "changed": done.changed,
            "took_back": done.took_back,
        },
        text=text,
    )


@click.command(short_help="End the takeover of a device at a second site.")
@click.argument("device", metavar="DEVICE[.UUID]")
@click.option("--at", "site", required=True, metavar="SITE", help="The second site.")
@yes_option
@output_option
def giveback(*, device: str, site: str, yes: bool, output: str) -> None:
    """End the takeover of DEVICE: it goes on itself, and is copied again.

    What was written to the device that had taken it over stays where it is. On either cluster, or
    where the site has lost the takeover on the one of DEVICE.
    """
    env = environment()
    wanted, at = WantedCopy.parse(device)._replace(point=""), parse_site_name(site)
    with env.session() as session:
        found = find_taken(session, at, wanted, env.site_link)
        if found is not None and not yes:
            click.echo(
                f"{successor_text(found[1])} goes on instead of {wanted}. What hosts have written "
                f"there is not in {wanted}; let none write there any more.",
                err=True,
            )
            click.confirm(f"End the takeover of {wanted}?", abort=True, err=True)
        if found is not None:
            command_line = f"replicate giveback {device} --at {at}"
            with env.logged("replicate", device=wanted.device, command_line=command_line):
                give_back(session, at, found, env.host.node_name(), env.site_link)
    changed = found is not None

    def text() -> None:
        print(
            f"the takeover of {wanted} at site {at} has ended"
            if changed
            else f"{wanted} is not taken over at site {at}"
        )

    finish(
        output,
        data={
            "device": found[0] if found else str(wanted),
            "site": at,
            "successor": successor_data(found[1]) if found else None,
            "changed": changed,
        },
        text=text,
    )
