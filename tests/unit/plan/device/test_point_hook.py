# SPDX-License-Identifier: GPL-2.0-or-later
"""Which file runs as root, and when a restore point is application-consistent."""

from __future__ import annotations

import stat

import pytest

from sanctl.errors import CommandError, Problem
from sanctl.model.point_hook import HookRun, PointHook
from sanctl.plan.device.point_hook import (
    Held,
    Owned,
    check_time_left,
    check_was_quiet,
    code_without_hook,
    concerns,
    file_problem,
)

FOLDERS = tuple(Owned(path, stat.S_IFDIR | 0o755, 0) for path in ("/etc/sanctl/hooks.d", "/etc"))
FILE = Owned("/etc/sanctl/hooks.d/x", stat.S_IFREG | 0o700, 0)
HELD = Held("1" * 16, 42, "777", 1000.0)
FAILED = CommandError(Problem("SAN-HOOK-003", "n1: it failed"))


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o500])
def test_a_file_of_root_alone_runs(mode: int) -> None:
    assert file_problem(FOLDERS, FILE._replace(mode=stat.S_IFREG | mode)) is None


@pytest.mark.parametrize(
    ("mode", "uid", "why"),
    [
        (stat.S_IFREG | 0o700, 1, "does not belong to root"),
        (stat.S_IFREG | 0o720, 0, "by others than root (mode 0720)"),
        (stat.S_IFREG | 0o702, 0, "by others than root"),
        (stat.S_IFREG | 0o600, 0, "not executable"),
        (stat.S_IFLNK | 0o777, 0, "links are not followed"),
        (stat.S_IFDIR | 0o755, 0, "no regular file"),
        (stat.S_IFIFO | 0o700, 0, "no regular file"),
    ],
)
def test_any_other_file_does_not(mode: int, uid: int, why: str) -> None:
    assert why in str(file_problem(FOLDERS, Owned(FILE.path, mode, uid)))


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    ("mode", "uid", "why"),
    [
        (stat.S_IFDIR | 0o755, 1000, "does not belong to root"),
        (stat.S_IFDIR | 0o775, 0, "others than root"),
        (stat.S_IFDIR | 0o1777, 0, "others than root (mode 1777)"),
        (stat.S_IFLNK | 0o777, 0, "no folder"),
    ],
)
def test_nor_one_below_a_folder_of_others(which: int, mode: int, uid: int, why: str) -> None:
    folders = list(FOLDERS)
    folders[which] = Owned(folders[which].path, mode, uid)
    assert why in str(file_problem(folders, FILE))


def test_a_point_without_the_hook_only_where_that_is_allowed() -> None:
    assert code_without_hook(PointHook("x", 30, True), FAILED) == "SAN-HOOK-003"
    with pytest.raises(CommandError, match=r"SAN-HOOK-003.*no restore point was made"):
        code_without_hook(PointHook("x", 30, False), FAILED)


def test_the_notes_are_read_as_they_were_written() -> None:
    assert Held.parse(str(HELD)) == HELD
    for wrong in ("", "1 2 3", "1 x 777 1000.0"):
        assert Held.parse(wrong) is None


def test_no_hold_begins_without_time_for_it() -> None:
    check_time_left(HELD, HELD.token, 999.0)
    for held, token, now_s in (
        (HELD, HELD.token, 999.1),
        (HELD, HELD.token, 1001.0),
        (HELD, "2" * 16, 0.0),
        (None, HELD.token, 0.0),
    ):
        with pytest.raises(CommandError, match="SAN-HOOK-006"):
            check_time_left(held, token, now_s)


def test_what_was_not_kept_quiet_to_the_end_is_not_called_so() -> None:
    check_was_quiet(HELD, HELD.token, "777")
    for held, token, ticks in (
        (HELD, HELD.token, ""),  # It has ended, or was killed.
        (HELD, HELD.token, "778"),  # Another process has its number.
        (HELD, "2" * 16, "777"),
        (None, HELD.token, "777"),
        (HELD._replace(ticks=""), HELD.token, ""),
    ):
        with pytest.raises(CommandError, match="SAN-HOOK-006"):
            check_was_quiet(held, token, ticks)


def test_whose_application_a_hook_that_has_not_ended_may_keep_quiet() -> None:
    alone = str(HookRun("1" * 16, "one", PointHook("freeze")))
    group = str(HookRun("1" * 16, "one", PointHook("freeze"), ("db", "log")))
    assert concerns("db", alone, ["db"]) and not concerns("db", alone, ["log", "web"])
    assert concerns("db", group, ["log", "web"]) and not concerns("db", group, ["web"])
    # Nobody knows whose.
    assert concerns("db", "?", ["web"])
