# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a replica counts as connected: who has joined Pacemaker, and the notes of that.

On tmpfs, each for the present start of Pacemaker (`cluster_start_id`):

    connected        of a device: the replica was connected, and its peers have joined
    was-connected    of a device: it was connected, whoever the peers were; for DRBD 9
    joined.PEER      of the node: that node has joined
    operator-trust   of a device: an operator has called it good; in any start of Pacemaker, until
                     a connection counts, or the replica is restarted

What that decides is in quorum_overlap.py, and the rule in connection_rules.is_never_connected.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from typing import TYPE_CHECKING

from sanctl.drivers import cib, drbd_kernel
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.failover import connection_rules
from sanctl.system import state_files
from sanctl.system.files import exists
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET

_NOT_CONNECTED_YET = "Consistent"
#: `crmd` of a `node_state` where Pacemaker's controller is not in its group of processes.
OFFLINE = frozenset({"offline", "0"})
# A new folder for each start of the unit; its inode number is not known to be used again.
PACEMAKER_CGROUP = "/sys/fs/cgroup/system.slice/pacemaker.service"
#: Nodes of which this process has found that they have joined, in which start of Pacemaker, and had
#: no room to note it. For the handler of a frozen Primary: once its peer is lost, the CIB does not
#: say any more that it had joined.
_MET_UNNOTED: set[tuple[str, str]] = set()


def has_joined(state: ET.Element | None) -> bool:
    """Whether a node takes part in Pacemaker, by its `node_state`: then it shares this node's CIB.

    Corosync has the node as a member seconds before that. `crmd` is a word up to Pacemaker 2.1.6,
    and the time of joining with 0 for absent after that; `join` is `member` once the CIBs are one,
    or, where somebody changes the nodes in the CIB while the node joins, some moments before
    (docs/adr/0011).
    """
    return (
        state is not None
        and state.get("join") == "member"
        and state.get("crmd") not in {None, "", *OFFLINE}
    )


def has_joined_now(runner: Runner, node: str) -> bool:
    """Whether a node takes part in Pacemaker, by the CIB, and note it.

    Raises:
        CommandError: Pacemaker did not answer.
    """
    state = cib.node_state(runner, node)
    record_joined(node, state)
    return has_joined(state)


def record_joined(node: str, state: ET.Element | None) -> None:
    """Note that a node has joined Pacemaker since its start here, if its `node_state` says so.

    Not where it is expected to be up: a coordinator expects that from its offer, or from the
    node's request, on, and the CIBs are one after that. A node that is lost in between may have
    marked this node's replica in its own CIB. Without room for the note this process alone knows
    it.
    """
    if not has_joined(state):
        return
    with contextlib.suppress(OSError):
        if _has_met(node):
            return
        start = cluster_start_id()
        try:
            _joined_note(node).write(start)
        except OSError:
            _MET_UNNOTED.add((node, start))


def record_others(runner: Runner, others: Collection[str]) -> None:
    """Note of each other node of a device that it has joined Pacemaker, if it has.

    A start does so whatever the replica is, and before it connects: it is ordered once the join has
    ended. So a replica that is connected, or filled, may be promoted before its first monitor.

    Raises:
        SanctlError: Pacemaker did not answer.
        OSError: it is not known what is noted.
    """
    for node in others:
        if not _has_met(node):
            record_joined(node, cib.node_state(runner, node))


def record_connection(runner: Runner, state: ResourceState, others: Collection[str]) -> None:
    """Note that this node's replica is connected, if its peers have joined since Pacemaker's start.

    Once it is noted, nothing more is asked. DRBD 9 does not know itself that it was connected, so
    that is noted at once, and counts when the peer has joined later: in maintenance one probe may
    be all that looks. Where /run is full such a replica counts as never connected.

    Args:
        runner: starts cibadmin, for a peer that is not known to have joined.
        state: the resource as DRBD reports it here, connected to all peers.
        others: the device's other nodes.
    """
    note = _connected_note(state.name)
    with contextlib.suppress(SanctlError, OSError):
        if not others:
            return
        # Short monitors go by the note's name: it is to be there only while it counts, and not
        # where releases before 0.1.0 have it alone.
        if has_connected(state.name):
            remove_operator_trust(state.name)
            if not exists(note.path):
                note.write(cluster_start_id())
            return
        note.remove()
        if drbd_kernel.generation() >= 9 and not _was_connected(state.name):
            _unjoined_note(state.name).write(cluster_start_id())
        record_others(runner, others)
        if all(_has_met(node) for node in others):
            # An operator has seen what the replica held before. From here on its peer may go on
            # without it, and mark it, while no cluster software runs here. First: without room for
            # the note, too.
            remove_operator_trust(state.name)
            note.write(cluster_start_id())


def record_operator_trust(device: str) -> None:
    """Note that an operator called this node's replica good, having seen what it holds.

    The caller has made sure that the replica still holds the same.
    """
    _operator_trust_note(device).write()


def remove_operator_trust(device: str) -> None:
    """Remove that note: the replica could not be made UpToDate, or has connected since."""
    _operator_trust_note(device).remove()


def remove_notes(device: str) -> None:
    """Remove the notes of a replica that is stopped, or has just been started."""
    _connected_note(device).remove()
    _unjoined_note(device).remove()
    remove_operator_trust(device)


def _connected_note(device: str) -> state_files.StateFile:
    return state_files.of_device(device, "connected")


def _unjoined_note(device: str) -> state_files.StateFile:
    return state_files.of_device(device, "was-connected")


def _joined_note(node: str) -> state_files.StateFile:
    return state_files.of_node(f"joined.{node}")


def _operator_trust_note(device: str) -> state_files.StateFile:
    return state_files.of_device(device, "operator-trust")


def cluster_start_id() -> str:
    """Return what tells this start of Pacemaker from others of this boot; empty: nothing does.

    If empty, a note counts until the node boots or the replica is restarted.
    """
    try:
        return str(os.stat(PACEMAKER_CGROUP).st_ino)
    except (FileNotFoundError, NotADirectoryError):
        return ""


def has_connected(device: str) -> bool:
    """Whether it is noted that a replica's connection counts, for this start of Pacemaker."""
    return _connected_note(device).read("never") == cluster_start_id()


def _was_connected(device: str) -> bool:
    """Whether a replica of DRBD 9 has connected since this start of Pacemaker, to whom ever."""
    return has_connected(device) or _unjoined_note(device).read("never") == cluster_start_id()


def _has_met(node: str) -> bool:
    start = cluster_start_id()
    return (node, start) in _MET_UNNOTED or _joined_note(node).read("never") == start


def counts_as_never_connected(state: ResourceState, peers: Collection[str]) -> bool:
    """Whether this node's replica counts as never connected, by plan/failover/connection_rules.py.

    Args:
        state: the resource as DRBD reports it here.
        peers: the nodes of which one has to have joined Pacemaker.
    """
    is_8 = drbd_kernel.generation() < 9
    return connection_rules.is_never_connected(
        is_told=state.disk != _NOT_CONNECTED_YET if is_8 else _was_connected(state.name),
        is_noted=has_connected(state.name),
        has_met=any(_has_met(peer) for peer in peers),
        is_sole_survivor=connection_rules.is_sole_survivor(state),
    )


def record_serving(device: str) -> None:
    """Note that a replica counts as connected which serves alone (`connection_rules.serves_alone`).

    Without room for the note it does not.
    """
    with contextlib.suppress(OSError):
        _connected_note(device).write(cluster_start_id())


def is_trusted(device: str) -> bool:
    """Whether an operator has called this node's replica good, and it has not connected since."""
    return _operator_trust_note(device).exists()
