# SPDX-License-Identifier: GPL-2.0-or-later
"""Marks a peer's replica as outdated in the CIB, certainly or not at all, and clears such marks.

The answer to DRBD's question (sanctl/agents/handlers/fence_peer.py) is a permanent node attribute
of the peer, `sanctl-outdated-NAME`, which a location rule of every device turns into "never promote
there". It is set only by a partition with quorum, and a promotion elsewhere reads the same CIB.
"""

from __future__ import annotations

import contextlib
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator

from sanctl.agents.fencing import quorum_overlap
from sanctl.drivers import cib, corosync, drbdsetup, node_attributes, outdated_marks
from sanctl.errors import CommandError, Problem
from sanctl.plan.failover import fence_rules
from sanctl.system import state_files
from sanctl.system.runner import Runner

#: In place of a standing: the replica that is to be promoted is marked itself.
OWN_MARKED = "marked"


def mark_outdated(runner: Runner, device: str, peer: str) -> str:
    """Mark the peer's replica as outdated if that can be certain, and return its standing.

    Of a promotion whose own replica is marked it is `marked`: that one is not to happen.

    The order matters. A mark counts only if this partition is quorate, which the CIB does not
    insist on for node attributes: so quorum is asked before, lest a lonely node change its CIB,
    and after, lest it was lost in between. Last the mark is read back: partitions that met
    meanwhile may have agreed on the CIB of the other one.

    Raises:
        SanctlError: the cluster did not answer; nothing is certain.
    """
    before, seen = _membership_and_mark(runner, device, peer)
    if seen is None or not fence_rules.is_certain(before):
        return before
    if seen.is_own_marked and _promotion_note(device).exists():
        # The order to promote this replica is older than that: a node that joined brought it along.
        return OWN_MARKED
    has_outranked = fence_rules.must_outrank_peer_cib(before)
    outdated_marks.set_mark(runner, device, peer, seen, raises_admin_epoch=has_outranked)
    after, seen = _membership_and_mark(runner, device, peer)
    if seen is None:
        return after
    is_kept = seen.is_marked and (has_outranked or not fence_rules.must_outrank_peer_cib(after))
    return after if is_kept else "unknown"


def _membership_and_mark(
    runner: Runner, device: str, peer: str
) -> tuple[str, outdated_marks.MarkState | None]:
    """Return a peer's standing, and where there is quorum what the CIB says, asked in this order.

    Raises:
        SanctlError: the cluster did not answer.
    """
    present = corosync.membership(runner)
    if not present.is_quorate:
        return "alone", None
    seen = outdated_marks.read(runner, device, peer)
    standing = fence_rules.peer_membership(
        is_quorate=True,
        is_member=peer in present.members,
        is_fenced=lambda: seen.state is not None and is_fenced(seen.state),
    )
    worth = quorum_overlap.membership_for_device(
        runner, device, peer, standing, has_joined=lambda: quorum_overlap.has_joined(seen.state)
    )
    return worth, seen


def may_mark(runner: Runner, device: str, peer: str) -> bool:
    """Whether there is still something here that a mark is wanted for; asked under the lock."""
    if _promotion_note(device).exists():
        return True
    state = drbdsetup.observe(runner, device)
    return fence_rules.may_mark(state and state.with_only_peer(peer), is_promoting=False)


@contextlib.contextmanager
def promoting(device: str) -> Iterator[None]:
    """Let fence-peer know that it is called for a promotion, for as long as that lasts."""
    _promotion_note(device).write()
    try:
        yield
    finally:
        cancel_promotion(device)


def cancel_promotion(device: str) -> None:
    """Make a handler that was called for a promotion give up: the promotion is not wanted."""
    _promotion_note(device).remove()


def _promotion_note(device: str) -> state_files.StateFile:
    return state_files.of_device(device, "promoting")


def clear_marks(runner: Runner, device: str, peers: Iterable[str]) -> bool:
    """Take the mark "outdated" off those peers of a Primary that are in sync with it.

    Only the node that would set the mark clears it, under the lock of the handler that sets it:
    if the link breaks now, the handler runs afterwards, and its mark stays. What a standby sees
    proves nothing, it may notice a broken link seconds after its Primary has gone on without it.

    Only with quorum, as for setting: a node that was cut off and has changed its own CIB by a mark
    would change it twice by clearing that, and could bring back a CIB newer than the others'.

    Returns:
        Whether the marks are off.

    Raises:
        SanctlError: the cluster or DRBD did not answer.
    """
    with locked(device, wait_s=0.0) as is_mine:
        state = drbdsetup.observe(runner, device) if is_mine else None
        for peer in peers:
            if state is None or not fence_rules.may_clear(state.with_only_peer(peer)):
                return False
            if not fence_rules.is_certain(peer_membership(runner, peer)):
                return False
            node_attributes.delete_permanent(
                runner, peer, outdated_marks.attribute_name(device), timeout_s=8.0
            )
    return True


def locked(device: str, *, wait_s: float) -> contextlib.AbstractContextManager[bool]:
    """Hold the device's fencing lock, if it can be had in that time; tell whether it could.

    A kernel lock on an open file: it ends with the process, whatever ends that.
    """
    return state_files.locked(state_files.device_lock(device, "fence"), wait_s=wait_s)


def peer_membership(runner: Runner, peer: str) -> str:
    """Return what the cluster knows of a node: `member`, `fenced` or `unknown`.

    `alone` where this node is not in a quorate partition: then nothing it knows counts.

    Quorum and membership are asked of corosync, not of the CIB: when a partition forms, the CIB
    follows by up to seconds, and what it says meanwhile is yesterday's.

    Raises:
        SanctlError: one of the two did not answer.
    """
    seen = corosync.membership(runner)

    def fenced() -> bool:
        state = cib.node_state(runner, peer)
        if state is None:
            raise CommandError(Problem("SAN-AGENT-012", f"the CIB has no state of node {peer}"))
        return is_fenced(state)

    return fence_rules.peer_membership(
        is_quorate=seen.is_quorate, is_member=peer in seen.members, is_fenced=fenced
    )


def is_fenced(state: ET.Element) -> bool:
    """Judge a node that is not a member by its `node_state`.

    Pacemaker Explained, "Node status": a node that left cleanly or was fenced is expected to be
    down and has joined nothing; until then it counts as unclean. `in_ccm` and `crmd` are words up
    to 2.1.6, and times of joining with 0 for absent after that.
    """
    return (
        state.tag == "node_state"
        and state.get("in_ccm") in {"false", "0"}
        and state.get("crmd") in {"offline", "0"}
        and state.get("expected") == "down"
        and state.get("join") == "down"
    )
