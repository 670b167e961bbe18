# SPDX-License-Identifier: GPL-2.0-or-later
"""What is formatted while a pool is prepared, over all that can be seen of one."""

from __future__ import annotations

from itertools import product

import pytest

from sanctl.plan.pool.preparation import Act, Holds, Marker, Seen, next_act

FLAGS = (False, True)
MAYBE = (*Holds, None)
BLANK = Seen(
    is_mounted=False,
    is_running=False,
    has_flash=False,
    origin=Holds.BLANK,
    flash=Holds.BLANK,
    filesystem=None,
    marker=None,
    is_making=False,
    is_made=False,
    is_noted_write_back=False,
)
READY = BLANK._replace(origin=Holds.OURS, flash=Holds.OURS, filesystem=Holds.OURS)
MOUNTED = READY._replace(is_mounted=True, is_running=True, has_flash=True, marker=Marker.THERE)
#: What becomes of it, act by act.
EFFECTS = {
    Act.FORMAT: lambda seen: seen._replace(origin=Holds.OURS),
    Act.GIVE_FLASH: lambda seen: seen._replace(flash=Holds.OURS),
    Act.ATTACH_FLASH: lambda seen: seen._replace(has_flash=True),
    Act.START: lambda seen: seen._replace(filesystem=Holds.BLANK, is_running=True, has_flash=True),
    Act.MAKE_FILESYSTEM: lambda seen: seen._replace(filesystem=Holds.OURS, is_making=False),
    Act.FORGET_MAKING: lambda seen: seen._replace(is_making=False),
    Act.MOUNT: lambda seen: seen._replace(is_mounted=True, marker=Marker.MISSING),
    Act.MARK: lambda seen: seen._replace(marker=Marker.THERE),
    Act.NOTE_MADE: lambda seen: seen._replace(is_made=True),
}


def everything() -> list[Seen]:
    return [
        Seen(*each)
        for each in product(
            FLAGS, FLAGS, FLAGS, MAYBE, MAYBE, MAYBE, (*Marker, None), FLAGS, FLAGS, FLAGS
        )
    ]


def test_nothing_is_formatted_that_was_not_read_and_blank_or_that_was_made_before() -> None:
    acts = set()
    for seen in everything():
        act = next_act(seen)
        acts.add(act)
        if act in {Act.FORMAT, Act.MAKE_FILESYSTEM}:
            assert not (seen.is_made or seen.is_noted_write_back or seen.is_mounted), seen
        if act is Act.FORMAT:
            assert (seen.origin, seen.flash) == (Holds.BLANK, Holds.BLANK), seen
        if act is Act.GIVE_FLASH:
            assert (seen.origin, seen.flash) == (Holds.OURS, Holds.BLANK), seen
        if act is Act.MAKE_FILESYSTEM:
            assert (seen.origin, seen.flash) == (Holds.OURS, Holds.OURS), seen
            begun = seen.is_making and seen.filesystem not in {Holds.UNREADABLE, Holds.ABSENT}
            assert seen.filesystem is Holds.BLANK or begun, seen
        if act is Act.ATTACH_FLASH:
            assert seen.is_mounted and seen.is_running and not seen.has_flash, seen
            assert seen.flash in {Holds.OURS, Holds.BLANK}, seen
        if act is Act.MARK:
            # It was never marked, or only the folder beside the marker is missing.
            is_new = seen.marker in {Marker.MISSING, None} and not seen.was_made
            assert is_new or seen.marker is Marker.FOLDER_MISSING, seen
        if act in {Act.MOUNT, Act.MARK, Act.NOTE_MADE, Act.DONE}:
            assert not seen.is_making, seen
    assert acts == set(Act), "each is for something"


def test_what_cannot_be_read_is_refused() -> None:
    for seen in everything():
        if not seen.is_mounted and seen.origin in {Holds.UNREADABLE, Holds.ABSENT}:
            assert next_act(seen) in {Act.REFUSE_ORIGIN, Act.REFUSE_UNFINISHED}
    unread = READY._replace(filesystem=Holds.UNREADABLE, is_making=True)
    assert next_act(unread) is Act.REFUSE_FILESYSTEM
    assert next_act(READY._replace(flash=Holds.UNREADABLE)) is Act.REFUSE_FLASH
    loose = MOUNTED._replace(has_flash=False, flash=Holds.UNREADABLE)
    assert next_act(loose) is Act.REFUSE_FLASH


@pytest.mark.parametrize(
    ("seen", "act"),
    [
        (BLANK, Act.FORMAT),
        (BLANK._replace(is_made=True), Act.REFUSE_MADE),
        (BLANK._replace(is_noted_write_back=True), Act.REFUSE_MADE),
        # The flash says that the pool was made, where no note does.
        (BLANK._replace(flash=Holds.OURS), Act.REFUSE_MADE),
        (BLANK._replace(flash=Holds.FOREIGN), Act.REFUSE_FLASH),
        (BLANK._replace(origin=Holds.FOREIGN), Act.REFUSE_ORIGIN),
        (BLANK._replace(origin=Holds.FOREIGN, is_made=True), Act.REFUSE_MADE),
        # A flash that was replaced by a blank one is taken.
        (READY._replace(flash=Holds.BLANK, is_made=True), Act.GIVE_FLASH),
        (READY._replace(filesystem=None, is_made=True), Act.START),
        (READY._replace(filesystem=Holds.BLANK, is_made=True), Act.REFUSE_MADE),
        (READY._replace(filesystem=Holds.BLANK), Act.MAKE_FILESYSTEM),
        # mkfs was killed: nothing was stored yet.
        (READY._replace(is_making=True), Act.MAKE_FILESYSTEM),
        (READY, Act.MOUNT),
        (READY._replace(is_made=True, is_making=True), Act.REFUSE_UNFINISHED),
        (MOUNTED, Act.NOTE_MADE),
        (MOUNTED._replace(is_made=True), Act.DONE),
        (MOUNTED._replace(is_running=False), Act.DONE),
        (MOUNTED._replace(marker=Marker.MISSING), Act.MARK),
        (MOUNTED._replace(marker=Marker.MISSING, is_making=True), Act.FORGET_MAKING),
        (MOUNTED._replace(marker=Marker.MISSING, is_made=True), Act.REFUSE_MADE),
        (MOUNTED._replace(marker=Marker.FOLDER_ALONE), Act.REFUSE_MARKER),
        (MOUNTED._replace(has_flash=False), Act.ATTACH_FLASH),
    ],
)
def test_next(seen: Seen, act: Act) -> None:
    assert next_act(seen) is act


def test_each_way_ends() -> None:
    for seen in everything():
        for _ in range(len(Act)):
            act = next_act(seen)
            if act not in EFFECTS:
                break
            seen = EFFECTS[act](seen)  # noqa: PLW2901 - it goes on from what has become of it
        assert act is Act.DONE or act.value.startswith("refuse"), seen


def test_blank_devices_become_a_pool() -> None:
    seen, acts = BLANK, []
    while (act := next_act(seen)) is not Act.DONE:
        acts.append(act)
        seen = EFFECTS[act](seen)
    assert acts == [
        Act.FORMAT,
        Act.GIVE_FLASH,
        Act.START,
        Act.MAKE_FILESYSTEM,
        Act.MOUNT,
        Act.MARK,
        Act.NOTE_MADE,
    ]
