# SPDX-License-Identifier: GPL-2.0-or-later
"""A replica's reservations in a file beside its data: JSON and its digest, replaced durably.

The file also has the epoch that this node has promised last: no process of it stores its first
state in that one again (R4 in sanctl/plan/failover/reservation_rules.py).
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any, NamedTuple

from sanctl.errors import CommandError, Problem
from sanctl.model.published_reservations import NOTE_KIND
from sanctl.model.reservation import Reservations, StoredReservations, Version
from sanctl.system.files import read_text, write_atomically

#: The kind of the file, behind the path of the data file without its suffix.
KIND = NOTE_KIND
_FORMAT = 1


class NewerFormatError(CommandError):
    """The file is whole, and of a release that is newer than this one."""


class Kept(NamedTuple):
    """What a replica's file has.

    Attributes:
        stored: the state.
        promised: the epoch that was promised last here.
    """

    stored: StoredReservations
    promised: int = 0


def load(path: str) -> Kept | None:
    """Return what a file says; None where there is no file.

    Raises:
        NewerFormatError: a newer release has written it.
        CommandError: it cannot be read, or is not whole.
    """
    try:
        text = read_text(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _error(path, f"cannot be read: {error}") from error
    try:
        body, digest, rest = text.split("\n")
        if rest or hashlib.sha256(body.encode()).hexdigest() != digest:
            raise _error(path, "is not whole: its digest is another one")
        fields = json.loads(body)
        if fields["format"] != _FORMAT:
            raise _newer(path, fields["format"])
        return Kept(decode(fields), int(fields["promised"]))
    except (ValueError, TypeError, LookupError) as error:
        raise _error(path, f"is not whole: {error}") from error


def load_whole(path: str) -> Kept | None:
    """Return what a file says; None where there is none that can be read here."""
    try:
        return load(path)
    except CommandError:
        return None


def load_to_replace(path: str) -> Kept | None:
    """As `load_whole`, for who makes a file anew where that is None.

    Raises:
        NewerFormatError: a newer release has written it: it may be the only whole one.
    """
    try:
        return load(path)
    except NewerFormatError:
        raise
    except CommandError:
        return None


def store(path: str, kept: Kept) -> None:
    """Replace the file durably. Called under the lock of `replica_note.lock_path`.

    Raises:
        OSError: the pool refused; the old file is untouched.
    """
    fields = {**encode(kept.stored), "promised": kept.promised}
    body = json.dumps(fields, separators=(",", ":"), sort_keys=True)
    digest = hashlib.sha256(body.encode()).hexdigest()
    write_atomically(path, f"{body}\n{digest}\n", mode=0o600)


def epoch_above_lost() -> int:
    """Return a number above every epoch that a file that is gone may have had, or promised.

    An epoch is raised once for each process that stores changes, and by nodes that went above each
    other, so the seconds since 1970 are more than all epochs of before.
    """
    return int(time.time())


def encode(stored: StoredReservations) -> dict[str, Any]:
    """Return a state as JSON has it, for the file and for another node."""
    reservations = stored.reservations
    return {
        "format": _FORMAT,
        "version": list(stored.version),
        "registrations": [[name, f"{key:#x}"] for name, key in reservations.registrations],
        "holder": reservations.holder,
        "type": reservations.type,
        "cleared": stored.cleared,
    }


def decode(fields: dict[str, Any]) -> StoredReservations:
    """Return the state that JSON has.

    Raises:
        ValueError: it is not of this form; TypeError and LookupError: the same.
    """
    if fields["format"] != _FORMAT:
        raise ValueError(f"format {fields['format']} is not known to this release")
    epoch, generation = fields["version"]
    registrations = tuple((str(name), int(key, 16)) for name, key in fields["registrations"])
    holder, type_ = fields["holder"], fields["type"]
    return StoredReservations(
        Version(int(epoch), int(generation)),
        Reservations(
            registrations,
            None if holder is None else str(holder),
            None if type_ is None else int(type_),
        ),
        str(fields["cleared"]),
    )


def _newer(path: str, format_: object) -> NewerFormatError:
    return NewerFormatError(
        Problem(
            "SAN-RES-007",
            f"{path} was written by a newer release of sanctl (format {format_})",
            "update sanctl on this node; until then this replica is not promoted",
        )
    )


def _error(path: str, why: str) -> CommandError:
    return CommandError(
        Problem(
            "SAN-RES-002",
            f"{path} {why}",
            "this replica is not promoted; docs/howto/night-page.md, SAN-RES-002",
        )
    )
