# SPDX-License-Identifier: GPL-2.0-or-later
"""What is formatted while a pool is prepared, over all that can be seen of one."""

from __future__ import annotations

from itertools import product

import pytest

from sanctl.plan.pool.preparation import (
    DeviceContent,
    MarkerState,
    PoolEvidence,
    PrepareStep,
    next_prepare_step,
)

FLAGS = (False, True)
MAYBE = (*DeviceContent, None)
BLANK = PoolEvidence(
    is_mounted=False,
    is_running=False,
    has_flash=False,
    origin=DeviceContent.BLANK,
    flash=DeviceContent.BLANK,
    filesystem=None,
    marker=None,
    is_making=False,
    is_made=False,
    is_noted_write_back=False,
)
READY = BLANK._replace(
    origin=DeviceContent.OURS, flash=DeviceContent.OURS, filesystem=DeviceContent.OURS
)
MOUNTED = READY._replace(is_mounted=True, is_running=True, has_flash=True, marker=MarkerState.THERE)
#: What becomes of it, act by act.
EFFECTS = {
    PrepareStep.FORMAT: lambda seen: seen._replace(origin=DeviceContent.OURS),
    PrepareStep.GIVE_FLASH: lambda seen: seen._replace(flash=DeviceContent.OURS),
    PrepareStep.ATTACH_FLASH: lambda seen: seen._replace(has_flash=True),
    PrepareStep.START: lambda seen: seen._replace(
        filesystem=DeviceContent.BLANK, is_running=True, has_flash=True
    ),
    PrepareStep.MAKE_FILESYSTEM: lambda seen: seen._replace(
        filesystem=DeviceContent.OURS, is_making=False
    ),
    PrepareStep.FORGET_MAKING: lambda seen: seen._replace(is_making=False),
    PrepareStep.MOUNT: lambda seen: seen._replace(is_mounted=True, marker=MarkerState.MISSING),
    PrepareStep.MARK: lambda seen: seen._replace(marker=MarkerState.THERE),
    PrepareStep.NOTE_MADE: lambda seen: seen._replace(is_made=True),
}


def everything() -> list[PoolEvidence]:
    return [
        PoolEvidence(*each)
        for each in product(
            FLAGS, FLAGS, FLAGS, MAYBE, MAYBE, MAYBE, (*MarkerState, None), FLAGS, FLAGS, FLAGS
        )
    ]


def test_nothing_is_formatted_that_was_not_read_and_blank_or_that_was_made_before() -> None:
    acts = set()
    for seen in everything():
        act = next_prepare_step(seen)
        acts.add(act)
        if act in {PrepareStep.FORMAT, PrepareStep.MAKE_FILESYSTEM}:
            assert not (seen.is_made or seen.is_noted_write_back or seen.is_mounted), seen
        if act is PrepareStep.FORMAT:
            assert (seen.origin, seen.flash) == (DeviceContent.BLANK, DeviceContent.BLANK), seen
        if act is PrepareStep.GIVE_FLASH:
            assert (seen.origin, seen.flash) == (DeviceContent.OURS, DeviceContent.BLANK), seen
        if act is PrepareStep.MAKE_FILESYSTEM:
            assert (seen.origin, seen.flash) == (DeviceContent.OURS, DeviceContent.OURS), seen
            begun = seen.is_making and seen.filesystem not in {
                DeviceContent.UNREADABLE,
                DeviceContent.ABSENT,
            }
            assert seen.filesystem is DeviceContent.BLANK or begun, seen
        if act is PrepareStep.ATTACH_FLASH:
            assert seen.is_mounted and seen.is_running and not seen.has_flash, seen
            assert seen.flash in {DeviceContent.OURS, DeviceContent.BLANK}, seen
        if act is PrepareStep.MARK:
            # It was never marked, or only the folder beside the marker is missing.
            is_new = seen.marker in {MarkerState.MISSING, None} and not seen.was_made
            assert is_new or seen.marker is MarkerState.FOLDER_MISSING, seen
        if act in {PrepareStep.MOUNT, PrepareStep.MARK, PrepareStep.NOTE_MADE, PrepareStep.DONE}:
            assert not seen.is_making, seen
    assert acts == set(PrepareStep), "each is for something"


def test_what_cannot_be_read_is_refused() -> None:
    for seen in everything():
        if not seen.is_mounted and seen.origin in {DeviceContent.UNREADABLE, DeviceContent.ABSENT}:
            assert next_prepare_step(seen) in {
                PrepareStep.REFUSE_ORIGIN,
                PrepareStep.REFUSE_UNFINISHED,
            }
    unread = READY._replace(filesystem=DeviceContent.UNREADABLE, is_making=True)
    assert next_prepare_step(unread) is PrepareStep.REFUSE_FILESYSTEM
    assert (
        next_prepare_step(READY._replace(flash=DeviceContent.UNREADABLE))
        is PrepareStep.REFUSE_FLASH
    )
    loose = MOUNTED._replace(has_flash=False, flash=DeviceContent.UNREADABLE)
    assert next_prepare_step(loose) is PrepareStep.REFUSE_FLASH


