# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules of fence-peer and outdated marks: when set, when cleared, DRBD's answer; no waits.

Pure functions, so that the handler (sanctl/agents/fencing/outdate.py) and the model that explores
every interleaving (sanctl/safety/transitions.py) decide by the same lines.

The invariant they guard: a node out of contact with its peer serves only if no partition that has
or can get quorum will promote the peer with the data it has.

With three and more replicas (DRBD 9) the invariant is kept in one of two ways, and a promotion
needs the first:

* DRBD sees a majority of the replicas. Any other majority shares a replica with it, and DRBD lets
  no connected replica become Primary with less than the newest data among them. One that is being
  filled, or has no disk, counts for the majority without data to compare: one that has lost
  its disk is marked, and so is the Primary's own beside too few (`could_be_missed`).
* Every replica that is gone is certain and marked, as with two replicas. Then no majority of
  replicas can be promoted against the marks, and the marks last as long as any two quorums of the
  cluster have a node in common.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from sanctl.model.drbd import PeerState, ResourceState, uses_quorum
from sanctl.plan.failover.promotion import NO_DISK

#: A connected peer that has no disk, or is attaching one and has not compared its data yet: DRBD 9
#: can stay so (plan/drbd/stalled_handshake.py). In sync afterwards, its mark is cleared as any.
PEER_WITHOUT_DATA = frozenset({"Diskless", "Negotiating"})
#: In place of the peer's membership: the Primary that has lost it is marked itself.
PRIMARY_MARKED = "primary-marked"
#: Exit codes of fence-peer as drbd_nl.c (conn_try_outdate_peer) understands them.
PEER_OUTDATED = 4
PEER_FENCED = 7


def peer_membership(
    *,
    is_quorate: bool,
    is_member: bool,
    has_joined: Callable[[], bool],
    is_fenced: Callable[[], bool],
) -> str:
    """Return what the cluster knows of a peer: `member`, `fenced`, `unknown` or `alone`.

    Without quorum (`alone`) nothing is known: another partition may have decided otherwise. Silence
    is not absence: a peer that is no member is unknown until it is known to be fenced.

    Nor is a member of Corosync one that has not joined Pacemaker yet, some second later: until then
    each has a CIB of its own. A node that was fenced as it marked this one brings that mark along,
    in a CIB that outranks this one (`admin_epoch_rise`), and with it this partition's marks go.

    Args:
        is_quorate: this node is in a partition with quorum.
        is_member: Corosync names the peer as a member.
        has_joined: the peer's CIB and this node's are one; asked of a member only.
        is_fenced: the peer was fenced, or has left in order; asked of any other only.
    """
    if not is_quorate:
        return "alone"
    if is_member and has_joined():
        return "member"
    return "fenced" if is_fenced() else "unknown"


def is_fenced(*, is_down: bool, is_primary: bool) -> bool:
    """Return whether a node that is no member was fenced, or has left in order.

    `is_down` is what its `node_state` says: expected to be down, and joined to nothing. That alone
    is not enough: a coordinator that has just become one says so of each node that is lost with the
    one before it, and fences it afterwards, for the actions in its history. A fencing deletes that
    history. So a peer that is Primary by it, `is_primary`, may be one still.
    """
    return is_down and not is_primary


def is_certain(membership: str) -> bool:
    """Whether a peer of that membership cannot be promoted any more once it is marked.

    A member reads the same CIB as this node, and a fenced node reads it before it starts again.
    """
    return membership in {"member", "fenced"}


def may_begin_resync(membership: str) -> bool:
    """Whether a resync may begin to a peer of that membership, which is marked.

    DRBD is connected to that peer, so the peer runs. A peer that runs and is no member may have
    been fenced once; it does not read this node's CIB and with it the mark. Where a quorum device
    gives such a peer quorum while the resync goes on, the peer would be promoted with what the
    resync has brought, by a CIB without the mark (sanctl/safety: `fenced-target`).
    """
    return membership == "member"


