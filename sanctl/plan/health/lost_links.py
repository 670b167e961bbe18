# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which links of Corosync are lost, where another to the same node still works.

For the pool agent, which imports nothing of the findings (link_health.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from sanctl.model.lost_link import LostLink
from sanctl.parse.corosync import Link


def lost_links(links: Iterable[Link]) -> frozenset[LostLink]:
    """Return the links that are down to nodes that another link still reaches.

    A node that none reaches is away, which the cluster says by itself.
    """
    seen = tuple(links)
    reached = {link.peer for link in seen if link.is_connected}
    return frozenset(
        (link.number, link.peer) for link in seen if not link.is_connected and link.peer in reached
    )
