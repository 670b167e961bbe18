# SPDX-License-Identifier: GPL-2.0-or-later
"""Which kinds of fault a chaos run injects, and where: scenarios by name, random ones by seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import get_args

from sanctl.lab.chaos.fault import (
    ACTIVE,
    STANDBY,
    WITNESS,
    AgentKilled,
    BadDisk,
    ClockJump,
    CopyKilled,
    CutDuringMove,
    DaemonKilled,
    DuringResync,
    Fault,
    FilesystemFull,
    OneWayLoss,
    Partition,
    PoolsFull,
    PowerCut,
    PowerCutSeries,
    Reboot,
    SiteFull,
    SiteLinkCut,
    SlowLink,
)

CLUSTER_DAEMONS = (
    "corosync",
    "pacemakerd",
    "pacemaker-based",
    "pacemaker-fenced",
    "pacemaker-execd",
    "pacemaker-attrd",
    "pacemaker-schedulerd",
    "pacemaker-controld",
)
HOST_DAEMONS = ("iscsid", "multipathd")
#: Steps of the device agent's promotion and demotion.
AGENT_STEPS = ("alua", "gate", "secondary", "primary")
NETWORKS = ("iscsi", "sync", "hb")
#: The networks of Corosync's links; only a cut of both divides the membership.
MEMBERSHIP = ("sync", "hb")
_DISKS = ("fail", "flaky", "dust", "slow", "hang")

# Moments in a move of two to four seconds; at 0 the link is cut before it.
_MOVE_MOMENTS_S = (0.0, 0.5, 1.0, 1.5, 2.5)
_ROUNDS = 4
# Of random faults the first is a series of power cuts, and then every fifth: so every run has one.
_SERIES_EVERY = 5
_SERIES = "power-cut-series"
_LONGEST_GAP_S = 10.0
# With a second site every fifth fault is of that, too, halfway between two series.
_SITE_AFTER_SERIES = 2
COPY_ENDS = ("sender", "receiver")
# Of a copy on a busy machine: ssh, the restore point, what is sent, the digests.
_LONGEST_COPY_S = 12.0
# The share of random partitions that DRBD and the hosts do not notice.
_COROSYNC_ONLY = 0.3

KINDS: Mapping[str, type[Fault]] = {
    re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower(): kind for kind in get_args(Fault)
}
"""The kinds of faults by their names on the command line."""
SITE_KINDS = frozenset({"site-link-cut", "site-full", "copy-killed"})
"""Those that take a second site."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesByRole:
    """The names of a laboratory's machines by their role.

    Attributes:
        storage: members that hold data.
        witnesses: members that hold none.
        hosts: the initiators.
        qnetd_hosts: the quorum device's host, which is no member and only on the heartbeat network.
        site_server: the host that is the server of a second site; empty: there is none.
    """

    storage: tuple[str, ...]
    witnesses: tuple[str, ...]
    hosts: tuple[str, ...]
    qnetd_hosts: tuple[str, ...] = ()
    site_server: str = ""

    @property
    def cluster(self) -> tuple[str, ...]:
        """All members of the cluster."""
        return self.storage + self.witnesses


