# SPDX-License-Identifier: GPL-2.0-or-later
"""Every broken variant of the model of reservations, one rule each, and what is expected of it."""

from __future__ import annotations

from typing import NamedTuple

from sanctl.safety.reservations import ReservationRules

#: Distances of versions count up to here where a variant is explored: a way of that few epochs is
#: one that there is.
EXACT_GAP = 6


class BrokenReservations(NamedTuple):
    """A rule of reservations, the model without it, and the shortest way to the harm.

    Attributes:
        name: its name for --rules.
        rule: the rule that is broken, one sentence.
        rules: all rules, with this one broken.
        finds: how the sentence of the counterexample ends.
        steps: the number of events of the shortest way there.
    """

    name: str
    rule: str
    rules: ReservationRules
    finds: str
    steps: int


_SERVES = "serves with reservations that were replaced"
_MAY_BE = "may be promoted with reservations that were replaced"

BROKEN_RESERVATIONS = (
    BrokenReservations(
        "answers-unstored",
        "R1: A host is answered once each other replica has stored the change, or is marked.",
        ReservationRules(asks_all=False),
        finds=_MAY_BE,
        steps=4,
    ),
    BrokenReservations(
        "stores-own-first",
        "R1: The own file is written last.",
        ReservationRules(others_first=False),
        finds=_MAY_BE,
        steps=14,
    ),
    BrokenReservations(
        "late-removal",
        "R1: A mark whose removal was begun by a process that died counts once it is set anew.",
        ReservationRules(sets_anew=False),
        finds=_MAY_BE,
        steps=13,
    ),
    BrokenReservations(
        "clears-unstored",
        "R2: A Primary clears a mark after that replica has stored the current state.",
        ReservationRules(stores_before_clear=False),
        finds=_MAY_BE,
        steps=8,
    ),
    BrokenReservations(
        "clears-unlocked",
        "R2: No change comes between that and the removal.",
        ReservationRules(locks=False),
        finds=_MAY_BE,
        steps=10,
    ),
    BrokenReservations(
        "unmarks-older",
        "R3: Where both replicas are marked, the one with the older state stays so.",
        ReservationRules(compares=False),
        finds=_MAY_BE,
        steps=8,
    ),
    BrokenReservations(
        "no-epoch",
        "R4: A process first stores the state of its file in a new epoch.",
        ReservationRules(raises=False),
        finds=_MAY_BE,
        steps=15,
    ),
    BrokenReservations(
        "epoch-of-another",
        "R4: Each process does, not only the first one after a promotion.",
        ReservationRules(raises_per_process=False),
        finds=_MAY_BE,
        steps=17,
    ),
    BrokenReservations(
        "epoch-again",
        "R4: Its own file says so before anything is sent: no node uses an epoch twice.",
        ReservationRules(promises=False),
        finds=_MAY_BE,
        steps=18,
    ),
    BrokenReservations(
        "takes-older",
        "R5: A standby takes no state that is older than its own.",
        ReservationRules(refuses_older=False),
        finds=_MAY_BE,
        steps=11,
    ),
    BrokenReservations(
        "takes-from-anybody",
        "R5: It takes one only from the Primary, and none once it is Primary itself.",
        ReservationRules(heeds_role=False),
        finds=_MAY_BE,
        steps=12,
    ),
    BrokenReservations(
        "reads-early",
        "R5: The file is read once DRBD is Primary here, not before.",
        ReservationRules(reads_as_primary=False),
        finds=_SERVES,
        steps=10,
    ),
    BrokenReservations(
        "serves-unsettled",
        "R7: A node serves once the state that it was promoted with is stored as in R1.",
        ReservationRules(settles_first=False),
        finds=_MAY_BE,
        steps=5,
    ),
    BrokenReservations(
        "reads-unanswered",
        "No host reads a change that was not answered yet. **Not kept**, see below.",
        ReservationRules(hides_changes=False),
        finds=_MAY_BE,
        steps=2,
    ),
)
