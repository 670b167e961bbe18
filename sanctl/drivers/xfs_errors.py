# SPDX-License-Identifier: GPL-2.0-or-later
"""For how long XFS tries a failed write of its metadata again before it shuts the filesystem down.

As made it does so for ever (Documentation/admin-guide/xfs.rst, Error handling; fs/xfs/xfs_mount.c):
a disk that refuses some blocks fills the log, and then hosts' writes hang instead of failing, so
that no replica is detached and nothing moves. A log that cannot be written shuts it down at once.

By time and not by attempts: a disk that is back within it has cost nothing, as before.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sanctl.system.files import read_text_or

if TYPE_CHECKING:
    from sanctl.drivers.pool_mount import Mount

_SYSFS = "/sys/fs/xfs"
#: Less than what ends a node whose I/O hangs (plan/failover/hung_io_reboot.py).
_GIVES_UP_AFTER_S = "20"
#: Errors of a disk. A full thin disk below (ENOSPC) may get room: that is waited for as before.
_KINDS = ("EIO", "default")


def limit_retries(found: Mount) -> bool:
    """Have a mounted XFS give up such a write after some time; return whether that is new.

    Raises:
        OSError: the kernel does not take it.
    """
    if found.fs_type != "xfs":
        return False
    folder = f"{_SYSFS}/{os.path.basename(os.path.realpath(found.source))}/error/metadata"
    is_new = False
    for kind in _KINDS:
        path = f"{folder}/{kind}/retry_timeout_seconds"
        if read_text_or(path, _GIVES_UP_AFTER_S).strip() != _GIVES_UP_AFTER_S:
            with open(path, "w", encoding="ascii") as file:
                file.write(_GIVES_UP_AFTER_S)
            is_new = True
    return is_new
