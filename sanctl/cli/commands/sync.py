# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl sync status` and `watch`: progress of resyncs and verifies."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import output_option
from sanctl.cli.output import finish, make_table, print_table
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

_COLUMNS = ("DEVICE", "REPLICA ON", "STATE", "DONE", "LEFT", "RATE", "TIME LEFT")
_INTERVAL_S = 1.0

Running = tuple[tuple[str, RunningSync], ...]


@click.group(no_args_is_help=False)
def sync() -> None:
    """Resyncs and verifies: running, waiting, and the latest results."""


@sync.command()
@output_option
def status(output: str) -> None:
    """Show the resync or verify that runs for each replica, and the latest ones."""
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
            verified = cluster.cib.verifications.get((device.name.value, node.value))
            current = _running_on(running, device.name.value, node.value)
            data.append(
                {
                    "device": device.name.value,
                    "node": node.value,
                    "disk": replica.disk,
                    "replication": replica.replication,
                    "running": running_sync_data(current) if current else None,
                    "latest": resync_data(replica.resync) if replica.resync else None,
                    "verify": verify_data(verified) if verified else None,
                }
            )
    finish(output, data=data, text=text)


@sync.command()
def watch() -> None:
    """Show running resyncs and verifies every second, until none runs."""
    env = environment()
    with env.session() as session:
        if sys.stdout.isatty():
            _watch_live(session)
        else:
            while rows := list(_rows(session.observe(), session.running(), is_all=False)):
                for row in rows:
                    print("  ".join(cell for cell in row if cell), flush=True)
                session.clock.sleep(_INTERVAL_S)
            print("no resync or verify runs")


def _watch_live(session: Session) -> None:
    from rich.live import Live  # noqa: PLC0415 - only on a terminal

    with Live(auto_refresh=False) as live:
        while True:
            rows = list(_rows(session.observe(), session.running(), is_all=False))
            shown = make_table(_COLUMNS, rows) if rows else "no resync or verify runs"
            live.update(shown, refresh=True)
            if not rows:
                return
            session.clock.sleep(_INTERVAL_S)


def _running_on(running: Running, device: str, node: str) -> RunningSync | None:
    return next((r for where, r in running if where == node and r.device == device), None)


def _rows(cluster: Cluster, running: Running, *, is_all: bool) -> Iterator[tuple[str, ...]]:
    for device in cluster.cib.devices:
        for node in device.nodes:
            current = _running_on(running, device.name.value, node.value)
            if current is None:
                if is_all:
                    state = replica_text(cluster, device, node)
                    yield (device.name.value, node.value, state, "", "", "", "")
                continue
            state = f"waits {current.waits}" if current.waits else current.kind
            yield (
                device.name.value,
                node.value,
                state,
                progress_bar(current.done_percent),
                format_bytes(current.left_kib * 1024),
                f"{format_bytes(current.rate_kib_s * 1024)}/s",
                duration_text(current.left_s),
            )


def _latest(cluster: Cluster) -> Iterator[str]:
    for device in cluster.cib.devices:
        for node in device.nodes:
            resync = cluster.replica(device.name, node).resync
            if resync is not None:
                yield f"{device.name} on {node}: latest resync {resync_text(resync)}"
            verified = cluster.cib.verifications.get((device.name.value, node.value))
            if verified is not None:
                yield f"{device.name} on {node}: latest verify {verify_text(verified)}"
