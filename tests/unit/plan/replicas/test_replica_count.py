# SPDX-License-Identifier: GPL-2.0-or-later
"""Whatever the cluster looks like, no step drops what must not be dropped."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.errors import Refused, UsageError
from sanctl.model.cache_policy import NO_CACHE, CacheMode, CachePolicy
from sanctl.model.cib import MoveConstraint
from sanctl.model.cib_change import (
    AddMove,
    RemoveMove,
    RemovePreference,
    SetMark,
    SetNodeAttribute,
    SetNodes,
)
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Instance, MonNode, NodeState, Role
from sanctl.model.device import OutdatedMark, PoolUsage, ReplicaState, Tombstone
from sanctl.model.meta_attribute import MetaAttribute
from sanctl.model.names import DeviceName, NodeName
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.cluster.draining import devices_being_flushed
from sanctl.plan.device.creation_request import DeviceArguments, parse_device_request
from sanctl.plan.device.placement_preview import preview_placement
from sanctl.plan.health.device_health import device_findings
from sanctl.plan.pool.flash_mode import reformat_problems
from sanctl.plan.replicas.pending_change import pending_change_of
from sanctl.plan.replicas.replica_choice import (
    ReplicaRequest,
    parse_replica_request,
    target_nodes,
)
from sanctl.plan.replicas.replica_count import (
    AwaitMove,
    AwaitRole,
    AwaitSync,
    ChangeReplicas,
    ReplicaStep,
    StepContext,
    next_replica_step,
)
from sanctl.plan.replicas.replica_safety import (
    RISK_FEWER_REPLICAS,
    drop_problems,
    is_known_stable,
    is_known_up_to_date,
    up_to_date_primary,
)
from tests.fakes.pacemaker import FakePacemaker
from tests.fakes.topology import wide_topology

VM1 = DeviceName.parse("vm1")
N1, N2, N3 = (NodeName.parse(f"n{k}") for k in (1, 2, 3))
ALL = (N1, N2, N3)
_GOOD = ReplicaState(
    disk="UpToDate",
    connection="Connected",
    replication="Established",
    peer_disk="UpToDate",
    role="Secondary",
    size_bytes=2 << 30,
    suspended="no",
    cache="none",
)


def _base() -> Cluster:
    fake = FakePacemaker(golden="one-device")
    fake.make_storage("n3")
    return Cluster(cib=parse_cib(parse_document(fake.query())), mon=parse_crm_mon(fake.monitor()))


_BASE = _base()
_SIZE = _BASE.cib.devices[0].size.bytes


def world(
    nodes: tuple[NodeName, ...] = (N1, N2),
    *,
    active: NodeName | None = N1,
    states: dict[NodeName, NodeState] | None = None,
    disks: dict[NodeName, ReplicaState] | None = None,
    marked: tuple[NodeName, ...] = (),
    wanted: int | None = None,
    prefer: NodeName | None = None,
    cache: CachePolicy = NO_CACHE,
) -> Cluster:
    """A cluster of three storage nodes with the device where and as it is said."""
    device = replace(
        _BASE.cib.devices[0],
        nodes=nodes,
        replicas=wanted or len(nodes),
        prefer=prefer,
        cache=cache,
        is_stopping=False,
    )
    held = {
        (VM1.value, node.value): replace((disks or {}).get(node, _GOOD), size_bytes=_SIZE)
        for node in nodes
    }
    return Cluster(
        cib=replace(
            _BASE.cib,
            devices=(device,),
            replicas=held,
            tombstones=(),
            moves=(),
            outdated=tuple(
                OutdatedMark(device=VM1.value, node=node, uuid=device.uuid) for node in marked
            ),
            pools={key: replace(usage, free_bytes=1 << 40, total_bytes=1 << 40, error=None)
                   for key, usage in _BASE.cib.pools.items()},
        ),
        mon=replace(
            _BASE.mon,
            nodes=tuple(
                MonNode(name=node.value, state=(states or {}).get(node, NodeState.ONLINE))
                for node in ALL
            ),
            instances=tuple(
                Instance(
                    resource=VM1.value,
                    node=node.value,
                    role=Role.PROMOTED if node == active else Role.UNPROMOTED,
                )
                for node in nodes
            )
            + tuple(
                Instance(resource="sanctl-pool", node=node.value, role=Role.STARTED)
                for node in ALL
            ),
            failures=(),
        ),
    )  # fmt: skip


def step(
    cluster: Cluster,
    request: ReplicaRequest,
    *,
    drbd: str = "8.4.11",
    accepted: str = "",
    now_s: float = 0.0,
) -> ReplicaStep:
    setting = StepContext(
        topology=wide_topology(),
        drbd_version=drbd,
        accepted=frozenset(accepted.split()),
        now_s=now_s,
    )
    return next_replica_step(cluster, VM1, request, setting)


def codes(
    cluster: Cluster, request: ReplicaRequest, *, drbd: str = "8.4.11", accepted: str = ""
) -> list[str]:
    with pytest.raises(Refused) as caught:
        step(cluster, request, drbd=drbd, accepted=accepted)
    return [problem.code for problem in caught.value.problems]


_disks = st.sampled_from(
    [
        _GOOD,
        _GOOD,
        replace(_GOOD, disk="Inconsistent", replication="SyncTarget"),
        replace(_GOOD, peer_disk="Inconsistent", replication="SyncSource"),
        replace(_GOOD, connection="Connecting", peer_disk=None),
        replace(_GOOD, is_settling=True),
        replace(_GOOD, is_suspect=True),
        replace(_GOOD, suspended="fencing"),
        replace(_GOOD, disk="Diskless"),
        replace(_GOOD, disk="Outdated", role="Primary"),
        ReplicaState(),
    ]
)
_nodes = st.lists(st.sampled_from(ALL), unique=True, min_size=1, max_size=3).map(tuple)
_worlds = st.builds(
    world,
    _nodes,
    active=st.sampled_from([N1, N1, N2, N3, None]),
    states=st.dictionaries(st.sampled_from(ALL), st.sampled_from(list(NodeState)), max_size=2),
    disks=st.dictionaries(st.sampled_from(ALL), _disks),
    marked=st.lists(st.sampled_from(ALL), unique=True, max_size=1).map(tuple),
    wanted=st.integers(1, 3),
    prefer=st.sampled_from([None, N1, N2]),
)
_requests = st.builds(
    ReplicaRequest,
    replicas=st.integers(1, 4),
    add=st.lists(st.sampled_from(ALL), unique=True, max_size=2).map(tuple),
    drop=st.lists(st.sampled_from(ALL), unique=True, max_size=2).map(tuple),
).filter(lambda request: not set(request.add) & set(request.drop))


@given(_worlds, _requests, st.sampled_from(["8.4.11", "9.3.3"]), st.booleans())
def test_no_step_drops_the_last_good_replica_or_the_primary(
    cluster: Cluster, request: ReplicaRequest, drbd: str, is_accepted: bool
) -> None:
    device = cluster.cib.devices[0]
    try:
        found = step(cluster, request, drbd=drbd, accepted="SAN-RISK-004" if is_accepted else "")
    except Refused:
        return
    if not isinstance(found, ChangeReplicas):
        return
    assert found.changes and found.words
    moves = [change for change in found.changes if isinstance(change, AddMove)]
    for move in moves:
        assert is_known_stable(cluster, device, move.node) and move.node not in request.drop
    for change in found.changes:
        if not isinstance(change, SetNodes):
            continue
        dropped = set(device.nodes) - set(change.nodes)
        added = set(change.nodes) - set(device.nodes)
        assert not (dropped and added)
        assert len(change.nodes) <= max(2 if drbd.startswith("8") else 4, len(device.nodes))
        lost = sum(is_known_up_to_date(cluster, device, node) for node in dropped)
        if dropped:
            assert any(is_known_stable(cluster, device, node) for node in change.nodes)
            assert cluster.active_node(VM1) not in {node.value for node in dropped}
            assert not any(
                cluster.mon.state(node) in {NodeState.UNCLEAN, NodeState.UNKNOWN}
                for node in dropped
            )
            stones = {
                c.node
                for c in found.changes
                if isinstance(c, SetNodeAttribute) and c.attribute == "sanctl-delete-vm1"
            }
            assert stones == dropped
            left = sum(is_known_stable(cluster, device, node) for node in change.nodes)
            assert not lost or left >= request.replicas or is_accepted
            if device.prefer in dropped:
                assert any(isinstance(c, RemovePreference) for c in found.changes)
        for node in added:
            mark = SetMark(name=VM1, node=node, uuid=device.uuid)
            assert mark in found.changes or cluster.is_marked(device, node)
            assert cluster.mon.state(node) is NodeState.ONLINE
            assert up_to_date_primary(cluster, device) is not None
        if len(change.nodes) > 2 and (added or lost):
            # Or DRBD's quorum would freeze I/O.
            good = sum(is_known_up_to_date(cluster, device, node) for node in change.nodes)
            assert 2 * good > len(change.nodes)


@given(_worlds)
def test_a_pending_change_is_described_in_any_state(cluster: Cluster) -> None:
    device = cluster.cib.devices[0]
    left = pending_change_of(cluster, device)
    counts = len(device.nodes) != device.replicas
    assert not counts or left is not None
    found = {finding.code for finding in device_findings(cluster, device, now_s=0.0)}
    if counts and cluster.active_node(VM1):
        assert "SAN-HLT-056" in found


def test_a_reload_is_waited_for() -> None:
    """Pacemaker shows no node as promoted for a moment; DRBD shows the Primary."""
    primary = replace(_GOOD, role="Primary")
    cluster = world(active=None, disks={N1: primary})
    assert isinstance(step(cluster, ReplicaRequest(replicas=1)), AwaitRole)
    nobody = world(active=None)
    assert codes(nobody, ReplicaRequest(replicas=1)) == ["SAN-REP-002"]
    move = MoveConstraint(device="vm1", node="n2", until="2027-01-01 00:00:00Z")
    moving = replace(nobody, cib=replace(nobody.cib, moves=(move,)))
    assert isinstance(step(moving, ReplicaRequest(replicas=1)), AwaitRole)


_END_S = 1798761600.0  # 2027-01-01 00:00:00Z


def with_move(cluster: Cluster, node: str) -> Cluster:
    move = MoveConstraint(device="vm1", node=node, until="2027-01-01 00:00:00Z")
    return replace(cluster, cib=replace(cluster.cib, moves=(move,)))


def test_a_move_that_is_over_is_made_anew() -> None:
    """Its command was killed: Pacemaker keeps to it no more, and waiting for it had no end."""
    request = ReplicaRequest(replicas=1, drop=(N1,))
    left = with_move(world(), "n2")
    assert isinstance(step(left, request, now_s=_END_S - 1), AwaitMove)
    found = step(left, request, now_s=_END_S + 1)
    assert isinstance(found, ChangeReplicas)
    assert isinstance(found.changes[0], RemoveMove)
    (move,) = (each for each in found.changes if isinstance(each, AddMove))
    assert move.node == N2
    # Nor does a role that no node has come by one that is over.
    nobody = with_move(world(active=None), "n2")
    with pytest.raises(Refused) as refused:
        step(nobody, request, now_s=_END_S + 1)
    assert refused.value.problems[0].code == "SAN-REP-002"


def test_the_new_replica_is_in_sync_before_the_old_one_is_dropped() -> None:
    filling = replace(_GOOD, disk="Inconsistent", replication="SyncTarget")
    cluster = world(disks={N2: filling})
    found = step(cluster, ReplicaRequest(replicas=1, drop=(N1,)))
    assert isinstance(found, AwaitSync) and found.nodes == (N2,)


@pytest.mark.parametrize("active", [N1, N2])
def test_what_filled_a_replica_is_kept_until_all_of_that_is_stable(active: NodeName) -> None:
    """Else a loss of power in the seconds after would leave nobody with what it had brought."""
    settling = replace(_GOOD, is_settling=True)
    cluster = world(active=active, disks={N2: settling})
    found = step(cluster, ReplicaRequest(replicas=1, drop=(N1,)))
    assert isinstance(found, AwaitSync) and found.nodes == (N2,)
    assert "what the resync wrote on n2 is being flushed" in found.seen
    # The replica that was filled may go, as ever.
    if active == N1:
        assert nodes_after(step(cluster, ReplicaRequest(replicas=1, drop=(N2,)))) == (N1,)
    # One whose flush failed is filled again; the other one is what fills it.
    for suspect in (replace(settling, is_suspect=True), replace(_GOOD, is_suspect=True)):
        found = step(world(disks={N2: suspect}), ReplicaRequest(replicas=1, drop=(N1,)))
        assert isinstance(found, AwaitSync) and "flushed" not in found.seen
    (problem,) = drop_problems(cluster, cluster.cib.devices[0], (N1,))
    assert problem.code == "SAN-REP-001" and "is being flushed" in problem.text
    assert problem.text.startswith("n1 has the last replica") and "sanctl-resync" in problem.hint


@pytest.mark.parametrize(
    ("nodes", "replicas", "drbd"),
    [((N1, N2), 1, "8.4.11"), ((N1, N2), 2, "8.4.11"), (ALL, 2, "9.3.3")],
)
def test_where_what_filled_it_is_off_the_flush_is_waited_for_as_well(
    nodes: tuple[NodeName, ...], replicas: int, drbd: str
) -> None:
    """It is not known up to date any more; `node replace` drops it first with DRBD 8.4."""
    alone = replace(_GOOD, connection="Connecting", peer_disk=None)
    filled = replace(alone, disk="Inconsistent")
    request = ReplicaRequest(replicas=replicas, drop=(N1,))

    def seen(replica: ReplicaState) -> Cluster:
        off, disks = {N1: NodeState.OFFLINE}, {N2: replica, N3: filled}
        return world(nodes, active=N2, states=off, disks=disks)

    cluster = seen(replace(alone, is_settling=True))
    found = step(cluster, request, drbd=drbd)
    assert isinstance(found, AwaitSync) and found.nodes == (N2,)
    assert "what the resync wrote on n2 is being flushed" in found.seen
    (problem,) = drop_problems(cluster, cluster.cib.devices[0], (N1,))
    assert problem.code == "SAN-REP-001" and problem.text.startswith("n2 serves device vm1")
    assert "wait for the flush on n2" in problem.hint and "sanctl-resync" in problem.hint
    assert N1 not in nodes_after(step(seen(alone), request, drbd=drbd))
    # One whose flush has failed is not waited for: it is to be filled again.
    for is_settling in (True, False):
        suspect = replace(alone, is_settling=is_settling, is_suspect=True)
        with pytest.raises(Refused) as refused:
            step(seen(suspect), request, drbd=drbd)
        (problem,) = refused.value.problems
        assert problem.text.startswith("n2 serves device vm1") and "flush" not in problem.hint


def test_nor_does_its_node_leave_or_discard_it_before() -> None:
    settling, pool = (
        replace(_GOOD, is_settling=True),
        wide_topology().pool(_BASE.cib.devices[0].pool),
    )
    assert pool is not None
    cases = (
        (world(disks={N2: settling}), True),
        (world(), False),
        (world(ALL, disks={N2: settling}), False),
        (world(ALL, disks={N2: settling, N3: settling}), True),
        (world(ALL, disks={N2: settling}, states={N3: NodeState.OFFLINE}), True),
    )
    for cluster, is_needed in cases:
        assert devices_being_flushed(cluster, N1) == ((VM1,) if is_needed else ())
        refused = reformat_problems(cluster, pool, N1)
        assert [each.code for each in refused] == (["SAN-POOL-020"] if is_needed else [])
        assert all("wait for the flush on n2" in each.hint for each in refused)
    (problem,) = reformat_problems(world(disks={N2: replace(_GOOD, is_suspect=True)}), pool, N1)
    assert "flush" not in problem.hint
    # Nor is a third one stable that lacks what was written since, whatever it calls itself.
    alone = replace(_GOOD, connection="Connecting", peer_disk=None)
    for cluster in (
        world(ALL, disks={N2: settling}, marked=(N3,)),
        world(ALL, disks={N2: settling, N3: alone}),
        world(ALL, disks={N2: settling, N3: alone}, active=N2),
    ):
        assert devices_being_flushed(cluster, N1) == (VM1,)
    assert devices_being_flushed(world(ALL, disks={N2: settling}, active=N3), N1) == ()
    # One that has nothing good itself, or whose peer is suspect, gains nothing by waiting.
    diskless = replace(_GOOD, disk="Diskless")
    for cluster in (
        world(disks={N1: diskless, N2: settling}, active=N2),
        world(disks={N2: replace(settling, is_suspect=True)}),
    ):
        assert devices_being_flushed(cluster, N1) == ()


def test_of_three_the_one_that_is_being_flushed_does_not_count() -> None:
    cluster = world(ALL, disks={N3: replace(_GOOD, is_settling=True)})
    found = step(cluster, ReplicaRequest(replicas=2, drop=(N2,)), drbd=NINE)
    assert isinstance(found, AwaitSync) and found.nodes == (N3,)
    assert nodes_after(step(cluster, ReplicaRequest(replicas=2, drop=(N3,)), drbd=NINE)) == (N1, N2)


NINE = "9.3.3"


_BACK, _THROUGH = (replace(_GOOD, cache=mode) for mode in ("write-back", "write-through"))
_WRITE_BACK = CachePolicy(CacheMode.WRITE_BACK)


def test_writes_in_the_ram_of_two_nodes_are_flushed_before_one_is_dropped() -> None:
    """The dropped replica's files are gone before the other one has noticed, and has flushed."""
    both = dict.fromkeys(ALL, _BACK)
    device = world(disks=both, cache=_WRITE_BACK)
    assert codes(device, ReplicaRequest(replicas=1, drop=(N2,))) == ["SAN-REP-010"]
    # Nor is the Primary moved for that.
    assert codes(device, ReplicaRequest(replicas=1, drop=(N1,))) == ["SAN-REP-010"]
    # A replica that moves is dropped first with DRBD 8.4.
    move = ReplicaRequest(replicas=2, add=(N3,), drop=(N2,))
    assert codes(device, move, accepted=RISK_FEWER_REPLICAS) == ["SAN-REP-010"]
    with pytest.raises(Refused) as refused:
        step(device, ReplicaRequest(replicas=1, drop=(N2,)))
    assert "sanctl device cache vm1 write-through" in refused.value.problems[0].hint
    # Where two stay both have it.
    three = world(ALL, disks=both, cache=_WRITE_BACK)
    assert nodes_after(step(three, ReplicaRequest(replicas=2, drop=(N3,)), drbd=NINE)) == (N1, N2)


