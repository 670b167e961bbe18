# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl device place`: where a new device would go (a dry run)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import output_option
from sanctl.cli.output import UNKNOWN, finish, print_table
from sanctl.errors import ExitStatus
from sanctl.model.names import format_bytes
from sanctl.plan.device.creation_request import DeviceArguments, parse_device_request
from sanctl.plan.device.placement_preview import NodePreview, preview_placement

if TYPE_CHECKING:
    from sanctl.cli.documents import device as device_documents


@click.command(short_help="Show where a new device would go, and why.")
@click.option("--size", required=True, metavar="SIZE", help="As for 'device create'.")
@click.option(
    "--replicas", default="2", show_default=True, metavar="N", help="How many nodes hold a replica."
)
@click.option("--pool", metavar="POOL", help="The pool; required when there are several.")
@click.option("--nodes", metavar="A,B", help="Only these nodes.")
@click.option("--prefer", metavar="NODE", help="The node that is to serve the device first.")
@click.option("--explain", is_flag=True, help="Show for every node why it was chosen, or why not.")
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
    """Show on which nodes a new device would be placed. Nothing is created.

    Exit status 1: the device could not be placed.
    """
    env = environment()
    topology = env.topology()
    request = parse_device_request(
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
        previews = preview_placement(
            request, session.observe(), topology, drbd_version=env.drbd_version()
        )
    chosen = [preview for preview in previews if preview.is_chosen]

    def text() -> None:
        if chosen:
            nodes_text = ", ".join(str(preview.node) for preview in chosen)
            print(f"the device would be placed on {nodes_text}")
        else:
            print("the device cannot be placed")
        if explain or not chosen:
            print_table(_COLUMNS, [_row(preview) for preview in previews])

    finish(
        output,
        data={
            "nodes": [preview.node.value for preview in chosen],
            "verdicts": [
                _verdict_data(preview, is_first=preview in chosen[:1]) for preview in previews
            ],
        },
        text=text,
        status=ExitStatus.OK if chosen else ExitStatus.DEGRADED,
    )


_COLUMNS = ("NODE", "CHOSEN", "SITE", "RACK", "ROOM", "ACTIVE", "WHY")


def _row(preview: NodePreview) -> tuple[str, ...]:
    return (
        preview.node.value,
        "yes" if preview.is_chosen else "no",
        preview.site or "-",
        preview.rack or "-",
        UNKNOWN if preview.room_bytes is None else format_bytes(preview.room_bytes),
        str(preview.active_devices),
        preview.reason,
    )


def _verdict_data(preview: NodePreview, *, is_first: bool) -> device_documents.PlacementVerdict:
    return {
        "node": preview.node.value,
        "chosen": preview.is_chosen,
        "first": is_first,
        "site": preview.site or None,
        "rack": preview.rack or None,
        "room": preview.room_bytes,
        "active_devices": preview.active_devices,
        "reason": preview.reason,
    }
