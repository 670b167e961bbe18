# SPDX-License-Identifier: GPL-2.0-or-later
"""Where each choice of `device heal` would lose nothing, an agent acts, or a reason is listed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from sanctl.errors import Refused
from sanctl.model.names import NodeName
from sanctl.plan.replicas.diagnosis import Condition, Diagnosis, ReplicaFacts
from sanctl.plan.replicas.heal import loss_of_keeping
from tests.unit.plan.replicas.test_heal_several import N1, N2, NODES, diagnosed, facts


def _are_in_contact(shown: Diagnosis) -> bool:
    """Whether each replica is connected to each other one."""
    nodes = [side.node for side in shown.replicas]
    return all(
        side.replica.is_connected_with([node for node in nodes if node != side.node])
        for side in shown.replicas
    )


def _is_out_of_contact(shown: Diagnosis) -> bool:
    """They have to meet first: agents and DRBD connect, and that settles which of them is behind.

    What a replica publishes without contact is of the moment before.
    """
    return not _are_in_contact(shown)


def _calls_itself_behind(shown: Diagnosis) -> bool:
    """A replica is Outdated or Consistent by its own word: DRBD, not sanctl, settles that.

    In contact it does, with a resync or without, while one is UpToDate, and that one alone may be
    kept. Where none is, no agent calls a replica good that calls itself behind; `device heal` does,
    by an operator's word.
    """
    return _are_in_contact(shown) and not all(side.replica.is_up_to_date for side in shown.replicas)


def _sees_no_majority(shown: Diagnosis) -> bool:
    """DRBD 9 says that it has no majority of the replicas, all of which it is connected to.

    The two cannot both be true for long: the next monitors publish anew.
    """
    return _are_in_contact(shown) and any(side.lacks_majority for side in shown.replicas)


#: Why no agent decides, where not `unmarks_itself`. A case that is none of these is a defect.
REASONS: tuple[Callable[[Diagnosis], bool], ...] = (
    _is_out_of_contact,
    _calls_itself_behind,
    _sees_no_majority,
)


def _loses_nothing_by_any_choice(shown: Diagnosis) -> bool:
    if shown.condition is not Condition.BLOCKED:
        return False
    try:
        losses = [loss_of_keeping(shown, side.node) for side in shown.replicas]
    except Refused:
        return False
    return all(lost.bytes_at_most == 0 for lost in losses)


def _sides(node: NodeName, peers: tuple[NodeName, ...], count: int) -> list[ReplicaFacts]:
    return [
        facts(
            node,
            current,
            disk=disk,
            linked=linked,
            nodes=count,
            marked=marked,
            suspect=suspect,
            quorum=quorum,
            known=known,
        )
        for current, disk, linked, marked, suspect, quorum, known in product(
            (0xA0, 0xB0),
            ("UpToDate", "Consistent", "Outdated", "Inconsistent", "Diskless"),
            ((), peers),
            (False, True),
            (False, True) if count == 2 else (False,),
            (False, True),
            (False, True) if count == 2 else (True,),
        )
    ]


def _is_overtaken(shown: Diagnosis, kept: NodeName) -> bool:
    """Whether a replica calls itself behind that is connected to one that calls itself good."""
    keep = shown.replica_on(kept)
    assert keep is not None
    return keep.replica.disk in {"Consistent", "Outdated"} and any(
        other.replica.is_up_to_date and keep.is_connected_with(other)
        for other in shown.replicas
        if other is not keep
    )


def _diagnoses(count: int) -> list[Diagnosis]:
    nodes = NODES[:count]
    each = [_sides(node, tuple(peer for peer in nodes if peer != node), count) for node in nodes]
    if count == 2:
        return [diagnosed(*sides) for sides in product(*each)]
    # Of three, the third is as the second in all but its mark and its contact.
    return [
        diagnosed(one, other, third)
        for one, other in product(each[0], each[1])
        for third in each[2]
        if (third.replica.disk, third.generations, third.lacks_majority)
        == (other.replica.disk, other.generations, other.lacks_majority)
    ]


@pytest.mark.parametrize("count", [2, 3])
def test_an_agent_acts_or_a_reason_is_listed(count: int) -> None:
    open_cases = [shown for shown in _diagnoses(count) if _loses_nothing_by_any_choice(shown)]
    by_itself = [shown for shown in open_cases if shown.unmarks_itself]
    assert by_itself, "nothing is tried in which an agent acts"
    left = [shown for shown in open_cases if not shown.unmarks_itself]
    unexplained = [shown for shown in left if not any(why(shown) for why in REASONS)]
    assert not unexplained, unexplained[0]
    for why in REASONS:
        assert any(why(shown) for shown in left), f"{why.__name__} explains nothing"


@pytest.mark.parametrize("count", [2, 3])
def test_one_that_is_about_to_be_resynced_is_not_kept(count: int) -> None:
    """Of two whose resync begins, the target calls itself Outdated for some seconds."""
    tried = 0
    for shown in _diagnoses(count):
        if shown.condition is not Condition.BLOCKED:
            continue
        for kept in (side.node for side in shown.replicas if _is_overtaken(shown, side.node)):
            tried += 1
            with pytest.raises(Refused) as caught:
                loss_of_keeping(shown, kept)
            assert caught.value.problems[0].code in {"SAN-HEAL-002", "SAN-HEAL-006"}, shown
    assert tried


@pytest.mark.parametrize("disk", ["Consistent", "Outdated"])
def test_the_source_of_a_resync_that_begins_may_be_kept(disk: str) -> None:
    shown = diagnosed(
        facts(N1, linked=(N2,), nodes=2, marked=True, disk=disk),
        facts(N2, linked=(N1,), nodes=2, marked=True),
    )
    assert shown.condition is Condition.BLOCKED
    with pytest.raises(Refused, match=r"SAN-HEAL-002.*keep n2"):
        loss_of_keeping(shown, N1)
    assert loss_of_keeping(shown, N2).bytes_at_most == 0


def test_both_marked_in_contact_and_up_to_date_is_no_reason() -> None:
    """The dead end of two power cuts: the list must not grow by it."""
    shown = diagnosed(
        facts(N1, linked=(N2,), nodes=2, marked=True),
        facts(N2, linked=(N1,), nodes=2, marked=True),
    )
    assert _loses_nothing_by_any_choice(shown)
    assert shown.unmarks_itself and not any(why(shown) for why in REASONS)


@pytest.mark.parametrize("disk", ["Diskless", "Failed", "Attaching", None])
def test_a_disk_that_is_away_may_have_what_the_other_lacks(disk: str | None) -> None:
    """The active node lost its disk, went on with the peer's, and that one was lost."""
    kept = facts(N1, 0xA0, nodes=2, linked=(N2,), marked=True)
    other = facts(N2, 0xB0, nodes=2, linked=(N1,), disk=disk or "")
    lost = loss_of_keeping(diagnosed(kept, other), N1)
    assert lost.bytes_at_most is None and "written to the disk of n2" in lost.text


def test_two_replicas_that_differ_by_their_bitmaps_and_do_not_know_which_is_behind() -> None:
    """Both disks were lost with writes under way, and nothing of that is in their metadata."""

    def both(disk: str, kib: int | None) -> Diagnosis:
        sides = [
            facts(node, disk=disk, linked=(other,), nodes=2, marked=True, kib=each)
            for node, other, each in ((N1, N2, kib), (N2, N1, 0))
        ]
        return diagnosed(*sides)

    shown = both("Consistent", 64)
    assert shown.condition is Condition.BLOCKED
    for keep, other in ((N1, N2), (N2, N1)):
        lost = loss_of_keeping(shown, keep)
        assert lost.bytes_at_most == 64 * 1024
        assert f"what only {other} has of the 64 KiB" in lost.text
    # Both were lost within one round trip: what one has refused the other may have taken.
    assert loss_of_keeping(both("Outdated", 64), N1).bytes_at_most == 64 * 1024
    for none in (0, None):
        lost = loss_of_keeping(both("Consistent", none), N1)
        assert (lost.bytes_at_most, lost.text[:8]) == (0, "nothing:")
