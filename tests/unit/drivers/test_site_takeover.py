# SPDX-License-Identifier: GPL-2.0-or-later
"""Who has taken a device over, as a second site keeps it: all or none, and given back as meant.

The real receiver in a process of its own, with files on this machine.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sanctl.drivers.site_link import SiteLink
from sanctl.errors import CommandError
from sanctl.model.site_takeover import Claim, Ending, SiteTakeovers, Successor
from tests.fakes.local_site import local_link
from tests.unit.drivers.test_site_receiver import (
    DEVICE,
    MARK,
    ONE,
    TWO,
    folder,
    make,
    names,
    opened,
    proven,
)

__all__ = ["folder"]


SUCCESSOR = Successor("web-dr", "e" * 32, "to-far", 5)


ENDING = Ending(SUCCESSOR, 9, "n1")


def taken_over(
    link: SiteLink, folder: Path, successor: Successor, *, device: str = DEVICE, mark: str = MARK
) -> bool:
    """Note a takeover, whatever copies there are; return whether it is new."""
    return link.take_over(str(folder), mark, {device: Claim(successor)})[device]


def test_no_copy_is_begun_once_another_device_goes_on(folder: Path) -> None:
    make(folder, ONE, b"x" * 4096)
    with local_link() as link:
        assert taken_over(link, folder, SUCCESSOR)
        opened(link, folder)
        with pytest.raises(CommandError, match=r"SAN-SITE-021.*web-dr"):
            link.begin(TWO, "", 4096, 0)


def test_no_copy_that_is_under_way_counts_once_another_device_goes_on(folder: Path) -> None:
    make(folder, ONE, b"x" * 4096)
    whole = names(folder)
    with local_link() as link, local_link() as other:
        opened(link, folder)
        link.begin(TWO, "", 4096, 0)
        link.put(0, b"y" * 4096)
        link.ask_chunks()
        link.chunks()
        assert taken_over(other, folder, SUCCESSOR)
        with pytest.raises(CommandError, match=r"SAN-SITE-021.*web-dr"):
            link.prove(proven(TWO, b"y" * 4096))
    assert names(folder) == sorted([*whole, "takeover.json"])


def test_no_copy_is_removed_once_another_device_goes_on(folder: Path) -> None:
    make(folder, ONE, b"x" * 4096)
    with local_link() as link:
        assert taken_over(link, folder, SUCCESSOR)
        assert [each.token for each in opened(link, folder)] == [ONE], "it can be read"
        with pytest.raises(CommandError, match="SAN-SITE-021"):
            link.remove([ONE])
    with local_link() as link:
        assert link.takeovers(str(folder), MARK).successors == {DEVICE: SUCCESSOR}
        assert not taken_over(link, folder, SUCCESSOR), "again"
        with pytest.raises(CommandError, match=r"SAN-SITE-021.*web-dr"):
            taken_over(link, folder, SUCCESSOR._replace(uuid="f" * 32))
    with local_link() as link:
        assert link.give_back(str(folder), MARK, DEVICE, ENDING)
        assert not link.give_back(str(folder), MARK, DEVICE, ENDING)
        assert link.takeovers(str(folder), MARK) == SiteTakeovers({}, {DEVICE: (ENDING,)})
    make(folder, TWO, b"y" * 4096)


def test_a_copy_that_came_after_the_question_is_not_given_up_unasked(folder: Path) -> None:
    """The takeover was decided by what the site had some seconds before."""
    make(folder, ONE, b"x" * 4096)
    claim = {DEVICE: Claim(SUCCESSOR, (ONE,))}
    make(folder, TWO, b"y" * 4096)
    with local_link() as link, pytest.raises(CommandError, match=r"SAN-SITE-036.*to-far of web"):
        link.take_over(str(folder), MARK, claim)
    with local_link() as link:
        assert link.takeovers(str(folder), MARK).successors == {}
        claim = {DEVICE: Claim(SUCCESSOR, (ONE, TWO))}
        assert link.take_over(str(folder), MARK, claim) == {DEVICE: True}
        # Again: no copy can have come since.
        claim = {DEVICE: Claim(SUCCESSOR, ())}
        assert link.take_over(str(folder), MARK, claim) == {DEVICE: False}
        assert link.give_back(str(folder), MARK, DEVICE, ENDING)
    # One of which nothing is known was not looked at.
    (folder / DEVICE / f"to-far.{TWO}.json").write_text("{")
    with local_link() as link, pytest.raises(CommandError, match="SAN-SITE-036"):
        link.take_over(str(folder), MARK, {DEVICE: Claim(SUCCESSOR, (ONE, TWO))})


def test_of_two_that_take_the_same_devices_over_one_has_all(folder: Path) -> None:
    other = f"db.{'c' * 32}"
    third = SUCCESSOR._replace(device="third", uuid="f" * 32)
    with local_link() as link:
        assert taken_over(link, folder, third)
    claims = {other: Claim(SUCCESSOR), DEVICE: Claim(SUCCESSOR)}
    with local_link() as link, pytest.raises(CommandError, match=r"SAN-SITE-021.*third"):
        link.take_over(str(folder), MARK, claims)
    with local_link() as link:
        assert link.takeovers(str(folder), MARK).successors == {DEVICE: third}


def test_a_takeover_that_a_claim_names_ends_by_it(folder: Path) -> None:
    third = Successor("third", "3" * 32, "to-far", 9)
    other = f"db.{'d' * 32}"
    with local_link() as link:
        assert link.take_over(str(folder), MARK, {DEVICE: Claim(SUCCESSOR)}) == {DEVICE: True}
    stale = Ending(SUCCESSOR._replace(at_s=SUCCESSOR.at_s + 1), 9, "n1")
    with local_link() as link, pytest.raises(CommandError, match=r"SAN-SITE-021.*\.[0-9a-f]{8}$"):
        claims = {other: Claim(third), DEVICE: Claim(third, None, stale)}
        link.take_over(str(folder), MARK, claims)
    ending = Ending(SUCCESSOR, 9, "n1")
    with local_link() as link:
        assert list(link.takeovers(str(folder), MARK).successors) == [DEVICE], "all or none"
        claims = {other: Claim(third), DEVICE: Claim(third, None, ending)}
        changed = {DEVICE: True, other: True}
        assert link.take_over(str(folder), MARK, claims) == changed
        found = link.takeovers(str(folder), MARK)
        assert found.successors == {DEVICE: third, other: third}
        assert found.endings == {DEVICE: (ending,)}
        assert not any(link.take_over(str(folder), MARK, claims).values())
        assert link.takeovers(str(folder), MARK) == found


def test_of_two_that_take_each_other_over_one_goes_on(folder: Path) -> None:
    """Each ended the other's takeover, and said that it goes on; both were copied."""
    back, back_uuid = f"web-dr.{SUCCESSOR.uuid}", DEVICE.partition(".")[2]
    home = Successor("web", back_uuid, "to-far", 6)
    with local_link() as link, local_link() as first:
        assert taken_over(link, folder, SUCCESSOR)
        assert taken_over(link, folder, home, device=back)
        ending = ENDING._replace(successor=home)
        assert first.give_back(str(folder), MARK, back, ending, (DEVICE, SUCCESSOR.uuid))
        with pytest.raises(CommandError, match=r"SAN-SITE-021.*has ended meanwhile"):
            link.give_back(str(folder), MARK, DEVICE, ENDING, (back, back_uuid))
    with local_link() as link:
        assert link.takeovers(str(folder), MARK).successors == {DEVICE: SUCCESSOR}


