# SPDX-License-Identifier: GPL-2.0-or-later
"""The safety model: nothing is found with every rule, and something without any one of them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from sanctl.safety import packed
from sanctl.safety.__main__ import broken_rules_table, trace_text
from sanctl.safety.broken_rules import BROKEN_RULES
from sanctl.safety.cluster import is_called_down, write_mark
from sanctl.safety.exploration import (
    LATE_TARGET,
    MARKED_DISKLESS,
    BrokenRule,
    explore_cluster,
)
from sanctl.safety.lone_marks import explore_lone_marks
from sanctl.safety.other_device import explore_with_other_device
from sanctl.safety.rules import SHIPPED
from sanctl.safety.same_worlds import (
    EPOCH_GAP,
    NEARER,
    STILL_FAR,
    apart_still,
    canonical,
    in_spaced_worlds,
    is_doubtful,
    mirrored,
    with_spaced_epochs,
)
from sanctl.safety.search import Counterexample, explore
from sanctl.safety.transitions import events
from sanctl.safety.world import World, broken_invariant, initial_world, is_whole

_DOC = Path(__file__).parents[3] / "docs/explanation/safety-model.md"


@pytest.mark.parametrize("nodes", [2, 3])
def test_nothing_goes_wrong_while_every_rule_is_kept(nodes: int) -> None:
    """All interleavings with one fault; more faults by `python -m sanctl.safety`."""
    result = explore_cluster(SHIPPED, nodes, 1)
    assert result.found is None, trace_text(result.found)
    assert result.states > 20_000, "the exploration did not get far"


def _faults_of_a_whole_cluster() -> list[str]:
    first = initial_world(2, 1, has_device=True)
    return [name for name, world in events(SHIPPED)(first) if world.faults < first.faults]


def test_the_faults_of_a_whole_cluster_are_all_begun_with() -> None:
    assert {
        "the quorum device is lost",
        "a does not reach the quorum device",
        "b does not reach the quorum device",
        "a loses all networks",
        "b loses all networks",
        "the heartbeats of a are cut",
        "a loses power",
        "b loses power",
        "the sync network is cut",
    } <= set(_faults_of_a_whole_cluster())


@pytest.mark.parametrize("fault", _faults_of_a_whole_cluster())
def test_nothing_goes_wrong_with_a_quorum_device(fault: str) -> None:
    """After each fault of a whole cluster; faults at any moment by `python -m sanctl.safety`."""
    result = explore_cluster(SHIPPED, 2, 1, has_device=True, begins=(fault,))
    assert result.found is None, trace_text(result.found)
    assert result.states > 500, "the exploration did not get far"


def _replayed(variant: BrokenRule, found: Counterexample[World]) -> World:
    """Return where a way leads in one world: there a CIB is as far behind as it is."""
    world, possible = found.states[0], events(variant.rules)
    for step in found.steps:
        exact = {name.removesuffix(NEARER): after for name, after in possible(world)}
        world = exact[step.removesuffix(NEARER)]
    assert STILL_FAR not in "".join(found.steps)
    return world


@pytest.mark.parametrize("variant", BROKEN_RULES, ids=lambda variant: variant.name)
def test_each_broken_rule_is_found(variant: BrokenRule) -> None:
    result = explore_cluster(
        variant.rules,
        variant.nodes,
        variant.faults,
        has_device=variant.has_device,
        lost_disk=variant.lost_disk,
        is_unmarked=variant.is_unmarked,
        begins=variant.begins,
        ends=variant.ends,
    )
    assert result.found is not None
    assert result.found.what.startswith(variant.finds)
    assert len(variant.begins) + len(result.found.steps) == variant.steps, trace_text(result.found)
    last = _replayed(variant, result.found)
    if not variant.ends:
        why = broken_invariant(last, may_freeze_beside=bool(variant.rules.promotes_unfenced))
        assert why == result.found.what


@pytest.mark.parametrize(("nodes", "lost"), [(3, 0), (2, 1)])
def test_nothing_goes_wrong_once_a_replica_without_a_disk_is_marked(nodes: int, lost: int) -> None:
    """Neither with one more fault; the others by `python -m sanctl.safety --lost-disk`."""
    result = explore_cluster(SHIPPED, nodes, 1, lost_disk=lost, begins=MARKED_DISKLESS[lost])
    assert result.found is None, trace_text(result.found)
    assert result.states > 100_000, "the exploration did not get far"


def test_until_the_next_monitor_a_lost_disk_is_nobodys_news() -> None:
    """docs/explanation/promises.md says so: the mark comes with a monitor."""
    result = explore_cluster(SHIPPED, 3, 1, lost_disk=0, begins=("b loses power",), ends=False)
    assert result.found is not None


@pytest.mark.parametrize(
    "begins",
    [LATE_TARGET["active"], LATE_TARGET["standby"]],
    ids=["by the Primary", "by a standby"],
)
def test_nothing_goes_wrong_where_a_monitor_marks_the_target_of_a_resync_too_late(
    begins: tuple[str, ...],
) -> None:
    """The resync has ended; whoever is Primary or dies; with one more fault, and the way back."""
    result = explore_cluster(SHIPPED, 2, 1, is_unmarked=True, begins=begins)
    assert result.found is None, trace_text(result.found)
    assert result.states > 40_000, "the exploration did not get far"


def test_nor_at_any_moment_of_that_without_another_fault() -> None:
    result = explore_cluster(SHIPPED, 3, 0, is_unmarked=True)
    assert result.found is None, trace_text(result.found)
    assert result.states > 900, "the exploration did not get far"


def test_until_the_next_monitor_a_target_may_be_missed() -> None:
    """docs/adr/0018 says so: a link that breaks as the resync ends, before a monitor has looked."""
    result = explore_cluster(SHIPPED, 3, 1, is_unmarked=True, ends=False)
    assert result.found is not None, "the fault is one that the model knows"
    assert result.found.steps[-1] == "DRBD on a notices that the link is gone"


def test_a_mark_whose_writer_lost_its_quorum_goes_without_a_reboot() -> None:
    """It becomes everybody's in many ways; none leads anywhere else than back."""
    lone = explore_lone_marks(SHIPPED, 2, 1)
    assert lone.everybodys > 10_000
    assert lone.exploration.found is None, trace_text(lone.exploration.found)
    assert lone.ends.found is None, lone.ends.found.steps
    assert lone.ends.states > 5_000


