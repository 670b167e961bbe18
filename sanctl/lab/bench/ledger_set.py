# SPDX-License-Identifier: GPL-2.0-or-later
"""Ledgers of one host on several devices: start, watch, longest pause of each, check."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from sanctl.lab.harness.initiator import Initiator, LedgerRun
from sanctl.lab.measure import ledger_latency
from sanctl.lab.measure.ledger_writer import RecordKind

TOTALS = ("acknowledged", "lost", "errors")
#: A ledger writes its log some times a second, unless a write is not answered.
SILENT_S = 3


class LedgerSet:
    """The ledgers that a host writes, by device."""

    def __init__(self, host: Initiator) -> None:
        self.host = host
        self.runs: dict[str, LedgerRun] = {}
        self._writing: list[LedgerRun] = []

    def start(self, name: str, path: str, *options: str) -> None:
        """Start a ledger on a device of the host."""
        self.runs[name] = self.host.start_ledger(name, path, *options)
        self._writing.append(self.runs[name])

    def stop(self) -> None:
        """End those that still write."""
        while self._writing:
            self.host.stop_ledger(self._writing.pop())

    def are_written(self, *, since_s: int = 0) -> bool:
        """Whether each has written its log within the last seconds.

        Args:
            since_s: the time by the host's clock that the last entry must not be older than.
        """
        logs = " ".join(run.log for run in self.runs.values())
        now_s, *written_s = map(int, self.host.sh(f"date +%s; stat -c %Y {logs}").split())
        return all(now_s - at_s <= SILENT_S and at_s >= since_s for at_s in written_s)

    def now_s(self) -> int:
        """Return the host's time in whole seconds."""
        return int(self.host.sh("date +%s"))

    def pauses(self, begin_s: float, end_s: float) -> list[ledger_latency.Pause]:
        """Return the longest pause of each device that began in that time."""
        with ThreadPoolExecutor(2) as pool:
            return list(
                pool.map(
                    lambda run: ledger_latency.find_pause(
                        self.host.fetch_log(run)[1], begin_s, end_s
                    ),
                    self.runs.values(),
                )
            )

    def pauses_so_far(self, begin_s: float) -> list[ledger_latency.Pause]:
        """Return the longest pause of each device that began since then, also one that goes on.

        A log is up to a second behind its host: for pauses longer than that.
        """
        end_s = time.time()

        def pause(run: LedgerRun) -> ledger_latency.Pause:
            records = self.host.fetch_log(run)[1]
            return ledger_latency.find_pause_so_far(
                records, begin_s, end_s
            ) or ledger_latency.Pause(
                longest_gap_s=end_s - begin_s,
                gap_began_wall_s=begin_s,
                longest_write_s=0.0,
                errors=sum(record.kind is RecordKind.ERROR for record in records),
            )

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(pause, self.runs.values()))

    def check(self) -> dict[str, int]:
        """End the ledgers and return the checker's results, added up."""
        total = dict.fromkeys(TOTALS, 0)
        self.stop()
        for run in self.runs.values():
            result = self.host.check_ledger(run)
            for key in total:
                total[key] += result[key]
        return total
