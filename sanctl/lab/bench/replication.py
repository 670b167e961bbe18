# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl bench replicate`: what copies to a second site send, and what hosts notice.

`CopyBench.run` makes one copy under a running ledger, and compares it with the one before, its
restore point and the host's log.
"""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sanctl.cli.options import output_option
from sanctl.errors import CommandError, Problem
from sanctl.lab.bench import bench_lab
from sanctl.lab.bench.bench_lab import lab_option, remove_device, scenario_without, start_load
from sanctl.lab.bench.ledger_result import close_load, finish_bench
from sanctl.lab.harness import collect, point_copies
from sanctl.lab.harness.failover import LedgerLoad, await_writes
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.harness.site_server import SiteServer, site_server
from sanctl.lab.machines.spec import Network
from sanctl.lab.measure import copy_figures, ledger_latency
from sanctl.lab.measure.copy_figures import CopyRun
from sanctl.model.names import ByteSize

if TYPE_CHECKING:
    from sanctl.lab.documents import second_site as documents

_DEVICE = "bench-replicate"
_SITE = "bench"
_FOLDER = "/srv/bench-site"
_REGION_BYTES = 4 * 2**20
_WRITES_PER_S = 100.0
PIECE_BYTES = 64 << 10
_COMMAND_S = 580.0
_BEFORE_S = 5.0
#: A busy machine may not make the restore point within half a second: so many tries.
_TRIES = 5
_POINT_NOT_IN_TIME = "SAN-SNAP-007"
_MIN_BYTES = 32 << 20

#: Writes pieces of random bytes at even distances of a stretch of the device.
CHANGE = """
import os, sys
path, begin, end, count, length = sys.argv[1], *map(int, sys.argv[2:])
step = (end - begin) // count // 4096 * 4096
handle = os.open(path, os.O_WRONLY)
for number in range(count):
    os.pwrite(handle, os.urandom(length), begin + number * step)
os.fsync(handle)
"""
#: Prints in how many bytes, by blocks of 4 KiB, a file differs from another one, or from zeros:
#: before a position, and from there on.
_COMPARE = """
import sys
border, new = int(sys.argv[1]), open(sys.argv[2], "rb")
old = open(sys.argv[3], "rb") if len(sys.argv) > 3 else None
changed, begin = [0, 0], 0
while data := new.read(1 << 20):
    before = old.read(1 << 20) if old else bytes(len(data))
    if data != before:
        for at in range(0, len(data), 4096):
            changed[begin + at >= border] += data[at : at + 4096] != before[at : at + 4096]
    begin += len(data)
