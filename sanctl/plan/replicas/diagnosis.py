# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether a device's replicas are sound, diverged, blocked or waited for, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, NodeState
from sanctl.model.device import DeviceSpec, ReplicaState
from sanctl.model.names import NodeName
from sanctl.parse.cib import DISCARD_PREFIX, REVIVE_PREFIX
from sanctl.plan.drbd.data_generations import (
    Generations,
    Relation,
    compare_generations,
    parse_generations,
)

# From the one that is behind to the good one.
_BY_RANK = ("Outdated", "Consistent", "UpToDate")
# What DRBD lets become Primary, by itself or when told that it may.
USABLE_STATES = frozenset(_BY_RANK)
#: What to do where all nodes of a device are there, and none has a replica that is whole.
NO_DATA = (
    "no replica is whole: put back the disk of one that was; if they are gone for good, copies and "
    "backups are what is left ('sanctl report rpo')"
)
_GOOD = frozenset({"UpToDate", "Consistent"})
# Good as far as the replica knows; its knowledge may be old.
_UNCONFIRMED = "Consistent"
_FARTHEST = (Relation.DIVERGED, Relation.UNRELATED)


class Condition(StrEnum):
    """What is wrong with a device's replicas."""

    SOUND = "sound"
    """A node serves, and nothing is to be decided; connections may be down."""
    WAITING = "waiting"
    """No node serves, and an operator cannot or need not decide now: see `waits_for`."""
    DIVERGED = "diverged"
    UNRELATED = "unrelated"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFacts:
    """One replica, as far as it is known."""

    node: NodeName
    state: NodeState
    replica: ReplicaState
    generations: Generations | None
    is_marked: bool
    serves: bool
    is_never_connected: bool = False
    """Never connected since its start, and quorums need not intersect: its mark may be missing.

    Or connected before its peer had joined Pacemaker, which does not count, either."""
    is_drained: bool = False
    """Its node may serve nothing, while its replicas go on."""
    orders: frozenset[str] = frozenset()
    """Attributes of its node with orders of `device heal` that are not carried out yet."""

    @property
    def is_present(self) -> bool:
        """Whether its node is a member and can act."""
        return self.state in MEMBER_STATES

    @property
    def lacks_majority(self) -> bool:
        """Whether DRBD 9 sees no majority of three or four replicas: it lets none be promoted."""
        return "quorum" in (self.replica.suspended or "")

    def generations_towards(self, peer: NodeName) -> Generations | None:
        """Return its generations, with the one from which it counts what that peer lacks."""
        found = dict(self.replica.bitmaps).get(peer.value)
        if found is None or self.generations is None:
            return self.generations if not self.replica.bitmaps else None
        try:
            return self.generations._replace(bitmap=int(found, 16))
        except ValueError:
            return None

    @property
    def is_unconfirmed_in_contact(self) -> bool:
        """Whether it stays so beside a peer, and no resync begins: DRBD 9 promotes none such."""
        is_idle = self.replica.is_connected and self.replica.replication == "Established"
        return self.replica.disk == _UNCONFIRMED and is_idle

    @property
    def is_connected_unjoined(self) -> bool:
        """Whether it is no candidate though in contact: with one whose node has not joined."""
        return self.is_never_connected and _is_in_contact(self.replica)

    def is_connected_with(self, other: ReplicaFacts) -> bool:
        """Whether both replicas are known to be connected to each other."""
        return self.replica.is_connected_with([other.node]) and other.replica.is_connected_with(
            [self.node]
        )

    @property
    def may_serve(self) -> bool:
        """Whether Pacemaker could promote the replica as it is, once its node is not drained."""
        return (
            self.is_present
            and not self.lacks_majority
            and not self.is_marked
            and not self.replica.is_suspect
            and self.replica.disk in _GOOD
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A device's condition, with all its replicas."""

    device: DeviceSpec
    condition: Condition
    replicas: tuple[ReplicaFacts, ...]
    waits_for: str = ""
    """What has to happen before a node serves; empty unless `WAITING`."""

    @property
    def unmarks_itself(self) -> bool:
        """Whether every replica is marked and none differs: an agent then removes one mark.

        See sanctl/agents/fencing/all_marked.py.
        """
        nodes = [facts.node for facts in self.replicas]
        return len(nodes) > 1 and all(
            facts.is_present
            and facts.is_marked
            and not facts.replica.is_suspect
            and facts.replica.is_up_to_date
            and facts.replica.is_connected_with([node for node in nodes if node != facts.node])
            for facts in self.replicas
        )

    def replica_on(self, node: NodeName) -> ReplicaFacts | None:
        """Return what is known of the replica on a node; None where it has none."""
        return next((facts for facts in self.replicas if facts.node == node), None)

    @property
    def key(self) -> tuple[object, ...]:
        """What must not change between what an operator is shown and what is done."""
        return (
            self.condition,
            tuple(
                (
                    facts.node,
                    facts.is_present,
                    facts.replica.disk,
                    facts.replica.is_suspect,
                    facts.replica.is_unflushed_resync,
                    facts.generations,
                    facts.replica.bitmaps,
                    facts.serves,
                    # Another operator's decision.
                    facts.is_marked,
                    facts.orders,
                )
                for facts in self.replicas
            ),
        )


def relation_of(one: ReplicaFacts, other: ReplicaFacts) -> Relation | None:
    """Return how one of several replicas relates to another; None: not known.

    None, too, where one is no state of any moment: half filled, or without its disk, which DRBD
    cannot compare with anything.
    """
    if any(each.replica.disk not in USABLE_STATES for each in (one, other)):
        return None
    if one.is_connected_with(other):
        return relation_in_contact(one, other)
    if not (one.is_present and other.is_present):
        return None
    mine, theirs = one.generations_towards(other.node), other.generations_towards(one.node)
    return None if mine is None or theirs is None else compare_generations(mine, theirs)


def relation_in_contact(one: ReplicaFacts, other: ReplicaFacts) -> Relation:
    """Return how two replicas relate that are connected to each other.

    DRBD has compared their generations. One that is to be resynced from the other calls itself
    Outdated or Consistent until the resync begins (WFBitMap), and so does what its agent published
    last until the next monitor.
    """
    disks = one.replica.disk or "", other.replica.disk or ""
    if not USABLE_STATES.issuperset(disks):
        return Relation.SAME
    mine, theirs = map(_BY_RANK.index, disks)
    if mine == theirs:
        return Relation.SAME
    return Relation.BEHIND if mine < theirs else Relation.AHEAD


def diagnose(cluster: Cluster, device: DeviceSpec) -> Diagnosis:
    """Compare a device's replicas."""
    replicas = tuple(_facts(cluster, device, node) for node in device.nodes)
    condition, waits_for = _condition(replicas)
    return Diagnosis(device=device, condition=condition, replicas=replicas, waits_for=waits_for)


def _facts(cluster: Cluster, device: DeviceSpec, node: NodeName) -> ReplicaFacts:
    replica = cluster.replica(device.name, node)
    return ReplicaFacts(
        node=node,
        state=cluster.mon.state(node),
        replica=replica,
        generations=parse_generations(replica.generations or ""),
        is_marked=cluster.is_marked(device, node),
        serves=node.value in cluster.mon.active_nodes(device.name),
        is_never_connected=_is_withheld(replica) and not _quorums_intersect(cluster, node),
        is_drained=node.value in cluster.cib.drained,
        orders=_orders(cluster, device, node),
    )


def _is_withheld(replica: ReplicaState) -> bool:
    """Whether a replica waits for a peer to join, by its agent's word; else by its disk.

    By its agent's word also one that is in contact, by DRBD, with one whose node has not joined.
    """
    if replica.is_withheld is None:
        return replica.disk == _UNCONFIRMED and not _is_in_contact(replica)
    return replica.is_withheld


def _is_in_contact(replica: ReplicaState) -> bool:
    return replica.is_connected or any(link.is_connected for link in replica.peers)


def _orders(cluster: Cluster, device: DeviceSpec, node: NodeName) -> frozenset[str]:
    names = {f"{prefix}{device.name}" for prefix in (DISCARD_PREFIX, REVIVE_PREFIX)}
    return frozenset(
        name
        for member in cluster.cib.nodes
        if member.name == node
        for name in names & set(member.attributes)
    )


def _quorums_intersect(cluster: Cluster, node: NodeName) -> bool:
    live = cluster.votes_of(node).live
    return live is None or live.votes.quorums_intersect


def _condition(replicas: tuple[ReplicaFacts, ...]) -> tuple[Condition, str]:
    relation = _relation(replicas)
    if relation is Relation.DIVERGED:
        return Condition.DIVERGED, ""
    if relation is Relation.UNRELATED:
        return Condition.UNRELATED, ""
    if any(facts.serves for facts in replicas):
        return Condition.SOUND, ""
    candidates = [facts for facts in replicas if _may_serve(facts, replicas)]
    for facts in candidates:
        if not facts.is_drained:
            return Condition.WAITING, f"Pacemaker may promote the replica on {facts.node}"
    if candidates:
        return Condition.WAITING, drained_text(candidates[0].node)
    # A replica of which nothing is known may be the good one, just starting; a resync that runs
    # ends, and its target may serve then. An agent's first monitor publishes which data it holds.
    unknown = [text for facts in replicas if (text := _what_is_unknown(facts))]
    if unknown:
        return Condition.WAITING, "; ".join(unknown)
    if any(facts.is_present and facts.replica.disk in USABLE_STATES for facts in replicas):
        return Condition.BLOCKED, ""
    absent = [str(facts.node) for facts in replicas if not facts.is_present]
    if absent:
        return Condition.WAITING, f"no usable replica is there: start {' and '.join(absent)}"
    return Condition.WAITING, NO_DATA


def drained_text(node: NodeName) -> str:
    """Return why a good replica is not promoted whose node is drained, and what to do."""
    return f"{node} is drained, so it serves nothing: 'sanctl node undrain {node}'"


def _what_is_unknown(facts: ReplicaFacts) -> str:
    match facts.state:
        case NodeState.UNCLEAN:
            return f"{facts.node} is unclean: it may be serving until it is fenced"
        case NodeState.PENDING:
            return f"{facts.node} is joining the cluster"
    if facts.is_present and facts.replica.disk is None:
        return f"the replica on {facts.node} has published nothing yet"
    if facts.is_present and facts.is_connected_unjoined:
        return (
            f"the replica on {facts.node} is connected to one whose node has not joined Pacemaker:"
            " it is promoted once that has joined"
        )
    if facts.is_never_connected and facts.generations is None:
        return f"the replica on {facts.node} has not published yet which data it holds"
    return ""


def _may_serve(facts: ReplicaFacts, replicas: tuple[ReplicaFacts, ...]) -> bool:
    if facts.is_never_connected and not any(
        each.is_present for each in replicas if each is not facts
    ):
        return False
    return facts.may_serve


def _relation(replicas: tuple[ReplicaFacts, ...]) -> Relation | None:
    """Return how far apart replicas are: of several, as those two that are the farthest."""
    if len(replicas) > 2:
        found = {relation_of(one, other) for one, other in combinations(replicas, 2)}
        return next((each for each in _FARTHEST if each in found), None)
    if len(replicas) != 2 or any(facts.replica.is_connected for facts in replicas):
        return None
    mine, theirs = (facts.generations if facts.is_present else None for facts in replicas)
    return compare_generations(mine, theirs) if mine is not None and theirs is not None else None
