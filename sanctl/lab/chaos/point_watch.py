# SPDX-License-Identifier: GPL-2.0-or-later
"""Restore points at random moments beside the faults, each judged once the cluster has recovered.

A restore point that is in the CIB has to be right: its copies are equal, and are a state that the
ledger's log allows. That none was made is no problem, if the command says why.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from sanctl.errors import CommandError, Problem
from sanctl.lab.chaos.ledgers import DeviceLedger
from sanctl.lab.chaos.paced import (
    FAILURES,
    PacedThread,
    PrintLine,
    answering_node,
    run_command,
)
from sanctl.lab.harness import point_copies
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.measure.attempts import NO_ANSWER, Outcome, Tally, left_over, moments
from sanctl.lab.measure.ledger_writer import LogHead, Record

_CREATE_S, _CREATE_LIMIT_S = 60, 120.0
_LIST_S, _LIST_DEADLINE_S = 60.0, 120.0
_DELETE_S, _DELETE_LIMIT_S = 90, 120.0
_FINAL_DEADLINE_S = 240.0
_AGAIN_S = 5.0
_PAUSE_S = 240.0
#: The beginning of the names of the bench's own restore points.
OWN = "chaos-"
#: Of the judged ones so many are kept: the next one is then of a file with shared blocks.
_KEPT = 1
_AT_ONCE = 4


class Log(NamedTuple):
    """A ledger's log, as a whole: `DeviceLedger.records` are of the last minute alone."""

    head: LogHead
    records: list[Record]


def fetch_log(load: DeviceLedger) -> Log:
    """Return the log of a ledger, which runs."""
    return Log(*load.host.fetch_log(load.run))


def list_points(bed: LabSession, device: str) -> list[dict[str, Any]]:
    """Return the restore points of a device, as the CIB has them.

    Raises:
        NotConverged: no storage node can tell.
    """

    def look() -> list[list[dict[str, Any]]]:
        for node in bed.storage:
            told = run_command(bed, node.name, f"sanctl snapshot list {device}", limit_s=_LIST_S)
            if told.bug:
                raise CommandError(Problem("SAN-CHAOS-004", told.bug))
            if not told.code:
                return [told.data]
        return []

    return wait_for(
        f"a list of the restore points of {device}", look, within_s=_LIST_DEADLINE_S, every_s=2.0
    )[0]


def token_of(point: dict[str, Any]) -> str:
    """Return the token of a restore point, the end of the name of its file."""
    return str(point["file"]).rpartition(".")[2]


