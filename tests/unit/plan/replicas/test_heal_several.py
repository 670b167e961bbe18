# SPDX-License-Identifier: GPL-2.0-or-later
"""Three and four replicas that cannot go on by themselves: what differs, what each choice loses."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import pytest

from sanctl.errors import Refused
from sanctl.model.cib_change import RemoveMark, SetMark, SetNodeAttribute
from sanctl.model.crm_mon import NodeState
from sanctl.model.device import DeviceSpec, PeerLink, ReplicaState
from sanctl.model.names import ByteSize, DeviceName, NodeName, PoolName
from sanctl.parse.published_state import parse_replica_state
from sanctl.plan.drbd.data_generations import Relation, parse_generations
from sanctl.plan.replicas import diagnosis, heal
from sanctl.plan.replicas.diagnosis import Condition, Diagnosis, ReplicaFacts, relation_of
from sanctl.plan.replicas.heal import loss_of_keeping

NODES = tuple(map(NodeName.parse, ("n1", "n2", "n3", "n4")))
N1, N2, N3, N4 = NODES
DEVICE = DeviceSpec(
    name=DeviceName.parse("vm1"), uuid="a" * 32, size=ByteSize.parse("1G"),
    pool=PoolName.parse("main"), replicas=3, nodes=NODES[:3], minor=1, initiators=(),
)  # fmt: skip
OLD, COMMON = 0xD0, 0xC0


def facts(
    node: NodeName,
    current: int = 0xA0,
    *,
    disk: str = "UpToDate",
    linked: tuple[NodeName, ...] = (),
    counts_from: int = 0,
    nodes: int = 3,
    online: NodeState = NodeState.ONLINE,
    quorum: bool = True,
    marked: bool = False,
    serves: bool = False,
    suspect: bool = False,
    unstable: bool = False,
    last: bool = False,
    known: bool = True,
    kib: int | None = None,
) -> ReplicaFacts:
    """A replica; `counts_from` is the generation from which it counts what each peer lacks."""
    peers = [peer for peer in NODES[:nodes] if peer != node]
    links = tuple(
        PeerLink(
            node=peer.value,
            connection="Connected" if peer in linked else "Connecting",
            replication="Established" if peer in linked else "Off",
            disk="UpToDate" if peer in linked else "DUnknown",
        )
        for peer in peers
    )
    text = f"{current:016X}:{0:016X}:{OLD:016X}:{0:016X}"
    state = ReplicaState(
        disk=disk,
        connection="Connected" if len(linked) == len(peers) else "Connecting",
        suspended="no" if quorum else "quorum",
        out_of_sync_kib=kib,
        generations=text if known else None,
        bitmaps=tuple((peer.value, f"{counts_from:016X}") for peer in peers) if known else (),
        peers=links,
        is_suspect=suspect or unstable,
        is_unflushed_resync=unstable,
        is_unflushed_cache=suspect,
        was_last_primary=last,
    )
    return ReplicaFacts(
        node=node,
        state=online,
        replica=state,
        generations=parse_generations(text) if known else None,
        is_marked=marked,
        serves=serves,
    )


def diagnosed(*replicas: ReplicaFacts) -> Diagnosis:
    condition, waits_for = diagnosis._condition(replicas)
    return Diagnosis(device=DEVICE, condition=condition, replicas=replicas, waits_for=waits_for)


def refusal(shown: Diagnosis, keep: NodeName) -> str:
    with pytest.raises(Refused) as caught:
        loss_of_keeping(shown, keep)
    problem = caught.value.problems[0]
    return f"{problem.code} {problem.text} {problem.hint}"


def changes(shown: Diagnosis, keep: NodeName) -> list[object]:
    kept = shown.replica_on(keep)
    assert kept is not None
    loss_of_keeping(shown, keep)
    others = [each for each in shown.replicas if each is not kept]
    return list(heal._changes(shown, kept, others))


def gone(node: NodeName, state: NodeState = NodeState.OFFLINE) -> ReplicaFacts:
    return facts(node, online=state, disk="UpToDate", known=False)


behind = partial(facts, disk="Outdated")
alone = partial(facts, quorum=False)


def test_what_several_replicas_publish_is_read() -> None:
    read = parse_replica_state(
        "disk=Outdated connection=Connecting,Connected replication=Off,Established "
        "peer-disk=DUnknown,UpToDate peers=n2,n3 suspended=quorum gi=A:0:0:0 bitmaps=n2:B0,n3:C0"
    )
    assert read.bitmaps == (("n2", "B0"), ("n3", "C0"))
    assert parse_replica_state("disk=UpToDate").bitmaps == ()


def test_all_are_marked_and_nothing_is_lost_by_any_choice() -> None:
    shown = diagnosed(
        facts(N1, linked=(N2, N3), marked=True),
        facts(N2, linked=(N1, N3), marked=True),
        facts(N3, linked=(N1, N2), marked=True),
    )
    assert shown.condition is Condition.BLOCKED
    assert shown.unmarks_itself
    lost = loss_of_keeping(shown, N2)
    assert lost.bytes_at_most == 0 and lost.text.startswith("nothing")
    assert changes(shown, N2) == [RemoveMark(name=DEVICE.name, node=N2)]


def test_the_one_that_served_is_gone_for_good() -> None:
    """Two of three: a majority, and neither may serve, as both know that they are behind."""
    shown = diagnosed(
        gone(N1), behind(N2, linked=(N3,), marked=True), behind(N3, linked=(N2,), marked=True)
    )
    assert shown.condition is Condition.BLOCKED
    lost = loss_of_keeping(shown, N2)
    assert lost.nodes == (N1,)
    assert lost.bytes_at_most is None and "n1 is offline" in lost.text
    assert changes(shown, N2) == [
        RemoveMark(name=DEVICE.name, node=N2),
        SetMark(name=DEVICE.name, node=N1, uuid=DEVICE.uuid),
        SetNodeAttribute(
            node=N2, attribute="sanctl-revive-vm1", value=f"{DEVICE.uuid} 00000000000000A0"
        ),
    ]


@pytest.mark.parametrize("disk", ["Outdated", "UpToDate", "Consistent"])
def test_one_of_three_is_left(disk: str) -> None:
    """DRBD lets nobody be promoted: Pacemaker waits for ever, whatever the disk is called."""
    shown = diagnosed(gone(N1), gone(N2), facts(N3, disk=disk, quorum=False))
    assert shown.condition is Condition.BLOCKED
    lost = loss_of_keeping(shown, N3)
    assert lost.nodes == (N1, N2)
    assert lost.bytes_at_most is None
    assert [type(each) for each in changes(shown, N3)] == [SetMark, SetMark, SetNodeAttribute]
    assert refusal(shown, N1).startswith("SAN-HEAL-002")


def test_two_of_four_are_no_majority() -> None:
    shown = diagnosed(
        alone(N1, linked=(N2,), nodes=4),
        alone(N2, linked=(N1,), nodes=4),
        gone(N3),
        gone(N4),
    )
    assert shown.condition is Condition.BLOCKED
    assert loss_of_keeping(shown, N1).nodes == (N3, N4)


def test_with_a_majority_pacemaker_may_promote() -> None:
    shown = diagnosed(facts(N1, linked=(N2,)), facts(N2, linked=(N1,)), gone(N3))
    assert shown.condition is Condition.WAITING
    assert refusal(shown, N1).startswith("SAN-HEAL-008")


def test_one_that_may_be_serving_is_waited_for() -> None:
    shown = diagnosed(
        gone(N1, NodeState.UNCLEAN),
        behind(N2, quorum=False),
        behind(N3, quorum=False),
    )
    assert shown.condition is Condition.WAITING
    blocked = replace(shown, condition=Condition.BLOCKED, waits_for="")
    assert refusal(blocked, N2).startswith("SAN-HEAL-003")


def test_an_older_one_is_not_kept() -> None:
    """n2 went on without n3, so it counts from n3's generation; n1, which is gone, served last."""
    newer = facts(N2, 0xB0, counts_from=0xA0, disk="Outdated", quorum=False)
    older = facts(N3, 0xA0, disk="Outdated", quorum=False)
    shown = diagnosed(gone(N1), newer, older)
    assert relation_of(newer, older) is Relation.AHEAD
    assert loss_of_keeping(shown, N2).nodes == (N1,)
    text = refusal(shown, N3)
    assert text.startswith("SAN-HEAL-002") and "keep n2" in text


