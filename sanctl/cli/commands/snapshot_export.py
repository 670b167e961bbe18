# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl snapshot export`, `unexport` and `exports`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import output_option
from sanctl.cli.output import finish, print_table
from sanctl.drivers import lio_export
from sanctl.drivers.lio_export import NewExport
from sanctl.model.host import HostName
from sanctl.model.names import Iqn
from sanctl.ops.point_export import ExportRequest, export_point, unexport_point
from sanctl.plan.device.restore_points import split_point

if TYPE_CHECKING:
    from sanctl.cli.documents import snapshot as snapshot_documents


@click.command()
@click.argument("point", metavar="DEVICE@POINT")
@click.option(
    "--initiator",
    "initiators",
    multiple=True,
    metavar="IQN",
    help="A host that may read it; may be given several times.",
)
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="The same by its name.")
@click.option("--on-active", is_flag=True, help="Also if this node serves the device.")
@output_option
def export(
    point: str,
    *,
    initiators: tuple[str, ...],
    hosts: tuple[str, ...],
    on_active: bool,
    output: str,
) -> None:
    """Offer a restore point to a backup host, read-only, on this node.

    The host reads this node's disk alone: nothing of it crosses the sync network or reaches the
    node that serves the device. The export ends with `unexport`, or when this node stops. Given
    again, it lets in these hosts and no others.
    """
    device, name = split_point(point)
    env = environment()
    request = ExportRequest(
        device=device,
        point=name,
        here=env.host.node_name(),
        initiators=tuple(map(Iqn.parse, initiators)),
        hosts=tuple(map(HostName.parse, hosts)),
        may_be_active=on_active,
    )
    topology = env.topology()
    with (
        env.session() as session,
        env.logged("snapshot", device=device.value, command_line=f"snapshot export {point}"),
    ):
        made = export_point(session, topology, request)

    def text() -> None:
        print(f"{point} is exported read-only on {request.here}, to {', '.join(made.logins)}")
        print(f"target {made.iqn}, LUN 0, at {', '.join(made.portals)}")

    finish(output, data=_made_data(made, request.here), text=text)


@click.command()
@click.argument("point", metavar="DEVICE@POINT")
@output_option
def unexport(point: str, output: str) -> None:
    """End the export of a restore point on this node; hosts lose it at once."""
    device, name = split_point(point)
    env = environment()
    here = env.host.node_name()
    with env.logged("snapshot", device=device.value, command_line=f"snapshot unexport {point}"):
        unexport_point(device, name, here)
    data: snapshot_documents.Unexported = {"device": device.value, "name": name, "node": here}
    finish(output, data=data, text=lambda: print(f"{point} is not exported any more on {here}"))


@click.command()
@output_option
def exports(output: str) -> None:
    """List the restore points that this node exports, and to whom."""
    env = environment()
    here = env.host.node_name()
    found = lio_export.listed()
    data: list[snapshot_documents.Export] = [
        {
            "device": each.device,
            "name": each.point,
            "node": here,
            "target": each.iqn,
            "portals": list(each.portals),
            "initiators": list(each.initiators),
        }
        for each in found
    ]

    def text() -> None:
        if not found:
            print(f"{here} exports no restore point")
            return
        print_table(
            ("RESTORE POINT", "TARGET", "HOSTS"),
            (
                (f"{each.device}@{each.point}", each.iqn or "?", ", ".join(each.initiators))
                for each in found
            ),
        )

    finish(output, data=data, text=text)


def _made_data(made: NewExport, here: str) -> snapshot_documents.Export:
    return {
        "device": made.device,
        "name": made.point,
        "node": here,
        "target": made.iqn,
        "portals": list(made.portals),
        "initiators": list(made.logins),
    }
