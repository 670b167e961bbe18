# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on a pool's flash cache: other mode than wanted, flash lost, long flush, not known."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cache_policy import CacheMode
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import NodeName, format_bytes
from sanctl.model.pool_cache import CacheState, WantedMode
from sanctl.model.topology import Pool
from sanctl.plan.pool.flash_mode import (
    ABSENT_STATES,
    FLASH_REASON_TEXTS,
    LASTING_REASONS,
    UNPROVEN_REASON,
    flash_text,
    has_settled,
    published_flash_state,
    return_text,
    unknown_reason,
    wanted_flash_mode,
)

#: A change of the mode, or the removal of the flash, has to wait for the flush this long.
_LONG_FLUSH_S = 300


def flash_findings(cluster: Cluster, pool: Pool, node: NodeName) -> Iterator[Finding]:
    """Return what is wrong with a pool's flash on a node, or less than wanted."""
    wish, state = wanted_flash_mode(cluster, pool, node), published_flash_state(cluster, pool, node)
    if pool.cache is None or wish is None:
        return
    if state is None:
        yield from _unknown_state_findings(cluster, pool, node, wish)
        return
    subject = f"pool {pool.name} on {node}"
    if state.reason == UNPROVEN_REASON:
        yield _unproven_finding(subject, node, wish)
        return
    if state.mode is not state.wanted:
        is_lasting = state.reason in LASTING_REASONS
        yield Finding(
            code="SAN-HLT-091" if is_lasting else "SAN-HLT-090",
            severity=Severity.WARNING if is_lasting else Severity.NOTE,
            subject=subject,
            what=f"its flash is in {state.mode.value} instead of {state.wanted.value}: "
            + FLASH_REASON_TEXTS.get(state.reason, state.reason),
            why="nothing is at risk; reads and writes are as slow as the disk",
            do=_repair_text(pool, node, state) if is_lasting else "it goes on by itself",
        )
    if state.flush_s is not None and state.flush_s > _LONG_FLUSH_S:
        yield Finding(
            code="SAN-HLT-092",
            severity=Severity.WARNING,
            subject=subject,
            what=f"{format_bytes(state.dirty_bytes)} are on flash alone, about "
            f"{state.flush_s} s of writing to the disk",
            why="without the flash this replica needs a full resync; a mode change waits so long",
            do="a faster disk, or 'sanctl pool cache' with write-through",
        )


def _repair_text(pool: Pool, node: NodeName, state: CacheState) -> str:
    if state.reason == "no-bcache" or pool.cache is None:
        return f"empty the pool on {node}: docs/howto/pool-cache.md, 'A pool that is there already'"
    return (
        f"a new or repaired device in place of {pool.cache.flash}, then "
        f"'sanctl pool prepare {pool.name}' on {node}"
    )


def _unproven_finding(subject: str, node: NodeName, wish: WantedMode) -> Finding:
    return Finding(
        code="SAN-HLT-093",
        severity=Severity.NOTE if wish.mode is CacheMode.WRITE_BACK else Severity.WARNING,
        subject=subject,
        what=f"its flash is not known to be in {wish.mode.value}: "
        + FLASH_REASON_TEXTS[UNPROVEN_REASON],
        why="its data may be on its flash alone: leave that in",
        do=f"update sanctl on {node}",
    )


def _unknown_state_findings(
    cluster: Cluster, pool: Pool, node: NodeName, wish: WantedMode
) -> Iterator[Finding]:
    usage = cluster.pool(pool.name, node)
    left = usage.cache if usage is not None else None
    if (
        cluster.mon.state(node) is NodeState.STANDBY
        and left is not None
        and (left.wanted, left.serial) == wish
        and has_settled(left, wish.mode)
    ):
        return  # Its pool agent left it as is wanted.
    reason = unknown_reason(cluster, pool, node)
    yield Finding(
        code="SAN-HLT-093",
        severity=Severity.NOTE if wish.mode is CacheMode.WRITE_BACK else Severity.WARNING,
        subject=f"pool {pool.name} on {node}",
        what=f"its flash is not known to be in {wish.mode.value}: "
        f"{FLASH_REASON_TEXTS.get(reason, reason)}"
        + (f"; it was left in {flash_text(left)}" if left is not None else ""),
        why="its data may be on its flash alone: leave that in",
        do=return_text(cluster, node)
        if cluster.mon.state(node) in ABSENT_STATES
        else f"wait some seconds; if it stays: 'sanctl doctor' on {node}",
    )