def test_one_diverged_and_the_others_serve() -> None:
    """Who only looks at whether the device is served calls that sound."""
    shown = diagnosed(
        facts(N1, 0xA0, counts_from=COMMON, linked=(N2,), serves=True, kib=64),
        facts(N2, 0xA0, counts_from=COMMON, linked=(N1,), kib=64),
        facts(N3, 0xB0, counts_from=COMMON, kib=2048),
    )
    assert shown.condition is Condition.DIVERGED
    text = refusal(shown, N1)
    assert text.startswith("SAN-HEAL-007")
    assert "loses up to 2 MiB (512 blocks of 4 KiB) written on n3 alone" in text
    assert "on n3, one after the other" in text and "--discard-my-data vm1" in text
    text = refusal(shown, N3)
    assert "n1 and n2" in text
    # n1 serves, and n2 gets all that n1 does.
    for node in (N1, N2):
        amount = "64 KiB (16 blocks of 4 KiB) up to a minute ago, and more while it is served"
        assert f"written on {node} alone since they disconnected: {amount}" in text


def test_without_a_common_past_all_of_it_goes() -> None:
    shown = diagnosed(
        facts(N1, 0xA0, linked=(N2,), serves=True),
        facts(N2, 0xA0, linked=(N1,)),
        facts(N3, 0xF0, counts_from=0xE0),
    )
    assert shown.condition is Condition.UNRELATED
    assert "all that only n3 has" in refusal(shown, N1)


