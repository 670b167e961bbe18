# SPDX-License-Identifier: GPL-2.0-or-later
"""Persistent reservations of a device: which hosts are registered, who holds it, and their version.

A registration is an initiator's, not a port's: the target moves with the device. Light: the agents
import this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Reservations(NamedTuple):
    """What is in force for all hosts of a device.

    Attributes:
        registrations: initiator (IQN) and its key, sorted; each initiator once.
        holder: the initiator that holds the reservation; None: nobody does.
        type: the reservation's type as SPC numbers it; None where nobody holds one.
    """

    registrations: tuple[tuple[str, int], ...] = ()
    holder: str | None = None
    type: int | None = None

    @property
    def keys(self) -> Mapping[str, int]:
        """The keys by initiator."""
        return dict(self.registrations)


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
    """

    version: Version
    reservations: Reservations
