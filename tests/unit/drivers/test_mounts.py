"""Which filesystem a path lies on, and whether it has shut itself down."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

import pytest

from sanctl.drivers import mounts
from sanctl.errors import CommandError, Problem
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
FOUND = mounts.parse(MOUNTS)


def under(path: str) -> mounts.Mount:
    found = mounts.over(path, FOUND)
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


def test_of_two_on_one_place_the_last_counts() -> None:
    assert under("/srv/sanctl/main2").source == "/dev/sde"
    assert mounts.over("/", []) is None


def test_xfs_answers_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "of", lambda _path: None)

    def fails_with(number: int) -> None:
        def stat(_path: str) -> os.stat_result:
            raise OSError(number, "")

        monkeypatch.setattr(os, "stat", stat)

    fails_with(errno.EIO)
    assert mounts.is_shut_down("/pool")
    fails_with(errno.ENOENT)
    assert not mounts.is_shut_down("/pool")


def test_this_machine_has_none() -> None:
    assert not mounts.is_shut_down("/")
    assert mounts.of("/") is not None
    assert not mounts.answers("/dev/no-such-device")


KNOWN = mounts.Mount("/pool", "/dev/sdb", "ext4", frozenset({"rw", "noatime"}), frozenset())
REFUSED = CommandError(Problem("SAN-CMD-003", "Unit pool.mount not found."))


@pytest.mark.parametrize(
    ("has_unit", "wanted"),
    [(True, []), (False, ["mount -t ext4 -o noatime,rw /dev/sdb /pool"])],
)
def test_it_is_mounted_as_the_unit_says_or_as_it_was(has_unit: bool, wanted: list[str]) -> None:
    def answer(argv: Sequence[str]) -> Answer:
        if argv[0] == "systemd-escape":
            return "pool.mount\n"
        return "" if has_unit or argv[0] != "systemctl" else REFUSED

    runner = FakeRunner(answer)
    mounts.mount(runner, KNOWN)
    asked = [" ".join(argv) for argv, _ in runner.calls]
    assert asked[1:] == ["systemctl start pool.mount", *wanted]