print(*(count * 4096 for count in changed))
"""
_SENT = (
    "name=$(ip -o route get {address} | grep -o 'dev [^ ]*' | cut -c5-);"
    " cat /sys/class/net/$name/statistics/tx_bytes"
)


class CopyBench:
    """The device with its ledger, and the site; makes one copy after the other."""

    def __init__(self, load: LedgerLoad, server: str, device_bytes: int) -> None:
        self._load = load
        self._server = server
        self._device_bytes = device_bytes
        self._sent = _SENT.format(address=load.bed.node(server).address(Network.ISCSI))
        #: The file of the copy before, and since when the host may have changed more: the ledger
        #: writes already.
        self._before, self._since_s = "", 0.0

    def change(self, changed_bytes: int) -> int:
        """Have the host write so much behind the ledger's blocks; return how much, for certain."""
        count = changed_bytes // PIECE_BYTES
        self._load.bed.sh(
            self._load.host.name,
            f"python3 - {self._load.run.device} {_REGION_BYTES} {self._device_bytes} {count}"
            f" {PIECE_BYTES}",
            stdin=CHANGE,
            timeout_s=_COMMAND_S,
        )
        return count * PIECE_BYTES

    def run(self, written_bytes: int) -> CopyRun:
        """Make one copy, and measure what was sent and what the host saw of it.

        Args:
            written_bytes: what the host has written since the copy before, beside the ledger.

        Raises:
            CommandError: no copy was made, or it cannot be read.
        """
        load, bed = self._load, self._load.bed
        node = load.peer_of(collect.active_node(bed, _DEVICE))
        codes: list[str] = []
        with load.host.watch_ledger(load.run) as states:
            await_writes(load, states)
            time.sleep(_BEFORE_S)
            while True:
                began_s, sent_before = time.time(), int(bed.sh(node, self._sent).stdout)
                is_made, result = self._copy(node)
                ended_s, sent_after = time.time(), int(bed.sh(node, self._sent).stdout)
                if is_made:
                    break
                problem = result["problems"][0]
                codes.append(problem["code"])
                if codes[-1] != _POINT_NOT_IN_TIME or len(codes) == _TRIES:
                    raise CommandError(Problem(problem["code"], problem["text"]))
            await_writes(load, states)
        records = load.host.fetch_log(load.run)[1]
        made: dict[str, Any] = result["data"]
        ledger_bytes, changed_bytes = self._changed_bytes(made["file"])
        line_bytes, sent_bytes = sent_after - sent_before, int(made["copy"]["sent_bytes"])
        faults = copy_figures.find_faults(
            changed_bytes=changed_bytes,
            written_bytes=written_bytes,
            ledger_bytes=ledger_bytes,
            most_ledger_bytes=copy_figures.most_changed_bytes(records, self._since_s, ended_s),
            sent_bytes=sent_bytes,
            line_bytes=line_bytes,
        )
        is_first = not self._before
        run = CopyRun(
            is_first=is_first,
            codes=tuple(codes),
            made_s=_seconds(made["copy"]["made"]),
            proven_s=_seconds(made["copy"]["proven"]),
            seconds=ended_s - began_s,
            changed_bytes=changed_bytes,
            ledger_bytes=ledger_bytes,
            sent_bytes=sent_bytes,
            line_bytes=line_bytes,
            pause=ledger_latency.find_pause(records, began_s, ended_s),
            before_s=ledger_latency.find_pause(records, began_s - _BEFORE_S, began_s).seconds,
            faults=(*faults, *self._find_differences(made, node)),
        )
        self._before, self._since_s = made["file"], began_s
        load.print_line(
            f"{'the first copy' if is_first else made['copy']['point']}: {changed_bytes} changed,"
            f" {sent_bytes} sent, {run.ratio:.3f}, {run.seconds:.1f} s, longest pause"
            f" {run.pause.seconds * 1000:.0f} ms, {run.before_s * 1000:.0f} ms before"
        )
        for fault in run.faults:
            load.print_line(fault)
        return run

    def _copy(self, node: str) -> tuple[bool, dict[str, Any]]:
        done = self._load.bed.sh(
            node,
            f"sanctl replicate run {_DEVICE} --to {_SITE} --keep 2 --output json",
            timeout_s=_COMMAND_S,
            ok=range(256),
        )
        return done.status == 0, json.loads(done.stdout)

    def _changed_bytes(self, file: str) -> tuple[int, int]:
        """Return what differs from the copy before: of the ledger's blocks, and behind them."""
        done = self._load.bed.sh(
            self._server,
            f"python3 - {_REGION_BYTES} {file} {self._before}",
            stdin=_COMPARE,
            timeout_s=_COMMAND_S,
        )
        of_ledger, behind = map(int, done.stdout.split())
        return of_ledger, behind

    def _find_differences(self, made: dict[str, Any], node: str) -> list[str]:
        """Return what the copy has against being its restore point, and one state of the log."""
        load, point = self._load, f"{_DEVICE}@{made['copy']['point']}"
        shown = load.bed.sh(node, f"sanctl snapshot show {point} --output json").stdout
        files = {node: json.loads(shown)["data"]["file"], self._server: made["file"]}
        digests = {
            where: load.bed.sh(where, f"sha256sum <{file}", timeout_s=_COMMAND_S).stdout
            for where, file in files.items()
        }
        found = [f"{made['file']} differs from {point}"] if len({*digests.values()}) > 1 else []
        return found + point_copies.find_faults(load, made["file"], [self._server])


@click.command("replicate")
@lab_option(needs="its pools are XFS")
@click.option("--size", default="128M", show_default=True, help="Size of the device.")
@click.option("--changed", default="3M", show_default=True,
              help="What is written between two copies, in pieces of 64 KiB.")  # fmt: skip
@click.option("--copies", "count", type=click.IntRange(2, 1000), default=6, show_default=True,
              help="How many copies are made, with the first one.")  # fmt: skip
@click.option("--every", "interval_s", type=click.IntRange(10), default=60, show_default=True,
              metavar="SECONDS", help="How often one is begun.")  # fmt: skip
@click.option("--report", "folder", type=click.Path(path_type=Path),
              default=Path("bench-replicate"), show_default=True,
              help="Folder for the figures, written after each copy.")  # fmt: skip
