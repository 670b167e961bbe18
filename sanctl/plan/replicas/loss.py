# SPDX-License-Identifier: GPL-2.0-or-later
"""What the choice of a replica to keep would lose."""

from __future__ import annotations

from dataclasses import dataclass

from sanctl.model.names import NodeName, format_bytes
from sanctl.plan.replicas.diagnosis import Diagnosis, ReplicaFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What keeping one replica would lose: of which nodes, as text, and how much at most."""

    nodes: tuple[NodeName, ...]
    text: str
    bytes_at_most: int | None
    """None: not known."""


def written_alone(diagnosis: Diagnosis, other: ReplicaFacts) -> tuple[str, int | None]:
    """Return what only another of diverged replicas has, in words, and how much that is at most.

    No upper bound is known while hosts write to it: a node without contact to its peer publishes
    what DRBD's bitmap counts once a minute (plan/device/short_monitor.py).
    """
    kib, since = other.replica.out_of_sync_kib, f"on {other.node} alone since they disconnected"
    if kib is None:
        return f"an unknown amount written {since}", None
    amount = f"{format_bytes(kib * 1024)} ({kib // 4} blocks of 4 KiB)"
    if _is_written_to(diagnosis, other):
        text = f"what was written {since}: {amount} up to a minute ago, and more while it is served"
        return text, None
    return f"up to {amount} written {since}", kib * 1024


def _is_written_to(diagnosis: Diagnosis, other: ReplicaFacts) -> bool:
    """Whether hosts write to a replica: it serves, or is connected to one that does."""
    return any(
        facts.serves and (facts is other or other.is_connected_with(facts))
        for facts in diagnosis.replicas
    )