def test_it_stays_where_no_primary_in_sync_takes_it_off() -> None:
    never = SHIPPED._replace(may_clear=lambda _state: False)
    lone = explore_lone_marks(never, 2, 1)
    assert lone.ends.found is not None
    assert lone.ends.found.what.startswith("no way leads")
    # And where both are marked, it is no Primary that does it.
    lone = explore_lone_marks(SHIPPED._replace(unmarks=False), 2, 1)
    assert lone.ends.found is not None


_CUT_OFF = (
    "a loses all networks",
    "DRBD on a notices that the link is gone",
    "the handler of a asks: certain",
    "the handler of a marks b",
    "the handler of a asks again: not certain",
    "the heartbeats are back",
    "corosync forms a+b+w",
)
_GOES_ON = (
    "the handler of a asks: certain",
    "the handler of a marks b",
    "the handler of a asks again: certain, and returns",
    "a write is acknowledged by a alone",
)
_IS_LOST = (
    "a loses power",
    "corosync forms b+w",
    "b+w fences a",
    "DRBD on b notices that the link is gone",
)


def _after(*steps: str) -> World:
    world, possible = initial_world(3, 2), events(SHIPPED)
    for step in steps:
        world = next(after for name, after in possible(world) if name == step)
    return world


def test_nothing_tells_a_lone_mark_from_one_by_which_its_writer_went_on() -> None:
    """The schedule in the documentation: what b and w see is the same, and only one b has all."""
    waits, goes_on = _after(*_CUT_OFF, *_IS_LOST), _after(*_CUT_OFF, *_GOES_ON, *_IS_LOST)
    assert waits.nodes[1:] == goes_on.nodes[1:]
    assert all(node.marks == 0b10 for node in waits.nodes)
    assert waits.replicas[1].is_fresh and not goes_on.replicas[1].is_fresh
    assert waits.replicas[1]._replace(is_fresh=False) == goes_on.replicas[1]


