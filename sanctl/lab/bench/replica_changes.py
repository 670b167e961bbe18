# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes where a device's copies are under a running ledger, and measures what it cost the host.

Also the command `sanctl bench levels`, which prints the table of the documentation.
"""

from __future__ import annotations

import itertools
import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from sanctl.cli.output import finish, output_option, print_table
from sanctl.errors import ExitStatus
from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import Load, await_writes
from sanctl.lab.harness.initiator import Host
from sanctl.lab.harness.lab_session import Bed
from sanctl.lab.harness.scenario import Scene, require
from sanctl.lab.machines.spec import DEFAULT_NAME
from sanctl.lab.measure import audit, ledger_latency, timeline
from sanctl.model.names import ByteSize, format_bytes

if TYPE_CHECKING:
    from sanctl.lab import documents
    from sanctl.lab.measure.ledger_latency import Pause

#: What a device must keep to under a steady load while its level changes, in seconds.
PAUSE_GOAL_S = 1.0
_DEADLINE_S = 480.0
_SYNC_COUNTER = "/sys/class/net/sync0/statistics/tx_bytes"
_DEVICE = "bench-levels"
_REGION_BYTES = 64 * 2**20
_WRITES_PER_S = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelTrial:
    """One change of a device's copies under the ledger.

    Attributes:
        before: the nodes that had copies.
        after: the nodes that have copies now.
        seconds: what the command took.
        pause: the longest time the host had no answer, from the command to a little after it.
        sessions_kept: each session that the host had to a node with a copy before and after is the
            same.
        written_bytes: of distinct blocks the host wrote meanwhile.
        copied_bytes: what DRBD says it had to copy; 0 where nothing was to copy.
        sent_bytes: what the serving node sent on the sync network meanwhile.
        violations: what the audit of all kernels had against it, during and after.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    seconds: float
    pause: Pause
    sessions_kept: bool
    written_bytes: int
    copied_bytes: int
    sent_bytes: int
    violations: tuple[str, ...]

    @property
    def name(self) -> str:
        """Say which change it was."""
        return f"{len(self.before)} -> {len(self.after)}"


def change(load: Load, *words: str) -> LevelTrial:
    """Run `sanctl device replicas NAME WORDS` and return what it cost the host.

    Raises:
        CommandError: the command failed.
    """
    bed, device = load.bed, load.device
    source = collect.active_node(bed, device)
    before = copies(bed, source, device)
    ids_before = load.sessions()
    with load.host.watch_ledger(load.run) as states:
        await_writes(load, states)
        sent = _sent_bytes(bed, source)
        began_s = time.time()
        load.tell(f"device replicas {device} {' '.join(words)}")
        bed.sh(
            source, f"sanctl device replicas {device} {shlex.join(words)}", timeout_s=_DEADLINE_S
        )
        ended_s = time.time()
        sent = _sent_bytes(bed, source) - sent
        violations = audit.violations(collect.views(bed))
        await_writes(load, states)
    after = copies(bed, source, device)
    ids_after = load.sessions()
    stayed = {
        node.name: load_portal
        for node in bed.storage
        if node.name in before and node.name in after
        for load_portal in Scene(bed, load.host).portals([node.name])
    }
    records = load.host.fetch_log(load.run)[1]
    # DRBD 9 may have another copy feed a new one than that which serves.
    entries = collect.journals(bed, before, began_s - 1.0)
    return LevelTrial(
        before=before,
        after=after,
        seconds=ended_s - began_s,
        pause=ledger_latency.find_pause(records, began_s, ended_s),
        # A host does not log in to a copy that is new unless somebody has it discover again.
        sessions_kept=all(
            ids_before[portal] == ids_after.get(portal)
            for portal in stayed.values()
            if portal in ids_before
        ),
        written_bytes=ledger_latency.bytes_written(records, began_s, ended_s),
        copied_bytes=timeline.resync_bytes(entries, load.minor, began_s) or 0,
        sent_bytes=sent,
        violations=tuple(violations),
    )


def copies(bed: Bed, node: str, device: str) -> tuple[str, ...]:
    """Return the nodes that the cluster says hold a copy of a device."""
    out = bed.sh(node, f"sanctl device show {device} --output json", timeout_s=60).stdout
    return tuple(each["node"] for each in json.loads(out)["data"]["replicas"])


def _sent_bytes(bed: Bed, node: str) -> int:
    return int(bed.sh(node, f"cat {_SYNC_COUNTER}").stdout)


def open_load(
    scene: Scene, device: str, size: str, nodes: Sequence[str], *, cache: str = "none"
) -> Load:
    """Create a device with copies on these nodes, and write a ledger on it from the host."""
    target = scene.create(device, size, prefer=nodes[0], nodes=nodes, cache=cache)
    path = scene.host.login(target, scene.portals(nodes))
    return scene.start_load(
        device,
        target,
        path,
        rate=_WRITES_PER_S,
        region_bytes=_REGION_BYTES,
        tell=lambda text: click.echo(f"  {text}", err=True),
        show=lambda _state: None,
    )


