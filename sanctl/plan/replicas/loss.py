# SPDX-License-Identifier: GPL-2.0-or-later
"""What the choice of a replica to keep would lose."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sanctl.errors import Problem
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


def with_own_loss(loss: Loss, kept: ReplicaFacts) -> Loss:
    """Return the loss together with what the kept replica may lack of its own last resync.

    Whatever the others are: DRBD took those blocks out of its bitmaps (docs/adr/0082).
    """
    if not kept.replica.is_unflushed_resync:
        return loss
    text = (
        f"what a resync had written on {kept.node} that was not on its disk yet when it lost its "
        "power: such blocks are old, or zeros, also where hosts had flushed them; which ones is "
        "not known"
    )
    if loss.bytes_at_most != 0:
        text = f"{loss.text}; and {text}"
    return replace(loss, text=text, bytes_at_most=None)


def older_problem(diagnosis: Diagnosis, kept: ReplicaFacts, other: ReplicaFacts) -> Problem:
    """Return that a replica cannot be kept which another one has overtaken."""
    what = f"the replica on {kept.node} is older than the one on {other.node}, which has all of it"
    hint = f"keep {other.node}: nothing that {kept.node} has is lost by that"
    if other.replica.is_suspect:
        what += ", but for what it may have lost with its power"
        hint = f"'sanctl device heal {diagnosis.device.name}' says what keeping {other.node} loses"
    return Problem("SAN-HEAL-002", what, hint)
