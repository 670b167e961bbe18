# SPDX-License-Identifier: GPL-2.0-or-later
"""The mount of a path, a filesystem that has shut itself down, and remounting."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.drivers import pool_mount
from sanctl.drivers.pool_mount import Writes
from sanctl.errors import CommandError, Problem
from sanctl.system import state_files
from sanctl.system.files import read_text_or
from tests.fakes.runner import Answer, FakeRunner

# As Linux 7.2 prints them: the second after an aborted journal, the third as before 6.15.
MOUNTS = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
41 20 253:0 / /srv/sanctl/main rw,relatime shared:56 - ext4 /dev/bcache0 rw,emergency_ro
42 20 253:1 / /srv/sanctl/old rw,relatime - ext4 /dev/sdb ro
43 20 253:2 / /srv/with\\040space ro,relatime - ext4 /dev/sdc ro
44 20 253:3 / /srv/sanctl/main2 rw - xfs /dev/sdd rw,inode64
45 20 253:4 / /srv/sanctl/main2 rw - xfs /dev/sde rw
a line that does not read
"""
FOUND = pool_mount.parse_mountinfo(MOUNTS)


def under(path: str) -> pool_mount.Mount:
    found = pool_mount.covering_mount(path, FOUND)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("path", "mounted", "is_shut"),
    [
        ("/srv/sanctl/main", "/srv/sanctl/main", True),
        ("/srv/sanctl/main/devices/a.data", "/srv/sanctl/main", True),
        ("/srv/sanctl/old/x", "/srv/sanctl/old", True),
        ("/srv/with space/x", "/srv/with space", False),
        ("/srv/sanctl/main2/x", "/srv/sanctl/main2", False),
        ("/srv/sanctl/mainframe", "/", False),
        ("/", "/", False),
    ],
)
def test_the_mount_of_a_path(path: str, mounted: str, is_shut: bool) -> None:
    assert under(path).path == mounted
    assert under(path).is_shut_down is is_shut


def test_of_two_mounts_at_one_path_the_last_counts() -> None:
    assert under("/srv/sanctl/main2").source == "/dev/sde"
    assert pool_mount.covering_mount("/", []) is None


@pytest.mark.parametrize(
    ("number", "fails", "is_shut"),
    [
        (errno.EIO, "/srv/sanctl/main", True),
        (errno.ESHUTDOWN, "/srv/sanctl/main", True),
        (errno.ENOENT, "/srv/sanctl/main", False),
        # A block of inodes that cannot be read; the root's inode is in memory.
        (errno.EIO, "/srv/sanctl/main/devices", False),
    ],
)
def test_xfs_shut_down_answers_with_an_error_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, fails: str, is_shut: bool
) -> None:
    listed = tmp_path / "mountinfo"
    listed.write_text("41 20 253:0 / /srv/sanctl/main rw - xfs /dev/sdb rw\n")
    monkeypatch.setattr(pool_mount, "MOUNTS", str(listed))

    def stat(path: str) -> None:
        if path.startswith(fails):
            raise OSError(number, "")

    monkeypatch.setattr(os, "stat", stat)
    assert pool_mount.reports_shut_down("/srv/sanctl/main/devices") is is_shut


@pytest.mark.parametrize(("flushes", "refused"), [(True, 0), (False, errno.EIO)])
def test_a_block_that_cannot_be_read_is_no_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushes: bool, refused: int
) -> None:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    real_open, real_fsync = os.open, os.fsync

    def opens(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EIO, "")
        return real_open(path, flags, mode)

    def fsync(handle: int) -> None:
        if not flushes:
            raise OSError(errno.EIO, "")
        real_fsync(handle)

    monkeypatch.setattr(os, "open", opens)
    monkeypatch.setattr(os, "fsync", fsync)
    assert pool_mount._try_write(str(tmp_path), str(tmp_path)) == refused