def bipartitions(nodes: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return one side of every way to divide the nodes in two, the smaller side of each.

    Of two sides of the same size it is the one without the first node.
    """
    return tuple(
        side
        for size in range(1, len(nodes) // 2 + 1)
        for side in combinations(nodes, size)
        if 2 * size < len(nodes) or nodes[0] not in side
    )


def network_sets() -> tuple[tuple[str, ...], ...]:
    """Return what is cut in the table of partitions: each network, membership, everything."""
    return (*((network,) for network in NETWORKS), MEMBERSHIP, NETWORKS)


def partitions(roles: NodesByRole) -> tuple[Fault, ...]:
    """Return every bipartition of the cluster on every set of networks.

    Hosts are always on the side that is not named. So where the iscsi network is cut and the sides
    are of the same size, each side is tried. The quorum device's host is divided like a member.
    """
    all_voters = roles.cluster + roles.qnetd_hosts
    found = [
        Partition(networks=networks, side=each)
        for networks in network_sets()
        for side in bipartitions(all_voters)
        for each in _sides(all_voters, side, has_hosts="iscsi" in networks)
        if not {*each} & {*roles.qnetd_hosts}
    ]
    return (*found, *(Partition(networks=("hb",), side=(voter,)) for voter in roles.qnetd_hosts))


def _sides(
    nodes: tuple[str, ...], side: tuple[str, ...], *, has_hosts: bool
) -> tuple[tuple[str, ...], ...]:
    if not has_hosts or 2 * len(side) < len(nodes):
        return (side,)
    return (tuple(node for node in nodes if node not in side), side)


def fencing_races(roles: NodesByRole) -> tuple[Fault, ...]:
    """Return repeated cuts of all membership links, after which two nodes race to fence each other.

    Either may win: the node cut off is the active one and the standby in turn. In every other round
    the replicas stay connected.
    """
    del roles
    return tuple(
        Partition(
            networks=MEMBERSHIP,
            side=(node,),
            hold_s=10.0 + number,
            is_corosync_only=number % 2 == 1,
        )
        for number in range(_ROUNDS)
        for node in (ACTIVE, STANDBY)
    )


def power_cuts(roles: NodesByRole) -> tuple[Fault, ...]:
    """Return the power cuts: each role, every two at once, all at once."""
    single: list[Fault] = [PowerCut(nodes=(ACTIVE,)), PowerCut(nodes=(STANDBY,))]
    if roles.witnesses:
        single.append(PowerCut(nodes=(WITNESS,)))
    pairs = [PowerCut(nodes=pair) for pair in combinations(roles.cluster, 2)]
    everything = [PowerCut(nodes=roles.cluster)] if len(roles.cluster) > 2 else []
    return (*single, *pairs, *everything)


def daemon_kills(roles: NodesByRole) -> tuple[Fault, ...]:
    """Return SIGKILL for each daemon: the cluster's on the active node, the hosts' on a host."""
    return (
        *(DaemonKilled(node=ACTIVE, daemon=daemon) for daemon in CLUSTER_DAEMONS),
        *(DaemonKilled(node=ACTIVE, daemon="corosync-qdevice") for _ in roles.qnetd_hosts),
        *(DaemonKilled(node=voter, daemon="corosync-qnetd") for voter in roles.qnetd_hosts),
        *(DaemonKilled(node=roles.hosts[0], daemon=daemon) for daemon in HOST_DAEMONS),
    )


def storage_faults(roles: NodesByRole) -> tuple[Fault, ...]:
    """Return every disk fault and full filesystem, on the standby, the active node, and both."""
    found: list[Fault] = []
    for node in (STANDBY, ACTIVE):
        found += [BadDisk(node=node, does=does) for does in _DISKS]
        found += [FilesystemFull(node=node, place=place) for place in ("pool", "root")]
    return (*found, PoolsFull(nodes=roles.storage, hosts=roles.hosts))


def link_faults(roles: NodesByRole) -> tuple[Fault, ...]:
    """Return asymmetric, lossy and slow links."""
    host = roles.hosts[0]
    return (
        OneWayLoss(network="sync", source=ACTIVE, target=STANDBY),
        OneWayLoss(network="sync", source=STANDBY, target=ACTIVE),
        OneWayLoss(network="hb", source=ACTIVE, target=STANDBY),
        OneWayLoss(network="iscsi", source=ACTIVE, target=host),
        OneWayLoss(network="iscsi", source=host, target=ACTIVE),
        OneWayLoss(network="sync", source=ACTIVE, target=STANDBY, loss_pct=20),
        OneWayLoss(network="hb", source=STANDBY, target=ACTIVE, loss_pct=30),
        SlowLink(network="sync", node=ACTIVE, delay_ms=50),
        SlowLink(network="iscsi", node=ACTIVE, delay_ms=50),
    )


def operations(roles: NodesByRole) -> tuple[Fault, ...]:
    """Return killed agents, moves without a sync link, typed reboots and wrong clocks."""
    del roles
    return (
        *(AgentKilled(step=step) for step in AGENT_STEPS),
        *(CutDuringMove(after_s=after_s) for after_s in _MOVE_MOMENTS_S),
        Reboot(node=STANDBY),
        Reboot(node=ACTIVE),
        ClockJump(node=ACTIVE, seconds=3600),
        ClockJump(node=STANDBY, seconds=-3600),
    )


def faults_during_resync(roles: NodesByRole) -> tuple[Fault, ...]:
    """Return second faults during the resync after a first one."""
    del roles
    return (
        DuringResync(node=STANDBY, then=PowerCut(nodes=(STANDBY,))),
        DuringResync(node=STANDBY, then=PowerCut(nodes=(ACTIVE,))),
        DuringResync(node=STANDBY, then=Partition(networks=("sync",), side=(STANDBY,))),
        DuringResync(node=STANDBY, then=PowerCut(nodes=(ACTIVE, STANDBY))),
    )


def quick(roles: NodesByRole) -> tuple[Fault, ...]:
    """Return the shortest fault of every kind that costs neither a fencing nor a restart."""
    return (
        OneWayLoss(network="sync", source=ACTIVE, target=STANDBY, loss_pct=20, hold_s=5),
        SlowLink(network="iscsi", node=ACTIVE, delay_ms=30, hold_s=4),
        ClockJump(node=STANDBY, seconds=3600, hold_s=4),
        DaemonKilled(node=STANDBY, daemon="pacemaker-attrd", hold_s=2),
        FilesystemFull(node=STANDBY, place="root", hold_s=4),
        BadDisk(node=STANDBY, does="slow", hold_s=4),
        PoolsFull(nodes=roles.storage, hosts=roles.hosts, hold_s=4),
        Partition(networks=("sync",), side=(STANDBY,), hold_s=5),
    )


def each_kind(roles: NodesByRole) -> tuple[Fault, ...]:
    """Return one fault of every kind: the quick ones, then those that cost a node or an agent.

    The series and the fault during a resync have power cuts in them, so there is none by itself.
    """
    return (
        *quick(roles),
        AgentKilled(step="gate"),
        CutDuringMove(after_s=1.0, hold_s=5),
        Reboot(node=STANDBY),
        Partition(networks=NETWORKS, side=(ACTIVE,), hold_s=10),
        DuringResync(node=STANDBY, then=PowerCut(nodes=(ACTIVE,))),
        PowerCutSeries(
            cuts=(WITNESS, STANDBY), gaps_s=(3.0,), power_on=(STANDBY, WITNESS), hold_s=5
        ),
    )


def site_faults(roles: NodesByRole) -> tuple[Fault, ...]:
    """Return every kind of fault of the second site; the link of one node, and of all."""
    server = roles.site_server
    return (
        SiteLinkCut(nodes=(ACTIVE,), server=server),
        SiteLinkCut(nodes=roles.storage, server=server),
        SiteFull(server=server),
        *(CopyKilled(end=end, after_s=after_s) for end in COPY_ENDS for after_s in (0.5, 3.0)),
    )


FAULT_LISTS: Mapping[str, Callable[[NodesByRole], tuple[Fault, ...]]] = {
    "quick": quick,
    "each-kind": each_kind,
    "power": power_cuts,
    "partitions": partitions,
    "races": fencing_races,
    "links": link_faults,
    "daemons": daemon_kills,
    "storage": storage_faults,
    "operations": operations,
    "double": faults_during_resync,
    "site": site_faults,
}


def random_faults(
    roles: NodesByRole, seed: int, count: int, kinds: Collection[str] = ()
) -> tuple[Fault, ...]:
    """Return `count` faults that the seed decides, and nothing else.

    The first one and then every fifth is a series of power cuts. For the others all kinds are
    equally likely, however many faults there are of each. With a second site every fifth fault is
    of its kinds, and the others may be. With `kinds`, names of `KINDS`, only these kinds are
    chosen, equally likely.
    """
    choose = random.Random(f"sanctl-chaos/{seed}")  # noqa: S311 - to be repeated, no secret
    makers = _makers(roles)
    allowed = [maker for kind, maker in makers.items() if not kinds or kind in kinds]
    of_site = [maker for kind, maker in makers.items() if kind in SITE_KINDS]

    def maker_of(number: int) -> Callable[[random.Random], Fault]:
        if not kinds and number % _SERIES_EVERY == 0:
            return makers[_SERIES]
        if not kinds and of_site and number % _SERIES_EVERY == _SITE_AFTER_SERIES:
            return choose.choice(of_site)
        return choose.choice(allowed)

    return tuple(maker_of(number)(choose) for number in range(count))


def _random_series(choose: random.Random, cluster: tuple[str, ...]) -> PowerCutSeries:
    """Return two or three power cuts of any members of the cluster, also of one member twice."""
    cuts = tuple(choose.choices(cluster, k=choose.randint(2, 3)))
    nodes = sorted(set(cuts))
    return PowerCutSeries(
        cuts=cuts,
        gaps_s=tuple(round(choose.uniform(0, _LONGEST_GAP_S), 1) for _ in cuts[1:]),
        power_on=tuple(choose.sample(nodes, len(nodes))),
        power_on_gap_s=choose.choice((0.0, round(choose.uniform(1, 15), 1))),
        after_crash_of=choose.choice(("", choose.choice(cluster))),
        hold_s=float(choose.randint(2, 20)),
    )


def _makers(roles: NodesByRole) -> Mapping[str, Callable[[random.Random], Fault]]:
    """Return a maker of random faults for each of `KINDS` that the laboratory can have."""
    cluster, storage, hosts = roles.cluster, roles.storage, roles.hosts

    def some(choose: random.Random, nodes: tuple[str, ...], at_most: int) -> tuple[str, ...]:
        return tuple(sorted(choose.sample(nodes, choose.randint(1, min(at_most, len(nodes))))))

    def hold_s(choose: random.Random, low: int, high: int) -> float:
        return float(choose.randint(low, high))

    def pair(choose: random.Random, network: str) -> tuple[str, str]:
        nodes = cluster if network != "iscsi" else storage + hosts
        source, target = choose.sample(nodes, 2)
        if network == "iscsi" and {source, target} <= set(hosts):
            target = choose.choice(storage)
        return source, target

    def one_way(choose: random.Random) -> Fault:
        network = choose.choice(NETWORKS)
        source, target = pair(choose, network)
        loss_pct = choose.choice((5.0, 20.0, 50.0, 100.0))
        return OneWayLoss(network=network, source=source, target=target, loss_pct=loss_pct,
                      hold_s=hold_s(choose, 5, 20))  # fmt: skip

    def kill(choose: random.Random) -> Fault:
        if choose.random() < 0.25:
            return DaemonKilled(node=choose.choice(hosts), daemon=choose.choice(HOST_DAEMONS))
        return DaemonKilled(node=choose.choice(cluster), daemon=choose.choice(CLUSTER_DAEMONS))

    def then(choose: random.Random) -> PowerCut | Partition:
        if choose.random() < 0.5:
            return PowerCut(nodes=some(choose, storage, 2))
        return Partition(networks=choose.choice(network_sets()), side=(choose.choice(cluster),))

    def partition(choose: random.Random) -> Fault:
        networks = choose.choice(network_sets())
        return Partition(
            networks=networks,
            side=choose.choice(bipartitions(cluster)),
            hold_s=hold_s(choose, 3, 25),
            # Corosync has no link on the iscsi network.
            is_corosync_only=networks != ("iscsi",) and choose.random() < _COROSYNC_ONLY,
        )

    def power_cut(choose: random.Random) -> Fault:
        return PowerCut(nodes=some(choose, cluster, len(cluster)), hold_s=hold_s(choose, 2, 15))

    of_site = _site_makers(roles) if roles.site_server else {}
    return of_site | {
        "power-cut": power_cut,
        _SERIES: lambda choose: _random_series(choose, cluster),
        "partition": partition,
        "one-way-loss": one_way,
        "slow-link": lambda choose: SlowLink(
            network=choose.choice(NETWORKS),
            node=choose.choice(storage),
            delay_ms=choose.choice((10.0, 50.0, 200.0)),
            hold_s=hold_s(choose, 5, 15),
        ),
        "daemon-killed": kill,
        "bad-disk": lambda choose: BadDisk(
            node=choose.choice(storage), does=choose.choice(_DISKS), hold_s=hold_s(choose, 3, 15)
        ),
        "filesystem-full": lambda choose: FilesystemFull(
            node=choose.choice(storage),
            place=choose.choice(("pool", "root")),
            hold_s=hold_s(choose, 5, 15),
        ),
        "pools-full": lambda choose: PoolsFull(
            nodes=storage,
            hosts=hosts,
            # Beyond the ledgers' blocks, and not beyond the device (chaos/commands.py).
            at_mib=choose.randint(16, 120),
            hold_s=hold_s(choose, 5, 40),
        ),
        "clock-jump": lambda choose: ClockJump(
            node=choose.choice(cluster), seconds=choose.choice((-3600, -60, 60, 3600, 86400))
        ),
        "agent-killed": lambda choose: AgentKilled(step=choose.choice(AGENT_STEPS)),
        "cut-during-move": lambda choose: CutDuringMove(
            after_s=choose.choice(_MOVE_MOMENTS_S), hold_s=hold_s(choose, 3, 15)
        ),
        "reboot": lambda choose: Reboot(node=choose.choice(cluster)),
        "during-resync": lambda choose: DuringResync(
            node=choose.choice(storage), then=then(choose)
        ),
    }


def _site_makers(roles: NodesByRole) -> dict[str, Callable[[random.Random], Fault]]:
    server, links = roles.site_server, (*((node,) for node in roles.storage), roles.storage)
    return {
        "site-link-cut": lambda choose: SiteLinkCut(
            nodes=choose.choice(links), server=server, hold_s=float(choose.randint(5, 60))
        ),
        "site-full": lambda choose: SiteFull(server=server, hold_s=float(choose.randint(10, 60))),
        "copy-killed": lambda choose: CopyKilled(
            end=choose.choice(COPY_ENDS),
            after_s=round(choose.uniform(0, _LONGEST_COPY_S), 1),
        ),
    }