def test_what_is_in_ram_is_what_nodes_say_and_not_only_the_policy() -> None:
    one = ReplicaRequest(replicas=1, drop=(N2,))
    through = CachePolicy(CacheMode.WRITE_THROUGH)
    assert codes(world(disks={N1: _BACK}, cache=through), one) == ["SAN-REP-010"]
    unknown = replace(_GOOD, cache="?")
    assert codes(world(disks={N1: unknown}), one) == ["SAN-REP-010"]
    assert codes(world(disks={N1: replace(_GOOD, cache=None)}), one) == ["SAN-REP-010"]
    assert nodes_after(step(world(disks={N1: _THROUGH, N2: _BACK}, cache=through), one)) == (N1,)
    # A verify has them in write-through for a moment.
    both = {N1: _THROUGH, N2: _THROUGH}
    assert codes(world(disks=both, cache=_WRITE_BACK), one) == ["SAN-REP-010"]


def test_a_replica_that_is_away_may_go_once_the_other_one_has_flushed() -> None:
    one, away = ReplicaRequest(replicas=1, drop=(N2,)), {N2: NodeState.OFFLINE}
    alone = replace(_THROUGH, connection="Connecting", peer_disk=None)
    flushed = world(disks={N1: alone}, states=away, cache=_WRITE_BACK)
    assert nodes_after(step(flushed, one)) == (N1,)
    unflushed = world(
        disks={N1: replace(alone, cache="write-back")}, states=away, cache=_WRITE_BACK
    )
    assert codes(unflushed, one) == ["SAN-REP-010"]


