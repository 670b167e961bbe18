# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl bench site`: a failover to a copy at a second site, and the way home."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sanctl.cli.options import output_option
from sanctl.lab.bench import bench_lab
from sanctl.lab.bench.bench_lab import lab_option, scenario_without
from sanctl.lab.bench.ledger_result import finish_bench
from sanctl.lab.bench.replication import PIECE_BYTES
from sanctl.lab.bench.site_round import (
    COMMAND_S,
    HOME,
    LEDGERS_BYTES,
    SITE,
    THERE,
    SiteBench,
)
from sanctl.lab.harness.scenario import Scenario, require
from sanctl.lab.harness.site_server import SiteServer, site_server
from sanctl.lab.measure import site_figures
from sanctl.lab.measure.site_figures import Return, SiteRound, Stage
from sanctl.model.names import ByteSize
from sanctl.plan.device.deletion import HOSTS_LOGGED_IN

if TYPE_CHECKING:
    from sanctl.lab.documents import second_site as documents

_FOLDER = "/srv/bench-site"
_MIN_BYTES = 32 << 20


@click.command("site")
@lab_option(needs="its pools are XFS")
@click.option("--size", default="128M", show_default=True, help="Size of the device.")
@click.option("--changed", default="3M", show_default=True,
              help="What is written there, in pieces of 64 KiB, beside the ledger.")  # fmt: skip
@click.option("--repeat", "count", type=click.IntRange(1, 100), default=3, show_default=True,
              help="How often the device is lost and comes home.")  # fmt: skip
@click.option("--report", "folder", type=click.Path(path_type=Path),
              default=Path("bench-site"), show_default=True,
              help="Folder for the figures, written after each round.")  # fmt: skip
@output_option
def site_command(
    *, name: str, size: str, changed: str, count: int, folder: Path, output: str
) -> None:
    """Go on from a copy at a second site, and come home, while a host writes.

    Makes the host the server of a second site. Each round creates a device and copies it, takes it
    from the host, makes another device of the chosen copy, and lets the host write there; then a
    failback while it writes, and another one by which the roles turn. Exits with 0 if each
    failover took 60 s at most, each turn left the host without an answer for 10 s at most, what
    came home was 1.1 times what differed at most, each device was equal to its copy, nothing was
    lost, and no request failed.
    """
    device_bytes, changed_bytes = ByteSize.parse(size).bytes, ByteSize.parse(changed).bytes
    if device_bytes < _MIN_BYTES or device_bytes % 2**20:
        raise click.UsageError(f"--size {size} is none of 32M or more, in whole MiB")
    if not PIECE_BYTES <= changed_bytes <= (device_bytes - LEDGERS_BYTES) // 2:
        raise click.UsageError(f"--changed {changed} is none of 64K to a half of --size less 12M")
    scenario = scenario_without(name, HOME)
    require(not scenario.exists(THERE), f"the lab has a device {THERE} already: delete it")
    bed, server = scenario.bed, scenario.host.name
    rounds: list[SiteRound] = []

    def data() -> dict[str, Any]:
        return {
            "device_bytes": device_bytes,
            "conditions": conditions(server),
            "versions": found_versions,
            "load_average": round(os.getloadavg()[2], 1),
            "failover_goal_s": site_figures.FAILOVER_GOAL_S,
            "turn_goal_s": site_figures.TURN_GOAL_S,
            "came_goal": site_figures.CAME_GOAL,
            "rounds": [_data(each) for each in rounds],
        }

    found_versions = bench_lab.versions(bed).splitlines()
    where = SiteServer(
        SITE, server, f"{_FOLDER}.img", _FOLDER, f"{_FOLDER}/sanctl",
        "/etc/sanctl/bench_site_key", (3 * device_bytes >> 20) + 256,
    )  # fmt: skip
    for number in range(count):
        click.echo(f"  round {number + 1} of {count}", err=True)
        with site_server(bed, where) as address, ExitStack() as stack:
            stack.callback(_remove_devices, scenario)
            rounds.append(SiteBench(scenario, device_bytes, changed_bytes).run(address, where))
            _write_figures(folder, data())
    click.echo(f"figures: {folder}/site.json", err=True)
    if output == "text":
        click.echo(site_figures.judgement(rounds))
    finish_bench(
        output,
        {
            "acknowledged": sum(each.acknowledged for each in rounds),
            "lost": sum(each.lost for each in rounds),
            "errors": sum(each.errors for each in rounds),
        },
        columns=site_figures.COLUMNS,
        rows=site_figures.rows(rounds),
        data=data(),
        is_good=site_figures.is_good(rounds),
    )


def conditions(server: str) -> list[str]:
    """Say what the figures depend on."""
    return [
        f"{server} is the host that writes and the site's server at once, and one cluster plays"
        " the one that is lost and the other one",
        "the loss: the host's ledger is ended, and the host logged out; no node loses power, and"
        " nothing is denied at home: a 'target allow' would be a part of the turn",
        "the times are those of commands typed one after the other at once, by ssh; nobody thinks",
        "differed: blocks of 4 KiB, of what was random beside the ledgers' blocks, which compress",
    ]


def _remove_devices(scenario: Scenario) -> None:
    """End the ledgers and remove both devices, whatever is there of them; each in any case."""
    with ExitStack() as stack:
        for device in (HOME, THERE):
            stack.callback(_remove_device, scenario, device)
        # First, before a device is deleted: a write that waits for a path would hang for ever.
        for device in (HOME, THERE):
            stop: Callable[[], str] = functools.partial(
                scenario.host.sh,
                f"systemctl stop ledger-{device} 2>/dev/null || true",
                timeout_s=150,
            )
            stack.callback(stop)


def _remove_device(scenario: Scenario, device: str) -> None:
    scenario.host.logout(f"{scenario.iqn_prefix()}.{device}")
    if scenario.exists(device):
        scenario.sanctl(
            "device", "delete", device, "--yes", "--with-points", "--accept", HOSTS_LOGGED_IN,
            timeout_s=COMMAND_S,
        )  # fmt: skip


def _write_figures(folder: Path, data: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "site.json").write_text(json.dumps(data, indent=2) + "\n")


def _data(each: SiteRound) -> documents.SiteRoundFigures:
    return {
        "failover_s": round(each.failover_s, 3),
        "failover_stages": [_stage(stage) for stage in each.failover_stages],
        "turn_s": round(each.turn_s, 3),
        "turn_stages": [_stage(stage) for stage in each.turn_stages],
        "running_s": round(each.running_s, 1),
        "running_pause_s": round(each.running_pause.seconds, 3),
        "running": _returned(each.running),
        "last": _returned(each.last),
        "ratio": round(each.ratio, 4),
        "tried_again": list(each.codes),
        "acknowledged": each.acknowledged,
        "lost": each.lost,
        "errors": each.errors,
        "faults": list(each.faults),
    }


def _stage(stage: Stage) -> documents.SiteStage:
    return {"stage": stage.name, "took_s": round(stage.seconds, 3)}


def _returned(found: Return) -> documents.SiteReturn:
    return {"changed_bytes": found.changed_bytes, "came_bytes": found.came_bytes}
