# SPDX-License-Identifier: GPL-2.0-or-later
"""What is certain about a peer, and what follows from it: the rules of the fence-peer handler.

Pure functions, so that the handler (sanctl/agents/fencing/fence_peer.py) and the model that
explores every interleaving (sanctl/safety/transitions.py) judge by the same lines.

The invariant they guard: a node out of contact with its peer serves only if no partition that has
or can get quorum will promote the peer with the data it has.

Of three and more copies (DRBD 9) it is kept in one of two ways, and a promotion needs the first:

* DRBD sees a majority of the copies. Any other majority has one of these among it, and DRBD lets
  none of those that are connected become Primary with less than the newest data among them.
* Every copy that is gone is certain and marked, as with two copies. Then no majority of copies is
  of any use without the mark's leave, so what has to have a memory is the cluster's quorum.
"""

from __future__ import annotations

from collections.abc import Callable

from sanctl.model.drbd import ResourceState, has_majority

#: Exit codes of fence-peer as drbd_nl.c (conn_try_outdate_peer) understands them.
PEER_OUTDATED = 4
PEER_FENCED = 7


def standing(*, is_quorate: bool, is_member: bool, is_fenced: Callable[[], bool]) -> str:
    """Return what the cluster knows of a peer: `member`, `fenced`, `unknown` or `alone`.

    Without quorum (`alone`) nothing is known: others may have decided otherwise. Silence is not
    absence: a peer that is no member is unknown until it is known to be fenced, which is asked
    only then.
    """
    if not is_quorate:
        return "alone"
    if is_member:
        return "member"
    return "fenced" if is_fenced() else "unknown"


def is_certain(peer: str) -> bool:
    """Whether a peer of that standing cannot be promoted any more once it is marked.

    A member reads the same CIB as this node, and a fenced one reads it before it starts again.
    """
    return peer in {"member", "fenced"}


def worth(
    peer: str,
    *,
    has_joined: Callable[[], bool],
    is_untried: Callable[[], bool],
    has_memory: Callable[[], bool],
) -> str:
    """Return a peer's standing as it counts for a replica that may not know the latest.

    A replica that has met no other since it was started may have been off while the other served.
    With a majority of nodes one of them remembers the mark; where two quorums need have no node in
    common nobody does, and that the other is fenced says nothing about this one. A member of
    Corosync says it only once it has joined Pacemaker, too: until then its CIB, with the mark, is
    not this node's.

    Args:
        peer: what the cluster knows of it, see `standing`.
        has_joined: the peer's CIB and this node's are one.
        is_untried: this node's replica has met no other since it was started.
        has_memory: any two quorums of the cluster have a node in common.
    """
    is_open = peer == "fenced" or (peer == "member" and not has_joined())
    return "unknown" if is_open and is_untried() and not has_memory() else peer


def outranks(peer: str) -> bool:
    """Whether marking a peer of that standing must make this CIB newer than any that it has.

    A member shares this CIB. One that was fenced may have changed its own while it was alone, as
    often as this partition changed this one; when they meet, the newer CIB is everybody's.
    """
    return peer == "fenced"


def may_mark(state: ResourceState | None, *, is_promoting: bool) -> bool:
    """Whether fence-peer may mark a peer for a node in that state, if it holds the handlers' lock.

    A handler that was called for a Primary may be late: its node is no Primary any more, the
    peer may be one now, and to mark that would leave nobody to be promoted. Or the connection is
    back, and DRBD does not listen to this handler any more.

    Args:
        state: the resource as DRBD reports it here; None when it is not up.
        is_promoting: a promotion is under way here, which asks for the same.
    """
    return is_promoting or (state is not None and state.is_primary and not state.is_in_contact)


def exit_code(peer: str) -> int:
    """Return what fence-peer answers DRBD for a peer that is certain and marked."""
    return PEER_FENCED if peer == "fenced" else PEER_OUTDATED


def among_several(
    peer: str, *, copies: int, is_primary: bool, has_quorum: bool | None, has_memory: bool
) -> str:
    """Return a peer's standing as it counts for a device with several copies.

    Args:
        peer: what the cluster knows of it, see `standing`.
        copies: how many replicas the device has.
        is_primary: this node is Primary already; else it wants to be.
        has_quorum: DRBD sees a majority of the copies.
        has_memory: any two quorums of the cluster have a node in common.
    """
    if not is_certain(peer) or not has_majority(copies) or has_quorum:
        return peer
    return peer if is_primary and has_memory else "unknown"


def may_clear(state: ResourceState | None) -> bool:
    """Whether a node in that state may clear its peers' marks, if it holds the handler's lock.

    Only a Primary sets a mark that counts, and only it knows when it last went on alone. A standby
    may notice a broken link seconds after its Primary has gone on without it.
    """
    return state is not None and state.is_primary and state.is_in_sync
