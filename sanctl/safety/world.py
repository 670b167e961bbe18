# SPDX-License-Identifier: GPL-2.0-or-later
"""The safety model's invariants, and its state as fields (replicas, nodes, links); no events.

One device with two replicas, on `a` and `b`; with node-majority a third node `w` votes, or a quorum
device does, which stores no CIB. In prose:

1. At most one node serves, and at most one is Primary.
2. A node that serves has every write that was ever acknowledged.
3. A node out of contact with its peer serves only if the peer's replica knows that it is behind,
   or if the peer's mark is in so many copies of the CIB that no partition can have quorum without
   one of them. So a node that has had no quorum since the connection broke acknowledges nothing
   and serves no stale read: its I/O is frozen.
4. There is always a replica that is not half overwritten and has every acknowledged write, and the
   replicas never diverge.
5. From every state there is a way back to a whole cluster that takes nothing but repair: power,
   links, fencing that works, and the actions of the cluster.

Writes are not counted. What matters of a replica is whether it has every acknowledged write; so the
model covers any number of writes, at any moment.
"""

from __future__ import annotations

from typing import NamedTuple

from sanctl.model.drbd import PeerState, ResourceState

REPLICAS = (0, 1)
NAMES = "abw"

# The handler of a node: its next step, or that it was killed: DRBD calls no other by itself.
NO_HANDLER, ASKS, MARKS, ASKS_AGAIN, KILLED = "", "asks", "marks", "asks again", "killed"
# The source of a resync: connected, and its before-resync-source handler is being called, or is at
# one of the steps above, or has let the resync begin.
NO_RESYNC, PREPARES, FILLS = "", "prepares", "fills"


class Replica(NamedTuple):
    """One replica, its DRBD and its handlers.

    Attributes:
        role: `P`rimary, `S`econdary, `-` not started.
        disk: `U`pToDate, `C`onsistent, `O`utdated, `I`nconsistent; as in the metadata while down.
        is_fresh: has every acknowledged write.
        is_linked: DRBD here takes the connection for established.
        sees_behind: DRBD here takes the peer for Outdated or Inconsistent (also in metadata).
        is_pending: a host's command is neither acknowledged nor failed.
        handler: the step of the fence-peer handler.
        for_primary: the handler was called for a Primary, not for a promotion.
        is_late: the connection came up while the handler ran: DRBD will ignore its exit code.
        is_ordered: a promotion has been ordered and has not ended.
        is_clearing: is in sync, holds the lock, is about to clear the peer's mark.
        has_marked: the mark that the handler has set was not there before; noted where the handler
            would take it back (`Rules.withdraws`).
        resync: as a source: how far the resync is; until it begins, writes are not replicated.
        has_disk: DRBD has its disk; without it `disk` and `is_fresh` are what is on it.
        sees_diskless: DRBD here knows that the connected peer has none.
        agent_marks: whose mark the agent is about to set: because of a lost disk its `own` or the
            `peer`'s, or that of the `target` of a resync from here, or none.
        raises: that mark, or a handler's, raises the CIB above what the peer wrote when alone: the
            peer was fenced when it was asked. One marks at a time, under the lock.
    """

    role: str = "S"
    disk: str = "U"
    is_fresh: bool = True
    is_linked: bool = True
    sees_behind: bool = False
    is_pending: bool = False
    handler: str = NO_HANDLER
    for_primary: bool = False
    is_late: bool = False
    is_ordered: bool = False
    is_clearing: bool = False
    resync: str = NO_RESYNC
    has_marked: bool = False
    has_disk: bool = True
    sees_diskless: bool = False
    agent_marks: str = ""
    raises: bool = False

    @property
    def has_data(self) -> bool:
        """DRBD here has a disk whose data it takes for good; else it serves from the peer's."""
        return self.has_disk and self.disk in {"U", "C"}

    @property
    def is_frozen(self) -> bool:
        """Primary, and DRBD lets no I/O through."""
        return self.role == "P" and not self.is_linked and not self.sees_behind

    @property
    def serves(self) -> bool:
        """A read is answered here, and a write as far as the peer's answer allows."""
        return self.role == "P" and not self.is_frozen

    @property
    def handler_runs(self) -> bool:
        """A fence-peer handler is at work."""
        return self.handler not in {NO_HANDLER, KILLED}

    @property
    def marks_target(self) -> bool:
        """A before-resync-source handler is between its first check and its exit."""
        return self.resync in {MARKS, ASKS_AGAIN}

    @property
    def is_marking(self) -> bool:
        """A handler or the agent is about to set a mark, or has set it and asks again."""
        is_set = self.handler in {MARKS, ASKS_AGAIN} or bool(self.agent_marks)
        return is_set or self.marks_target

    @property
    def holds_lock(self) -> bool:
        """A handler or the agent holds the lock under which marks are set and cleared."""
        return self.is_clearing or self.is_marking


