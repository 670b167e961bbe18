# SPDX-License-Identifier: GPL-2.0-or-later
"""The safety model: nothing is found with every rule, and something without any one of them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from sanctl.safety import packed
from sanctl.safety.__main__ import broken_rules_table, trace_text
from sanctl.safety.broken_rules import BROKEN_RULES
from sanctl.safety.exploration import (
    LATE_TARGET,
    MARKED_DISKLESS,
    BrokenRule,
    explore_cluster,
)
from sanctl.safety.lone_marks import explore_lone_marks
from sanctl.safety.other_device import explore_with_other_device
from sanctl.safety.rules import SHIPPED
from sanctl.safety.search import explore
from sanctl.safety.transitions import events
from sanctl.safety.world import World, broken_invariant, canonical, initial_world, is_whole

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
        gap=variant.gap,
    )
    assert result.found is not None
    assert result.found.what.startswith(variant.finds)
    assert len(variant.begins) + len(result.found.steps) == variant.steps, trace_text(result.found)


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


def _explored_by_events(nodes: int, fault: str) -> tuple[int, int, int]:
    """Return what `explore_cluster` counts, by the events alone: no tables, each world as it is."""
    first, possible = initial_world(nodes, 1), events(SHIPPED)
    first = next(world for name, world in possible(first) if name == fault)
    result = explore(first, possible, broken_invariant, is_whole, key=canonical)
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


def test_a_cib_that_catches_up_from_an_unknown_distance_ends_the_exploration() -> None:
    """A mark that is cleared without quorum: there two epochs that are far apart matter."""
    variant = next(each for each in BROKEN_RULES if each.name == "clears-without-quorum")
    with pytest.raises(AssertionError, match="changes or more behind"):
        explore_cluster(variant.rules, variant.nodes, variant.faults, begins=variant.begins)


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
    mirrored = world._replace(replicas=world.replicas[::-1])
    assert canonical(mirrored) == canonical(world)


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


def test_exploration_looks_at_the_first_state_and_knows_when_to_stop() -> None:
    assert explore(0, _counter, lambda _: "wrong").found is not None
    with pytest.raises(OverflowError):
        explore(0, _counter, lambda _: None, limit=3)