def test_a_mark_that_is_taken_back_costs_the_mark_of_another_device() -> None:
    """A node that is cut off and changes its CIB twice has the newest when the nodes meet."""
    begins = ("a loses all networks",)
    result = explore_with_other_device(SHIPPED, 1, begins=begins)
    assert result.found is None and result.states > 10_000
    result = explore_with_other_device(SHIPPED._replace(withdraws="own"), 1, begins=begins)
    assert result.found is not None
    assert result.found.steps[-1] == "corosync forms a+b+w"
    assert len(begins) + len(result.found.steps) == 8


def _names_of_events(world: World) -> set[str]:
    return {name for name, _ in events(SHIPPED)(world)}


def test_a_lost_primary_is_called_down_and_neither_taken_for_fenced_nor_followed() -> None:
    """ADR 94: any of three nodes may be a coordinator that is new."""
    lost = _after("a loses all networks", "corosync forms b+w")
    assert is_called_down(lost.nodes[1], 0)
    assert not SHIPPED.is_known_fenced(lost.nodes[1], 0)
    assert "b+w fences a" in _names_of_events(lost)
    assert "the cluster orders the promotion of b" not in _names_of_events(lost)
    fenced = _after("a loses all networks", "corosync forms b+w", "b+w fences a")
    assert SHIPPED.is_known_fenced(fenced.nodes[1], 0)
    assert "the cluster orders the promotion of b" in _names_of_events(fenced)


def test_a_lost_standby_is_taken_for_fenced_and_fenced_afterwards() -> None:
    lost = _after("b loses all networks", "corosync forms a+w")
    assert SHIPPED.is_known_fenced(lost.nodes[0], 1)
    assert "a+w fences b" in _names_of_events(lost)


def test_with_two_nodes_no_coordinator_is_new() -> None:
    world, possible = initial_world(2, 1), events(SHIPPED)
    for step in ("b loses all networks", "corosync forms a"):
        world = next(after for name, after in possible(world) if name == step)
    assert not SHIPPED.is_known_fenced(world.nodes[0], 1)


def _after_of_two(*steps: str) -> World:
    world, possible = initial_world(2, 3), events(SHIPPED)
    for step in steps:
        world = next(after for name, after in possible(world) if name == step)
    return world


_SEEN_FOR_A_MOMENT = (
    "b loses power",
    "corosync forms a",
    "a fences b",
    "b boots",
    "corosync alone forms a+b",
    "the heartbeats of b are cut",
    "corosync forms a",
    "corosync forms b",
)


def test_a_node_that_was_seen_for_a_moment_is_fenced_by_none() -> None:
    """Pacemaker's join_make_offer: one that never joined is called down, and that is enough."""
    world = _after_of_two(*_SEEN_FOR_A_MOMENT)
    assert [is_called_down(node, 1 - i) for i, node in enumerate(world.nodes)] == [True, True]
    possible = _names_of_events(world)
    assert "the replica on b starts" in possible
    assert not any("fences" in name for name in possible)
    joined = _after_of_two(*_SEEN_FOR_A_MOMENT[:5], "Pacemaker joins a+b", "a loses all networks")
    formed = next(after for name, after in events(SHIPPED)(joined) if name == "corosync forms b")
    assert "b fences a" in _names_of_events(formed)