def test_nor_is_a_pool_reformatted_before() -> None:
    pool = wide_topology().pool(_BASE.cib.devices[0].pool)
    assert pool is not None
    back = world(disks={N1: _BACK, N2: _BACK}, cache=_WRITE_BACK)
    (problem,) = reformat_problems(back, pool, N1)
    assert problem.code == "SAN-POOL-020" and "sanctl device cache vm1" in problem.hint
    assert reformat_problems(world(disks={N1: _THROUGH, N2: _THROUGH}), pool, N1) == ()


def test_nor_while_nothing_looks_at_the_other_replica() -> None:
    """In maintenance no monitor runs: what the others have published may be from before."""
    pool = wide_topology().pool(_BASE.cib.devices[0].pool)
    assert pool is not None
    good = world(disks={N1: _THROUGH, N2: _THROUGH})
    whole = replace(good, cib=replace(good.cib, properties={"maintenance-mode": "true"}))
    states = {N2: NodeState.MAINTENANCE}
    node = world(disks={N1: _THROUGH, N2: _THROUGH}, states=states)
    (device,) = good.cib.devices
    unmanaged = replace(device, unmanaged_by=(MetaAttribute("vm1", "is-managed", "false"),))
    left = replace(good, cib=replace(good.cib, devices=(unmanaged,)))
    stone = Tombstone(device=VM1.value, node=N1, value=f"{device.uuid} main")
    dropped = world((N2,), active=N2, disks={N2: _THROUGH}, states=states)
    dropped = replace(dropped, cib=replace(dropped.cib, tombstones=(stone,)))
    for cluster in (whole, node, left, dropped):
        assert [each.code for each in reformat_problems(cluster, pool, N1)] == ["SAN-DEV-018"]
    assert reformat_problems(good, pool, N1) == ()


