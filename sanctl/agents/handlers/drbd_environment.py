# SPDX-License-Identifier: GPL-2.0-or-later
"""What DRBD calls a handler for: resource and peer, as drbdadm puts them into the environment.

8.4 names the peer. DRBD 9 calls for one of several, and gives its number and who has which number
(drbdadm_main.c, setenv_node_id_and_uname).
"""

from __future__ import annotations

import os


def resource() -> str:
    """Return the resource's name; empty if DRBD has told none."""
    return os.environ.get("DRBD_RESOURCE", "")


def peer() -> str:
    """Return the name of the node that it is about; empty if DRBD has told none."""
    number = os.environ.get("DRBD_PEER_NODE_ID", "")
    return os.environ.get("DRBD_PEER", "") or os.environ.get(f"DRBD_NODE_ID_{number}", "")
