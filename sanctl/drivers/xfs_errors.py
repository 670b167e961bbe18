# SPDX-License-Identifier: GPL-2.0-or-later
"""How often XFS tries a failed write of its metadata again before it shuts the filesystem down.

As made it does so for ever (Documentation/admin-guide/xfs.rst, Error handling; fs/xfs/xfs_mount.c):
a disk that refuses some blocks fills the log, and then hosts' writes hang instead of failing, so
that no replica is detached and nothing moves. A log that cannot be written shuts it down at once.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sanctl.system.files import read_text_or

if TYPE_CHECKING:
    from sanctl.drivers.pool_mount import Mount

_SYSFS = "/sys/fs/xfs"
_RETRIES = "5"
#: Errors of a disk. A full thin disk below (ENOSPC) may get room: that is waited for as before.
_KINDS = ("EIO", "default")


def limit_retries(found: Mount) -> bool:
    """Have a mounted XFS give up such a write after some attempts; return whether that is new.

    Raises:
        OSError: the kernel does not take it.
    """
    if found.fs_type != "xfs":
        return False
    folder = f"{_SYSFS}/{os.path.basename(os.path.realpath(found.source))}/error/metadata"
    is_new = False
    for kind in _KINDS:
        path = f"{folder}/{kind}/max_retries"
        if read_text_or(path, _RETRIES).strip() != _RETRIES:
            with open(path, "w", encoding="ascii") as file:
                file.write(_RETRIES)
            is_new = True
    return is_new
