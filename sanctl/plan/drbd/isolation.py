# SPDX-License-Identifier: GPL-2.0-or-later
"""Whom a copy connects to where a device has four: to all others, or to the node that serves alone.

The hole this closes (DRBD 9.3.3, docs/adr/0039): two copies are behind by the same generation, and
one of them is being filled already. The other one, which is being filled, too, meets a third copy
that is good. That one looks for the bitmap of that generation and takes the first it finds, which
is of the copy that was filled before, with holes in it by now. What is missing there is never sent,
and DRBD calls the copy UpToDate.

So a copy that is behind meets the node that serves and nobody else, until it is in step. It takes
four copies: two that are behind, one that fills them, and one that is met too early.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sanctl.model.drbd import ResourceState

#: As many copies as it takes.
_COPIES = 4


class Meeting(NamedTuple):
    """Whom to connect to.

    Attributes:
        only: the node to connect to and no other; empty: all.
        is_begun_anew: what the copy holds is given up first. It has a part of what another node
            sent, and DRBD might ask the new one for what differs from *that* node.
    """

    only: str = ""
    is_begun_anew: bool = False


ALL = Meeting()


def is_concerned(nodes: Collection[str]) -> bool:
    """Whether a device has as many copies as it takes."""
    return len(nodes) >= _COPIES


def is_lonely(state: ResourceState) -> bool:
    """Whether a standby has no contact at all: it may be behind when that comes back.

    One that stands alone towards a peer has refused it, or was refused, and that is for others.
    """
    return not state.is_primary and all(
        peer.connection not in {"Connected", "StandAlone"} for peer in state.peers
    )


def is_met(meeting: Meeting, nodes: Collection[str], here: str, state: ResourceState) -> bool:
    """Whether DRBD has just the connections that belong to a meeting."""
    wanted = {meeting.only} if meeting.only else set(nodes) - {here}
    return {peer.name for peer in state.peers} == wanted


def first_meeting(nodes: Collection[str], here: str, serving: str) -> Meeting:
    """Return whom a copy that is being started connects to.

    Args:
        nodes: all nodes with a copy.
        here: this one.
        serving: the node that serves the device with a good copy; empty: none does.
    """
    if not is_concerned(nodes) or serving not in set(nodes) - {here}:
        return ALL
    return Meeting(serving)


def next_meeting(
    nodes: Collection[str], here: str, serving: str, state: ResourceState, now: Meeting
) -> Meeting:
    """Return whom a copy that runs is to be connected to.

    Without a node that serves all copies are needed for the majority that a promotion takes.

    Args:
        nodes: all nodes with a copy.
        here: this one.
        serving: the node that serves the device with a good copy; empty: none does.
        state: the resource here.
        now: whom it connects to.
    """
    first = first_meeting(nodes, here, serving)
    if not is_concerned(nodes) or state.is_primary:
        return ALL
    if not first.only:
        # As in a move: it has just ceased to serve, and still fills this copy.
        beside = state.beside(now.only)
        return now if beside.is_in_contact and not beside.is_in_sync else ALL
    if not now.only:
        return first if is_lonely(state) else ALL
    if now.only == serving and is_met(now, nodes, here, state):
        return ALL if state.beside(serving).is_in_sync else now
    # A part of it may be of another node; also where a change to this one was interrupted.
    return first._replace(is_begun_anew=state.disk == "Inconsistent")
