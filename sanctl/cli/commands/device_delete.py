# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl device delete`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from functools import partial

import click

from sanctl.cli.environment import Environment, environment
from sanctl.cli.options import (
    accept_option,
    devices_timeout_option,
    output_option,
    yes_option,
)
from sanctl.cli.output import finish
from sanctl.drivers import node_channel
from sanctl.errors import Problem, Refused, SanctlError, UsageError
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName, NodeName
from sanctl.ops.device_delete import delete_devices
from sanctl.plan.device.deletion import (
    HOSTS_LOGGED_IN,
    refuse_deletions,
    refuse_others,
    refuse_while_logged_in,
    uuids_of,
)
from sanctl.plan.device.restore_points import refuse_with_points
from sanctl.plan.site.takeover import deletion_note


@click.command(short_help="Delete devices and their data on every node.")
@click.argument("names", nargs=-1, required=True, metavar="NAME")
@click.option("--with-points", is_flag=True, help="Delete their restore points, too.")
@yes_option
@accept_option
@devices_timeout_option
@output_option
def delete(
    *,
    names: tuple[str, ...],
    with_points: bool,
    yes: bool,
    accepted: tuple[str, ...],
    timeout_s: float | None,
    output: str,
) -> None:
    """Delete devices and their data on every node. Run again, it finishes what it began.

    Several devices are stopped by one change of the cluster: all of them, or none where one cannot
    be deleted. No host may be logged in.
    """
    env = environment()
    wanted = _parsed(names)
    if timeout_s is None:
        timeout_s = 180.0 + 20.0 * (len(wanted) - 1)
    with env.session() as session:
        cluster = session.observe()
        shown = uuids_of(cluster, wanted)

        def check(seen: Cluster) -> None:
            refuse_others(seen, shown)
            if not with_points:
                _refuse_points(seen, wanted)
            if HOSTS_LOGGED_IN not in accepted:
                # After the CIB, so never older than it.
                refuse_while_logged_in(seen, wanted, session.host_sessions())

        refuse_deletions(cluster, wanted)
        check(cluster)
        if not yes:
            _ask(cluster, wanted)
        with env.logged(
            "delete",
            device=names[0] if len(wanted) == 1 else "",
            command_line=f"device delete {' '.join(names)}",
        ):
            away = delete_devices(
                session, wanted, timeout_s=timeout_s, tell=partial(_tell, env), check=check
            )

    def text() -> None:
        for name in wanted:
            print(f"device {name} is deleted")
            for node in away[name]:
                print(f"node {node} is away: it removes its replica when it is back")

    data = [{"name": name.value, "away": [node.value for node in away[name]]} for name in wanted]
    finish(output, data=data[0] if len(data) == 1 else data, text=text)


def _tell(env: Environment, nodes: Collection[NodeName]) -> None:
    """Have these nodes look for their tombstones now; one that cannot be told does so by itself."""
    with contextlib.suppress(SanctlError):
        topology = env.topology()
        here = topology.node(os.uname().nodename)
        for node in topology.storage_nodes if here is not None else ():
            if here is not None and node.name in nodes:
                with contextlib.suppress(SanctlError):
                    node_channel.ask_to_look_for_deleted(
                        str(node.sync), str(node.name), str(here.sync)
                    )


def _parsed(names: tuple[str, ...]) -> tuple[DeviceName, ...]:
    """Return the names, each once.

    Raises:
        UsageError: some are no names of devices; all are listed.
    """
    parsed: dict[DeviceName, None] = {}
    problems: list[Problem] = []
    for name in names:
        try:
            parsed[DeviceName.parse(name)] = None
        except UsageError as error:
            problems.extend(error.problems)
    if problems:
        raise UsageError(*problems)
    return tuple(parsed)


def _refuse_points(cluster: Cluster, names: tuple[DeviceName, ...]) -> None:
    """Raise Refused if one of the devices has restore points, also of one that is stopped."""
    problems: list[Problem] = []
    for name in names:
        try:
            refuse_with_points(cluster, name)
        except Refused as error:
            problems.extend(error.problems)
    if problems:
        raise Refused(*problems)


def _ask(cluster: Cluster, names: tuple[DeviceName, ...]) -> None:
    """Say which data will be lost, and ask; no answer but yes goes on."""
    for name in names:
        found = cluster.cib.device(name)
        size = f" of {found.size}" if found else ""
        note = deletion_note(found) if found else ""
        click.echo(
            f"device {name}{size}: its data will be lost. {note}What a host still writes to it "
            "gets no error where multipath queues: it waits, for a new device of the same name, "
            "too.",
            err=True,
        )
    which = f"device {names[0]}" if len(names) == 1 else f"these {len(names)} devices"
    click.confirm(f"Delete {which}?", abort=True, err=True)