def test_its_replica_is_no_candidate_though_it_is_connected() -> None:
    world = _after_of_two(
        *_SEEN_FOR_A_MOMENT,
        "DRBD on a notices that the link is gone",
        "the replica on b starts",
        "DRBD connects",
    )
    order = "the cluster orders the promotion of b"
    assert order not in _names_of_events(world)
    unsafe = events(SHIPPED._replace(counts_joined=False))
    assert order in {name for name, _ in unsafe(world)}


def test_the_sole_survivor_is_promoted_again_after_a_power_cut() -> None:
    """Its peer is off and knows less, which DRBD has written down: nobody else has to say so."""
    world, possible = initial_world(2, 2, has_device=True), events(SHIPPED)
    for step in (
        "b loses power",
        "corosync forms a",
        "the quorum device votes for a",
        "a fences b",
        "DRBD on a notices that the link is gone",
        "the handler of a asks: certain",
        "the handler of a marks b as fenced",
        "the handler of a asks again: certain, and returns",
        "a write is acknowledged by a alone",
        "a loses power",
        "a boots",
        "the quorum device votes for a",
        "a fences b",
        "the replica on a starts",
        "the cluster orders the promotion of a",
        "a becomes Primary",
    ):
        world = dict(possible(world))[step]
    assert world.replicas[0].serves and world.replicas[0].is_fresh


def test_until_two_nodes_have_joined_each_has_a_cib_of_its_own() -> None:
    steps = ("DRBD on a notices that the link is gone", "the handler of a asks: certain")
    world = _after_of_two(*_SEEN_FOR_A_MOMENT[:3], *steps, *_SEEN_FOR_A_MOMENT[3:5])
    name = "the handler of a marks b as fenced"
    marked = next(after for said, after in events(SHIPPED)(world) if said == name)
    assert [node.marks for node in marked.nodes] == [0b10, 0]
    said = dict(events(SHIPPED)(marked))["Pacemaker joins a+b"]
    assert [node.marks for node in said.nodes] == [0b10, 0b10]
    assert not any(node.is_joining or node.is_new for node in said.nodes)


def test_a_replica_that_was_stopped_is_nothing_that_runs() -> None:
    stopped = _after("the replica on b stops")
    assert [node.active for node in stopped.nodes] == [0b01] * 3
    lost = _after("the replica on b stops", "b loses all networks", "corosync forms a+w")
    assert not any("fences" in name and "where" not in name for name in _names_of_events(lost))


def test_worlds_that_are_kept_have_spaced_epochs() -> None:
    world = initial_world(3, 1)
    assert with_spaced_epochs(world) is world
    far = world._replace(nodes=tuple(n._replace(epoch=7 * i) for i, n in enumerate(world.nodes)))
    for _, after in in_spaced_worlds(events(SHIPPED))(far):
        assert max(node.epoch for node in after.nodes) <= 3 * EPOCH_GAP


def test_a_node_that_has_booted_knows_nothing_of_the_others() -> None:
    booted = _after("w loses power", "w boots")
    assert not any(is_called_down(booted.nodes[2], other) for other in (0, 1))
    joined = _after("w loses power", "w boots", "corosync forms a+b+w", "a loses all networks")
    formed = next(after for name, after in events(SHIPPED)(joined) if name == "corosync forms b+w")
    assert is_called_down(formed.nodes[2], 0)
    assert formed.nodes[2].primary == 0b01


def test_an_action_is_heard_of_where_the_membership_has_stayed_the_same() -> None:
    """The heartbeats were gone for less than Corosync notices: no message is lost by that."""
    steps = ("the heartbeats of a are cut", "a is demoted")
    demoted = _after(*steps)
    assert [node.primary for node in demoted.nodes] == [0, 0b01, 0b01]
    assert [node.primary for node in _after(*steps, "the heartbeats are back").nodes] == [0] * 3
    # What corosync has noticed is a new membership, and each node tells of itself.
    formed = _after(*steps, "corosync forms b+w", "the heartbeats are back")
    assert [node.primary for node in formed.nodes] == [0, 0b01, 0b01]


