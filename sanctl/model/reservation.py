# SPDX-License-Identifier: GPL-2.0-or-later
"""Persistent reservations of a device: which hosts are registered, who holds it, and their version.

A registration is an initiator's, not a port's: the target moves with the device. Light: the agents
import this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

#: SPC-4, table 58: the types that LIO and hosts use, in SPC's words.
TYPES = {
    1: "Write Exclusive",
    3: "Exclusive Access",
    5: "Write Exclusive, Registrants Only",
    6: "Exclusive Access, Registrants Only",
    7: "Write Exclusive, All Registrants",
    8: "Exclusive Access, All Registrants",
}
#: Those that every registered initiator holds.
ALL_REGISTRANTS = frozenset({7, 8})


class Reservations(NamedTuple):
    """What is in force for all hosts of a device.

    Attributes:
        registrations: initiator (IQN) and its key, sorted; each initiator once.
        holder: the initiator that holds the reservation; None: nobody does. Of an "all registrants"
            type the first one that is registered, so that two states that say the same are equal.
        type: the reservation's type as SPC numbers it; None where nobody holds one.
    """

    registrations: tuple[tuple[str, int], ...] = ()
    holder: str | None = None
    type: int | None = None

    @property
    def keys(self) -> Mapping[str, int]:
        """The keys by initiator."""
        return dict(self.registrations)

    def limited_to(self, initiators: Iterable[str]) -> Reservations:
        """Return what is in force where only these initiators are on the access list.

        The kernel drops a registration with its entry, and the reservation with its holder; of an
        "all registrants" type the last one that leaves takes it along.
        """
        allowed = set(initiators)
        left = [each for each in self.registrations if each[0] in allowed]
        is_held = self.holder in allowed or (self.type in ALL_REGISTRANTS and bool(left))
        if not is_held:
            return of_initiators(left)
        return of_initiators(left, holder=self.holder, type_=self.type)

    def with_registrations(self, found: Iterable[tuple[str, int]]) -> Reservations:
        """Return the same reservation with other registrations; none if its holder has none."""
        every = of_initiators(found)
        if self.holder is None:
            return every
        there = Reservations(every.registrations, self.holder, self.type)
        return there.limited_to(every.keys)

    def with_absent(self, kept: Reservations, entries: Iterable[str]) -> Reservations:
        """Return what is in force with what is kept of initiators that have no entry just now.

        Hosts may be kept out for a while, and are let in one by one. Their registrations, which no
        kernel lists meanwhile, must not be lost by another host's command.

        Args:
            kept: what is stored.
            entries: the initiators that have an entry in the kernel's access list.
        """
        there = set(entries)
        absent = kept.limited_to(iqn for iqn, _ in kept.registrations if iqn not in there)
        holder, type_ = self.holder, self.type
        # What all registrants hold one of them releases for all, those who are kept out, too.
        is_released = kept.type in ALL_REGISTRANTS and not there.isdisjoint(
            kept.keys.keys() & self.keys.keys()
        )
        if holder is None and not is_released:
            holder, type_ = absent.holder, absent.type
        found = {**absent.keys, **self.keys}
        return of_initiators(found.items(), holder=holder, type_=type_)


class Version(NamedTuple):
    """How new a stored state is; ordered.

    Attributes:
        epoch: raised by each process that stores changes, before it serves.
        generation: raised by each change within an epoch.
    """

    epoch: int
    generation: int


class StoredReservations(NamedTuple):
    """A state as a replica has it in its file.

    Attributes:
        version: how new it is.
        reservations: what is in force.
        cleared: the latest order to clear them that was carried out, a token; part of the state, so
            that no node carries an order out again. Empty: none.
    """

    version: Version
    reservations: Reservations
    cleared: str = ""


def of_initiators(
    found: Iterable[tuple[str, int]], *, holder: str | None = None, type_: int | None = None
) -> Reservations:
    """Return reservations from registrations of single sessions.

    Of several sessions of one initiator the last one in `found` counts.
    """
    registrations = tuple(sorted(dict(found).items()))
    if type_ in ALL_REGISTRANTS and registrations:
        holder = registrations[0][0]
    return Reservations(registrations, holder, type_)
