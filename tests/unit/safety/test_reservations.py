# SPDX-License-Identifier: GPL-2.0-or-later
"""Persistent reservations over failovers: nothing is found, and without any rule something."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from sanctl.model.reservation import Version
from sanctl.plan.failover import reservation_rules
from sanctl.safety.__main__ import broken_reservations_table, main
from sanctl.safety.broken_reservations import (
    BROKEN_RESERVATIONS,
    EXACT_GAP,
    BrokenReservations,
)
from sanctl.safety.reservation_world import (
    SEEN,
    STALE,
    Hosts,
    Node,
    Stored,
    broken_reservations,
    canonical,
    epochs_apart,
    first_state,
    generations_apart,
    reservations_text,
)
from sanctl.safety.reservations import (
    ReservationRules,
    events,
    explore_repair,
    explore_reservations,
)

_DOC = Path(__file__).parents[3] / "docs/explanation/safety-model.md"


def test_nothing_goes_wrong_while_every_rule_is_kept() -> None:
    result = explore_reservations(ReservationRules())
    assert result.found is None, result.found.steps
    assert result.states > 10_000, "the exploration did not get far"


def test_repair_alone_leads_back_to_a_node_that_serves() -> None:
    result = explore_repair(ReservationRules())
    assert result.found is None, result.found.states


@pytest.mark.parametrize("variant", BROKEN_RESERVATIONS, ids=lambda variant: variant.name)
def test_each_broken_rule_is_found(variant: BrokenReservations) -> None:
    found = explore_reservations(variant.rules, gap=EXACT_GAP).found
    assert found is not None
    assert found.what.endswith(variant.finds)
    assert len(found.steps) == variant.steps


def test_repair_needs_the_removal_of_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation_rules, "may_unmark", lambda *_, **__: False)
    found = explore_repair(ReservationRules()).found
    assert found is not None
    assert found.states[-1] is not None
    assert found.states[-1].marks == 0b11


_THREE = (
    "a is lost, or demoted",
    *("c is promoted", "the process on c starts", "b stores the state of c"),
    "the process on c is killed",
    *("the process on c starts", "b stores the state of c", "c is lost, or demoted"),
    *("a is promoted", "the process on a starts", "a marks b", "a marks c"),
    *("a stores, and serves", "a host sends a change to a", "the process on a begins the change"),
    *("a finds b marked", "a finds c marked", "a stores the change", "a answers the host"),
    *("a is lost, or demoted", "b marks a out of turn"),
)


def test_with_three_replicas_the_newest_version_is_not_the_newest_state() -> None:
    """The way that keeps `may_unmark` from comparing versions there."""
    rules = ReservationRules()
    state = first_state(3)
    for step in _THREE:
        state = next(after for name, after in events(state, rules, EXACT_GAP) if name == step)
    assert state.nodes[1].file.version > max(state.nodes[i].file.version for i in (0, 2))
    assert state.nodes[1].file.content == STALE
    possible = [name for name, _ in events(state, rules, EXACT_GAP)]
    assert not any("removes the mark" in name for name in possible)
    unsafe = dict(events(state, rules._replace(compares=False), EXACT_GAP))
    assert broken_reservations(unsafe["c removes the mark of b"]) is not None


def test_every_rule_is_broken_by_a_variant() -> None:
    broken = [variant.rules for variant in BROKEN_RESERVATIONS]
    names = ReservationRules._fields
    assert all(any(not getattr(rules, name) for rules in broken) for name in names)


def test_a_trace_can_be_followed() -> None:
    """Each event of a counterexample is possible where it happens, and leads where it says."""
    rules = ReservationRules(compares=False)
    found = explore_reservations(rules, gap=EXACT_GAP).found
    assert found is not None
    for step, (before, after) in zip(found.steps, itertools.pairwise(found.states), strict=True):
        assert (step, after) in list(events(before, rules, EXACT_GAP))


def test_the_documentation_says_what_is_found() -> None:
    assert broken_reservations_table() in _DOC.read_text(encoding="utf-8")


def test_a_mirror_image_is_the_same() -> None:
    state = first_state(2)
    mirrored = state._replace(nodes=state.nodes[::-1])
    assert canonical(mirrored) == canonical(state)


def _with_versions(*versions: Version) -> Hosts:
    nodes = (Node(file=Stored(each, SEEN), promised=each.epoch) for each in versions)
    return Hosts(tuple(nodes))


def test_a_version_that_is_above_may_be_farther_above() -> None:
    """With a distance of one for all that follow each other, the next one meets it, or does not."""
    state = _with_versions(Version(0, 0), Version(1, 0))
    apart = [each.nodes[1].promised for each in epochs_apart(state, 0, 1)]
    assert apart == [1, 2]
    assert list(epochs_apart(state, 1, 1)) == [state]
    state = _with_versions(Version(0, 0), Version(0, 1), Version(1, 0))
    apart = [
        each.nodes[1].file.version.generation for each in generations_apart(state, Version(0, 0), 1)
    ]
    assert apart == [1, 2]
    assert list(generations_apart(state, Version(0, 1), 1)) == [state]


def test_the_command_prints_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--reservations", "--rules", "answers-unstored"]) == 1
    printed = capsys.readouterr().out
    assert "a answers the host" in printed
    assert printed.endswith("=> b may be promoted with reservations that were replaced\n")


def test_what_does_not_go_together_is_refused() -> None:
    for argv in (
        ["--rules", "answers-unstored"],
        ["--reservations", "--rules", "no-freeze"],
        ["--reservations", "--devices", "2"],
    ):
        with pytest.raises(SystemExit):
            main(argv)


def test_a_state_is_a_line_of_text() -> None:
    assert reservations_text(first_state(2)) == (
        "a: Primary serves file 0.0 seen kernel seen ready | b: standby file 0.0 seen"
    )
