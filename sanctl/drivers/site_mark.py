# SPDX-License-Identifier: GPL-2.0-or-later
"""The part of a second site's program that knows the site's directory: its mark, what it can do.

The mark is a file with the format of what lies there, and an id that the cluster knows: a disk that
is not mounted is no site, and another site is not taken for this one.
"""

from __future__ import annotations

import errno
import json
import os

from sanctl.drivers.site_files import clone, require_folder, write_file
from sanctl.drivers.site_protocol import SiteError

#: The format of what lies at a site. Another one is refused.
FORMAT = 1
MARK = "sanctl-site.json"


def mark_site(path: str, new_id: str) -> str:
    """Mark a directory as a site unless it is one; return its id.

    One that is marked needs no room and may be mounted read-only: what is there is of use.
    """
    require_folder(path)
    others = [each for each in os.listdir(path) if each != "lost+found"]
    if MARK not in others and others:
        raise SiteError(
            "SAN-SITE-006",
            f"{path} is no site yet, and not empty: it has {', '.join(sorted(others)[:4])}",
        )
    _require_reflink(path, is_marked=MARK in others)
    if MARK not in others:
        text = json.dumps({"format": FORMAT, "id": new_id})
        write_file(f"{path}/{MARK}", text.encode())
    return _require_mark(path)


def require_site(path: str, wanted: str) -> str:
    """Return the mark of the site's directory, which has to be that one."""
    found = _require_mark(path)
    if found != wanted:
        raise SiteError(
            "SAN-SITE-006",
            f"{path} is another site than the one that was added: its mark is {found[:8]}..., "
            f"not {wanted[:8]}...",
        )
    return found


def _require_mark(path: str) -> str:
    require_folder(path)
    try:
        with open(f"{path}/{MARK}", encoding="ascii") as file:
            mark = json.load(file)
        number, found = int(mark["format"]), str(mark.get("id", ""))
    except FileNotFoundError:
        raise SiteError(
            "SAN-SITE-006", f"{path} is no site: it has no {MARK}; is it mounted?"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SiteError("SAN-SITE-006", f"{path}/{MARK} cannot be read") from None
    if number != FORMAT:
        raise SiteError(
            "SAN-SITE-013",
            f"{path} has format {number}, and this release of sanctl writes {FORMAT}",
        )
    return found


def _require_reflink(path: str, *, is_marked: bool) -> None:
    """Raise SiteError unless files in the directory can share blocks; tried with two.

    In one that is marked no file may be possible: then a copy fails as it begins, and says why.
    """
    flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
    handles: list[int] = []
    try:
        for _ in range(2):
            handles.append(os.open(path, flags, 0o600))  # noqa: PERF401 - each is closed
        clone(*handles)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY}:
            if is_marked:
                return
            raise
        raise SiteError(
            "SAN-SITE-006",
            f"the filesystem of {path} cannot share blocks between files: XFS or btrfs is needed",
        ) from None
    finally:
        for each in handles:
            os.close(each)
