# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands `sanctl sync ...`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import output_option
from sanctl.cli.output import finish, print_table
from sanctl.cli.views.device import replica_text
from sanctl.cli.views.sync import (
    duration_text,
    progress_bar,
    resync_data,
    resync_text,
    running_sync_data,
    verify_data,
    verify_text,
)
from sanctl.model.cluster import Cluster
from sanctl.model.names import format_bytes
from sanctl.model.resync_record import RunningSync
from sanctl.ops.session import Session

_COLUMNS = ("DEVICE", "COPY ON", "STATE", "DONE", "LEFT", "RATE", "TIME LEFT")
_LOOK_EVERY_S = 1.0

Seen = tuple[tuple[str, RunningSync], ...]


@click.group(no_args_is_help=False)
def sync() -> None:
    """Resyncs and verifies: what runs, what waits, what the latest ones moved and found."""


@sync.command()
@output_option
def status(output: str) -> None:
    """Show for each copy of each device what runs there, and the latest resync and verify."""
    env = environment()
    with env.session() as session:
        cluster, running = session.observe(), session.running()

    def text() -> None:
        print_table(_COLUMNS, _rows(cluster, running, is_all=True))
        for line in _latest(cluster):
            print(line)

    data = []
    for device in cluster.cib.devices:
        for node in device.nodes:
            replica = cluster.replica(device.name, node)
            told = cluster.cib.verifications.get((device.name.value, node.value))
            here = _running_on(running, device.name.value, node.value)
            data.append(
                {
                    "device": device.name.value,
                    "node": node.value,
                    "disk": replica.disk,
                    "replication": replica.replication,
                    "running": running_sync_data(here) if here else None,
                    "latest": resync_data(replica.resync) if replica.resync else None,
                    "verify": verify_data(told) if told else None,
                }
            )
    finish(output, data=data, text=text)


@sync.command()
def watch() -> None:
    """Show what runs, again every second, until nothing does any more."""
    env = environment()
    with env.session() as session:
        if sys.stdout.isatty():
            _watch_live(session)
        else:
            while rows := list(_rows(session.observe(), session.running(), is_all=False)):
                for row in rows:
                    print("  ".join(cell for cell in row if cell), flush=True)
                session.clock.sleep(_LOOK_EVERY_S)
            print("nothing runs")


def _watch_live(session: Session) -> None:
    from rich.live import Live  # noqa: PLC0415 - only on a terminal
    from rich.table import Table  # noqa: PLC0415

    with Live(refresh_per_second=4) as live:
        while True:
            rows = list(_rows(session.observe(), session.running(), is_all=False))
            table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
            for column in _COLUMNS:
                table.add_column(column)
            for row in rows:
                table.add_row(*row)
            live.update(table if rows else "nothing runs")
            if not rows:
                return
            session.clock.sleep(_LOOK_EVERY_S)


def _running_on(running: Seen, device: str, node: str) -> RunningSync | None:
    return next((r for where, r in running if where == node and r.device == device), None)


def _rows(cluster: Cluster, running: Seen, *, is_all: bool) -> Iterator[tuple[str, ...]]:
    for device in cluster.cib.devices:
        for node in device.nodes:
            here = _running_on(running, device.name.value, node.value)
            if here is None:
                if is_all:
                    command_line = replica_text(cluster, device, node)
                    yield (device.name.value, node.value, command_line, "", "", "", "")
                continue
            state = f"waits {here.waits}" if here.waits else here.kind
            yield (
                device.name.value,
                node.value,
                state,
                progress_bar(here.done_percent),
                format_bytes(here.left_kib * 1024),
                f"{format_bytes(here.rate_kib_s * 1024)}/s",
                duration_text(here.left_s),
            )


def _latest(cluster: Cluster) -> Iterator[str]:
    for device in cluster.cib.devices:
        for node in device.nodes:
            resync = cluster.replica(device.name, node).resync
            if resync is not None:
                yield f"{device.name} on {node}: latest resync {resync_text(resync)}"
            told = cluster.cib.verifications.get((device.name.value, node.value))
            if told is not None:
                yield f"{device.name} on {node}: latest verify {verify_text(told)}"