def apply_own_mark(
    membership: str, *, is_own_marked: bool, is_promoting: bool, replicas: int
) -> str:
    """Return a peer's membership for fence-peer, or that the Primary is marked itself.

    Whoever marked it may serve: Pacemaker can take a frozen Primary for a standby, or for gone
    (docs/adr/0087), and promote the peer beside it. With two replicas it stays frozen until they
    are in contact, or an operator decides. With three DRBD has a majority.

    Args:
        membership: what the cluster knows of the peer, see `peer_membership`.
        is_own_marked: this node's replica is marked in the CIB.
        is_promoting: its promotion is under way, which is refused for that reason.
        replicas: how many replicas the device has.
    """
    if not is_own_marked or is_promoting or uses_quorum(replicas):
        return membership
    return PRIMARY_MARKED if is_certain(membership) else membership


def admin_epoch_rise(membership: str) -> int:
    """Return by how much marking a peer of that membership raises the CIB's `admin_epoch`.

    A member shares this CIB. A fenced node may have changed its own CIB while it was alone, as
    often as this partition changed this one; when the two meet, the newer CIB wins everywhere. So
    may one that is no member and not known to be fenced (`goes_on_without`).

    A node that is cut off as it marks has raised its own CIB's number for each such peer, before it
    hears that it is alone. What the partition writes that fences it has to outrank that, too, so
    there the number rises by more than a cluster has nodes.
    """
    return {"fenced": 64, "unknown": 1}.get(membership, 0)


#: The numbers of one membership of Corosync. A node that lost its latest one counts on by 1, not 4.
_PER_RING = 512
#: Pacemaker reads `admin_epoch` as a C int. Half a million memberships are before this, and more
#: marks than any cluster makes between it and the end.
_RING_NUMBERS_END = 2**30


def raised_admin_epoch(seen: int, rise: int, *, ring: int | None) -> int:
    """Return the CIB's `admin_epoch` with marks of peers that are not in this membership.

    A rise over what this node has seen is not enough. A node that is cut off between its question
    for quorum and its change raises its own CIB by as much, and more than once where it marks more
    than one peer, and that CIB would tie with, or outrank, what the others write that fence it. So
    the number follows Corosync's memberships, of which each has a range of its own. Any later
    partition with a majority of the nodes has a member of the one that was asked about, and a
    membership that is newer than all that its members have been in. What was raised by an older one
    is outranked, whatever was written there, and how often.

    Within the range the number rises to `rise` at first and by one from then on, up to its end:
    retries would raise it beyond what the next memberships come to. Where it is higher, as all of
    Corosync's state was lost beside a CIB that was kept, it rises by `rise` as ever.

    Args:
        seen: the `admin_epoch` of this node's CIB.
        rise: what `admin_epoch_rise` says; 0 changes nothing.
        ring: the sequence number of the membership that was asked about before the CIB was read;
            None: not known, or a node may have a release that does not go by it.
    """
    if not rise:
        return seen
    floor = _PER_RING * (ring or 0)
    if floor >= _RING_NUMBERS_END:
        return max(seen, _RING_NUMBERS_END) + rise
    if not floor or seen >= floor + _PER_RING:
        return seen + rise
    if seen < floor + rise:
        return max(seen, floor) + rise
    return min(seen + 1, floor + _PER_RING - 1)


def goes_on_without(state: ResourceState | None, peer: str) -> bool:
    """Whether a node in that state serves on without a peer, whatever its handler answers.

    With three and more replicas a Primary that DRBD gives a majority waits for no handler. One that
    is being filled counts for that majority and has no data to compare, so the lost peer and that
    one are a majority, too, without what this node acknowledges meanwhile. So the peer is marked
    before it is certain: from the next write on it is behind. Not where nothing is acknowledged
    without it: the peer may be the only one with every write then.
    """
    if state is None or not state.is_primary or not state.has_quorum:
        return False
    if not uses_quorum(len(state.peers) + 1) or state.suspended not in {"no", "user"}:
        return False
    lost = state.with_only_peer(peer).peers
    if not lost or any(each.is_connected for each in lost):
        return False
    return state.disk == "UpToDate" or any(
        each.is_connected and each.disk == "UpToDate" for each in state.peers
    )