class Node(NamedTuple):
    """One voting node: what corosync and its copy of the CIB say. Sets are bit masks.

    Attributes:
        is_up: has power and runs.
        view: the members that corosync names here; may be out of date.
        epoch: version of the copy of the CIB, also on disk while off.
        marks: which replicas are marked in it.
        active: the nodes on which something runs by the history of actions in the CIB.
        primary: the replicas that are Primary by it, or ordered to be.
        not_down: the lost nodes that no `node_state` calls down here before they are fenced.
        is_new: has booted, and has met no other node since.
        fenced: the members that were fenced, and corosync has not noticed yet that they are gone.
        waits: wait_for_all: has not seen all nodes since it started.
        has_vote: counts the quorum device's vote; noted of a node that is alone.
        is_joining: of two: corosync names the other as a member, and the two have not joined in
            Pacemaker yet: each has a CIB of its own.
    """

    is_up: bool
    view: int
    epoch: int = 0
    marks: int = 0
    active: int = 0b11
    primary: int = 0b11
    not_down: int = 0
    is_new: bool = False
    fenced: int = 0
    waits: bool = False
    has_vote: bool = False
    is_joining: bool = False


class World(NamedTuple):
    """One state of the whole cluster.

    Attributes:
        replicas: of `a` and `b`.
        nodes: `a`, `b`, and `w` if there is one.
        is_synced: the sync network works between a and b.
        apart: the nodes that the heartbeat networks do not reach.
        ahead: whose generation of the data is the newer: `=`, `a`, `b`, or `!` diverged.
        faults: how many faults may still happen.
        lone: the replicas whose mark was left by a handler that was not certain when it asked
            again, or had no answer; noted only by sanctl/safety/lone_marks.py.
        unreached: the nodes that do not reach the quorum device; None where there is none.
        favored: the node that it votes for where it hears two that are alone.
    """

    replicas: tuple[Replica, Replica]
    nodes: tuple[Node, ...]
    is_synced: bool
    apart: int
    ahead: str
    faults: int
    lone: int = 0
    unreached: int | None = None
    favored: int = 0

    def reach(self, node: int) -> int:
        """Return the nodes that this one can exchange messages with, itself included."""
        if self.apart >> node & 1:
            return 1 << node
        mask = 0
        for other, there in enumerate(self.nodes):
            if there.is_up and not self.apart >> other & 1:
                mask |= 1 << other
        return mask

    def unreached_by(self, node: int) -> bool:
        """Whether the quorum device is out of a node's reach."""
        return bool((self.unreached or 0) >> node & 1)

    def is_quorate(self, node: int) -> bool:
        """Whether corosync says that this node has quorum; it may not have noticed a loss yet."""
        here = self.nodes[node]
        if self.unreached is not None:
            return here.is_up and here.view.bit_count() + here.has_vote >= 2
        if len(self.nodes) == 2:
            return here.is_up and not here.waits
        return here.view.bit_count() >= 2


#: The name of an event, and the world after it.
Event = tuple[str, World]


def initial_world(nodes: int, faults: int, *, has_device: bool = False) -> World:
    """Return a healthy cluster of two or three nodes; a serves.

    With `has_device` a quorum device votes, too; that is for two nodes.
    """
    everybody = (1 << nodes) - 1
    primary = 0b01 if nodes > 2 else 0b11
    return World(
        replicas=(Replica(role="P"), Replica()),
        nodes=(Node(is_up=True, view=everybody, primary=primary),) * nodes,
        is_synced=True,
        apart=0,
        ahead="=",
        faults=faults,
        unreached=0 if has_device else None,
    )


def with_replica(world: World, i: int, replica: Replica) -> World:
    """Return the world with another state of one replica."""
    if replica.raises and not replica.is_marking:
        replica = replica._replace(raises=False)
    a, b = world.replicas
    return world._replace(replicas=(replica, b) if i == 0 else (a, replica))


def with_node(world: World, i: int, node: Node) -> World:
    """Return the world with another state of one node."""
    nodes = world.nodes
    return world._replace(nodes=(*nodes[:i], node, *nodes[i + 1 :]))


def drbd_state(replica: Replica) -> ResourceState | None:
    """Return what `drbdsetup events2` would say on that node."""
    if replica.role == "-":
        return None
    is_syncing = replica.sees_behind or replica.disk == "I" or replica.resync != NO_RESYNC
    disk = replica.disk if replica.has_disk else "D"
    seen = "D" if replica.sees_diskless else "I" if replica.sees_behind else "U"
    return _drbd_state(replica.role, disk, replica.is_linked, seen, is_syncing)