class PointWatch:
    """Makes restore points of the device that the faults aim at, and judges them.

    Attributes:
        tally: how many were made, refused, judged and wrong.
    """

    def __init__(
        self,
        bed: LabSession,
        load: DeviceLedger,
        *,
        seed: int,
        mean_s: float,
        print_line: PrintLine,
    ) -> None:
        self._bed = bed
        self._load = load
        self._print_line = print_line
        self._choose = random.Random(f"sanctl-chaos/point-nodes/{seed}")  # noqa: S311 - no secret
        self._thread = PacedThread(
            "restore points", moments(seed, mean_s, "points"), self._make, print_line
        )
        self.tally = Tally()
        self._count = 0
        self._asked_at: dict[str, int] = {}  # by name: the length of the log
        self._made: dict[str, str] = {}  # by token: name; said to be made, and not judged yet
        self._judged: dict[str, bool] = {}  # by token: whether it is right
        self._first_seen_s: dict[tuple[str, str], float] = {}
        self._told = 0  # how many of `tally.wrong` were returned

    def resume(self) -> None:
        """Go on making restore points."""
        self._thread.resume()

    def pause(self) -> None:
        """Make no more; returns when the one under way is made, or is not."""
        if not self._thread.pause(_PAUSE_S):
            self.tally.wrong.append(f"a command did not end within {_PAUSE_S:g} s")

    def end(self) -> None:
        """End the thread."""
        self._thread.end()

    def _make(self) -> None:
        self._create()

    def _create(self) -> Outcome:
        self._count += 1
        device, name = self._load.device, f"{OWN}{self._count}"
        node = answering_node(self._bed, self._choose)
        if node is None:
            outcome = Outcome(code=NO_ANSWER)
        else:
            with contextlib.suppress(*FAILURES):
                self._asked_at[name] = self._load.length()
            outcome = run_command(
                self._bed,
                node,
                f"sanctl snapshot create {device} --name {name} --timeout {_CREATE_S}",
                limit_s=_CREATE_LIMIT_S,
            )
        self.tally.count(outcome, f"snapshot create {device} --name {name} on {node}")
        if not outcome.code:
            self._made[token_of(outcome.data)] = name
        what = f"{outcome.code} {outcome.text[:150]}" if outcome.code else "made"
        self._print_line(f"   restore point {name} on {node or 'no node'}: {what}")
        return outcome

    def judge(self, restarted: Sequence[str]) -> list[str]:
        """Judge each new restore point and the files of all; delete those that were judged.

        Returns:
            What is wrong since the last call, also with how commands ended.
        """
        try:
            self._judge_points(restarted)
        except FAILURES as error:
            self.tally.wrong.append(f"restore points cannot be judged: {error}")
        if self._thread.has_died():
            self.tally.wrong.append("the thread that makes them has died")
        found, self._told = self.tally.wrong[self._told :], len(self.tally.wrong)
        return [f"{self._load.device}: restore points: {text}" for text in found]

    def _judge_points(self, restarted: Sequence[str]) -> None:
        points = list_points(self._bed, self._load.device)
        tokens = {token_of(point) for point in points}
        self.tally.wrong += [
            f"{name} was said to be made, and is not in the CIB"
            for token, name in self._made.items()
            if token not in tokens
        ]
        self._made.clear()
        fresh = [
            point
            for point in points
            if not point["deleting"] and token_of(point) not in self._judged
        ]
        log = fetch_log(self._load) if fresh else None
        for point in fresh:
            assert log is not None
            faults = self._find_faults(point, log)
            self._judged[token_of(point)] = not faults
            self.tally.judged += 1
            self.tally.wrong += [f"{point['name']}: {fault}" for fault in faults]
        self._judge_files(tokens, restarted)
        self._delete(points)

    def _find_faults(self, point: dict[str, Any], log: Log) -> list[str]:
        nodes = [each["node"] for each in point["nodes"]]
        try:
            copies = {
                node: point_copies.read(self._bed, node, point["file"], log.head) for node in nodes
            }
        except FAILURES as error:
            return [f"a copy cannot be read: {error}"]
        asked_at = self._asked_at.get(point["name"])
        return point_copies.judge(point["file"], copies, log.records, asked_at=asked_at)

    def _judge_files(self, tokens: set[str], restarted: Sequence[str]) -> None:
        """Look for files of no restore point; call with those that the CIB had just before."""
        files, now_s = self._files(), time.time()
        # A boot begins the ten minutes anew.
        self._first_seen_s = {
            key: now_s if key[0] in restarted else self._first_seen_s.get(key, now_s)
            for key in files
        }
        found = left_over(files, tokens, self._first_seen_s, now_s)
        if found:
            # A command that was given up here may still have made, or deleted, one meanwhile.
            tokens = {token_of(point) for point in list_points(self._bed, self._load.device)}
            again = left_over(self._files(), tokens, self._first_seen_s, now_s)
            self.tally.wrong += [text for text in found if text in again]

    def _files(self) -> set[tuple[str, str]]:
        """Return the nodes and names of the files of all restore points of the device."""
        look = (
            "cd /srv/sanctl && find */points -type f"
            f" -name '{self._load.device}.*' -printf '%f\\n' 2>/dev/null || true"
        )
        return {
            (node.name, name)
            for node in self._bed.storage
            for name in self._bed.sh(node.name, look, timeout_s=60).stdout.split()
        }

    def _delete(self, points: Sequence[dict[str, Any]]) -> None:
        """Delete own restore points that are right, but for the newest; the others are evidence."""
        own = [
            point
            for point in points
            if point["name"].startswith(OWN)
            and not point["deleting"]
            and self._judged.get(token_of(point))
        ]
        # By number: the clocks of nodes are set wrong now and then.
        own.sort(key=lambda point: int(point["name"].removeprefix(OWN)))
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            list(pool.map(self._delete_one, [point["name"] for point in own[:-_KEPT]]))

    def _delete_one(self, name: str) -> None:
        point = f"{self._load.device}@{name}"
        told = run_command(
            self._bed,
            self._bed.storage[0].name,
            f"sanctl snapshot delete {point} --yes --timeout {_DELETE_S}",
            limit_s=_DELETE_LIMIT_S,
        )
        if told.bug:
            self.tally.wrong.append(f"snapshot delete {point}: {told.bug}")
        elif told.code:
            # The next judgement tries again.
            self._print_line(f"   {point} is not deleted: {told.code} {told.text[:150]}")

    def finish(self) -> list[str]:
        """Make one more restore point, and judge it."""
        judged = self.tally.judged

        def make() -> bool:
            return not self._create().code

        try:
            wait_for("one more restore point", make, within_s=_FINAL_DEADLINE_S, every_s=_AGAIN_S)
        except FAILURES as error:
            self.tally.wrong.append(f"after all faults: {error}")
        found = self.judge(())
        if not found and self.tally.judged == judged:
            found = [f"{self._load.device}: restore points: the last one was not judged"]
        return found
