# SPDX-License-Identifier: GPL-2.0-or-later
"""Words for how SBD runs on a node, as its pool agent publishes it."""

from __future__ import annotations

#: It resets the node when quorum is lost.
DISKLESS = "diskless"
#: It resets the node at a message on a disk, and not when quorum is lost.
DISK = "disk"
OFF = "off"
MODES = frozenset({DISKLESS, DISK, OFF})