def test_what_was_given_back_is_kept_and_one_that_is_lost_can_be(folder: Path) -> None:
    path = str(folder)
    again = ENDING._replace(successor=SUCCESSOR._replace(at_s=7))
    with local_link() as link:
        assert not link.give_back(path, MARK, DEVICE, ENDING), "the site does not have it"
        assert taken_over(link, folder, again.successor)
        assert link.give_back(path, MARK, DEVICE, again)
        assert link.takeovers(path, MARK).endings == {DEVICE: (ENDING, again)}
    # One that cannot be read has ended nothing.
    file = folder / DEVICE / "given-back.json"
    for content in ("", "{", "{}", '["x", 5]'):
        file.write_text(content)
        with local_link() as link:
            assert link.takeovers(path, MARK) == SiteTakeovers({}, {})
    with local_link() as link:
        assert not link.give_back(path, MARK, DEVICE, ENDING)
        assert link.takeovers(path, MARK).endings == {DEVICE: (ENDING,)}


def test_another_takeover_than_was_meant_is_not_given_back(folder: Path) -> None:
    """It came after the question; one that cannot be read is any."""
    third = SUCCESSOR._replace(device="third", uuid="f" * 32)
    with local_link() as link:
        assert taken_over(link, folder, third)
        with pytest.raises(CommandError, match=r"SAN-SITE-021.*third"):
            link.give_back(str(folder), MARK, DEVICE, ENDING)
    with local_link() as link:
        assert link.takeovers(str(folder), MARK) == SiteTakeovers({DEVICE: third}, {})
    (folder / DEVICE / "takeover.json").write_text("{")
    with local_link() as link, pytest.raises(CommandError, match=r"SAN-SITE-021.*unknown"):
        link.give_back(str(folder), MARK, DEVICE, ENDING)
    with local_link() as link:
        unknown = link.takeovers(str(folder), MARK).successors[DEVICE]
        assert link.give_back(str(folder), MARK, DEVICE, ENDING._replace(successor=unknown))
        assert link.takeovers(str(folder), MARK).successors == {}