def test_of_one_that_is_gone_nothing_more_is_lost_where_the_kept_one_serves() -> None:
    shown = diagnosed(
        facts(N1, 0xA0, counts_from=COMMON, serves=True, nodes=4),
        gone(N2, NodeState.UNCLEAN),
        facts(N3, 0xB0, counts_from=COMMON, nodes=4),
        facts(N4, 0x90, disk="Inconsistent", nodes=4),
    )
    text = refusal(shown, N1)
    assert "an unknown amount written on n3 alone" in text
    assert "n2" not in text and "n4" not in text
    assert "SAN-HEAL-003" in refusal(shown, N3)


@pytest.mark.parametrize("linked", [(), (N2, N3)], ids=["away", "connected"])
@pytest.mark.parametrize("disk", ["Diskless", "Failed"])
def test_a_disk_that_is_gone_may_have_had_more(disk: str, linked: tuple[NodeName, ...]) -> None:
    """DRBD compares nothing with it, connected or not."""
    shown = diagnosed(
        facts(N1, disk=disk, known=False, linked=linked),
        facts(N2, disk="Outdated", linked=(N3, *((N1,) if linked else ()))),
        facts(N3, disk="Outdated", linked=(N2, *((N1,) if linked else ()))),
    )
    assert shown.condition is Condition.BLOCKED
    lost = loss_of_keeping(shown, N2)
    assert lost.nodes == (N1,) and f"it is {disk}" in lost.text
    assert lost.bytes_at_most is None
    assert refusal(shown, N1).startswith("SAN-HEAL-002")


def test_what_is_not_published_yet_is_waited_for() -> None:
    shown = diagnosed(
        facts(N1, disk="Outdated", known=False),
        facts(N2, disk="Outdated"),
        facts(N3, disk="Outdated", linked=(N2,)),
    )
    assert shown.condition is Condition.BLOCKED
    assert refusal(shown, N2).startswith("SAN-HEAL-006")
    half = facts(N1)
    bad = replace(half, replica=replace(half.replica, bitmaps=(("n2", "?"),)))
    assert relation_of(bad, facts(N2)) is None


