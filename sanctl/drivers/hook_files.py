# SPDX-License-Identifier: GPL-2.0-or-later
"""The files that may run as hooks on this node: of root alone, in one folder."""

from __future__ import annotations

import os

from sanctl.errors import CommandError, Problem
from sanctl.plan.device.point_hook import Owned, file_problem

#: Put there by the playbook or an administrator. Not a parameter: who may change the CIB, or the
#: release's files, must not gain a place of their own.
FOLDER = "/etc/sanctl/hooks.d"


def path_of(name: str) -> str:
    """Return the path of a hook that may run here as root.

    Raises:
        CommandError: there is none, or others than root could have changed it.
    """
    path = f"{FOLDER}/{name}"
    try:
        folders = [_owned(folder) for folder in _above(path)]
        problem = file_problem(folders, _owned(path))
    except OSError as error:
        problem = f"{path}: {error.strerror}"
    if problem:
        raise CommandError(
            Problem(
                "SAN-HOOK-002",
                f"{os.uname().nodename}: hook {name} does not run: {problem}",
                f"put the file there with owner root and mode 0700, on all storage nodes: "
                f"sanctl_point_hooks in the inventory, or {path} by hand",
            )
        )
    return path


def _above(path: str) -> list[str]:
    folders = []
    while path != "/":
        path = os.path.dirname(path)
        folders.append(path)
    return folders


def _owned(path: str) -> Owned:
    info = os.lstat(path)
    return Owned(path, info.st_mode, info.st_uid)