def test_this_machine_has_no_filesystem_that_shut_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    assert not pool_mount.is_shut_down(str(tmp_path))
    assert pool_mount.mount_of("/") is not None
    assert not pool_mount.is_readable("/dev/no-such-device")


def test_a_remount_read_only_by_hand_is_not_a_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = tmp_path / "mountinfo"
    monkeypatch.setattr(pool_mount, "MOUNTS", str(listed))
    mine = f"41 20 253:0 / {tmp_path} rw - ext4 /dev/sdb ro"
    listed.write_text(f"{mine}\n")
    assert pool_mount.reports_shut_down(str(tmp_path))
    listed.write_text(f"{mine}\n42 20 253:0 /x /elsewhere ro - ext4 /dev/sdb ro\n")
    assert not pool_mount.reports_shut_down(str(tmp_path))


@pytest.mark.parametrize(
    ("refused", "answers", "writes"),
    [
        (0, True, Writes.TAKEN),
        (errno.EROFS, True, Writes.SHUT_DOWN),
        (errno.EROFS, False, Writes.SHUT_DOWN),
        (errno.ESHUTDOWN, True, Writes.SHUT_DOWN),
        # A disk that has failed is one thing, a filesystem that has because of it another.
        (errno.EIO, True, Writes.SHUT_DOWN),
        (errno.EIO, False, Writes.NOT_KNOWN),
        (errno.ENOSPC, True, Writes.NOT_KNOWN),
        (errno.EOPNOTSUPP, True, Writes.TAKEN),
        (None, True, Writes.NOT_KNOWN),
    ],
)
def test_a_trial_write_where_the_kernel_reports_nothing(
    monkeypatch: pytest.MonkeyPatch, refused: int | None, answers: bool, writes: Writes
) -> None:
    monkeypatch.setattr(pool_mount, "reports_shut_down", lambda _path: False)
    monkeypatch.setattr(pool_mount, "mount_of", lambda _path: KNOWN)
    monkeypatch.setattr(pool_mount, "_try_write", lambda *_: refused)
    monkeypatch.setattr(pool_mount, "is_readable", lambda _source: answers)
    assert pool_mount.try_writes("/pool") is writes
    assert pool_mount.is_shut_down("/pool") is (writes is Writes.SHUT_DOWN)


def test_no_trial_write_on_a_read_only_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_mount, "reports_shut_down", lambda _path: False)
    monkeypatch.setattr(
        pool_mount, "mount_of", lambda _path: KNOWN._replace(options=frozenset({"ro"}))
    )
    assert pool_mount.try_writes("/pool") is Writes.NOT_KNOWN


@pytest.mark.parametrize(
    ("options", "super_options", "is_refused"),
    [("rw", "rw", False), ("ro", "rw", True), ("ro", "ro", True), ("rw", "ro", True)],
)
def test_a_pool_that_is_mounted_read_only_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    super_options: str,
    is_refused: bool,
) -> None:
    listed = tmp_path / "mountinfo"
    listed.write_text(f"41 20 253:0 / {tmp_path} {options} - ext4 /dev/sdb {super_options}\n")
    monkeypatch.setattr(pool_mount, "MOUNTS", str(listed))
    if not is_refused:
        pool_mount.refuse_read_only("main", f"{tmp_path}")
        return
    with pytest.raises(CommandError, match=r"SAN-POOL-036.*/dev/sdb is mounted read-only"):
        pool_mount.refuse_read_only("main", f"{tmp_path}")


