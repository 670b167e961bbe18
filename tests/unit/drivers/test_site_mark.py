# SPDX-License-Identifier: GPL-2.0-or-later
"""The directory of a second site: it is marked once, and another one is not taken for it.

The real receiver in a process of its own, with files on this machine.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sanctl.drivers import site_mark
from sanctl.errors import CommandError
from tests.fakes.local_site import local_link
from tests.unit.drivers.test_site_receiver import DEVICE, MARK, ONE, TWO, folder, make, opened

__all__ = ["folder"]


def test_directories_that_are_no_site(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for path, code in ((other, "SAN-SITE-006"), (tmp_path, "SAN-SITE-006.*not empty")):
        with local_link() as link, pytest.raises(CommandError, match=code):
            link.survey(str(path), MARK)
    other.mkdir()
    refused = pytest.raises(CommandError, match=r"SAN-SITE-006.*XFS or btrfs")
    with local_link(shares_blocks=False) as link, refused:
        link.survey(str(other), MARK)
    with local_link() as link, pytest.raises(CommandError, match=r"SAN-SITE-006.*mounted"):
        opened(link, other)
    with local_link() as link, pytest.raises(CommandError, match=r"SAN-SITE-006.*another site"):
        link.open(str(folder), "c" * 32, DEVICE)
    assert os.listdir(other) == []
    for text, code in (
        ('{"format": 2, "id": "x"}', "SAN-SITE-013"),
        ("[]", "SAN-SITE-006"),
        ("{", "SAN-SITE-006"),
    ):
        (folder / site_mark.MARK).write_text(text)
        with local_link() as link, pytest.raises(CommandError, match=code):
            opened(link, folder)
        with local_link() as link, pytest.raises(CommandError, match=code):
            link.survey(str(folder), MARK)
        assert (folder / site_mark.MARK).read_text() == text


def test_a_site_is_marked_once(folder: Path) -> None:
    with local_link() as link:
        link.hello()
        assert link.survey(str(folder), "c" * 32) == MARK


@pytest.mark.parametrize("number", ["EROFS", "ENOSPC", "EIO"])
def test_a_site_that_takes_nothing_more_is_found_and_read(
    folder: Path, tmp_path: Path, number: str
) -> None:
    """As one that is full, or was mounted read-only to save it."""
    content = os.urandom(4096)
    make(folder, ONE, content)
    other = tmp_path / "other"
    other.mkdir()
    takes_nothing = f"""
_open = os.open
def _no_new(path, flags, *words, **more):
    if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
        raise OSError(errno.{number}, os.strerror(errno.{number}))
    return _open(path, flags, *words, **more)
os.open = _no_new
"""
    with local_link(more=takes_nothing.encode()) as link:
        assert link.survey(str(folder), "c" * 32) == MARK
        assert [each.token for each in opened(link, folder)] == [ONE]
        assert list(link.folders(str(folder), MARK)) == [DEVICE]
        link.read(ONE, len(content))
        with pytest.raises(CommandError, match="SAN-SITE"):
            link.begin(TWO, ONE, len(content), 0)
    refused = pytest.raises(CommandError, match="SAN-SITE")
    with local_link(more=takes_nothing.encode()) as link, refused:
        link.survey(str(other), "c" * 32)
    assert os.listdir(other) == []