def test_nor_is_a_dropped_replica_discarded_that_may_be_the_best_there_is() -> None:
    """Its files are kept by the pool agent, and went with the pool."""
    pool = wide_topology().pool(_BASE.cib.devices[0].pool)
    assert pool is not None
    served = world((N2,), active=N2)
    gone = world((N2,), active=None, states={N2: NodeState.OFFLINE})
    suspect = world((N2,), active=N2, disks={N2: replace(_GOOD, is_suspect=True)})
    settling = world((N2,), active=N2, disks={N2: replace(_GOOD, is_settling=True)})
    uuid = served.cib.devices[0].uuid

    def refused(cluster: Cluster, value: str, node: NodeName = N1) -> list[str]:
        stone = Tombstone(device=VM1.value, node=node, value=value)
        dropped = replace(cluster, cib=replace(cluster.cib, tombstones=(stone,)))
        problems = reformat_problems(dropped, pool, N1)
        assert all("was dropped, its files are still there" in each.text for each in problems)
        return [each.code for each in problems]

    kept = f"{uuid} {pool.name}"
    assert refused(served, kept) == []
    for cluster in (gone, suspect, settling):
        assert refused(cluster, kept) == ["SAN-POOL-020"]
    # Files of a device that was deleted, in another pool, or on another node.
    assert refused(gone, f"{'0' * 32} {pool.name}") == []
    assert refused(gone, f"{uuid} other") == []
    assert refused(gone, kept, N2) == []


