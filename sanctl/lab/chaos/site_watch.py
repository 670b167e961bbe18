# SPDX-License-Identifier: GPL-2.0-or-later
"""Copies to a second site at intervals beside the faults, each judged after the recovery.

A copy that is proven has to be right: as its restore point on each node that has it still, and a
state that the ledger's log allows. What it was once it stays.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from sanctl.errors import CommandError, Problem
from sanctl.lab.chaos.ledgers import DeviceLedger
from sanctl.lab.chaos.paced import (
    FAILURES,
    PacedThread,
    PrintLine,
    answering_node,
    run_command,
    run_script,
)
from sanctl.lab.chaos.point_watch import Log, fetch_log, list_points, token_of
from sanctl.lab.harness import point_copies
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.point_copies import PointCopy
from sanctl.lab.harness.site_server import SiteServer
from sanctl.lab.measure.attempts import NO_ANSWER, Outcome, Tally, worst_age_s

#: Where a run has noted its process group, on the node that makes the copy.
GROUP_FILE = "/run/sanctl-chaos-copy"
_POINT_S = 60
_RUN_LIMIT_S = 300.0
_PAUSE_S = _RUN_LIMIT_S + 120
_KEEP = 3
_ASK_S, _ASK_DEADLINE_S = 60.0, 180.0
_ADD_S = 180.0
# Of a run that was killed a node says for two minutes that it is under way.
_FINAL_DEADLINE_S = 420.0
_AGAIN_S = 10.0


def server_of(host: str) -> SiteServer:
    """Return where the site is: on a host, in a file of its own."""
    return SiteServer(
        "chaos",
        host,
        "/var/tmp/chaos-site.img",  # noqa: S108 - on a host of the laboratory
        "/srv/chaos-site",
        "/srv/chaos-site/sanctl",
        "/etc/sanctl/chaos_site_key",
        512,
    )


class SiteWatch:
    """Copies the device that the faults aim at to the site, and judges the copies.

    Attributes:
        tally: how many copies were proven, failed, judged and wrong.
        where: the site.
    """

    def __init__(
        self,
        bed: LabSession,
        load: DeviceLedger,
        where: SiteServer,
        *,
        seed: int,
        every_s: float,
        print_line: PrintLine,
    ) -> None:
        self._bed = bed
        self._load = load
        self.where = where
        self._print_line = print_line
        self._choose = random.Random(f"sanctl-chaos/copy-nodes/{seed}")  # noqa: S311 - no secret
        self._thread = PacedThread("copies", repeat(every_s), self._make, print_line)
        self.tally = Tally()
        self._began_s = time.time()
        self._proven_s: list[tuple[float, float]] = []
        self._asked_at: dict[str, int] = {}  # by the name of the restore point: the log's length
        self._judged: dict[str, str] = {}  # by token: the digest
        self._told = 0
        self._running_on = ""

    def add(self, address: str) -> None:
        """Add the site to the cluster.

        Raises:
            CommandError: the cluster does not take it.
        """
        self._bed.sh(
            self._bed.storage[0].name,
            f"sanctl site add {self.where.site} --ssh {address} --path {self.where.path}"
            f" --identity {self.where.key}",
            timeout_s=_ADD_S,
        )
        self._began_s = time.time()

    def worst_age_s(self) -> float:
        """Return the greatest age that the newest copy had until now."""
        return worst_age_s(self._proven_s, self._began_s, time.time())

    def running_on(self) -> str:
        """Return the node on which a copy is being made; empty: none is."""
        return self._running_on

    def act_now(self) -> None:
        """Have a copy made at once."""
        self._thread.act_now()

    def resume(self) -> None:
        """Go on making copies."""
        self._thread.resume()

    def pause(self) -> None:
        """Make no more; returns when the one under way is proven, or is not."""
        if not self._thread.pause(_PAUSE_S):
            self.tally.wrong.append(f"a run did not end within {_PAUSE_S:g} s")

    def end(self) -> None:
        """End the thread."""
        self._thread.end()

    def _make(self) -> None:
        self._copy()

    def _copy(self) -> Outcome:
        device, node = self._load.device, answering_node(self._bed, self._choose)
        began_s, asked_at = time.time(), None
        with contextlib.suppress(*FAILURES):
            asked_at = self._load.length()
        if node is None:
            outcome = Outcome(code=NO_ANSWER)
        else:
            # In a process group of its own, so that it can be killed with all that it started.
            script = (
                f"rm -f {GROUP_FILE}; setsid --wait sh -c 'echo $$ >{GROUP_FILE};"
                f" exec timeout -k 5 {_RUN_LIMIT_S:g} sanctl replicate run {device}"
                f" --to {self.where.site} --keep {_KEEP} --from-active"
                f" --timeout {_POINT_S} --output json'"
            )
            self._running_on = node
            try:
                outcome = run_script(self._bed, node, script, limit_s=_RUN_LIMIT_S)
            finally:
                self._running_on = ""
        self.tally.count(outcome, f"replicate run {device} on {node}")
        if not outcome.code:
            self._proven_s.append((began_s, time.time()))
            if asked_at is not None:
                self._asked_at[outcome.data["copy"]["point"]] = asked_at
        what = f"{outcome.code} {outcome.text[:150]}" if outcome.code else "proven"
        self._print_line(f"   copy of {device} by {node or 'no node'}: {what}")
        return outcome

    def judge(self, restarted: Sequence[str]) -> list[str]:
        """Judge each new copy at the site, and whether those judged before are as they were.

        Returns:
            What is wrong since the last call, also with how runs ended.
        """
        del restarted
        try:
            self._judge_copies()
        except FAILURES as error:
            self.tally.wrong.append(f"copies cannot be judged: {error}")
        if self._thread.has_died():
            self.tally.wrong.append("the thread that makes them has died")
        found, self._told = self.tally.wrong[self._told :], len(self.tally.wrong)
        return [f"{self._load.device}: copies at the site: {text}" for text in found]

    def _judge_copies(self) -> None:
        device, site, wrong = self._load.device, self.where.site, self.tally.wrong
        # First: what is proven later may be at the site alone.
        states = self._ask(f"sanctl replicate status {device}")
        listed = self._ask(f"sanctl site copies {site} {device}")
        copies = [copy for copy in listed if copy["is_of_this_cluster"]]
        tokens = {copy["token"] for copy in copies}
        wrong += [
            f"the site has not got {state['copy']['point']}, which was proven"
            for state in states
            if state["site"] == site and state["copy"] and state["copy"]["token"] not in tokens
        ]
        if not copies:
            return
        log = fetch_log(self._load)
        points = {token_of(point): point for point in list_points(self._bed, device)}
        for copy in copies:
            wrong += [
                f"{copy['point']}: {fault}"
                for fault in self._find_faults(copy, points.get(copy["token"]), log)
            ]

    def _find_faults(
        self, copy: dict[str, Any], point: dict[str, Any] | None, log: Log
    ) -> list[str]:
        bed, server, token = self._bed, self.where.server, copy["token"]
        try:
            there = point_copies.read(bed, server, copy["file"], log.head)
        except FAILURES as error:
            return [f"it is listed, and cannot be read: {error}"]
        if (before := self._judged.get(token)) is not None:
            return ["it has changed since it was proven"] if there.digest != before else []
        self._judged[token] = there.digest
        self.tally.judged += 1
        asked_at = self._asked_at.get(copy["point"])
        faults = point_copies.judge(copy["file"], {server: there}, log.records, asked_at=asked_at)
        if point is None or point["deleting"]:
            return faults
        for node in (each["node"] for each in point["nodes"]):
            try:
                here: PointCopy = point_copies.read(bed, node, point["file"], log.head)
            except FAILURES as error:
                faults.append(f"its restore point on {node} cannot be read: {error}")
                continue
            if here.digest != there.digest:
                faults.append(f"it differs from its restore point on {node}")
        return faults

    def _ask(self, command: str) -> list[Any]:
        """Return what a command says on one of the nodes that can tell.

        Raises:
            CommandError: it ended as none may.
            NotConverged: none can tell.
        """
        last = Outcome(code=NO_ANSWER)

        def look() -> list[list[Any]]:
            nonlocal last
            for node in self._bed.storage:
                last = run_command(self._bed, node.name, command, limit_s=_ASK_S)
                if not last.code and not last.bug:
                    return [last.data]
            return []

        try:
            return wait_for(command, look, within_s=_ASK_DEADLINE_S, every_s=5.0)[0]
        except FAILURES as error:
            why = last.bug or f"{last.code} {last.text}"
            raise CommandError(Problem("SAN-CHAOS-004", f"{command}: {why}")) from error

    def finish(self) -> list[str]:
        """Make one more copy, and judge it."""
        judged = self.tally.judged

        def copied() -> bool:
            return not self._copy().code

        try:
            wait_for("one more copy", copied, within_s=_FINAL_DEADLINE_S, every_s=_AGAIN_S)
        except FAILURES as error:
            self.tally.wrong.append(f"after all faults: {error}")
        found = self.judge(())
        if not found and self.tally.judged == judged:
            found = [f"{self._load.device}: copies at the site: the last one was not judged"]
        return found