@output_option
def replicate_command(
    *, name: str, size: str, changed: str, count: int, interval_s: int, folder: Path, output: str
) -> None:
    """Copy a device to a second site, again and again, while a host writes to it.

    Creates a device, and makes the host the server of a second site. Each copy is compared as a
    whole with its restore point, with the copy before, and with what the host's log allows.
    Exits with 0 if all were sound, none sent more than 1.1 times what had changed, the newest one
    was never older than two intervals, nothing was lost, and no request failed.
    """
    device_bytes, changed_bytes = ByteSize.parse(size).bytes, ByteSize.parse(changed).bytes
    if device_bytes < _MIN_BYTES or device_bytes % 2**20:
        raise click.UsageError(f"--size {size} is none of 32M or more, in whole MiB")
    if not PIECE_BYTES <= changed_bytes <= (device_bytes - _REGION_BYTES) // 2:
        raise click.UsageError(f"--changed {changed} is none of 64K to a half of --size")
    scenario = scenario_without(name, _DEVICE)
    bed, server = scenario.bed, scenario.host.name
    runs: list[CopyRun] = []

    def data() -> dict[str, Any]:
        return {
            "device_bytes": device_bytes,
            "interval_s": interval_s,
            "conditions": conditions(server),
            "versions": found_versions,
            "load_average": round(os.getloadavg()[2], 1),
            "goal": copy_figures.SENT_GOAL,
            "worst_age_s": round(copy_figures.worst_age_s(runs), 1),
            "copies": [_data(run) for run in runs],
        }

    found_versions = bench_lab.versions(bed).splitlines()
    where = SiteServer(
        _SITE, server, f"{_FOLDER}.img", _FOLDER, f"{_FOLDER}/sanctl",
        "/etc/sanctl/bench_site_key", (3 * device_bytes >> 20) + 256,
    )  # fmt: skip
    with site_server(bed, where) as address:
        try:
            load = _open_load(scenario, device_bytes)
            scenario.sanctl(
                "site", "add", _SITE, "--ssh", address, "--path", where.path,
                "--identity", where.key, timeout_s=_COMMAND_S,
            )  # fmt: skip
            bench = CopyBench(load, server, device_bytes)
            written_bytes = device_bytes - _REGION_BYTES
            for number in range(count):
                began_s = time.monotonic()
                if number:
                    written_bytes = bench.change(changed_bytes)
                runs.append(bench.run(written_bytes))
                _write_figures(folder, data())
                if number + 1 < count:
                    time.sleep(max(0.0, interval_s - (time.monotonic() - began_s)))
            check = close_load(load)
        finally:
            remove_device(scenario, _DEVICE)
    click.echo(f"figures: {folder}/replicate.json", err=True)
    if output == "text":
        click.echo(copy_figures.judgement(runs, interval_s))
    finish_bench(
        output,
        check,
        columns=copy_figures.COLUMNS,
        rows=copy_figures.rows(runs),
        data=data(),
        is_good=copy_figures.is_good(runs, interval_s),
    )


def conditions(server: str) -> list[str]:
    """Say what the figures depend on."""
    return [
        f"{server} is the host that writes and the site's server at once",
        "changed: blocks of 4 KiB that differ from the copy before, as both are read at the site,"
        " of what is random; the ledger's blocks are sent beside them, and compress",
    ]


def _open_load(scenario: Scenario, device_bytes: int) -> LedgerLoad:
    target = scenario.create(_DEVICE, f"{device_bytes >> 20}M", prefer=_first(scenario.bed))
    path = scenario.host.login(target, scenario.portals())
    # All of it but the ledger's blocks: the first copy is of that.
    scenario.host.sh(
        f"dd if=/dev/urandom of={path} bs=1M seek={_REGION_BYTES >> 20}"
        f" count={device_bytes - _REGION_BYTES >> 20} oflag=direct status=none",
        timeout_s=_COMMAND_S,
    )
    return start_load(
        scenario, _DEVICE, target, path, rate=_WRITES_PER_S, region_bytes=_REGION_BYTES
    )


def _first(bed: LabSession) -> str:
    return bed.storage[0].name


def _seconds(utc: str) -> float:
    return datetime.fromisoformat(utc).timestamp()


def _write_figures(folder: Path, data: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "replicate.json").write_text(json.dumps(data, indent=2) + "\n")


def _data(run: CopyRun) -> documents.CopyFigures:
    return {
        "is_first": run.is_first,
        "failed": list(run.codes),
        "changed_bytes": run.changed_bytes,
        "ledger_bytes": run.ledger_bytes,
        "sent_bytes": run.sent_bytes,
        "line_bytes": run.line_bytes,
        "ratio": round(run.ratio, 4),
        "took_s": round(run.seconds, 1),
        "pause_s": round(run.pause.seconds, 3),
        "before_s": round(run.before_s, 3),
        "errors": run.pause.errors,
        "faults": list(run.faults),
    }
