# SPDX-License-Identifier: GPL-2.0-or-later
"""A site keeps the newest complete moment of a group, whatever it is told to remove.

The real program in a process of its own, with files on this machine.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from sanctl.drivers.site_protocol import digest_of
from sanctl.errors import CommandError
from sanctl.model.site import ProvenCopy
from sanctl.plan.site.moments import UNLISTED
from tests.fakes.local_site import local_link
from tests.unit.drivers.test_site_receiver import MARK, digest, folder

__all__ = ["folder"]

WEB, DB = f"web.{'b' * 32}", f"db.{'a' * 32}"
BOTH = (DB, WEB)
CONTENT = bytes(range(256)) * 16


def token(number: int, device: str) -> str:
    return f"{number:012x}{BOTH.index(device):04x}"


def make(
    site: Path, number: int, device: str, group: tuple[str, ...] = BOTH, left: tuple[str, ...] = ()
) -> None:
    """Have a copy of a moment proven; its times are always the same ones."""
    with local_link() as link:
        link.open(str(site), MARK, device)
        link.begin(token(number, device), "", len(CONTENT), 0)
        link.put(0, CONTENT)
        link.ask_chunks()
        assert digest_of(link.chunks(), len(CONTENT)) == digest(CONTENT)
        link.prove(
            ProvenCopy(
                f"p{number}", token(number, device), number, 2, len(CONTENT), 3, 4,
                digest(CONTENT), group, left,
            )
        )  # fmt: skip


def remove_all(site: Path, device: str) -> tuple[str, ...]:
    with local_link() as link:
        copies = link.open(str(site), MARK, device)
        return link.remove([each.token for each in copies])


def there(site: Path) -> dict[str, list[str]]:
    with local_link() as link:
        found = link.folders(str(site), MARK)
    return {name: sorted(each.name for each in copies) for name, copies in found.items()}


def test_the_newest_complete_moment_stays(folder: Path) -> None:
    for number in (1, 2):
        for device in BOTH:
            make(folder, number, device)
    make(folder, 3, WEB)  # The run has died before the other one.
    assert remove_all(folder, DB) == ("p1",)
    assert remove_all(folder, WEB) == ("p1", "p3")
    assert there(folder) == {DB: ["p2"], WEB: ["p2"]}
    assert remove_all(folder, WEB) == () == remove_all(folder, DB)
    make(folder, 4, DB)
    assert remove_all(folder, DB) == ("p4",)
    make(folder, 5, DB)
    make(folder, 5, WEB)
    assert remove_all(folder, DB) == ("p2",) == remove_all(folder, WEB)


def test_the_site_numbers_what_is_proven(folder: Path) -> None:
    for number, device in ((2, DB), (2, WEB), (1, DB), (1, WEB)):
        make(folder, number, device)
    with local_link() as link:
        found = link.folders(str(folder), MARK)
    numbers = {each.name: each.number for copies in found.values() for each in copies}
    assert numbers == {"p2": 2, "p1": 4}
    assert {(each.group, each.left) for copies in found.values() for each in copies} == {(BOTH, ())}
    # Which one is the newer is not clear by that.
    assert remove_all(folder, DB) == () == remove_all(folder, WEB)


def test_a_folder_that_cannot_be_read_costs_no_moment(folder: Path) -> None:
    third = f"log.{'c' * 32}"
    for number in (1, 2):
        for device in BOTH:
            make(folder, number, device)
    (folder / third).write_text("no folder, as of a damaged filesystem")
    with local_link() as link:
        assert sorted(link.folders(str(folder), MARK)) == [DB, third, WEB]
        assert link.unread == {third: (UNLISTED,)}
    assert remove_all(folder, WEB) == ("p1",), "it is of another device"
    (folder / DB).rename(folder / "lost")
    (folder / DB).write_text("no folder")
    # The moment may be complete, and is the only one.
    assert remove_all(folder, WEB) == ()


def test_a_device_that_has_left(folder: Path) -> None:
    third = f"log.{'c' * 32}"
    for device in BOTH:
        make(folder, 1, device)
    make(folder, 2, DB, (DB, third))
    with local_link() as link:
        link.open(str(folder), MARK, third)
        link.begin(f"{2:012x}0009", "", len(CONTENT), 0)
        link.put(0, CONTENT)
        link.ask_chunks()
        link.chunks()
        link.prove(
            ProvenCopy(
                "p2", f"{2:012x}0009", 2, 2, len(CONTENT), 3, 4, digest(CONTENT), (DB, third)
            )
        )
    assert remove_all(folder, DB) == () == remove_all(folder, WEB) == remove_all(folder, third)
    for device in BOTH:
        make(folder, 3, device, BOTH, (third,))
    assert remove_all(folder, DB) == ("p1", "p2") and remove_all(folder, WEB) == ("p1",)
    assert remove_all(folder, third) == ("p2",), "it is of no complete moment any more"


def test_a_release_without_groups_takes_it_for_no_copy(folder: Path) -> None:
    """It looks for `digest` where a copy of one device has it, and removes what it has read."""
    make(folder, 1, DB)
    (note,) = folder.glob("db.*/p*.json")
    assert list(json.loads(note.read_text())) == ["of_group"]


@pytest.mark.parametrize(
    "spoilt",
    [
        {"group": [DB]},
        {"group": [WEB, DB]},
        {"group": [WEB, f"x.{'c' * 32}"]},
        {"group": [DB, 7]},
        {"group": 7},
        {"left": None},
        {"number": "x"},
    ],
)
def test_what_cannot_be_read_is_no_copy_and_stays(folder: Path, spoilt: dict[str, object]) -> None:
    for device in BOTH:
        make(folder, 1, device)
    (note,) = folder.glob("db.*/p*.json")
    known = json.loads(note.read_text())
    known["of_group"].update(spoilt)
    note.write_text(json.dumps(known))
    assert there(folder)[DB] == []
    assert remove_all(folder, DB) == ()
    assert (folder / DB / f"p1.{token(1, DB)}").exists()


def test_a_note_that_cannot_be_read_lets_no_other_device_of_the_moment_go(folder: Path) -> None:
    for device in BOTH:
        make(folder, 1, device)
    make(folder, 2, WEB)
    (note,) = folder.glob("db.*/p*.json")
    text = note.read_text()
    for spoil in (lambda: note.write_text("{"), note.unlink):
        spoil()
        assert remove_all(folder, WEB) == ("p2",), "p1 may be complete"
        make(folder, 2, WEB)
    note.write_text(text)
    for number in (3, 4):
        for device in BOTH:
            make(folder, number, device)
    note.write_text("{")
    assert remove_all(folder, WEB) == ("p1", "p2", "p3"), "a later moment is complete"
    assert there(folder)[WEB] == ["p4"]


def test_a_copy_of_one_device_waits_for_no_other_folder(folder: Path) -> None:
    """The lock of the site is that of groups."""
    with local_link() as link:
        link.open(str(folder), MARK, WEB)
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        make(folder, 1, WEB, ())
        assert remove_all(folder, WEB) == ("p1",)
    finally:
        os.close(held)


@pytest.mark.parametrize(
    ("group", "left"), [((WEB, f"x.{'c' * 32}"), ()), ((DB, "no folder"), ()), (BOTH, ("x",))]
)
def test_a_group_that_is_none_is_refused(
    folder: Path, group: tuple[str, ...], left: tuple[str, ...]
) -> None:
    with pytest.raises(CommandError, match="SAN-SITE-008"):
        make(folder, 1, DB, group, left)
    assert there(folder)[DB] == []
