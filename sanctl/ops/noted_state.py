# SPDX-License-Identifier: GPL-2.0-or-later
"""Waits until each node with a replica says what it has noted beside the data."""

from __future__ import annotations

import contextlib

from sanctl.errors import NotConverged
from sanctl.model.cluster import Cluster
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.device.restore_refusals import silent_nodes

#: A node whose attrd was restarted publishes its replicas' states with the next monitor.
_SAID_S = 30.0


def await_noted(session: Session, name: str) -> None:
    """Wait for a while, if a node does not say it; what is asked then refuses where none has."""

    def progress(seen: Cluster) -> Progress:
        device = next((each for each in seen.cib.devices if each.name.value == name), None)
        silent = silent_nodes(seen, device) if device is not None else ()
        return Progress(is_done=not silent, seen=f"{', '.join(silent)} does not say it")

    with contextlib.suppress(NotConverged):
        session.wait(progress, waiting_for=f"what nodes have noted of {name}", timeout_s=_SAID_S)