def nodes_after(found: ReplicaStep) -> tuple[NodeName, ...]:
    assert isinstance(found, ChangeReplicas)
    (change,) = (each for each in found.changes if isinstance(each, SetNodes))
    return change.nodes


def test_with_drbd_9_replicas_are_added_one_at_a_time() -> None:
    """Two replicas that are not connected yet would be a majority of three."""
    assert nodes_after(step(world((N1,)), ReplicaRequest(replicas=3), drbd=NINE)) == (N1, N2)
    filling = replace(_GOOD, disk="Inconsistent", replication="SyncTarget")
    found = step(world(disks={N2: filling}), ReplicaRequest(replicas=3), drbd=NINE)
    assert isinstance(found, AwaitSync) and found.nodes == (N2,)
    assert nodes_after(step(world(), ReplicaRequest(replicas=3), drbd=NINE)) == ALL


def test_with_drbd_9_an_absent_replica_is_dropped_before_another_is_added() -> None:
    cluster = world(states={N2: NodeState.OFFLINE})
    assert codes(cluster, ReplicaRequest(replicas=3), drbd=NINE) == ["SAN-REP-007"]
    swap = ReplicaRequest(replicas=2, add=(N3,), drop=(N2,))
    assert nodes_after(step(cluster, swap, drbd=NINE)) == (N1,)
    assert nodes_after(step(world((N1,)), swap, drbd=NINE)) == (N1, N3)


