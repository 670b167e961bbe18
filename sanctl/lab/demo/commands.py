# SPDX-License-Identifier: GPL-2.0-or-later
"""The course of `sanctl demo`: create devices, write, cut power, move back, print the verdict."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from sanctl.errors import ExitStatus
from sanctl.lab.demo import report
from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, run_sanctl
from sanctl.lab.harness.scenario import Scenario, await_members_online, require
from sanctl.lab.machines import lab_state
from sanctl.lab.machines.spec import DEFAULT_NAME
from sanctl.lab.measure.trial import Claim, Trial, judge

_FILES, _LEDGER = "demo-files", "demo-ledger"
_SIZES = {_FILES: "1G", _LEDGER: "512M"}
_REGION_BYTES = 64 * 2**20
# Well below what the laboratory can do: the pause is measured, not the throughput, and the two
# processors are left to the takeover.
_WRITES_PER_S = 200.0
_LAB_DEADLINE_S = 1200.0
_QUIET_S = 5.0


class DemoConsole:
    """Prints lines with the time since the start, and a live status below them."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began_s = time.monotonic()
        self._status = console.status("")
        self._doing = ""

    def print_line(self, text: str) -> None:
        """Print one line."""
        self.console.print(f"[dim]{time.monotonic() - self._began_s:6.1f} s[/]  {text}")

    @contextlib.contextmanager
    def during(self, doing: str) -> Iterator[None]:
        """Show what is being done while it is."""
        self.print_line(doing)
        self._doing = doing
        self._status.update(doing)
        self._status.start()
        try:
            yield
        finally:
            self._status.stop()

    def show_ledger(self, ledger: Mapping[str, Any]) -> None:
        """Show the ledger's state in the live status."""
        silent_s = ledger["silent_s"]
        now = (
            f"{ledger['rate']} writes/s" if silent_s < 1 else f"[red]no answer for {silent_s} s[/]"
        )
        self._status.update(f"{self._doing}: {now}, {ledger['acked']} acknowledged")


@click.command()
@click.option("--name", envvar="SANCTL_LAB", default=DEFAULT_NAME, show_default=True,
              help="The lab it runs in.")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Destroy that lab first, with all its devices.")
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True,
              help="Crashes, and as many moves; medians are shown.")  # fmt: skip
@click.option("--report", "folder", type=click.Path(path_type=Path), default="demo-report",
              show_default=True, help="Folder for the picture and the logs.")  # fmt: skip
def demo(name: str, fresh: bool, repeat: int, folder: Path) -> None:
    """A device that survives the crash of its server, before your eyes.

    Boots a lab (or takes the one that is there), exports two devices to a host, writes to them,
    cuts the power of the active server, lets it come back, moves the devices home. Exits with 0
    only if no acknowledged write was lost and every other promise held.
    """
    demo_console = DemoConsole(Console())
    if fresh and lab_state.find(name) is not None:
        run_sanctl("lab", "destroy", "--name", name, timeout_s=120)
    run_sanctl("lab", "up", "--name", name, timeout_s=_LAB_DEADLINE_S)
    bed = LabSession(name)
    scenario = Scenario(bed, Initiator(bed, "i1"))
    load = _set_up(demo_console, scenario)
    trials = []
    for _ in range(repeat):
        trials += _crash_and_move_back(demo_console, load)
    claims = _finish(demo_console, scenario, load, trials, folder)
    report.print_verdict(demo_console.console, claims)
    demo_console.print_line(f"written: {folder}/summary.md, latency.png, timeline.json, ledger.log")
    suffix = "" if name == DEFAULT_NAME else f" --name {name}"
    demo_console.print_line(
        f"the lab stays up: sanctl lab ssh{suffix} n1 sanctl status; sanctl lab power{suffix} "
        f"n1 off; sanctl lab ssh{suffix} i1; it ends with sanctl lab down{suffix}"
    )
    if not all(claim.is_held for claim in claims):
        raise click.exceptions.Exit(ExitStatus.DEGRADED)


def _set_up(demo_console: DemoConsole, scenario: Scenario) -> LedgerLoad:
    """Create the devices, log the host in and start the load."""
    bed, host = scenario.bed, scenario.host
    home = bed.storage[0].name
    with demo_console.during("waiting for the cluster"):
        await_members_online(bed)
        scenario.unmount()
        for device in (_FILES, _LEDGER):
            if scenario.exists(device):
                demo_console.print_line(f"{device} is left from an earlier run: deleted")
                scenario.delete(device)
    for device, size in _SIZES.items():
        demo_console.print_line(f"sanctl device create {device} --size {size} --prefer {home}")
    # At the same time, each from another node: only the CIB serialises them.
    with demo_console.during("both are being created"), ThreadPoolExecutor() as pool:
        creations = {
            device: pool.submit(scenario.create, device, size, prefer=home, node=node.name)
            for (device, size), node in zip(_SIZES.items(), bed.storage, strict=True)
        }
        targets = {device: creation.result() for device, creation in creations.items()}
    with demo_console.during(f"{host.name} logs in to {' and '.join(scenario.portals())}"):
        paths = {
            device: host.login(target, scenario.portals()) for device, target in targets.items()
        }
    with demo_console.during(f"mkfs.ext4 on {paths[_FILES]}, mount, a file with its checksum"):
        scenario.mount_with_file(paths[_FILES])
    with demo_console.during(f"ledger of 4 KiB writes on {paths[_LEDGER]}"):
        return scenario.start_load(
            _LEDGER,
            targets[_LEDGER],
            paths[_LEDGER],
            rate=_WRITES_PER_S,
            region_bytes=_REGION_BYTES,
            print_line=demo_console.print_line,
            show_ledger=demo_console.show_ledger,
        )


def _crash_and_move_back(demo_console: DemoConsole, load: LedgerLoad) -> list[Trial]:
    """One crash of the active node, and the planned move back to it when it has returned."""
    home = collect.active_node(load.bed, load.device)
    # A few seconds of undisturbed writes for the chart. After the crash and after the move there
    # are some anyway: the wait for the node's return, and the other device's move.
    time.sleep(_QUIET_S)
    with demo_console.during(f"power cut of {home}, which serves the devices"):
        crash = failover.measure_crash(load)
    report.print_trial(demo_console.console, crash)
    with demo_console.during(f"sanctl device move {load.device} --to {home}"):
        move = failover.measure_move(load, home)
        load.bed.sh(home, f"sanctl device move {_FILES} --to {home}", timeout_s=120)
    report.print_trial(demo_console.console, move)
    return [crash, move]


def _finish(
    demo_console: DemoConsole,
    scenario: Scenario,
    load: LedgerLoad,
    trials: list[Trial],
    folder: Path,
) -> list[Claim]:
    """End the load, check what it left, and write the report."""
    with demo_console.during("reading every block and the file back"):
        scenario.host.stop_ledger(load.run)
        check = scenario.host.check_ledger(load.run)
        is_intact = scenario.is_file_intact()
    claims = [
        *judge(trials, [check]),
        Claim(
            text=f"the file on {_FILES} is unchanged, and its filesystem writable",
            measured="sha256 matches" if is_intact else "it is not",
            is_held=is_intact,
        ),
    ]
    with demo_console.during(f"writing {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        log = scenario.bed.read_bytes(scenario.host.name, load.run.log)
        (folder / "ledger.log").write_bytes(log)
        records = scenario.host.fetch_log(load.run)[1]
        require(bool(records), "the ledger's log is empty")
        report.write_folder(folder, trials, [check], claims, records)
    return claims
