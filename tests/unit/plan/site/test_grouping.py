# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run says of its group: no device of a complete moment is left out by a slip."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.errors import Refused
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName
from sanctl.model.site import ProvenCopy
from sanctl.model.site_copy import WantedCopy
from sanctl.plan.site.grouping import (
    CopyGroup,
    folder_of,
    group_copies,
    group_of_run,
    moments_of,
    retained,
)
from tests.unit.plan.device.test_restoring import cluster

Folders = dict[str, tuple[ProvenCopy, ...]]


def device(name: str, uuid: str = "") -> DeviceSpec:
    (one,) = cluster(None).cib.devices
    return replace(one, name=DeviceName.parse(name), uuid=(uuid or name) * 32)


A, B, C = (device(name) for name in "abc")
NEW_B = device("b", "e")


def moment(number: int, *devices: DeviceSpec, left: tuple[str, ...] = ()) -> Folders:
    group = tuple(sorted(map(folder_of, devices)))
    return {
        folder: (
            ProvenCopy(
                f"p{number}", f"{number:012x}{at:04x}", number, number + 1, 8, 4, 2, "c" * 64,
                group, left, number * 10 + at,
            ),
        )
        for at, folder in enumerate(group)
    }  # fmt: skip


def together(*moments: Folders) -> Folders:
    found: Folders = {}
    for each in moments:
        for folder, copies in each.items():
            found[folder] = (*found.get(folder, ()), *copies)
    return found


def group(devices: tuple[DeviceSpec, ...], folders: Folders, *without: str) -> CopyGroup:
    return group_of_run("far", devices, folders, [WantedCopy.parse(each) for each in without])


def test_the_first_moment_and_a_device_that_joins() -> None:
    alone: Folders = {folder_of(C): (moment(1, A, B)[folder_of(A)][0]._replace(group=()),)}
    assert group((B, A), alone) == CopyGroup((folder_of(A), folder_of(B)), ())
    assert group_copies(alone) == ()
    assert group((A, B, C), moment(1, A, B)).left == ()
    # Of a moment that is not complete nothing follows.
    half: Folders = {folder_of(A): moment(1, A, B, C)[folder_of(A)]}
    assert group((A, B), half).left == ()
    # Nor of one of other devices.
    assert group((A, B), moment(1, C, device("d"))).left == ()


def test_a_device_leaves_when_it_is_said() -> None:
    there = moment(1, A, B, C)
    with pytest.raises(Refused, match=r"SAN-SITE-027.*p1 has c.cccccccc, too.*--without c.cccc"):
        group((A, B), there)
    with pytest.raises(Refused, match=r"SAN-SITE-027.*p1 has b.bbbbbbbb, c.cccccccc, too"):
        group((A, device("d")), there, "d", "b.c", "x")
    wanted = CopyGroup((folder_of(A), folder_of(B)), (folder_of(C),))
    assert group((A, B), there, "c") == wanted
    # Said once it holds, until nothing with it is there.
    said = together(there, moment(2, A, B, left=(folder_of(C),)))
    assert group((A, B), said) == wanted
    assert group((A, B), moment(2, A, B, left=(folder_of(C),))).left == ()
    # It comes back.
    assert group((A, B, C), said) == CopyGroup(tuple(sorted(there)), ())


def test_one_that_has_left_and_come_back_leaves_by_a_new_word() -> None:
    without_c = moment(3, A, B, left=(folder_of(C),))
    folders = together(moment(1, A, B, C), without_c)
    assert group((A, B), folders).left == (folder_of(C),)
    back = together(folders, moment(4, A, B, C))
    with pytest.raises(Refused, match=r"SAN-SITE-027.*p4"):
        group((A, B), back)
    assert group((A, B), back, "c").left == (folder_of(C),)


def test_a_device_that_was_made_anew_is_another_one() -> None:
    with pytest.raises(Refused, match="SAN-SITE-027"):
        group((A, NEW_B), moment(1, A, B))
    assert group((A, NEW_B), moment(1, A, B), "b").left == (folder_of(B),)
    assert group((A, NEW_B), moment(1, A, B), "b.bb").left == (folder_of(B),)


def test_the_moments_of_a_device() -> None:
    there = together(moment(1, A, B), moment(2, A, B), moment(3, B, C))
    assert [each.name for each in moments_of(folder_of(A), there)] == ["p2", "p1"]
    assert retained(folder_of(A), there, 1) == {f"{2:012x}0000"}
    assert retained(folder_of(B), there, 1) == {f"{2:012x}0001", f"{3:012x}0000"}
