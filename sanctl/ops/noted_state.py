# SPDX-License-Identifier: GPL-2.0-or-later
"""Waits until each node with a replica says what it has noted beside the data."""

from __future__ import annotations

import contextlib

from sanctl.errors import NotConverged
from sanctl.model.cluster import Cluster
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.device.notes_of_nodes import silent_nodes

#: A node whose attrd was restarted publishes its replicas' states with the next monitor.
_SAID_S = 30.0


def await_noted(session: Session, *names: str) -> None:
    """Wait for a while, if a node does not say it; what is asked then refuses where none has.

    As long for several devices as for one: a node that stays silent is so for all of them.
    """

    def progress(seen: Cluster) -> Progress:
        devices = [each for each in seen.cib.devices if each.name.value in names]
        silent = dict.fromkeys(node for each in devices for node in silent_nodes(seen, each))
        return Progress(is_done=not silent, seen=f"{', '.join(silent)} does not say it")

    what = f"what nodes have noted of {', '.join(names)}"
    with contextlib.suppress(NotConverged):
        session.wait(progress, waiting_for=what, timeout_s=_SAID_S)