def may_mark(state: ResourceState | None, *, is_promoting: bool) -> bool:
    """Whether fence-peer may mark a peer for a node in that state, if it holds the handlers' lock.

    A handler that was called for a Primary may be late. Its node may be no Primary any more and the
    peer may be one now: with a mark on that peer no replica could be promoted. Or the connection is
    back, and DRBD ignores the handler's exit code.

    A promotion needs the peer marked, too, before the node is Primary.
    """
    return is_promoting or (state is not None and state.is_primary and not state.is_connected)


def handler_exit_code(membership: str) -> int:
    """Return what fence-peer answers DRBD for a peer that is certain and marked."""
    return PEER_FENCED if membership == "fenced" else PEER_OUTDATED


def apply_drbd_quorum(
    membership: str,
    *,
    replicas: int,
    is_primary: bool,
    has_quorum: bool | None,
    quorums_intersect: bool,
) -> str:
    """Return a peer's membership, `unknown` where a device of three and more has no majority.

    Args:
        membership: what the cluster knows of the peer, see `peer_membership`.
        replicas: how many replicas the device has.
        is_primary: this node is Primary already; else it is to be promoted.
        has_quorum: DRBD sees a majority of the replicas.
        quorums_intersect: any two quorums of the cluster have a node in common.
    """
    if not is_certain(membership) or not uses_quorum(replicas) or has_quorum:
        return membership
    return membership if is_primary and quorums_intersect else "unknown"


def may_clear(state: ResourceState | None) -> bool:
    """Whether a node in that state may clear its peers' marks, if it holds the handlers' lock.

    Only a Primary sets a mark that counts, and only the Primary knows when it last went on without
    a peer. A standby may notice a broken link seconds after its Primary has gone on without it.

    Not a Primary without a disk, whatever it says of its peer's: see `may_mark_own`.
    """
    return state is not None and state.is_primary and state.is_in_sync


def may_mark_without_disk(
    state: ResourceState | None, peer: str, *, others: Collection[str]
) -> bool:
    """Whether a node in that state may mark that connected peer, which has no data, as outdated.

    A Primary goes on without the peer's disk, and DRBD calls no handler for that. The peer's disk
    lacks what is written from then on, and nothing on it says so: DRBD 9 takes a flag off its
    metadata (drbd_state.c, MDF_WAS_UP_TO_DATE), which fails where the whole disk does; 8.4 not
    even that. With three and four replicas also where no majority is possible without every write:
    the peer may have left in order, unmarked, when one of the others has to be filled.

    `others` are the nodes of the other replicas.
    """
    if state is None or not state.is_primary:
        return False
    peers = state.with_only_peers(others).peers
    has_data = state.disk == "UpToDate" or any(
        each.is_connected and each.disk == "UpToDate" for each in peers
    )
    lost = [each for each in state.with_only_peer(peer).peers if each.is_connected]
    return has_data and bool(lost) and all(each.disk in PEER_WITHOUT_DATA for each in lost)


def is_sync_target(state: ResourceState | None, peer: str) -> bool:
    """Whether a node in that state fills the peer's replica, which has to be marked until its end.

    DRBD's handler before-resync-source marks it. Where `drbdadm` is killed, which starts the
    handler, DRBD 8.4 takes that for the handler's consent (drbd_worker.c, drbd_start_resync: of a
    status only the exit code counts, and a signal has none).
    """
    return state is not None and any(
        each.is_connected and each.replication in {"SyncSource", "PausedSyncS"}
        for each in state.with_only_peer(peer).peers
    )


def could_be_missed(whole: int, *, replicas: int) -> bool:
    """Whether replicas could serve of which none has every write, as far as DRBD counts them.

    With two replicas the other one is enough. With three and four it takes a majority, in which
    DRBD finds the newest of those that have a generation of their own: one that is being filled has
    none, and no disk has none, and both count for DRBD's majority (drbd_state.c, calc_quorum). So
    the replicas with every write have to be so many that no majority is without one.

    `whole` is how many have every write.
    """
    return not uses_quorum(replicas) or replicas - whole > replicas // 2