def test_no_second_action_follows_while_corosync_has_not_noticed_a_loss() -> None:
    """b was started and cut off; the others have formed a partition, and call b down."""
    left = (
        "b loses power",
        "b boots",
        "corosync forms a+b+w",
        "DRBD on a notices that the link is gone",
        "a write waits on a",
        "a cannot be stopped and is fenced",
    )
    started = _after(*left, "the replica on b starts")
    assert started.nodes[1].fenced == 0b01
    order = "the cluster orders the promotion of b"
    assert order in _names_of_events(started), "a member that was fenced is not waited for"
    cut = _after(*left, "the heartbeats of b are cut", "the replica on b starts")
    assert order not in _names_of_events(cut)


def test_nothing_goes_wrong_where_an_order_is_in_no_other_cib() -> None:
    """The handler's guard is open then, and Pacemaker's is not: the replica is started there."""
    begins = ("a is demoted", "a loses all networks")
    rules = SHIPPED._replace(notes_orders=False)
    result = explore_cluster(rules, 3, 1, begins=begins)
    assert result.found is None, trace_text(result.found)
    assert result.states > explore_cluster(SHIPPED, 3, 1, begins=begins).states


def _explored_by_events(nodes: int, fault: str) -> tuple[int, int, int]:
    """Return what `explore_cluster` counts, by the events alone: no tables, each world as it is."""
    first, possible = initial_world(nodes, 1), in_spaced_worlds(events(SHIPPED))
    first = next(world for name, world in possible(first) if name == fault)
    result = explore(
        first, possible, broken_invariant, is_whole, key=canonical, is_doubtful=is_doubtful
    )
    assert result.found is None
    return result[:3]


@pytest.mark.parametrize("nodes", [2, 3])
def test_the_tables_leave_no_state_out_and_add_none(nodes: int) -> None:
    fault = "the heartbeats of a are cut"
    by_tables = explore_cluster(SHIPPED, nodes, 1, begins=(fault,))
    assert by_tables[:3] == _explored_by_events(nodes, fault)


@pytest.mark.parametrize("table", ["_told", "_touches_data"])
def test_a_table_that_knows_too_little_is_found(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, table, lambda *_args: None)
    with pytest.raises(AssertionError, match="tables"):
        explore_cluster(SHIPPED, 2, 1)


def test_how_far_apart_epochs_are_is_told_apart_as_far_as_it_matters() -> None:
    world = initial_world(3, 1)

    def at(*epochs: int) -> World:
        nodes = zip(world.nodes, epochs, strict=True)
        return canonical(
            world._replace(nodes=tuple(node._replace(epoch=epoch) for node, epoch in nodes))
        )

    assert at(4, 5, 4) == at(0, 1, 0) != at(0, 2, 0)
    assert at(0, 2, 0) == at(1, 7, 1)
    assert at(0, 2, 4) == at(3, 9, 12) != at(0, 2, 3)


def _at_epoch_of_w(epoch: int) -> World:
    """Return a world in which w is off, and the CIB of the others is so many changes behind."""
    world = initial_world(3, 1)
    here = world.nodes[0]._replace(view=0b011)
    off = here._replace(is_up=False, view=0, epoch=epoch)
    return world._replace(nodes=(here, here, off))


def test_a_cib_that_is_far_behind_comes_nearer_or_stays_far_behind() -> None:
    """How far is not known, so both is explored, and no way back takes either."""
    world = _at_epoch_of_w(2)
    ready = world.replicas[0]._replace(is_clearing=True)
    marked = tuple(node._replace(marks=0b10) for node in world.nodes)
    world = world._replace(replicas=(ready, world.replicas[1]), nodes=marked)
    found = {
        name: [node.epoch for node in after.nodes]
        for name, after in events(SHIPPED)(world)
        if name.startswith("a clears the mark of b")
    }
    assert found == {
        "a clears the mark of b" + NEARER: [1, 1, 2],
        "a clears the mark of b" + STILL_FAR: [1, 1, 3],
    }
    assert all(is_doubtful(name) for name in found)


