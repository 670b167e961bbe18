# SPDX-License-Identifier: GPL-2.0-or-later
"""What another node's agent has last published of its replica of a device.

As old as that node's latest monitor, some ten seconds, or older where the node hangs. Imported
where it is needed: few monitors ask.
"""

from __future__ import annotations

from sanctl.drivers import corosync, node_attributes
from sanctl.model.device import ReplicaState
from sanctl.model.packed_states import STATES_ATTRIBUTE, unpack
from sanctl.parse.published_state import parse_replica_state
from sanctl.system.runner import Runner


def of_peer(runner: Runner, device: str, node: str) -> ReplicaState | None:
    """Return the state of a member's replica; None where it is not known.

    Not without quorum, as the node may have gone on meanwhile, nor where it has published nothing.

    Raises:
        SanctlError: the cluster did not answer.
    """
    if not corosync.membership(runner).is_quorate:
        return None
    text = unpack(node_attributes.query(runner, STATES_ATTRIBUTE, node)).get(device, "")
    return parse_replica_state(text) if text else None
