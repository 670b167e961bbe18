# SPDX-License-Identifier: GPL-2.0-or-later
"""A replica's reservations that a newer release has stored: whole, not read here, never replaced.

The node may have gone back to an older release, or not be updated yet.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from sanctl.agents.reservations import in_force, replica_note
from sanctl.agents.reservations.replica_note import Replica
from sanctl.drivers import reservation_file
from sanctl.drivers.reservation_file import Kept, NewerFormatError
from sanctl.errors import CommandError
from sanctl.model.reservation import Reservations, StoredReservations, Version
from sanctl.system import state_files
from tests.unit.agents.reservations.test_follower import ask, replica
from tests.unit.agents.reservations.test_in_force import NONE, OFF, VOL, Bed, bed

__all__ = ["bed", "replica"]

KEPT = Kept(StoredReservations(Version(3, 2), Reservations((("iqn.x:a", 1),), "iqn.x:a", 5)), 4)


def store_newer(path: str) -> bytes:
    """Store a file as the next release may: with its digest, and of another form."""
    fields = {**reservation_file.encode(KEPT.stored), "format": 2, "registrations": {}}
    del fields["version"]
    body = json.dumps(fields)
    text = f"{body}\n{hashlib.sha256(body.encode()).hexdigest()}\n".encode()
    Path(path).write_bytes(text)
    return text


def test_it_is_told_from_one_that_is_not_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "vm1.reservations")
    text = store_newer(path)
    with pytest.raises(NewerFormatError, match=r"SAN-RES-007.*format 2") as caught:
        reservation_file.load(path)
    (problem,) = caught.value.problems
    assert "update sanctl" in problem.hint and "clear" not in str(problem)
    assert reservation_file.load_whole(path) is None
    with pytest.raises(NewerFormatError):
        reservation_file.load_to_replace(path)
    Path(path).write_bytes(text.replace(b"2", b"3", 1))
    with pytest.raises(CommandError, match="SAN-RES-002"):
        reservation_file.load(path)
    assert reservation_file.load_to_replace(path) is None


@pytest.mark.parametrize(
    ("order", "is_first"), [("", False), ("t2", False), ("", True)], ids=["plain", "clear", "first"]
)
def test_a_replica_with_it_is_started_and_not_promoted(
    bed: Bed, order: str, is_first: bool
) -> None:
    text = store_newer(bed.path)
    assert in_force.at_start(bed.node, VOL) == NONE
    ordered = VOL._replace(clear_reservations=order)
    for _ in range(2):
        with pytest.raises(CommandError, match="SAN-RES-007"):
            in_force.check_before_promotion(ordered, is_first=is_first)
    assert Path(bed.path).read_bytes() == text


def test_monitors_do_not_replace_it(bed: Bed) -> None:
    text = store_newer(bed.path)
    bed.is_on = False
    with pytest.raises(CommandError, match="SAN-RES-007"):
        bed.look()
    bed.is_on = True
    with pytest.raises(CommandError, match="SAN-RES-007"):
        bed.look(VOL._replace(clear_reservations="t2"))
    assert in_force.at_start(bed.node, OFF) is None, "switched off"
    bed.look(OFF)
    assert Path(bed.path).read_bytes() == text


def test_what_the_node_that_serves_sends_does_not_replace_it(replica: Replica) -> None:
    """That node marks this replica as outdated, and goes on."""
    text = store_newer(replica.path)
    said = ask(Version(9, 0))
    assert (said["kind"], said["code"]) == ("refused", "SAN-RES-007")
    assert Path(replica.path).read_bytes() == text


def test_a_note_of_a_replica_with_more_in_it_is_read(bed: Bed) -> None:
    """Handlers and the service read it."""
    written = replica_note.write(VOL)
    note = state_files.of_device("vol1", "reservations")
    note.write(json.dumps({**json.loads(note.read()), "tier": 2}))
    assert replica_note.read("vol1") == written
