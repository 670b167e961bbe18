# SPDX-License-Identifier: GPL-2.0-or-later
"""Sets and clears a peer's outdated mark in the CIB safely: lock, quorum, read-back.

The mark is a permanent node attribute of the peer, `sanctl-outdated-NAME`, which a location rule of
every device turns into "never promote there". A partition sets marks only with quorum, and a
promotion on another node reads the same CIB. DRBD asks for a mark by its handler fence-peer
(sanctl/agents/handlers/fence_peer.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from sanctl.agents.fencing import quorum_overlap
from sanctl.drivers import cib, corosync, drbdsetup, node_attributes, outdated_marks
from sanctl.errors import CommandError, Problem
from sanctl.plan.failover import fence_rules
from sanctl.system import state_files
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET

#: In place of the peer's membership: the replica that is to be promoted is marked itself.
OWN_MARKED = "marked"


def mark_outdated(runner: Runner, device: str, peer: str) -> str:
    """Mark the peer's replica as outdated if that can be certain; return the peer's membership.

    Returns `marked` where a promotion is under way here and this node's own replica is marked: that
    promotion must not happen.

    The order matters. A mark counts only if this partition is quorate, and the CIB takes node
    attributes without quorum, too. So quorum is asked before, lest a node that is cut off change
    its own CIB, and after, lest quorum was lost in between. Last the mark is read back: partitions
    that joined meanwhile may have agreed on the CIB of the other partition.

    Raises:
        SanctlError: the cluster did not answer; nothing is certain.
    """
    before, seen = _membership_and_mark(runner, device, peer)
    if seen is None or not fence_rules.is_certain(before):
        return before
    if seen.is_own_marked and _promotion_note(device).exists():
        # The order to promote this replica is older than its mark: a node that joined since has
        # brought the mark along.
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
    """Return a peer's membership and, with quorum, its mark in the CIB; quorum is asked first.

    Raises:
        SanctlError: the cluster did not answer.
    """
    present = corosync.membership(runner)
    if not present.is_quorate:
        return "alone", None
    seen = outdated_marks.read(runner, device, peer)
    membership = fence_rules.peer_membership(
        is_quorate=True,
        is_member=peer in present.members,
        is_fenced=lambda: seen.state is not None and is_fenced(seen.state),
    )
    membership = quorum_overlap.membership_for_device(
        runner, device, peer, membership, has_joined=lambda: quorum_overlap.has_joined(seen.state)
    )
    return membership, seen


def may_mark(runner: Runner, device: str, peer: str) -> bool:
    """Whether a mark of the peer is still wanted here; called under the fencing lock."""
    if _promotion_note(device).exists():
        return True
    state = drbdsetup.observe(runner, device)
    return fence_rules.may_mark(state and state.with_only_peer(peer), is_promoting=False)


@contextlib.contextmanager
def promoting(device: str) -> Iterator[None]:
    """Keep a note while a promotion runs, by which fence-peer knows that the promotion needs it."""
    _promotion_note(device).write()
    try:
        yield
    finally:
        cancel_promotion(device)


def cancel_promotion(device: str) -> None:
    """Remove that note, so that a handler called for the promotion gives up."""
    _promotion_note(device).remove()


def _promotion_note(device: str) -> state_files.StateFile:
    return state_files.of_device(device, "promoting")


def clear_marks(runner: Runner, device: str, peers: Iterable[str]) -> bool:
    """Clear the outdated marks of those peers of a Primary that are in sync with the Primary.

    Only the node that would set the mark clears it, under the lock of the handler that sets it:
    if the link breaks now, the handler runs afterwards, and its mark stays. What a standby sees
    proves nothing: a standby may notice a broken link seconds after its Primary has gone on alone.

    Only with quorum, as for setting: a node that was cut off and has changed its own CIB by a mark
    would change that CIB a second time by clearing the mark, and could bring back a CIB newer than
    the others'.

    Returns:
        Whether the marks are cleared.

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
    """Hold the device's fencing lock if it is free within that time; yields whether it is held.

    A kernel lock on an open file: the lock ends with the process, however the process ends.
    """
    return state_files.locked(state_files.device_lock(device, "fence"), wait_s=wait_s)


def peer_membership(runner: Runner, peer: str) -> str:
    """Return what the cluster knows of a node: `member`, `fenced` or `unknown`.

    `alone` where this node is in no quorate partition: then nothing that this node knows counts.

    Quorum and membership come from corosync, not from the CIB: when a partition forms, the CIB
    follows by up to seconds, and is out of date meanwhile.

    Raises:
        SanctlError: corosync or the CIB did not answer.
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
    """Whether a node that is no member is fenced or has left cleanly, by its `node_state`.

    Pacemaker Explained, "Node status": a node that left cleanly or was fenced is expected to be
    down and has joined nothing; until then the node counts as unclean. `in_ccm` and `crmd` hold
    words up to 2.1.6, and times of joining with 0 for absent after that.
    """
    return (
        state.tag == "node_state"
        and state.get("in_ccm") in {"false", "0"}
        and state.get("crmd") in {"offline", "0"}
        and state.get("expected") == "down"
        and state.get("join") == "down"
    )