@pytest.mark.parametrize(
    ("served", "says"), [(N1, "n1 served last"), (N2, "n2 served last"), (None, "is not known")]
)
def test_all_power_was_lost_in_write_back(served: NodeName | None, says: str) -> None:
    shown = diagnosed(
        *(
            facts(
                node,
                linked=tuple(other for other in NODES[:3] if other != node),
                suspect=True,
                last=node == served,
            )
            for node in NODES[:3]
        )
    )
    assert shown.condition is Condition.BLOCKED
    assert not shown.unmarks_itself
    lost = loss_of_keeping(shown, N1)
    assert lost.nodes == (N2, N3) and lost.bytes_at_most is None
    assert says in lost.text
    assert isinstance(changes(shown, N1)[-1], SetNodeAttribute)


def test_one_that_was_filled_right_before_the_power_was_lost() -> None:
    """It lacks blocks of any age, and no write that was in RAM; the others lack nothing."""
    links = {node: tuple(other for other in NODES[:3] if other != node) for node in NODES[:3]}
    shown = diagnosed(
        facts(N1, linked=links[N1], marked=True),
        facts(N2, linked=links[N2], marked=True),
        facts(N3, linked=links[N3], unstable=True),
    )
    assert shown.condition is Condition.BLOCKED
    assert loss_of_keeping(shown, N1).text.startswith("nothing: ")
    lost = loss_of_keeping(shown, N3)
    assert lost.text.startswith("what a resync had written on n3") and lost.bytes_at_most is None
    assert "no host had flushed" not in lost.text
    # Where another one is gone, that is lost besides.
    alone = diagnosed(gone(N1), facts(N2, marked=True), facts(N3, unstable=True))
    text = loss_of_keeping(alone, N3).text
    assert "n1 is offline" in text and "; and what a resync had written on n3" in text
    # And of one that is older it is not said that the newer one has all.
    older = diagnosed(
        facts(N1, OLD, disk="Outdated", marked=True),
        facts(N2, OLD, disk="Outdated", marked=True),
        facts(N3, unstable=True, counts_from=OLD, last=True),
    )
    assert "but for what it may have lost" in refusal(older, N1)


def test_a_served_device_has_nothing_to_decide() -> None:
    shown = diagnosed(facts(N1, linked=(N2,), serves=True), facts(N2, linked=(N1,)), gone(N3))
    assert shown.condition is Condition.SOUND
    assert refusal(shown, N1).startswith("SAN-HEAL-001")


@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize("disk", ["UpToDate", "Consistent", "Outdated", "Inconsistent", "Diskless"])
@pytest.mark.parametrize("others", [*NodeState])
@pytest.mark.parametrize("flags", [*product((True, False), repeat=3)])
def test_nothing_to_decide_is_never_said_of_a_device_that_nobody_serves(
    count: int, disk: str, others: NodeState, flags: tuple[bool, bool, bool]
) -> None:
    quorum, marked, linked = flags
    replicas = [
        facts(
            node,
            disk=disk,
            quorum=quorum,
            marked=marked,
            nodes=count,
            linked=tuple(each for each in NODES[:count] if each != node) if linked else (),
            online=NodeState.ONLINE if node == N1 else others,
        )
        for node in NODES[:count]
    ]
    shown = diagnosed(*replicas)
    assert shown.condition is not Condition.SOUND
    if shown.condition is Condition.WAITING:
        assert shown.waits_for
    else:
        # There is a choice, or the reason why there is none yet.
        for node in NODES[:count]:
            try:
                loss_of_keeping(shown, node)
            except Refused as error:
                assert error.problems[0].code in {"SAN-HEAL-002", "SAN-HEAL-003"}


@pytest.mark.parametrize("disk", ["UpToDate", "Consistent", "Outdated"])
def test_one_of_two_that_missed_the_drop_of_a_third_is_kept_by_an_order(disk: str) -> None:
    """Of its own, without a majority of what DRBD still counts, it would stay where it is."""
    stuck = alone(N2, disk=disk, nodes=3)
    shown = diagnosed(gone(N1), stuck)
    assert shown.condition is Condition.BLOCKED
    assert "cannot be known" in loss_of_keeping(shown, N2).text
    assert changes(shown, N2) == [
        SetMark(name=DEVICE.name, node=N1, uuid=DEVICE.uuid),
        SetNodeAttribute(
            node=N2, attribute="sanctl-revive-vm1", value=f"{DEVICE.uuid} 00000000000000A0"
        ),
    ]
