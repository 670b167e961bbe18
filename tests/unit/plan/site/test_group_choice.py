# SPDX-License-Identifier: GPL-2.0-or-later
"""Devices of a group are made from one complete moment, and take over together, or it was asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.errors import Refused
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import COPYING, DONE, GIVEN_UP, ORDERED, RestoreOrder
from sanctl.model.names import DeviceName
from sanctl.model.site import ProvenCopy
from sanctl.model.site_copy import SiteCopy, WantedCopy
from sanctl.model.site_takeover import Successor
from sanctl.plan.site.group_choice import (
    Choice,
    choose_of_moment,
    devices_taking_over,
    taken_together,
)
from tests.unit.plan.device.test_restoring import cluster

DATA, LOG, LONE = f"data.{'a' * 32}", f"log.{'b' * 32}", f"lone.{'c' * 32}"
BOTH = (DATA, LOG)
Folders = dict[str, tuple[ProvenCopy, ...]]


def copy(
    number: int, at: int = 0, group: tuple[str, ...] = BOTH, came: int | None = None
) -> ProvenCopy:
    made_s = number * 600
    return ProvenCopy(
        f"p{number}", f"{number:012x}{at:04x}", made_s, made_s + 1, 8, 4, 2, "d" * 64,
        group, (), (number * 10 if came is None else came) + at,
    )  # fmt: skip


def alone(number: int) -> ProvenCopy:
    return copy(number, 9, ())._replace(number=0)


#: Moments 1 and 2 are complete, 3 is half there.
THERE: Folders = {
    DATA: (copy(1), copy(2), copy(3)),
    LOG: (copy(1, 1), copy(2, 1)),
    LONE: (alone(5),),
}
#: 4 is a copy of one device alone.
STRAY: Folders = {**THERE, LOG: (*THERE[LOG], alone(4))}


def made(name: str, folder: str, number: int, at: int = 0, state: str = DONE) -> DeviceSpec:
    """Return a device that was made from a copy."""
    (one,) = cluster(None).cib.devices
    device, _, uuid = folder.partition(".")
    source = SiteCopy("far", device, uuid, f"p{number}", f"{number:012x}{at:04x}", "d" * 64)
    order = RestoreOrder.from_copy("7" * 16, source, 1)._replace(state=state)
    return replace(one, name=DeviceName.parse(name), uuid="9" * 32, restore=order)


def here(*devices: DeviceSpec) -> Cluster:
    seen = cluster(None)
    return replace(seen, cib=replace(seen.cib, devices=devices))


def chosen(
    text: str,
    *devices: DeviceSpec,
    there: Folders | None = None,
    filled: str = "",
    allows_mix: bool = False,
) -> Choice:
    return choose_of_moment(
        here(*devices),
        "far",
        THERE if there is None else there,
        WantedCopy.parse(text),
        filled=DeviceName.parse(filled) if filled else None,
        allows_mix=allows_mix,
    )


def test_the_newest_complete_moment_by_default() -> None:
    for text in ("data", "log", "log@p2"):
        choice = chosen(text, there=STRAY if text != "log" else None)
        assert choice.proven.name == choice.copy.point == "p2"
        assert choice.copy.device == text.partition("@")[0]
        later = ("not used: the copy p4 of log alone, 20 min later",) if text != "log" else ()
        assert choice.notes == (
            "moment p2 of data, log, 1970-01-01 00:20 UTC, is complete",
            "not used: the copy p3 of data alone, 10 min later",
            *later,
        )
    assert chosen("data", there={DATA: (copy(2),), LOG: (copy(2, 1),)}).notes == (
        "moment p2 of data, log, 1970-01-01 00:20 UTC, is complete",
    )


def test_a_later_copy_of_the_device_alone_leaves_the_choice_to_the_operator() -> None:
    """The group may have ended long since: its last moment would take months back unasked."""
    with pytest.raises(Refused, match=r"SAN-SITE-019.*is p4.*p2.*log@p2 .*log@p4 with --allow-mix"):
        chosen("log", there=STRAY)
    assert chosen("log@p4", there=STRAY, allows_mix=True).proven.name == "p4"
    earlier: Folders = {DATA: (copy(2),), LOG: (alone(1), copy(2, 1))}
    assert chosen("log", there=earlier).proven.name == "p2"


def test_a_device_that_is_copied_alone() -> None:
    assert chosen("lone") == Choice(*chosen("lone")[:2], ())
    assert chosen("lone").proven.name == "p5"
    with pytest.raises(Refused, match="SAN-SITE-018"):
        chosen("none")


@pytest.mark.parametrize("text", ["data@p3", "log@p4"])
def test_a_copy_of_no_complete_moment_is_asked_for(text: str) -> None:
    with pytest.raises(Refused, match=r"SAN-SITE-028.*take (data|log)@p2.*--allow-mix"):
        chosen(text, there=STRAY)
    choice = chosen(text, there=STRAY, allows_mix=True)
    assert choice.proven.name == text.partition("@")[2]
    assert choice.notes == ("it is of no complete moment of its group, as --allow-mix has it",)


def test_the_newest_of_one_device_if_that_is_asked_for() -> None:
    assert chosen("log", there=STRAY, allows_mix=True).proven.name == "p4"
    assert chosen("data@p1", allows_mix=True).notes[0].startswith("moment p1 of data, log")


def test_no_moment_was_ever_complete() -> None:
    half: Folders = {DATA: (copy(3),), LOG: (alone(4),)}
    with pytest.raises(Refused, match=r"SAN-SITE-028.*no moment that is complete.*\(--allow-mix"):
        chosen("data", there=half)
    assert chosen("data", there=half, allows_mix=True).proven.name == "p3"
    assert chosen("log", there=half).proven.name == "p4", "it says of no group"


def test_clocks_that_disagree() -> None:
    there: Folders = {
        DATA: (copy(1, came=90), copy(2)),
        LOG: (copy(1, 1, came=90), copy(2, 1)),
    }
    with pytest.raises(Refused, match=r"SAN-SITE-019.*is p2, and the one that came last is p1"):
        chosen("data", there=there)
    assert chosen("data@p1", there=there).proven.name == "p1"


def test_a_device_is_not_created_beside_another_moment() -> None:
    with pytest.raises(Refused, match=r"SAN-SITE-029.*this one of p2, and data-dr \(data@p1\)"):
        chosen("log", made("data-dr", DATA, 1))
    assert chosen("log@p1", made("data-dr", DATA, 1)).notes[-1] == (
        "the newest complete moment is p2"
    )
    assert chosen("log", made("data-dr", DATA, 1), there=STRAY, allows_mix=True).copy.point == "p4"
    # One of them is enough; others may be tests. A device of the same folder does not count.
    for devices in (
        (made("data-dr", DATA, 2), made("test", DATA, 1)),
        (made("log-old", LOG, 1, 1),),
        (made("lone-dr", LONE, 5),),
    ):
        assert chosen("log", *devices).proven.name == "p2"


def test_a_device_that_is_filled_says_which_others_have_to_follow() -> None:
    home = (made("data", DATA, 1), made("log", LOG, 1, 1))
    choice = chosen("log", *home, filled="log")
    assert choice.proven.name == "p2"
    assert choice.notes[-1] == "of another moment than p2 here: data (data@p1); fill them, too"
    assert chosen("log", *home[1:], filled="log").notes[-1].startswith("not used")


def taking(*names: str, devices: tuple[DeviceSpec, ...], allows_mix: bool = False) -> list[str]:
    found = devices_taking_over(
        here(*devices), list(map(DeviceName.parse, names)), THERE, allows_mix=allows_mix
    )
    return [each.name.value for each in found]


def test_the_devices_of_a_moment_take_over_together() -> None:
    pair = (made("data-dr", DATA, 2), made("log-dr", LOG, 2, 1), made("test", LOG, 1, 1))
    assert taking("data-dr", devices=pair) == ["data-dr", "log-dr"]
    assert taking("log-dr", devices=pair) == ["log-dr", "data-dr"]
    assert taking("log-dr", "data-dr", devices=pair) == ["log-dr", "data-dr"]
    assert taking("data-dr", devices=pair, allows_mix=True) == ["data-dr"]
    assert taking("lone-dr", devices=(made("lone-dr", LONE, 5),)) == ["lone-dr"]
    # The site has that moment no more: the devices are known by what it has of later ones.
    gone = (made("data-dr", DATA, 8), made("log-dr", LOG, 8, 1))
    assert taking("data-dr", devices=gone) == ["data-dr", "log-dr"]


def test_the_group_is_that_of_the_moment_that_they_were_made_from() -> None:
    """A third device has joined since."""
    three = (DATA, LOG, LONE)
    there = {
        folder: (*copies, copy(6, at, three)) for at, (folder, copies) in enumerate(THERE.items())
    }
    pair = (made("data-dr", DATA, 2), made("log-dr", LOG, 2, 1))
    names = [DeviceName.parse("data-dr")]
    assert len(devices_taking_over(here(*pair), names, there, allows_mix=False)) == 2
    later = (made("data-dr", DATA, 6), made("log-dr", LOG, 6, 1))
    with pytest.raises(Refused, match=r"SAN-SITE-029.*copy of lone"):
        devices_taking_over(here(*later), names, there, allows_mix=False)


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        pytest.param((made("data-dr", DATA, 2),), r"no device here from the copy", id="missing"),
        pytest.param(
            (made("data-dr", DATA, 2), made("log-dr", LOG, 1, 1)),
            r"no device here .* from others: log-dr \(log@p1\)",
            id="of another moment",
        ),
        pytest.param(
            (made("data-dr", DATA, 3), made("log-dr", LOG, 4, 9)),
            r"no device here .* from others: log-dr \(log@p4\)",
            id="of none",
        ),
        pytest.param(
            (made("data-dr", DATA, 2), made("log-dr", LOG, 2, 1), made("t", LOG, 2, 1)),
            r"2 devices here.*name the one",
            id="two",
        ),
    ],
)
def test_what_does_not_belong_together_takes_nothing_over(
    devices: tuple[DeviceSpec, ...], says: str
) -> None:
    with pytest.raises(Refused, match=f"SAN-SITE-029.*{says}"):
        taking("data-dr", devices=devices)
    assert taking("data-dr", devices=devices, allows_mix=True) == ["data-dr"]


def test_the_one_that_is_meant_is_named() -> None:
    devices = (made("data-dr", DATA, 2), made("log-dr", LOG, 2, 1), made("t", LOG, 2, 1))
    assert taking("data-dr", "t", devices=devices) == ["data-dr", "t"]
    with pytest.raises(Refused, match="SAN-DEV-002"):
        taking("data-dr", "x", devices=devices)


def test_one_whose_filling_was_given_up_holds_nothing_of_the_copy() -> None:
    pair = (made("data-dr", DATA, 2, state=GIVEN_UP), made("log-dr", LOG, 2, 1))
    with pytest.raises(Refused, match=r"SAN-SITE-022.*'given-up', and nothing was written"):
        taking("data-dr", devices=pair)
    with pytest.raises(Refused, match=r"SAN-SITE-022"):
        taking("data-dr", devices=pair, allows_mix=True)
    with pytest.raises(Refused, match=r"SAN-SITE-029.*no device here"):
        taking("log-dr", devices=pair)
    # Nothing is written yet either; a copy that is under way comes to its end before any host.
    for state, follows in ((ORDERED, False), (COPYING, True)):
        pair = (made("data-dr", DATA, 2, state=state), made("log-dr", LOG, 2, 1))
        if follows:
            assert taking("log-dr", devices=pair) == ["log-dr", "data-dr"]
            continue
        with pytest.raises(Refused, match=r"SAN-SITE-029"):
            taking("log-dr", devices=pair)
    # For another one that is to be filled the order counts, and one that was given up does not.
    ordered, given_up = (made("data", DATA, 1, state=each) for each in (ORDERED, GIVEN_UP))
    assert chosen("log", ordered, filled="log").notes[-1].endswith("fill them, too")
    assert not chosen("log", given_up, filled="log").notes[-1].endswith("fill them, too")


def by(point: str) -> Successor:
    return Successor("x", "9" * 32, point, 1)


def test_what_is_given_back_together() -> None:
    both = {DATA: by("p2"), LOG: by("p2"), LONE: by("p2")}
    assert taken_together(DATA, both, THERE) == (LOG,)
    assert taken_together(DATA, {DATA: by("p2")}, THERE) == ()
    assert taken_together(LONE, both, THERE) == ()
    assert taken_together(LOG, {LOG: by("p2"), LONE: by("p2")}, {}) == ()
    # The site has that moment no more.
    gone = {DATA: by("p0"), LOG: by("p0")}
    assert taken_together(DATA, gone, THERE) == (LOG,)


def test_what_was_taken_over_by_itself_is_given_back_by_itself() -> None:
    assert taken_together(DATA, {DATA: by("p2"), LOG: by("p1")}, THERE) == ()
    # It has left the group since, and was taken over from a copy of the same name.
    left = copy(6, 0, (DATA,))._replace(left=(LOG,))
    there = {**THERE, DATA: (*THERE[DATA], left)}
    assert taken_together(DATA, {DATA: by("p2"), LOG: by("p2")}, there) == ()
    # And come back, and both were taken over from a later moment.
    back = {DATA: (*there[DATA], copy(7)), LOG: (*there[LOG], copy(7, 1))}
    assert taken_together(DATA, {DATA: by("p7"), LOG: by("p7")}, back) == (LOG,)
    assert taken_together(DATA, {DATA: by("p2"), LOG: by("p2")}, back) == (LOG,)