@pytest.mark.parametrize("epoch", [0, 1])
def test_what_is_known_of_a_distance_is_kept(epoch: int) -> None:
    before = _at_epoch_of_w(epoch)
    after = write_mark(before, 0, 1, is_set=True, rules=SHIPPED)
    assert [node.epoch for node in after.nodes] == [1, 1, epoch]
    assert apart_still(before, after) is None
    assert apart_still(before, before._replace(is_synced=False)) is None


def test_a_raised_cib_is_out_of_reach() -> None:
    """64 changes are more than what a node that was cut off has in hand."""
    before = _at_epoch_of_w(1)
    after = write_mark(before, 0, 1, is_set=True, rules=SHIPPED, raises=True)
    assert [node.epoch for node in after.nodes] == [1 + EPOCH_GAP, 1 + EPOCH_GAP, 1]
    assert apart_still(before, after) is None


def test_every_rule_is_broken_by_a_variant() -> None:
    """Except promises of others than sanctl, and what another variant breaks by its argument.

    And `keeps_marks`, which spares changes of the CIB and prevents nothing.
    """
    broken = {
        name
        for variant in BROKEN_RULES
        for name in SHIPPED._fields
        if getattr(variant.rules, name) != getattr(SHIPPED, name)
    }
    assert set(SHIPPED._fields) - broken == {
        "is_certain",
        "may_clear",
        "ties_to_quorate",
        "ties_to_running",
        "notes_orders",
        "keeps_marks",
    }


def test_a_trace_can_be_followed() -> None:
    """Each event of a counterexample is possible where it happens, and leads where it says."""
    variant = next(variant for variant in BROKEN_RULES if variant.name == "no-freeze")
    found = explore_cluster(variant.rules, variant.nodes, variant.faults, ends=False).found
    assert found is not None
    possible = events(variant.rules)
    for step, (before, after) in zip(found.steps, itertools.pairwise(found.states), strict=True):
        assert (step, after) in list(possible(before))


def test_the_documentation_says_what_is_found() -> None:
    assert broken_rules_table() in _DOC.read_text(encoding="utf-8")


def test_the_first_world_is_whole_and_a_mirror_image_is_the_same() -> None:
    world = initial_world(3, 1)
    assert is_whole(world)
    assert broken_invariant(world) is None
    assert mirrored(world) != world
    assert canonical(mirrored(world)) == canonical(world)


def _counter(state: int) -> list[tuple[str, int]]:
    return [("up", state + 1), ("jump", state + 3)] if state < 6 else []


def test_exploration_finds_the_shortest_way() -> None:
    result = explore(0, _counter, lambda state: "six" if state == 6 else None)
    assert result.found is not None
    assert result.found.steps == ("jump", "jump")
    assert result.found.states == (0, 3, 6)


def test_exploration_finds_a_dead_end() -> None:
    def is_goal(state: int) -> bool:
        return state == 8

    result = explore(0, _counter, lambda _: None, is_goal)
    assert result.found is not None
    assert result.found.states[-1] == 6
    assert (result.states, result.transitions, result.depth) == (9, 12, 4)


def test_a_doubtful_step_is_explored_and_is_no_way_to_a_goal() -> None:
    def is_goal(state: int) -> bool:
        return state == 8

    result = explore(5, _counter, lambda _: None, is_goal, is_doubtful=lambda name: name == "jump")
    assert result.found is not None
    assert result.found.steps == ()
    assert result.states == 3


def test_exploration_looks_at_the_first_state_and_knows_when_to_stop() -> None:
    assert explore(0, _counter, lambda _: "wrong").found is not None
    with pytest.raises(OverflowError):
        explore(0, _counter, lambda _: None, limit=3)
