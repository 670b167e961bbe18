# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl replicate takeover` and `sanctl replicate giveback`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import output_option, yes_option
from sanctl.cli.output import finish
from sanctl.cli.views.site import successor_data
from sanctl.model.names import DeviceName
from sanctl.model.site import parse_site_name
from sanctl.model.site_copy import WantedCopy
from sanctl.ops.site_takeover import find_taken, give_back, take_over
from sanctl.plan.site.takeover import parse_replaced, successor_text

if TYPE_CHECKING:
    from sanctl.cli.documents import site as site_documents


@click.command(short_help="Note at the site that a device goes on instead of the one copied.")
@click.argument("devices", metavar="DEVICE...", nargs=-1, required=True)
@click.option(
    "--allow-mix",
    "allows_mix",
    is_flag=True,
    help="These devices alone, although they may not belong together.",
)
@click.option(
    "--allow-older",
    "allows_older",
    is_flag=True,
    help="Also if the site has a newer copy than the one that DEVICE was made from, or none of it.",
)
@click.option(
    "--instead-of",
    "replaced",
    multiple=True,
    metavar="UUID",
    help="Also if the device with this UUID has taken over: it goes on no more.",
)
@output_option
def takeover(
    *,
    devices: tuple[str, ...],
    allows_mix: bool,
    allows_older: bool,
    replaced: tuple[str, ...],
    output: str,
) -> None:
    """Note at the site that DEVICE goes on instead of the one whose copy it was made from.

    The cluster of that one makes no copy any more, removes none, and shows a critical finding once
    it has asked the site. Nothing keeps its hosts out. After a failback, at home: the roles turn,
    and the takeover from there ends.

    If that one was copied together with others (replicate run --group), the devices here that were
    made from the same moment take over with it; without one of them it is refused. So it is where
    the site has a newer copy than the one that DEVICE was made from, and while it is being filled.
    And where a third device has taken over, as one from a copy that turned out bad, unless named.
    """
    env = environment()
    names = [DeviceName.parse(device) for device in dict.fromkeys(devices)]
    replaced = tuple(map(parse_replaced, replaced))
    option = " --allow-mix" * allows_mix + " --allow-older" * allows_older
    option += "".join(f" --instead-of {each}" for each in replaced)
    with (
        env.session() as session,
        env.logged(
            "replicate",
            device=devices[0] if len(devices) == 1 else "",
            command_line=f"replicate takeover {' '.join(devices)}{option}",
        ),
    ):
        done = take_over(
            session,
            names,
            env.host.node_name(),
            env.site_link,
            allows_mix=allows_mix,
            allows_older=allows_older,
            replaced=replaced,
        )

    def text() -> None:
        for each in done:
            copy = each.copy
            print(
                f"device {each.device} goes on instead of {copy.device}.{copy.uuid[:8]}, from "
                f"{copy.name}" + ("" if each.changed else ": it did before")
            )
            if each.took_back:
                print(
                    f"{copy.device}.{copy.uuid[:8]} does not go on instead of {each.device} any "
                    "more"
                )

    data: list[site_documents.TakenOver] = [
        {
            "device": each.device,
            "site": each.copy.site,
            "instead_of": each.copy.folder,
            "changed": each.changed,
            "took_back": each.took_back,
        }
        for each in done
    ]
    finish(output, data=data if len(data) > 1 else data[0], text=text)


@click.command(short_help="End the takeover of a device at a second site.")
@click.argument("device", metavar="DEVICE[.UUID]")
@click.option("--at", "site", required=True, metavar="SITE", help="The second site.")
@click.option(
    "--allow-mix",
    "allows_mix",
    is_flag=True,
    help="Of this device alone, although others of its group go on elsewhere.",
)
@yes_option
@output_option
def giveback(*, device: str, site: str, allows_mix: bool, yes: bool, output: str) -> None:
    """End the takeover of DEVICE: it goes on itself, and is copied again.

    What was written to the device that had taken it over stays where it is. On either cluster, or
    where the site has lost the takeover on the one of DEVICE. Of a device that is copied with
    others that ends the takeovers of all that were taken over with it, from the same moment.
    """
    env = environment()
    wanted, at = WantedCopy.parse(device)._replace(point=""), parse_site_name(site)
    with env.session() as session:
        found = find_taken(session, at, wanted, env.site_link, allows_mix=allows_mix)
        if found and not yes:
            for folder, successor in found:
                name = folder[: folder.index(".") + 9]
                click.echo(
                    f"{successor_text(successor)} goes on instead of {name}. What hosts have "
                    f"written there is not in {name}; let none write there any more.",
                    err=True,
                )
            click.confirm(f"End the takeover of {wanted}?", abort=True, err=True)
        option = " --allow-mix" if allows_mix else ""
        for each in found:
            command_line = f"replicate giveback {device} --at {at}{option}"
            with env.logged(
                "replicate", device=each[0].partition(".")[0], command_line=command_line
            ):
                give_back(session, at, each, env.host.node_name(), env.site_link)

    def text() -> None:
        if not found:
            print(f"{wanted} is not taken over at site {at}")
        for folder, _ in found:
            print(f"the takeover of {folder[: folder.index('.') + 9]} at site {at} has ended")

    data: list[site_documents.GivenBack] = [
        {
            "device": folder,
            "site": at,
            "successor": successor_data(successor),
            "changed": True,
        }
        for folder, successor in found
    ]
    nothing: site_documents.GivenBack = {
        "device": str(wanted),
        "site": at,
        "successor": None,
        "changed": False,
    }
    finish(output, data=data if len(data) > 1 else data[0] if data else nothing, text=text)
