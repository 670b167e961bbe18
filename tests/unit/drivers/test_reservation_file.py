# SPDX-License-Identifier: GPL-2.0-or-later
"""A replica's file of reservations: all of it, or an error that keeps the replica from serving."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sanctl.drivers import reservation_file
from sanctl.drivers.reservation_file import Kept
from sanctl.errors import CommandError
from sanctl.model.reservation import Reservations, StoredReservations, Version

KEPT = Kept(
    StoredReservations(
        Version(3, 2),
        Reservations((("iqn.x:a", 1), ("iqn.x:b", (1 << 64) - 1)), "iqn.x:a", 5),
        "ab",
    ),
    4,
)


def test_what_is_stored_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "vm1.reservations")
    assert reservation_file.load(path) is None and reservation_file.load_whole(path) is None
    for kept in (KEPT, Kept(StoredReservations(Version(0, 0), Reservations()))):
        reservation_file.store(path, kept)
        assert reservation_file.load(path) == reservation_file.load_whole(path) == kept
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(tmp_path) == ["vm1.reservations"]


def test_each_cut_and_each_changed_byte_is_found(tmp_path: Path) -> None:
    path = tmp_path / "vm1.reservations"
    reservation_file.store(str(path), KEPT)
    whole = path.read_bytes()
    broken = [whole[:end] for end in range(len(whole))]
    broken += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    broken += [whole + b"x", b"\xff\n\n"]
    for text in broken:
        path.write_bytes(text)
        with pytest.raises(CommandError, match="SAN-RES-002"):
            reservation_file.load(str(path))
        assert reservation_file.load_whole(str(path)) is None


def test_a_later_format_is_not_guessed() -> None:
    fields = reservation_file.encode(KEPT.stored)
    assert reservation_file.decode(fields) == KEPT.stored
    with pytest.raises(ValueError, match="format 2"):
        reservation_file.decode({**fields, "format": 2})


def test_a_refused_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "vm1.reservations")
    reservation_file.store(path, KEPT)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        reservation_file.store(path, KEPT._replace(promised=9))
    assert reservation_file.load(path) == KEPT