def test_a_takeover_that_the_same_device_made_after_the_question_stays(folder: Path) -> None:
    path, later = str(folder), SUCCESSOR._replace(at_s=SUCCESSOR.at_s + 1)
    with local_link() as link:
        assert taken_over(link, folder, later)
        with pytest.raises(CommandError, match=r"SAN-SITE-021.*web-dr"):
            link.give_back(path, MARK, DEVICE, ENDING)
    unknown = ENDING._replace(successor=Successor.of({}))
    with local_link() as link, pytest.raises(CommandError, match=r"SAN-SITE-021.*web-dr"):
        link.give_back(path, MARK, DEVICE, unknown)
    with local_link() as link:
        assert link.takeovers(path, MARK) == SiteTakeovers({DEVICE: later}, {})
        assert link.give_back(path, MARK, DEVICE, ENDING._replace(successor=later))


@pytest.mark.parametrize(
    "field",
    [
        {},
        {"at_s": "7"},
        {"at_s": "007"},
        {"at_s": 10**10},
        {"at_s": -1},
        {"at_s": None},
        {"uuid": "F" * 32},
        {"uuid": 5},
        {"device": "WEB"},
        {"device": ["x"]},
        {"point": "a b"},
        {"point": ""},
        {"more": "x"},
    ],
)
def test_cluster_and_site_agree_on_which_takeover_it_is(
    folder: Path, field: dict[str, object]
) -> None:
    """A takeover is given back as the cluster has read it, whatever the file has."""
    path = str(folder)
    with local_link() as link:
        assert taken_over(link, folder, SUCCESSOR)
        file = folder / DEVICE / "takeover.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **field}))
        found = link.takeovers(path, MARK).successors[DEVICE]
        other = found._replace(at_s=found.at_s + 1)
        with pytest.raises(CommandError, match="SAN-SITE-021"):
            link.give_back(path, MARK, DEVICE, ENDING._replace(successor=other))
    with local_link() as link:
        assert link.give_back(path, MARK, DEVICE, ENDING._replace(successor=found))


def test_a_takeover_ends_only_once_that_is_on_the_disk(folder: Path) -> None:
    """Else the cluster that was taken over would know it as lost for ever."""
    dies = b"""
def unlink_if_there(path):
    if path.endswith("takeover.json"):
        os._exit(1)


"""
    with local_link() as link:
        assert taken_over(link, folder, SUCCESSOR)
    with local_link(more=dies) as link, pytest.raises(CommandError, match="SAN-SITE-005"):
        link.give_back(str(folder), MARK, DEVICE, ENDING)
    with local_link() as link:
        both = SiteTakeovers({DEVICE: SUCCESSOR}, {DEVICE: (ENDING,)})
        assert link.takeovers(str(folder), MARK) == both


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "folder", "link"])
def test_a_takeover_that_cannot_be_read_is_one(folder: Path, content: str) -> None:
    make(folder, ONE, b"x" * 4096)
    file = folder / DEVICE / "takeover.json"
    if content == "folder":
        file.mkdir()
    elif content == "link":
        file.symlink_to("/nowhere")
    else:
        file.write_text(content)
    with local_link() as link:
        opened(link, folder)
        assert link.takeovers(str(folder), MARK).successors[DEVICE].device == "unknown"
        with pytest.raises(CommandError, match=r"SAN-SITE-021.*unknown"):
            link.begin(TWO, ONE, 4096, 0)


def test_a_takeover_of_a_device_without_copies_and_names_that_lead_elsewhere(folder: Path) -> None:
    with local_link() as link:
        assert taken_over(link, folder, SUCCESSOR)
        assert link.takeovers(str(folder), MARK).successors == {DEVICE: SUCCESSOR}
        with pytest.raises(CommandError, match="SAN-SITE-008"):
            taken_over(link, folder, SUCCESSOR, device="../x")
    with local_link() as link, pytest.raises(CommandError, match="SAN-SITE-006"):
        taken_over(link, folder, SUCCESSOR, mark="c" * 32)
    with local_link() as link, pytest.raises(CommandError, match="SAN-SITE-008"):
        link.give_back(str(folder), MARK, "../x", ENDING)
