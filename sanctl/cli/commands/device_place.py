# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl device place`: where a new device would go, and why (a dry run)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import output_option
from sanctl.cli.output import UNKNOWN, finish, print_table
from sanctl.errors import ExitStatus
from sanctl.model.names import format_bytes
from sanctl.plan.device.creation import DeviceArguments, parse_device_request
from sanctl.plan.device.placement_preview import NodePreview, preview_placement

if TYPE_CHECKING:
    from sanctl.cli.documents import device as device_documents


@click.command(short_help="Say where a new device would go, and why.")
@click.option("--size", required=True, metavar="SIZE", help="As for 'device create'.")
@click.option(
    "--replicas", default="2", show_default=True, metavar="N", help="How many nodes keep a copy."
)
@click.option("--pool", metavar="POOL", help="The pool; needed when there are several.")
@click.option("--nodes", metavar="A,B", help="Only these nodes.")
@click.option("--prefer", metavar="NODE", help="The node that is to serve it first.")
@click.option("--explain", is_flag=True, help="Say of every node why, or why not.")
@output_option
def place(
    *,
    size: str,
    replicas: str,
    pool: str | None,
    nodes: str | None,
    prefer: str | None,
    explain: bool,
    output: str,
) -> None:
    """Say where a new device would go. Nothing is made; exit status 1: it would not go anywhere."""
    env = environment()
    topology = env.topology()
    wish = parse_device_request(
        DeviceArguments(
            name="place",
            size=size,
            replicas=replicas,
            pool=pool,
            nodes=tuple(part.strip() for part in nodes.split(",")) if nodes is not None else (),
            prefer=prefer,
        )
    )
    with env.session() as session:
        sites = preview_placement(
            wish, session.observe(), topology, drbd_version=env.drbd_version()
        )
    chosen = [site for site in sites if site.is_chosen]

    def text() -> None:
        if chosen:
            print(f"it would go to {', '.join(str(site.node) for site in chosen)}")
        else:
            print("it would not go anywhere")
        if explain or not chosen:
            print_table(_COLUMNS, [_row(site) for site in sites])

    finish(
        output,
        data={
            "nodes": [site.node.value for site in chosen],
            "verdicts": [_verdict_data(site, is_first=site in chosen[:1]) for site in sites],
        },
        text=text,
        status=ExitStatus.OK if chosen else ExitStatus.DEGRADED,
    )


_COLUMNS = ("NODE", "CHOSEN", "SITE", "RACK", "ROOM", "ACTIVE", "WHY")


def _row(site: NodePreview) -> tuple[str, ...]:
    return (
        site.node.value,
        "yes" if site.is_chosen else "no",
        site.site or "-",
        site.rack or "-",
        UNKNOWN if site.room_bytes is None else format_bytes(site.room_bytes),
        str(site.active_devices),
        site.reason,
    )


def _verdict_data(site: NodePreview, *, is_first: bool) -> device_documents.PlacementVerdict:
    return {
        "node": site.node.value,
        "chosen": site.is_chosen,
        "first": is_first,
        "site": site.site or None,
        "rack": site.rack or None,
        "room": site.room_bytes,
        "active_devices": site.active_devices,
        "reason": site.reason,
    }
