# SPDX-License-Identifier: GPL-2.0-or-later
"""Watches the kernels of all storage nodes while something is broken: never two that serve."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sanctl.errors import CommandError
from sanctl.lab.harness.lab_session import Bed
from sanctl.lab.measure import audit

_INTERVAL_S = 3.0
_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look at the cluster."""

    at_s: float
    answered: tuple[str, ...]
    serving: tuple[tuple[str, str], ...]  # device, the nodes that serve it
    primary: tuple[tuple[str, str], ...]  # device, the nodes where it is Primary


class Watch:
    """Looks until told to stop; the lab's own way to the nodes is not cut by partitions.

    Nodes are not looked at in the same instant: a device that is moving may be seen on both. So
    what looks like two is looked at again, and counts if it is still so, with the first node's
    answer newer than the second's before.
    """

    def __init__(self, bed: Bed) -> None:
        self._bed = bed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._pool = ThreadPoolExecutor(max_workers=len(bed.storage))
        self.violations: list[tuple[float, str]] = []
        self.seen: list[Seen] = []

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End looking; returns when the last look is over."""
        self._stop.set()
        self._thread.join()
        self._pool.shutdown()

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL_S):
            first = self.look()
            if not audit.violations(first):
                continue
            second = self.look()
            both = set(audit.violations(first)) & set(audit.violations(second))
            self.violations += [(time.time(), text) for text in sorted(both) if _is_forbidden(text)]

    def look(self) -> dict[str, audit.View]:
        """Ask every storage node that answers."""
        names = [node.name for node in self._bed.storage]
        views = zip(names, self._pool.map(self._look_at, names), strict=True)
        found = {name: view for name, view in views if view is not None}
        devices = sorted({device for view in found.values() for device in view})
        self.seen.append(
            Seen(
                at_s=time.time(),
                answered=tuple(found),
                serving=tuple((d, " ".join(audit.active_nodes(found, d))) for d in devices),
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

    def _look_at(self, node: str) -> audit.View | None:
        try:
            return audit.parse_view(self._bed.sh(node, audit.SCRIPT, timeout_s=_TIMEOUT_S).stdout)
        except (CommandError, ValueError):
            # Off, booting, hanging: silence is no statement, and is counted in `answered`.
            return None


def _is_forbidden(text: str) -> bool:
    """Whether a broken invariant is one even for a moment.

    On one node promotion and demotion pass through states in which its own parts differ; those
    are judged when the cluster is whole again. Two nodes never may.
    """
    return " and " in text and ("Primary on" in text or "Active/Optimized on" in text)