def test_a_trial_write_that_hangs_is_abandoned_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process waits for a file, for as long as this lasts."""
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    monkeypatch.setattr(pool_mount, "_TRY_S", 60.0)
    assert pool_mount._try_write(str(tmp_path), str(tmp_path)) == 0
    assert pool_mount._try_write(str(tmp_path / "none"), str(tmp_path)) == errno.ENOENT
    until = tmp_path / "until"
    with monkeypatch.context() as patched:

        def hangs(_path: str, _root: str) -> None:
            while not until.exists():
                time.sleep(0.01)

        patched.setattr(pool_mount, "_make", hangs)
        patched.setattr(pool_mount, "_TRY_S", 0.05)
        assert pool_mount._try_write(str(tmp_path), str(tmp_path)) is None
    assert pool_mount._try_write(str(tmp_path), str(tmp_path)) is None, "one is still out"
    sleep = time.sleep

    def end(duration_s: float) -> None:
        until.touch()
        sleep(duration_s)

    monkeypatch.setattr(time, "sleep", end)
    assert pool_mount._try_write(str(tmp_path), str(tmp_path), 30.0) == 0, "it has its turn"


def test_a_disk_that_hangs_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    monkeypatch.setattr(os, "O_DIRECT", 0)
    disk, until = tmp_path / "disk", tmp_path / "until"
    disk.write_bytes(bytes(4096))
    assert pool_mount.is_readable(str(disk))
    real = os.preadv

    def hangs(handle: int, buffers: Sequence[bytearray], offset: int) -> int:
        while not until.exists():
            time.sleep(0.01)
        return real(handle, buffers, offset)

    monkeypatch.setattr(os, "preadv", hangs)
    with monkeypatch.context() as patched:
        patched.setattr(pool_mount, "_TRY_S", 0.05)
        assert not pool_mount.is_readable(str(disk))
    began = time.monotonic()
    assert not pool_mount.is_readable(str(disk)), "one is still out"
    assert time.monotonic() - began < 2.0, "another one is not started"
    until.touch()
    (held,) = (tmp_path / "run").glob("read-*")
    with held.open() as lock:  # free once that process has gone
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert pool_mount.is_readable(str(disk))
    disk.write_bytes(b"short")
    assert not pool_mount.is_readable(str(disk))


def test_replicas_that_ask_at_once_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them would take the question of another for a disk that does not answer."""
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    monkeypatch.setattr(os, "O_DIRECT", 0)
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(4096))
    assert pool_mount.is_readable(str(disk))
    (path,) = (tmp_path / "run").glob("read-*")
    other = path.open()
    fcntl.flock(other, fcntl.LOCK_EX)
    monkeypatch.setattr(time, "sleep", lambda _duration_s: other.close())
    assert pool_mount.is_readable(str(disk))


def test_damage_is_not_a_failed_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "errcode"
    monkeypatch.setattr(
        "sanctl.drivers.pool_mount.read_text_or",
        lambda _path, default: read_text_or(str(told), default),
    )
    assert not pool_mount.is_damaged(KNOWN), "no ext4"
    for number, is_damaged in ((errno.EIO, False), (errno.EUCLEAN, True), (errno.EBADMSG, True)):
        told.write_text(f"{number}\n")
        assert pool_mount.is_damaged(KNOWN) is is_damaged


KNOWN = pool_mount.Mount(
    "/pool", "8:16", "/", "/dev/sdb", "ext4", frozenset({"rw", "noatime"}), frozenset()
)
REFUSED = CommandError(Problem("SAN-CMD-003", "Unit pool.mount not found."))


@pytest.mark.parametrize(
    ("has_unit", "wanted"),
    [(True, []), (False, ["mount -w -t ext4 -o noatime,rw /dev/sdb /pool"])],
)
def test_a_remount_uses_the_unit_or_the_former_options(has_unit: bool, wanted: list[str]) -> None:
    def answer(argv: Sequence[str]) -> Answer:
        if argv[0] == "systemd-escape":
            return "pool.mount\n"
        return "" if has_unit or argv[0] != "systemctl" else REFUSED

    runner = FakeRunner(answer)
    pool_mount.mount(runner, KNOWN)
    asked = [" ".join(argv) for argv, _ in runner.calls]
    assert asked[1:] == ["systemctl start pool.mount", *wanted]
