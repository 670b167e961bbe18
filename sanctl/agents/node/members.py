# SPDX-License-Identifier: GPL-2.0-or-later
"""Takes a member that `sanctl node remove` names out of this node's corosync.conf.

The order is a permanent attribute of this node, which is removed when it is carried out. With its
votes the node publishes the members in its file (votes.py); the command reloads Corosync when every
node has written. Only with quorum: a node that is cut off may hold an order that was taken back.
"""

from __future__ import annotations

import os

from sanctl.drivers import cib, corosync, node_attributes
from sanctl.errors import SanctlError
from sanctl.model.vote_mode import DROPPED_MEMBER_ATTRIBUTE
from sanctl.system import journal
from sanctl.system.runner import Runner

_TIMEOUT_S = 20.0


def drop_or_log(runner: Runner, member: str) -> None:
    """Carry out the order, if there is one; an error is logged, and the next monitor tries again.

    `member` is the value of the attribute, a name; empty without an order.
    """
    here = os.uname().nodename
    if not member or member == here:
        return
    try:
        present = corosync.membership(runner)
        if not present.is_quorate:
            return
        # A command that gives up withdraws it, and this monitor may have hung on a disk since it
        # read the order.
        path = node_attributes.permanent_path(here, DROPPED_MEMBER_ATTRIBUTE, member)
        if cib.query(runner, path, timeout_s=_TIMEOUT_S) is None:
            return
        if member in present.members:
            # Its command gave up, and the node was started since. A file without a member that is
            # there would cut this node off from it at this node's next start.
            _log(f"{member} is back, and stays in {corosync.CONF}", journal.WARNING)
        elif corosync.drop_member(member):
            _log(f"{member} is out of {corosync.CONF}", journal.NOTICE)
        node_attributes.delete_permanent(
            runner, here, DROPPED_MEMBER_ATTRIBUTE, timeout_s=_TIMEOUT_S
        )
    except (SanctlError, OSError, ValueError) as error:
        _log(f"{member} stays in {corosync.CONF}: {error}", journal.ERROR)


def _log(text: str, priority: int) -> None:
    journal.write(f"members: {text}", priority=priority, action="members")