_WORDS = {
    "U": "UpToDate",
    "C": "Consistent",
    "O": "Outdated",
    "I": "Inconsistent",
    "D": "Diskless",
}
_STATES: dict[tuple[str, str, bool, str, bool], ResourceState] = {}


def _drbd_state(
    role: str, disk: str, is_linked: bool, seen: str, is_syncing: bool
) -> ResourceState:
    key = (role, disk, is_linked, seen, is_syncing)
    if key not in _STATES:
        replication = "SyncTarget" if disk == "I" else "SyncSource"
        lost = "Outdated" if seen == "I" else "DUnknown"
        peer = PeerState(
            name="peer",
            connection="Connected" if is_linked else "Connecting",
            # Of a connected peer the worst for the rules: only a Secondary lets a mark go.
            role="Secondary" if is_linked else "Unknown",
            replication=(replication if is_syncing else "Established") if is_linked else "Off",
            disk=_WORDS[seen] if is_linked else lost,
            out_of_sync_kib=None,
        )
        role_word = "Primary" if role == "P" else "Secondary"
        _STATES[key] = ResourceState("vol1", role_word, "no", _WORDS[disk], None, (peer,))
    return _STATES[key]


def broken_invariant(world: World, *, may_freeze_beside: bool = False) -> str | None:
    """Return which of the invariants 1 to 4 is broken, None where none is.

    With `may_freeze_beside` a Primary that is frozen may be beside one that serves.
    """
    a, b = world.replicas
    if may_freeze_beside and a.serves and b.serves:
        return "1: both nodes serve"
    if not may_freeze_beside and a.role == b.role == "P":
        return "1: both nodes are Primary"
    for i, here, there in ((0, a, b), (1, b, a)):
        if not here.serves:
            continue
        if not (here.is_fresh if here.has_data else _reaches_data(world, there)):
            return f"2: {NAMES[i]} serves without having every acknowledged write"
        if here.is_linked or there.disk in {"O", "I"}:
            continue
        holders = sum(node.marks >> (1 - i) & 1 for node in world.nodes)
        needed = 2 if len(world.nodes) == 3 else 1
        if holders < needed or not world.nodes[i].marks >> (1 - i) & 1:
            return f"3: {NAMES[i]} serves alone, and nothing keeps {NAMES[1 - i]} from it"
    if not any(replica.is_fresh and replica.disk != "I" for replica in world.replicas):
        return "4: no whole replica has every acknowledged write"
    if world.ahead == "!":
        return "4: the replicas have diverged"
    return None


def _reaches_data(world: World, there: Replica) -> bool:
    """Whether a node that serves from its peer's disk answers with every acknowledged write.

    It answers nothing where the peer is out of reach.
    """
    a, b = world.replicas
    is_reached = world.is_synced and a.is_linked and b.is_linked
    return not is_reached or (there.is_fresh and there.has_disk and there.disk == "U")


def is_whole(world: World) -> bool:
    """Whether the cluster is healthy: served, redundant, and ready for the next fault."""
    a, b = world.replicas
    return (
        {a.role, b.role} == {"P", "S"}
        and world.is_synced
        and not world.apart
        and not world.unreached
        and all(
            node.is_up
            and node.view == (1 << len(world.nodes)) - 1
            and not node.marks
            and not node.is_joining
            for node in world.nodes
        )
        and all(
            replica.disk == "U"
            and replica.has_disk
            and replica.is_linked
            and not replica.sees_behind
            and not replica.is_pending
            and not replica.handler
            and not replica.resync
            for replica in world.replicas
        )
    )


def world_text(world: World) -> str:
    """Return one line for a reader of a trace."""
    parts = []
    for i, replica in enumerate(world.replicas):
        words = [f"{NAMES[i]}:{replica.role}{replica.disk}"]
        words += ["serves"] * replica.serves + ["FROZEN"] * replica.is_frozen
        words += [] if replica.is_fresh else ["stale"]
        words += [] if replica.has_disk else ["DISKLESS"]
        words += [] if replica.is_linked or replica.role == "-" else ["unlinked"]
        words += [f"handler {replica.handler}"] if replica.handler else []
        words += [replica.resync + " its peer"] if replica.resync else []
        words += ["ordered"] * replica.is_ordered + ["clearing"] * replica.is_clearing
        if not world.nodes[i].is_up:
            words = [f"{NAMES[i]}:off{replica.disk}", *([] if replica.is_fresh else ["stale"])]
        parts.append(" ".join(words))
    cibs = []
    for i, node in enumerate(world.nodes):
        marked = "".join(NAMES[j] for j in REPLICAS if node.marks >> j & 1)
        vote = "+vote" if node.has_vote else ""
        cibs.append(f"{NAMES[i]}@{node.epoch}{'!' + marked if marked else ''}{vote}")
    return f"{' | '.join(parts)} | CIB {' '.join(cibs)}"
