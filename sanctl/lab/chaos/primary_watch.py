# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks every few seconds, while a fault lasts, whether two nodes serve the same device."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sanctl.errors import CommandError
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.measure import kernel_audit

_INTERVAL_S = 3.0
_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The answers of one round to all storage nodes."""

    at_s: float
    answered: tuple[str, ...]
    serving: tuple[tuple[str, str], ...]  # device, the nodes that serve it
    primary: tuple[tuple[str, str], ...]  # device, the nodes where it is Primary


class PrimaryWatch:
    """Asks the kernels of all storage nodes every few seconds until `stop`.

    The laboratory's own connection to its nodes is not cut by partitions. Nodes do not answer in
    the same instant: a device that is moving may be seen on two. So a violation is looked for in a
    second round, and counts if it is in both: then the first node's second answer is newer than
    the second node's first one.
    """

    def __init__(self, bed: LabSession) -> None:
        self._bed = bed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._pool = ThreadPoolExecutor(max_workers=len(bed.storage))
        self.violations: list[tuple[float, str]] = []
        self.observations: list[Observation] = []

    def start(self) -> None:
        """Start the rounds in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; returns when the last round is over."""
        self._stop.set()
        self._thread.join()
        self._pool.shutdown()

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL_S):
            first = self.observe()
            if not kernel_audit.violations(first):
                continue
            second = self.observe()
            both = set(kernel_audit.violations(first)) & set(kernel_audit.violations(second))
            self.violations += [(time.time(), text) for text in sorted(both) if _is_forbidden(text)]

    def observe(self) -> dict[str, kernel_audit.View]:
        """Ask every storage node once, record the observation, return the answers by node."""
        names = [node.name for node in self._bed.storage]
        views = zip(names, self._pool.map(self._read_kernel, names), strict=True)
        found = {name: view for name, view in views if view is not None}
        devices = sorted({device for view in found.values() for device in view})
        self.observations.append(
            Observation(
                at_s=time.time(),
                answered=tuple(found),
                serving=tuple((d, " ".join(kernel_audit.active_nodes(found, d))) for d in devices),
                primary=tuple(
                    (
                        d,
                        " ".join(n for n, v in found.items() if d in v and v[d].role == "Primary"),
                    )
                    for d in devices
                ),
            )
        )
        return found

    def _read_kernel(self, node: str) -> kernel_audit.View | None:
        try:
            return kernel_audit.parse_view(
                self._bed.sh(node, kernel_audit.SCRIPT, timeout_s=_TIMEOUT_S).stdout
            )
        except (CommandError, ValueError):
            # Off, booting, hanging: unknown. `answered` says which nodes gave an answer.
            return None


def _is_forbidden(text: str) -> bool:
    """Whether a violation is one even for a moment: two nodes Primary or Active/Optimized.

    On one node promotion and demotion pass through states in which DRBD, gate and ALUA differ;
    those are checked once the cluster has recovered.
    """
    return " and " in text and ("Primary on" in text or "Active/Optimized on" in text)
