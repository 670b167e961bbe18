# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD's environment variables for a handler: the resource, peer and minor it is called for.

drbdadm sets them. 8.4 gives the peer's name. DRBD 9 gives the peer's node id, and a name for each
node id (drbdadm_main.c, setenv_node_id_and_uname).
"""

from __future__ import annotations

import os


def resource() -> str:
    """Return the resource's name; empty if DRBD has given none."""
    return os.environ.get("DRBD_RESOURCE", "")


def peer() -> str:
    """Return the peer's node name; empty if DRBD has given none."""
    number = os.environ.get("DRBD_PEER_NODE_ID", "")
    return os.environ.get("DRBD_PEER", "") or os.environ.get(f"DRBD_NODE_ID_{number}", "")


def minor() -> int | None:
    """Return the device's minor number; None if DRBD has given none."""
    text = os.environ.get("DRBD_MINOR", "")
    return int(text) if text.isdecimal() else None
