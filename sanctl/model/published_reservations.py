# SPDX-License-Identifier: GPL-2.0-or-later
"""Reservations as the node that serves publishes them, and the parameters. Light: for agents, too.

JSON: `{"version": [epoch, generation], "registrations": {IQN: "0x…"}, "holder": IQN or null,
"type": number or null, "cleared": the order to clear them that was carried out last}`.
"""

from __future__ import annotations

from typing import NamedTuple

from sanctl.model.reservation import TYPES, Reservations, Version

#: The private node attribute of a device's reservations; never in the CIB.
RESERVATIONS_PREFIX = "sanctl.reservations."
#: The parameters of a device: whether it has reservations, and the latest order to clear them.
PARAMETER = "reservations"
CLEAR_PARAMETER = "clear-reservations"
ON = "on"
#: The kind of a replica's file beside its data, and of the agents' note of such a replica.
NOTE_KIND = "reservations"
_OFF = "off"
#: Whether a new device has reservations where nobody says so. Those that were made without keep
#: that: an absent parameter is off.
NEW_DEVICES_HAVE_RESERVATIONS = False


class PublishedReservations(NamedTuple):
    """What a node says of a device's reservations.

    Attributes:
        version: of that state.
        reservations: who is registered, and who holds what.
        cleared: the order to clear them that was carried out last; empty: none.
    """

    version: Version
    reservations: Reservations
    cleared: str = ""


def are_on(parameter: str) -> bool:
    """Return whether a device has reservations, by its parameter; absent is empty.

    A word that this release does not know is on: hosts that count on being kept apart would be let
    in together otherwise.
    """
    return parameter not in {"", _OFF}


def format_published(found: PublishedReservations) -> str:
    """Return the text of the node attribute."""
    import json  # noqa: PLC0415 - a monitor that finds nothing changed does not need it

    epoch, generation = found.version
    return json.dumps(
        {
            "version": [epoch, generation],
            "registrations": {iqn: hex(key) for iqn, key in found.reservations.registrations},
            "holder": found.reservations.holder,
            "type": found.reservations.type,
            "cleared": found.cleared,
        },
        separators=(",", ":"),
    )


def parse_published(text: str) -> PublishedReservations | None:
    """Read the text of `format_published`; None: what it says is not known."""
    import json  # noqa: PLC0415 - as above

    try:
        found = json.loads(text)
        epoch, generation = map(_whole, found["version"])
        registrations = {str(iqn): _key(key) for iqn, key in found["registrations"].items()}
        holder, type_ = found["holder"], found["type"]
        cleared = found.get("cleared", "")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not isinstance(cleared, str):
        return None
    if (holder is None) != (type_ is None):
        return None
    if holder is not None and (holder not in registrations or type_ not in TYPES):
        return None
    return PublishedReservations(
        Version(epoch, generation),
        Reservations(tuple(sorted(registrations.items())), holder, type_),
        cleared,
    )


def _whole(number: object) -> int:
    """Return a whole number of a version; ValueError: it is none."""
    if type(number) is not int or number < 0:
        raise ValueError
    return number


def _key(text: object) -> int:
    """Return a reservation key, 8 bytes of which 0 is none (SPC-4, 5.13.6); ValueError: no key."""
    if not isinstance(text, str) or not text.startswith("0x"):
        raise ValueError
    key = int(text, 16)
    if not 0 < key < 1 << 64:
        raise ValueError
    return key