def test_the_wanted_number_alone_is_a_change_too() -> None:
    found = step(world((N1,), wanted=2), ReplicaRequest(replicas=1))
    assert isinstance(found, ChangeReplicas)
    assert found.changes == (SetNodes(name=VM1, nodes=(N1,), replicas=1),)


def test_a_device_that_still_grows_gets_no_replica() -> None:
    cluster = world((N1,))
    small = replace(_GOOD, size_bytes=4096)
    cluster = replace(cluster, cib=replace(cluster.cib, replicas={(VM1.value, "n1"): small}))
    assert codes(cluster, ReplicaRequest(replicas=2)) == ["SAN-REP-005"]


def test_no_replica_is_dropped_for_one_that_its_node_cannot_take_afterwards() -> None:
    """With DRBD 8.4 the drop comes first: the refusal after it left one replica fewer."""
    usable = world(disks={N1: replace(_GOOD, role="Primary")})
    swap = ReplicaRequest(replicas=2, add=(N3,), drop=(N2,))
    assert nodes_after(step(usable, swap, accepted=RISK_FEWER_REPLICAS)) == (N1,)
    full = {**usable.cib.pools, ("main", "n3"): PoolUsage(total_bytes=1 << 40, free_bytes=0)}
    cluster = replace(usable, cib=replace(usable.cib, pools=full))
    assert codes(cluster, swap, accepted=RISK_FEWER_REPLICAS) == ["SAN-POOL-012"]
    away = replace(
        cluster,
        mon=replace(
            cluster.mon,
            nodes=tuple(
                replace(n, state=NodeState.STANDBY) if n.name == "n3" else n
                for n in cluster.mon.nodes
            ),
        ),
    )
    assert codes(away, swap, accepted=RISK_FEWER_REPLICAS) == ["SAN-NODE-003"]


