# SPDX-License-Identifier: GPL-2.0-or-later
"""From which release of sanctl this process runs, and whether another one is current."""

from __future__ import annotations

import os

CURRENT = "/opt/sanctl/current"


def own_release() -> str:
    """Return the folder name of the release that this module was imported from."""
    folder = os.path.realpath(__file__)
    for _ in range(3):
        folder = os.path.dirname(folder)
    return os.path.basename(folder)


def is_replaced(release: str, current: str = CURRENT) -> bool:
    """Whether the link to the current release leads to another one."""
    try:
        return os.path.basename(os.readlink(current)) != release
    except OSError:
        return False  # no link, as in a checkout; or it is not known
