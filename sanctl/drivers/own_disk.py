# SPDX-License-Identifier: GPL-2.0-or-later
"""The node's own disk: the version of the CIB on it, its room; and the room of /run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sanctl.drivers import cib
from sanctl.parse.cib_version import HEAD_BYTES, parse_cib_version

if TYPE_CHECKING:
    from sanctl.system.runner import Runner

_FOLDER, _RUN = "/var/lib", "/run"
_CIB_FILE = "/var/lib/pacemaker/cib/cib.xml"
_TIMEOUT_S = 10.0


def written_cib_version() -> tuple[int, int] | None:
    """Return `admin_epoch` and `epoch` of the CIB on the disk; None without such a file.

    Raises:
        OSError: the disk does not say.
    """
    try:
        with open(_CIB_FILE, "rb") as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError:
        return None
    return parse_cib_version(head.decode(errors="replace"))


def live_cib_version(runner: Runner) -> tuple[int, int] | None:
    """Return `admin_epoch` and `epoch` of the CIB that this node's Pacemaker has in memory.

    Raises:
        CommandError: Pacemaker gave no answer.
    """
    found = cib.query(runner, "/cib", with_children=False, timeout_s=_TIMEOUT_S)
    numbers = ("", "") if found is None else (found.get("admin_epoch", ""), found.get("epoch", ""))
    if not all(map(str.isdecimal, numbers)):
        return None
    return int(numbers[0]), int(numbers[1])


def space_bytes() -> tuple[int, int]:
    """Return the size of the filesystem of /var/lib, and what of it is free.

    Not what is kept for root: Pacemaker writes the CIB as another user.

    Raises:
        OSError: it does not say.
    """
    return _space_bytes(_FOLDER)


def run_space_bytes() -> tuple[int, int]:
    """Return the size of the filesystem of /run, which is in memory, and what of it is free.

    Raises:
        OSError: it does not say.
    """
    return _space_bytes(_RUN)


def _space_bytes(folder: str) -> tuple[int, int]:
    status = os.statvfs(folder)
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