@pytest.mark.parametrize(
    ("seen", "act"),
    [
        (BLANK, PrepareStep.FORMAT),
        (BLANK._replace(is_made=True), PrepareStep.REFUSE_MADE),
        (BLANK._replace(is_noted_write_back=True), PrepareStep.REFUSE_MADE),
        # The flash says that the pool was made, where no note does.
        (BLANK._replace(flash=DeviceContent.OURS), PrepareStep.REFUSE_MADE),
        (BLANK._replace(flash=DeviceContent.FOREIGN), PrepareStep.REFUSE_FLASH),
        (BLANK._replace(origin=DeviceContent.FOREIGN), PrepareStep.REFUSE_ORIGIN),
        (BLANK._replace(origin=DeviceContent.FOREIGN, is_made=True), PrepareStep.REFUSE_MADE),
        # A flash that was replaced by a blank one is taken.
        (READY._replace(flash=DeviceContent.BLANK, is_made=True), PrepareStep.GIVE_FLASH),
        (READY._replace(filesystem=None, is_made=True), PrepareStep.START),
        (READY._replace(filesystem=DeviceContent.BLANK, is_made=True), PrepareStep.REFUSE_MADE),
        (READY._replace(filesystem=DeviceContent.BLANK), PrepareStep.MAKE_FILESYSTEM),
        # mkfs was killed: nothing was stored yet.
        (READY._replace(is_making=True), PrepareStep.MAKE_FILESYSTEM),
        (READY, PrepareStep.MOUNT),
        (READY._replace(is_made=True, is_making=True), PrepareStep.REFUSE_UNFINISHED),
        (MOUNTED, PrepareStep.NOTE_MADE),
        (MOUNTED._replace(is_made=True), PrepareStep.DONE),
        (MOUNTED._replace(is_running=False), PrepareStep.DONE),
        (MOUNTED._replace(is_running=False, origin=DeviceContent.FOREIGN), PrepareStep.DONE),
        # The inventory names a wrong disk.
        (
            MOUNTED._replace(is_running=False, origin=DeviceContent.ABSENT),
            PrepareStep.REFUSE_ORIGIN,
        ),
        (
            MOUNTED._replace(is_running=False, origin=DeviceContent.UNREADABLE),
            PrepareStep.REFUSE_ORIGIN,
        ),
        (MOUNTED._replace(is_running=False, is_on_other_bcache=True), PrepareStep.REFUSE_ORIGIN),
        (MOUNTED._replace(marker=MarkerState.MISSING), PrepareStep.MARK),
        (MOUNTED._replace(marker=MarkerState.MISSING, is_making=True), PrepareStep.FORGET_MAKING),
        (MOUNTED._replace(marker=MarkerState.MISSING, is_made=True), PrepareStep.REFUSE_MADE),
        (MOUNTED._replace(marker=MarkerState.FOLDER_ALONE), PrepareStep.REFUSE_MARKER),
        (MOUNTED._replace(has_flash=False), PrepareStep.ATTACH_FLASH),
        (MOUNTED._replace(has_flash=False, leaves_flash=True), PrepareStep.NOTE_MADE),
        (
            MOUNTED._replace(has_flash=False, leaves_flash=True, flash=DeviceContent.ABSENT),
            PrepareStep.NOTE_MADE,
        ),
    ],
)
def test_next(seen: PoolEvidence, act: PrepareStep) -> None:
    assert next_prepare_step(seen) is act


def test_each_way_ends() -> None:
    for seen in everything():
        for _ in range(len(PrepareStep)):
            act = next_prepare_step(seen)
            if act not in EFFECTS:
                break
            seen = EFFECTS[act](seen)  # noqa: PLW2901 - it goes on from what has become of it
        assert act is PrepareStep.DONE or act.value.startswith("refuse"), seen


def test_blank_devices_become_a_pool() -> None:
    seen, acts = BLANK, []
    while (act := next_prepare_step(seen)) is not PrepareStep.DONE:
        acts.append(act)
        seen = EFFECTS[act](seen)
    assert acts == [
        PrepareStep.FORMAT,
        PrepareStep.GIVE_FLASH,
        PrepareStep.START,
        PrepareStep.MAKE_FILESYSTEM,
        PrepareStep.MOUNT,
        PrepareStep.MARK,
        PrepareStep.NOTE_MADE,
    ]