def close_load(load: Load) -> dict[str, Any]:
    """End the ledger and return what its checker says of every block that was written."""
    load.host.stop_ledger(load.run)
    return load.host.check_ledger(load.run)


@click.command("levels")
@click.option("--name", envvar="SANCTL_LAB", default=DEFAULT_NAME, show_default=True,
              help="The lab it runs in.")  # fmt: skip
@click.option("--size", default="256M", show_default=True, help="Size of the device.")
@click.option("--levels", "course", default="2,1,2", show_default=True, metavar="N,N,…",
              callback=lambda _context, _option, text: _course(text),
              help="The copies it has, one after the other; 3 and 4 need DRBD 9.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True,
              help="How often it goes that way.")  # fmt: skip
@output_option
def levels_command(
    *, name: str, size: str, course: tuple[int, ...], repeat: int, output: str
) -> None:
    """A device's copies come and go while a host writes to it.

    Makes a device, writes 4 KiB blocks through iSCSI all the time, changes the level, and reads
    every acknowledged block back. Exits with 0 if nothing was lost, no request failed, no session
    ended, and no pause was longer than a second.
    """
    scene = Scene(Bed(name), Host(Bed(name), "i1"))
    require(not scene.exists(_DEVICE), f"the lab has a device {_DEVICE} already: delete it")
    nodes = [node.name for node in scene.bed.storage]
    require(max(course) <= len(nodes), f"the lab has {len(nodes)} storage nodes")
    trials: list[LevelTrial] = []
    try:
        load = open_load(scene, _DEVICE, size, nodes[: course[0]])
        for before, after in itertools.pairwise(course * repeat):
            trials += [change(load, *words) for words in _words(nodes, before, after)]
        check = close_load(load)
    finally:
        # Before its device goes: a write that waits for a path would keep it for ever.
        scene.host.sh(f"systemctl stop ledger-{_DEVICE} 2>/dev/null || true", timeout_s=150)
        if scene.exists(_DEVICE):
            scene.delete(_DEVICE)
    is_good = check["lost"] == check["errors"] == 0 and all(
        trial.sessions_kept
        and not trial.violations
        and trial.pause.errors == 0
        and trial.pause.seconds < PAUSE_GOAL_S
        for trial in trials
    )

    def text() -> None:
        print_table(_COLUMNS, [_row(trial) for trial in trials])
        click.echo(
            f"{check['acknowledged']} writes acknowledged, {check['lost']} lost, "
            f"{check['errors']} errors"
        )

    finish(
        output,
        data={
            "device_bytes": ByteSize.parse(size).bytes,
            "acknowledged": check["acknowledged"],
            "lost": check["lost"],
            "errors": check["errors"],
            "changes": [_data(trial) for trial in trials],
        },
        text=text,
        status=ExitStatus.OK if is_good else ExitStatus.DEGRADED,
    )


def _course(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if len(words) < 2 or not all(word in {"1", "2", "3", "4"} for word in words):
        raise click.BadParameter("two or more of 1, 2, 3 and 4, as in 2,1,2")
    return tuple(map(int, words))


def _words(nodes: Sequence[str], before: int, after: int) -> list[tuple[str, ...]]:
    """Return what the command is told to get from one level to another; nothing if it is there."""
    if before == after:
        return []
    option = "--add" if after > before else "--drop"
    named = nodes[min(before, after) : max(before, after)]
    return [(str(after), *(word for node in named for word in (option, node)))]


_COLUMNS = (
    "CHANGE", "LONGEST PAUSE", "ERRORS", "LOGOUTS", "WRITTEN", "TO COPY", "SENT (SYNC)", "TOOK",
)  # fmt: skip


def _row(trial: LevelTrial) -> tuple[str, ...]:
    return (
        trial.name,
        f"{trial.pause.seconds:.2f} s",
        str(trial.pause.errors),
        "0" if trial.sessions_kept else "1 or more",
        format_bytes(trial.written_bytes),
        format_bytes(trial.copied_bytes),
        format_bytes(trial.sent_bytes),
        f"{trial.seconds:.0f} s",
    )


def _data(trial: LevelTrial) -> documents.LevelChange:
    return {
        "before": list(trial.before),
        "after": list(trial.after),
        "took_s": round(trial.seconds, 1),
        "pause_s": round(trial.pause.seconds, 3),
        "errors": trial.pause.errors,
        "sessions_kept": trial.sessions_kept,
        "written_bytes": trial.written_bytes,
        "copied_bytes": trial.copied_bytes,
        "sent_bytes": trial.sent_bytes,
        "violations": list(trial.violations),
    }
