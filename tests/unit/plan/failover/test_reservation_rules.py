# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules of persistent reservations: each decision, to the last branch.

What comes of them together is explored in tests/unit/safety/test_reservations.py.
"""

from __future__ import annotations

import pytest

from sanctl.model.reservation import Reservations, StoredReservations, Version
from sanctl.plan.failover import reservation_rules as rules
from sanctl.plan.failover.reservation_rules import PeerState, StandbyAnswer

_A, _B, _C = "iqn.2026-01.example:a", "iqn.2026-01.example:b", "iqn.2026-01.example:c"
_OWN = Version(3, 2)
_BOTH = Reservations(((_A, 1), (_B, 2)))
_HELD = _BOTH._replace(holder=_A, type=5)


def test_versions_are_ordered_by_epoch_first() -> None:
    assert Version(1, 9) < Version(2, 0) < Version(2, 1)
    assert StoredReservations(Version(2, 1), _BOTH).reservations.keys == {_A: 1, _B: 2}


@pytest.mark.parametrize("is_marked", [False, True])
@pytest.mark.parametrize("is_clearing", [False, True])
def test_what_is_stored_is_known_whatever_the_mark(is_marked: bool, is_clearing: bool) -> None:
    state = rules.peer_state(has_stored=True, is_marked=is_marked, is_clearing=is_clearing)
    assert state is PeerState.STORED


def test_a_mark_counts_unless_its_removal_may_be_under_way() -> None:
    def state(*, is_marked: bool, is_clearing: bool) -> PeerState:
        return rules.peer_state(has_stored=False, is_marked=is_marked, is_clearing=is_clearing)

    assert state(is_marked=True, is_clearing=False) is PeerState.MARKED
    assert state(is_marked=True, is_clearing=True) is PeerState.UNKNOWN
    assert state(is_marked=False, is_clearing=False) is PeerState.UNKNOWN


def test_a_host_is_answered_once_every_replica_is_known() -> None:
    assert rules.may_answer({})
    assert rules.may_answer({"n2": PeerState.STORED, "n3": PeerState.MARKED})
    assert not rules.may_answer({"n2": PeerState.STORED, "n3": PeerState.UNKNOWN})


def test_a_mark_is_cleared_after_that_very_state_was_stored() -> None:
    assert rules.may_clear(Version(2, 1), Version(2, 1))
    assert not rules.may_clear(Version(2, 1), Version(2, 0))
    assert not rules.may_clear(Version(2, 1), None)


@pytest.mark.parametrize("are_same", [False, True])
def test_of_two_replicas_the_one_with_the_newer_state_is_unmarked(are_same: bool) -> None:
    older, newer = Version(2, 1), Version(3, 0)
    assert rules.may_unmark(newer, [older], are_same=are_same)
    assert rules.may_unmark(newer, [newer], are_same=are_same)
    assert not rules.may_unmark(older, [newer], are_same=are_same)
    assert not rules.may_unmark(newer, [None], are_same=are_same)
    assert not rules.may_unmark(None, [newer], are_same=are_same)


def test_of_three_replicas_one_is_unmarked_where_all_have_the_same() -> None:
    older, newer = Version(2, 1), Version(3, 0)
    assert not rules.may_unmark(newer, [older, older], are_same=False)
    assert rules.may_unmark(newer, [older, older], are_same=True)
    assert not rules.may_unmark(newer, [older, None], are_same=True)


def test_no_epoch_is_used_twice() -> None:
    assert rules.next_promise(Version(3, 7), 0) == 4
    assert rules.next_promise(Version(3, 7), 5) == 6
    assert rules.next_promise(Version(3, 7), 5, refused_by=[Version(8, 1), Version(2, 0)]) == 9
    assert rules.first_version(4) == Version(4, 0)
    assert rules.next_version(Version(4, 0)) == Version(4, 1)


def test_a_standby_stores_what_is_newer_from_the_primary() -> None:
    def accepts(
        offered: Version,
        own: Version | None = _OWN,
        promised: int = 0,
        *,
        is_same: bool = False,
        is_from_primary: bool = True,
    ) -> bool:
        return rules.accepts(
            own, promised, offered, is_same=is_same, is_from_primary=is_from_primary
        )

    assert accepts(Version(3, 3))
    assert not accepts(Version(3, 3), is_from_primary=False)
    assert not accepts(Version(3, 1))
    # Another state of the same version: one of the two was never answered.
    assert not accepts(Version(3, 2))
    assert accepts(Version(3, 2), is_same=True)
    # An epoch that this node has used, or is about to.
    assert not accepts(Version(4, 0), promised=4)
    assert accepts(Version(5, 0), promised=4)
    assert accepts(Version(0, 0), own=None)
    assert rules.newest_known(Version(3, 2), 3) == Version(3, 2)
    assert rules.newest_known(Version(3, 2), 4) == Version(4, 0)


def test_no_replica_without_a_state_is_promoted_but_for_the_first_time() -> None:
    assert rules.may_promote(Version(0, 0), is_first_activation=False)
    assert rules.may_promote(None, is_first_activation=True)
    assert not rules.may_promote(None, is_first_activation=False)


def _registered(*pairs: tuple[str, int]) -> Reservations:
    return Reservations(tuple(sorted(pairs)))


@pytest.mark.parametrize(
    ("before", "after", "canonical", "answer"),
    [
        # REGISTER, before and after the Primary has it, or has another key.
        (_registered(), _registered((_A, 1)), _registered(), StandbyAnswer.WAIT),
        (_registered(), _registered((_A, 1)), _registered((_A, 3)), StandbyAnswer.WAIT),
        (_registered(), _registered((_A, 1)), _BOTH, StandbyAnswer.ANSWER),
        (_registered((_A, 1)), _registered((_A, 3)), _BOTH, StandbyAnswer.WAIT),
        # What an initiator's own REGISTER takes away, or another's PREEMPT.
        (_BOTH, _registered((_A, 1)), _BOTH, StandbyAnswer.HOLD),
        (_BOTH, _registered((_A, 1)), _registered((_A, 1)), StandbyAnswer.ANSWER),
        (_BOTH, _registered((_A, 1)), _registered((_A, 1), (_C, 3)), StandbyAnswer.ANSWER),
        # Both in one command, as a PREEMPT of one and a new key would be.
        (_BOTH, _registered((_A, 3)), _BOTH, StandbyAnswer.HOLD),
        # RESERVE and RELEASE.
        (_BOTH, _HELD, _BOTH, StandbyAnswer.HOLD),
        (_BOTH, _HELD, _HELD._replace(holder=_B), StandbyAnswer.HOLD),
        (_BOTH, _HELD, _HELD._replace(type=1), StandbyAnswer.HOLD),
        (_BOTH, _HELD, Reservations(((_A, 1),), _A, 5), StandbyAnswer.ANSWER),
        (_HELD, _BOTH, _HELD, StandbyAnswer.HOLD),
        (_HELD, _BOTH, _BOTH, StandbyAnswer.ANSWER),
        # PREEMPT of the holder, and CLEAR: the key has to be gone, too.
        (_HELD, Reservations(((_B, 2),), _B, 5), Reservations(((_B, 2),)), StandbyAnswer.HOLD),
        (_HELD, Reservations(((_B, 2),), _B, 5), _BOTH._replace(holder=_B, type=5),
         StandbyAnswer.HOLD),
        (_HELD, Reservations(), Reservations(((_B, 2),)), StandbyAnswer.HOLD),
        (_HELD, Reservations(), Reservations(), StandbyAnswer.ANSWER),
        # A command that has changed nothing says nothing, unless all is as on the Primary.
        (_BOTH, _BOTH, _BOTH, StandbyAnswer.ANSWER),
        (_BOTH, _BOTH, _HELD, StandbyAnswer.HOLD),
    ],
)  # fmt: skip
def test_a_standby_answers_what_is_true_of_the_device(
    before: Reservations, after: Reservations, canonical: Reservations, answer: StandbyAnswer
) -> None:
    assert rules.answer_on_standby(before, after, canonical) is answer
