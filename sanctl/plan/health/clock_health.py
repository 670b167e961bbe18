# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on clocks of nodes that differ by more than some seconds (agents/node/clocks.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES
from sanctl.model.findings import Finding, Severity
from sanctl.model.name_list import in_words

_WHY = (
    "schedules run at other times than they say, a 'device move' may have no effect, as its "
    "constraint ends by the clock, and journals do not line up"
)
_MINUTES_FROM_S = 120
#: Less makes journals hard to compare, and no move void: its constraint lasts ten minutes.
_WARNING_FROM_S = 60


def clock_findings(cluster: Cluster) -> Iterator[Finding]:
    """Return whose clock is off; of two that nothing tells apart, that they differ."""
    pairs = _differences(cluster)
    while pairs:
        counts = Counter(node for pair in pairs for node in pair).most_common(2)
        (name, most), (_, next_most) = counts
        if most == next_most:
            break
        others = {pair for pair in pairs if name in pair}
        # Of each other one how much this node is ahead: they agree, but for their own seconds.
        ahead = [pairs[pair] if pair[1] == name else -pairs[pair] for pair in sorted(others)]
        word = _amount(min(ahead, key=abs))
        names = sorted({node for pair in others for node in pair} - {name})
        yield _finding(
            f"node {name}",
            f"its clock is {word} {'ahead of' if ahead[0] > 0 else 'behind'} those of "
            f"{in_words(names)}",
            name,
            max(map(abs, ahead)),
        )
        pairs = {pair: each for pair, each in pairs.items() if pair not in others}
    for (one, other), offset in sorted(pairs.items()):
        yield _finding(
            "cluster",
            f"the clock of {other} is {_amount(offset)} {'ahead of' if offset > 0 else 'behind'} "
            f"that of {one}: which one is wrong is not known",
            f"{one} and {other}",
            abs(offset),
        )


def _differences(cluster: Cluster) -> Mapping[tuple[str, str], int]:
    """Return by how many seconds the second node of each pair is ahead of the first, by name."""
    names = {each.id: each.name.value for each in cluster.cib.nodes}
    members = {
        each.name.value
        for each in cluster.cib.nodes
        if cluster.mon.state(each.name) in MEMBER_STATES
    }
    found: dict[tuple[str, str], int] = {}
    for (_, node), usage in sorted(cluster.cib.pools.items()):
        # Of one that has stopped, as in standby, what it published last is left.
        if usage.error is not None or not cluster.is_pool_agent_running(node):
            continue
        for peer, offset in usage.clock_offsets:
            name = names.get(str(peer), "")
            if name in members and name != node and offset:
                pair = (node, name) if node < name else (name, node)
                found[pair] = offset if node < name else -offset
    return found


def _amount(offset_s: int) -> str:
    seconds = abs(offset_s)
    return f"{seconds} s" if seconds < _MINUTES_FROM_S else f"{round(seconds / 60)} min"


def _finding(subject: str, what: str, where: str, seconds: int) -> Finding:
    return Finding(
        code="SAN-HLT-161",
        severity=Severity.WARNING if seconds >= _WARNING_FROM_S else Severity.NOTE,
        subject=subject,
        what=what,
        why=_WHY,
        do=f"'timedatectl' and 'chronyc sources' on {where}: have a time service set it; with "
        "chrony 'chronyc makestep' does at once",
    )