def is_soon_missed(state: ResourceState, *, others: Collection[str]) -> bool:
    """Whether those without a disk have to be marked before a Primary goes on without another one.

    Else the next monitor is soon enough: no majority is possible without every write.

    `others` are the nodes of the other replicas.
    """
    whole = _count_whole(state, state.with_only_peers(others).peers)
    return could_be_missed(whole, replicas=1 + len(others))


def _count_whole(state: ResourceState, peers: Iterable[PeerState]) -> int:
    """Count the replicas with every write, as a Primary sees them; not those being compared."""
    return (state.disk == "UpToDate") + sum(peer.is_in_sync for peer in peers)


def serves_from_peer(state: ResourceState, *, others: Collection[str]) -> bool:
    """Whether a node in that state is a Primary without a disk that others than it could miss.

    That is: DRBD calls a peer good, and no more of them than could be missed.

    `others` are the nodes of the other replicas.
    """
    return (
        state.is_primary
        and state.disk in NO_DISK
        and _count_whole(state, state.with_only_peers(others).peers) > 0
        and is_soon_missed(state, others=others)
    )


def may_mark_own(
    state: ResourceState | None,
    *,
    is_quorate: bool,
    here: str,
    others: Collection[str],
    marked: Collection[str],
) -> bool:
    """Whether a node in that state marks its own replica, if it holds the handlers' lock.

    DRBD goes on with the peer's disk when a Primary's own one fails. The disk lacks what is written
    from then on, and nothing on it says so: DRBD 8.4 writes nothing more to it, and 9 only what a
    disk that has failed still takes. If the peer is lost before it is Primary, and the disk is good
    again after a restart, it would be served.

    Not by a peer that is marked: it may be behind. DRBD 8.4 calls a peer UpToDate whose resync was
    being prepared when the Primary's disk failed (drbd_state.c, sanitize_state: the resync is
    aborted, and a Consistent peer that is connected becomes UpToDate). Only with quorum: a node
    that is cut off would change its own CIB alone.

    Args:
        state: what DRBD says here.
        is_quorate: this node is in a partition with quorum.
        here: this node.
        others: the nodes of the other replicas.
        marked: the nodes whose replica is marked in the CIB.
    """
    if state is None or not is_quorate or here in marked:
        return False
    if state.has_quorum is None:
        if {*others}.intersection(marked):
            return False  # 8.4 does not say the name of its only peer.
    else:
        state = state._replace(peers=tuple(each for each in state.peers if each.name not in marked))
    return serves_from_peer(state, others=others)


def is_idle_in_sync(state: ResourceState | None, *, peers: int) -> bool:
    """Whether a replica is Secondary, and so are all others, connected and in sync with it.

    `peers` is how many other replicas the device has: DRBD 8.4 forgets a peer that it gave up.
    """
    return (
        state is not None
        and not state.is_primary
        and state.is_in_sync
        and len(state.peers) == peers
        and all(peer.role == "Secondary" for peer in state.peers)
    )


def peer_to_unmark(*, here: str, others: Sequence[str], marked: Collection[str]) -> str | None:
    """Return the peer whose mark a replica removes that `is_idle_in_sync`; None: no mark goes.

    Only where every replica is marked, this one included: then no replica can be promoted, so none
    gets ahead of the others, and the marks contradict nothing. The peer's mark goes and this node's
    stays: a peer that goes on alone needs this replica to be marked. A node that removed its own
    mark could be promoted while the peer, as the source of the last resync, still took it for
    Inconsistent and would go on without asking (sanctl/safety: `unmarks-itself`).

    `others` are the nodes of the other replicas, `marked` those whose replica is marked in the CIB.
    """
    if not others or not {here, *others} <= {*marked}:
        return None
    return min(others)