def test_memory_for_the_bitmap_of_a_new_replica_is_needed() -> None:
    """With DRBD 8.4 none is dropped to make room for one that its node cannot take afterwards."""
    lacking = PoolUsage(
        total_bytes=1 << 40, free_bytes=1 << 40, memory_bytes=_SIZE // 32768, bitmaps=1
    )
    enough = replace(lacking, memory_bytes=2 * (_SIZE // 32768))
    for usage, refused in ((lacking, True), (enough, False)):
        two, one = (
            replace(each, cib=replace(each.cib, pools={**each.cib.pools, ("main", "n3"): usage}))
            for each in (world(disks={N1: replace(_GOOD, role="Primary")}), world((N1,), wanted=2))
        )
        swap = ReplicaRequest(replicas=2, add=(N3,), drop=(N2,))
        accepted = RISK_FEWER_REPLICAS
        if refused:
            assert codes(two, swap, accepted=accepted) == ["SAN-NODE-012"]
            assert codes(one, swap) == ["SAN-NODE-012"]
            assert codes(two, ReplicaRequest(replicas=3), drbd=NINE) == [
                "SAN-DEV-005", "SAN-NODE-012",
            ]  # fmt: skip
        else:
            assert nodes_after(step(two, swap, accepted=accepted)) == (N1,)
            assert nodes_after(step(one, swap)) == (N1, N3)
            assert nodes_after(step(two, ReplicaRequest(replicas=3), drbd=NINE)) == ALL


def test_a_lost_replica_comes_back_past_half_of_the_memory_where_that_is_accepted() -> None:
    """Else no node of a cluster that is past that would ever get one."""
    bitmap = _SIZE // 32768
    scarce, more = (
        PoolUsage(total_bytes=1 << 40, free_bytes=free, memory_bytes=memory, bitmaps=1)
        for free, memory in ((1 << 40, -(-bitmap * 4 // 3)), (1 << 39, 4 * bitmap))
    )
    accepted = "SAN-NODE-012"

    def with_nodes(**usages: PoolUsage) -> Cluster:
        one = world((N1,), wanted=2)
        pools = {("main", node): usage for node, usage in usages.items()}
        return replace(one, cib=replace(one.cib, pools={**one.cib.pools, **pools}))

    short = with_nodes(n2=scarce, n3=scarce)
    add = ReplicaRequest(replicas=2, add=(N3,))
    assert codes(short, add) == [accepted]
    assert nodes_after(step(short, add, accepted=accepted)) == (N1, N3)
    chosen = ReplicaRequest(replicas=2)
    assert codes(short, chosen) == ["SAN-DEV-005", accepted, accepted]
    assert len(nodes_after(step(short, chosen, accepted=accepted))) == 2
    # Where one has the memory it is taken, though another has more room.
    assert nodes_after(step(with_nodes(n2=scarce, n3=more), chosen, accepted=accepted)) == (N1, N3)
    lost = replace(scarce, memory_bytes=bitmap)
    assert codes(with_nodes(n2=lost, n3=lost), add, accepted=accepted) == [accepted]
    # With DRBD 8.4 a replica is dropped for one that is accepted, and for no other.
    two = world(disks={N1: replace(_GOOD, role="Primary")})
    two = replace(two, cib=replace(two.cib, pools={**two.cib.pools, ("main", "n3"): scarce}))
    swap = ReplicaRequest(replicas=2, add=(N3,), drop=(N2,))
    assert codes(two, swap, accepted=RISK_FEWER_REPLICAS) == [accepted]
    both = f"{RISK_FEWER_REPLICAS} {accepted}"
    assert nodes_after(step(two, swap, accepted=both)) == (N1,)


def test_of_two_replicas_one_goes_where_the_memory_is() -> None:
    """The nodes that lack it have more room, and both were chosen for that."""
    n4 = NodeName.parse("n4")
    one = world((N1,))
    bitmap = _SIZE // 32768
    usages = {
        ("main", "n2"): PoolUsage(
            total_bytes=1 << 40, free_bytes=1 << 40, memory_bytes=-(-bitmap * 4 // 3), bitmaps=1
        ),
        ("main", "n3"): PoolUsage(
            total_bytes=1 << 40, free_bytes=1 << 39, memory_bytes=8 * bitmap, bitmaps=1
        ),
    }
    usages["main", "n4"] = usages["main", "n2"]
    pool_agent = Instance(resource="sanctl-pool", node="n4", role=Role.STARTED)
    cluster = Cluster(
        cib=replace(one.cib, pools={**one.cib.pools, **usages}),
        mon=replace(
            one.mon,
            nodes=(*one.mon.nodes, MonNode(name="n4", state=NodeState.ONLINE)),
            instances=(*one.mon.instances, pool_agent),
        ),
    )
    plain = wide_topology()
    wide = replace(plain, pools=(replace(plain.pools[0], nodes=(*ALL, n4)),))
    (device,) = cluster.cib.devices

    def chosen(*accepted: str) -> tuple[NodeName, ...]:
        request = ReplicaRequest(replicas=3)
        return target_nodes(cluster, wide, device, request, accepted=accepted)

    with pytest.raises(Refused):
        chosen()
    assert chosen("SAN-NODE-012") == (N1, N3, N2)


def test_refusals() -> None:
    assert codes(world(), ReplicaRequest(replicas=3)) == ["SAN-DEV-004"]
    assert codes(world(), ReplicaRequest(replicas=2, add=(N3,))) == ["SAN-REP-006"]
    nobody = NodeName.parse("n9")
    assert codes(world(), ReplicaRequest(replicas=2, add=(nobody,))) == ["SAN-NODE-001"]
    assert codes(world(), ReplicaRequest(replicas=1, drop=(nobody,))) == ["SAN-NODE-001"]
    assert codes(world(), ReplicaRequest(replicas=4), drbd="9.3.3") == ["SAN-DEV-005"]
    drained = replace(world(), cib=replace(world().cib, drained=frozenset({"n2"})))
    assert codes(drained, ReplicaRequest(replicas=1, drop=(N1,))) == ["SAN-DEV-016"]
    frozen = world(disks={N1: replace(_GOOD, suspended="fencing", role="Primary")})
    assert codes(frozen, ReplicaRequest(replicas=1, drop=(N2,))) == ["SAN-REP-002"]


@pytest.mark.parametrize(
    ("replicas", "add", "drop", "expected"),
    [
        ("0", (), (), ["SAN-DEV-003"]),
        ("two", (), (), ["SAN-DEV-003"]),
        ("2", ("n1",), ("n1",), ["SAN-REP-006"]),
        ("1", ("n1", "n2"), (), ["SAN-REP-006"]),
        ("5", ("N1",), (), ["SAN-DEV-003", "SAN-NAME-003"]),
    ],
)
def test_malformed_requests(
    replicas: str, add: tuple[str, ...], drop: tuple[str, ...], expected: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_replica_request(replicas, add, drop)
    assert [problem.code for problem in caught.value.problems] == expected


def _survey(cluster: Cluster, **more: object) -> dict[str, str]:
    request = replace(DeviceArguments(name="vm9", size="1G", replicas="2"), **more)  # type: ignore[arg-type]
    sites = preview_placement(
        parse_device_request(request), cluster, wide_topology(), drbd_version="8.4.11"
    )
    return {site.node.value: ("+" if site.is_chosen else "") + site.reason for site in sites}


def test_where_a_device_would_go() -> None:
    told = _survey(world((N1,)))
    assert [node for node, why in told.items() if why.startswith("+")] == ["n2", "n3"]
    told = _survey(world(states={N2: NodeState.OFFLINE}))
    assert told["n2"] == "node n2 is offline"
    told = _survey(world(states={N2: NodeState.OFFLINE, N3: NodeState.STANDBY}))
    assert told["n1"] == "2 are needed, and 1 could"
    assert _survey(world(), nodes=("n1", "n2"))["n3"] == "not among the nodes asked for"
    assert _survey(world(), prefer="n3")["n3"] == "+asked for"
    with pytest.raises(Refused):
        _survey(world(), replicas="3")
    with pytest.raises(UsageError):
        _survey(world(), size="ten")


@pytest.mark.parametrize(("holds_run", "is_refused"), [(None, True), ("", True), ("a-1", False)])
def test_a_device_that_awaits_a_site_gets_no_replica_on_a_node_that_lets_hosts_in(
    holds_run: str | None, *, is_refused: bool
) -> None:
    """With DRBD 8.4 none is dropped to make room for it either."""
    two, one = world(disks={N1: replace(_GOOD, role="Primary")}), world((N1,), wanted=2)
    for cluster, request in (
        (two, ReplicaRequest(replicas=2, add=(N3,), drop=(N2,))),
        (two, ReplicaRequest(replicas=2, drop=(N2,))),
        (one, ReplicaRequest(replicas=2, drop=(N2,))),
    ):
        for awaits in ((), ("far",)):
            device = replace(cluster.cib.devices[0], awaits=awaits)
            pools = {
                key: replace(usage, holds_run=holds_run) for key, usage in cluster.cib.pools.items()
            }
            seen = replace(cluster, cib=replace(cluster.cib, devices=(device,), pools=pools))
            if awaits and is_refused:
                assert "SAN-SITE-025" in codes(seen, request, accepted="SAN-RISK-004")
            else:
                assert isinstance(step(seen, request, accepted="SAN-RISK-004"), ChangeReplicas)
