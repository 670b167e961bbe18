# SPDX-License-Identifier: GPL-2.0-or-later
"""Where two quorums may share no node (two_node): when a fenced peer may still have newer data.

With a majority of nodes, a partition that goes on alone and the partition that comes after it have
a node in common, and that node has the marks of outdated replicas in its CIB. Two nodes that are
each enough (votequorum's `two_node`) have none in common, nor have two that each had the vote of a
quorum device, which stores no CIB. A node that was down while its peer served, and comes back when
the peer is gone, holds a CIB from before the mark. That node may fence the peer, rightly by all
that it knows, and would serve the data of last week. So there, in addition:

* A replica that has not been connected since it was started is not made Primary because the other
  node is fenced. A replica that has been connected knows whether it was behind; if it was up to
  date then, it has received every write until the link broke. DRBD 8.4 calls a replica that has
  not been connected Consistent, and no other. DRBD 9 calls more replicas Consistent (the survivor
  of a Primary, until it knows what the others have), so with DRBD 9 each connection is noted, on
  tmpfs, for the start of Pacemaker in which it was seen (`was-connected`). An operator who has seen
  what the replica holds may call it good all the same (`device heal`): that, too, is a note, until
  a connection counts, or the replica is restarted. 8.4 goes on calling a replica UpToDate that has
  lost its Primary while no cluster software ran on its node: the first probe finds such a replica,
  and it is restarted (`predates_cluster_start`).
* A connection counts once the peer has joined Pacemaker since it was started here: until then
  neither node would be fenced for the other (`connection_rules.is_never_connected`). That is a note
  of the node, `joined.PEER` (joined_peers.py): a monitor asks the CIB until there is one, and the
  fence-peer handler, which reads the CIB anyway, writes it while the CIB expects the peer to be up.
  A replica that has gone on without its peer needs none: its own disk says that the peer is behind.
* Where the operator has accepted to do without fencing (SAN-RISK-001), a node that is out of the
  membership, or on which Pacemaker has ended, is taken as gone, also for a replica that has not
  been connected. Nothing less would ever let the other node go on.

That both nodes must see each other after a start before either may do anything is corosync's
`wait_for_all`, which goes with `two_node`, and not with a quorum device.

For a device with three and more replicas (DRBD 9) the peer's membership counts only as far as
`fence_rules.apply_drbd_quorum` says.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import TYPE_CHECKING

from sanctl.agents.fencing import joined_peers
from sanctl.drivers import cib, corosync, drbd_kernel, drbdsetup
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState, uses_quorum
from sanctl.model.pacemaker_boolean import is_false
from sanctl.model.vote_mode import Votes
from sanctl.parse.corosync import parse_conf_vote_mode
from sanctl.plan.failover import connection_rules, fence_rules
from sanctl.plan.failover.connection_rules import apply_quorum_overlap
from sanctl.plan.failover.fence_rules import apply_drbd_quorum, is_certain
from sanctl.system.files import read_text_or
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET


class ClusterView:
    """What corosync, DRBD and Pacemaker say at one moment, asked once for some devices.

    Args:
        runner: starts corosync-quorumtool at once; drbdsetup and crm_attribute if they are needed.
        devices: the devices whose state may be asked for.

    Raises:
        CommandError: corosync did not answer.
    """

    def __init__(self, runner: Runner, devices: Collection[str]) -> None:
        self.present = corosync.membership(runner)
        self._runner = runner
        self._devices = devices
        self._states: dict[str, ResourceState | None] | None = None
        self._is_fencing_off: bool | None = None

    def state(self, device: str) -> ResourceState | None:
        """Return the state of one of the devices on this node, None when it is not up.

        Raises:
            CommandError: DRBD did not answer.
        """
        if self._states is None:
            if len(self._devices) == 1:
                self._states = {device: drbdsetup.observe(self._runner, device)}
            else:
                self._states = dict(drbdsetup.observe_all(self._runner))
        return self._states.get(device)

    def is_fencing_off(self) -> bool:
        """Whether the operator has accepted to do without fencing.

        Raises:
            CommandError: Pacemaker did not answer.
        """
        if self._is_fencing_off is None:
            self._is_fencing_off = _is_fencing_off(self._runner)
        return self._is_fencing_off


def membership_for_device(
    view: ClusterView, device: str, peer: str, membership: str, state: ET.Element | None
) -> str:
    """Return a peer's membership (see `outdate.peer_membership`) as it counts for this device.

    `state` is the peer's `node_state`.

    Raises:
        CommandError: Pacemaker or DRBD did not answer.
    """
    if is_certain(membership) and drbd_kernel.generation() >= 9:
        membership = _apply_drbd_quorum(view, device, membership)
    if membership == "unknown":
        # The file first, before any process: this runs over and over while I/O is frozen.
        vote_mode = parse_conf_vote_mode(read_text_or(corosync.CONF, ""))
        if vote_mode is None or vote_mode.votes is not Votes.TWO_NODE:
            return membership
        seen = view.present
        is_gone = peer not in seen.members or _is_offline(state)
        is_out = seen.is_two_node and seen.is_quorate and is_gone
        return "fenced" if is_out and view.is_fencing_off() else membership
    return apply_quorum_overlap(
        membership,
        is_never_connected=lambda: _is_never_connected(view, device, peer),
        quorums_intersect=view.present.quorums_intersect,
        is_fencing_off=view.is_fencing_off,
    )


def apply_own_mark(view: ClusterView, device: str, membership: str, *, is_promoting: bool) -> str:
    """Return the membership of a peer for fence-peer where this node's replica is marked.

    Raises:
        CommandError: DRBD did not answer.
    """
    state = view.state(device)
    return fence_rules.apply_own_mark(
        membership,
        is_own_marked=True,
        is_promoting=is_promoting,
        replicas=2 if state is None else len(state.peers) + 1,
    )


def goes_on_without(view: ClusterView, device: str, peer: str) -> bool:
    """Whether this node serves a device on without a peer, see `fence_rules.goes_on_without`.

    Not known is no: the peer stays as it is, and the handler asks again.
    """
    try:
        # With DRBD 8.4 nothing is asked: this runs over and over while I/O is frozen.
        return drbd_kernel.generation() >= 9 and fence_rules.goes_on_without(
            view.state(device), peer
        )
    except (SanctlError, OSError):
        return False


def may_try_promotion(runner: Runner, state: ResourceState, others: Collection[str]) -> bool:
    """Whether a promotion here has a chance, as far as `membership_for_device` decides.

    It has none where the replica counts as never connected since it was started, no node of another
    replica has joined the cluster, and quorums need share no node. Then the fence-peer handler
    refuses, however often it is called, and each refusal would stop and start the replica, so that
    no monitor could publish what the replica holds or carry out an operator's order.

    Args:
        runner: starts corosync-quorumtool, cibadmin and crm_attribute, each if it is needed.
        state: the resource as DRBD reports it here.
        others: the device's other nodes.

    Raises:
        CommandError: corosync or Pacemaker did not answer.
    """
    if not others:
        return True
    seen = functools.cache(lambda: corosync.membership(runner))
    return connection_rules.may_try_promotion(
        is_primary=state.is_primary,
        is_never_connected=lambda: (
            not joined_peers.is_trusted(state.name)
            and joined_peers.counts_as_never_connected(state, others)
        ),
        quorums_intersect=lambda: (
            (uses_quorum(1 + len(others)) and _has_majority_of_nodes()) or seen().quorums_intersect
        ),
        is_beside_member=lambda: any(
            joined_peers.has_joined_now(runner, node)
            for node in sorted(seen().members & set(others))
        ),
        is_fencing_off=lambda: _is_fencing_off(runner),
    )


def _has_majority_of_nodes() -> bool:
    """Whether any two quorums have a node in common, by corosync.conf: no process is started.

    What is in force may differ while the file is being changed. With three and more replicas DRBD
    promotes none then without a majority of them, either.
    """
    try:
        vote_mode = parse_conf_vote_mode(read_text_or(corosync.CONF, ""))
    except OSError:
        return False
    return vote_mode is not None and vote_mode.votes.quorums_intersect


def _is_offline(state: ET.Element | None) -> bool:
    """Whether Pacemaker does not run on a node, by its `node_state`."""
    return state is not None and state.get("crmd") in joined_peers.OFFLINE


def is_down(state: ET.Element | None, *, is_member: bool = False) -> bool:
    """Whether a node that is no member is down as expected, by its `node_state`.

    With `is_member` it may be a member of Corosync, on which Pacemaker does not run: it was stopped
    in order, or the node was fenced and Pacemaker has not been started again.

    Pacemaker Explained, "Node status": a node that left cleanly or was fenced is expected to be
    down and has joined nothing; until then the node counts as unclean. One that was lost together
    with the coordinator is called so before it is fenced, too (`join_make_offer` in
    controld_join_dc.c): `fence_rules.is_fenced` decides. `in_ccm` and `crmd` hold
    words up to 2.1.6, and times of joining with 0 for absent after that.

    One that left in order may serve all the same: in maintenance Pacemaker leaves its replicas up.
    Its history says so (`fence_rules.is_fenced`), but not once a reload was written down as a start
    and maintenance has cancelled the monitor (docs/adr/0087): then nothing but Pacemaker, which
    orders nothing while the cluster is in maintenance, keeps another replica from being promoted
    beside it. Of a node that is in maintenance by itself see `shared_marks._look`.
    """
    return (
        state is not None
        and state.tag == "node_state"
        and (is_member or state.get("in_ccm") in {"false", "0"})
        and state.get("crmd") in joined_peers.OFFLINE
        and state.get("expected") == "down"
        and state.get("join") == "down"
    )


def predates_cluster_start(runner: Runner, state: ResourceState, others: Collection[str]) -> bool:
    """Whether a standby was up before the cluster software started here, and may have old data.

    As after maintenance: DRBD went on while the cluster software was down, and 8.4 goes on calling
    a replica UpToDate that has lost its Primary. The Primary may have marked this replica, and that
    mark is not in this node's CIB. Once restarted, the replica is Consistent, like any that has not
    been connected.

    A connection is noted, as by each monitor; and a Primary that serves alone counts as one that
    has connected.

    Args:
        runner: starts corosync-quorumtool and cibadmin, each if it is needed.
        state: the resource as DRBD reports it here, at the first probe after that start.
        others: the device's other nodes.

    Raises:
        CommandError: corosync did not answer.
    """
    if state.is_connected:
        joined_peers.record_connection(runner, state, others)
    elif others and connection_rules.serves_alone(state):
        joined_peers.record_serving(state.name)
    if state.is_primary or state.is_connected or not state.peers or drbd_kernel.generation() >= 9:
        return False
    if (
        state.disk != "UpToDate"
        or joined_peers.has_connected(state.name)
        or joined_peers.is_trusted(state.name)
    ):
        return False
    return not corosync.membership(runner).quorums_intersect


def _is_never_connected(view: ClusterView, device: str, peer: str) -> bool:
    if joined_peers.is_trusted(device):
        return False
    state = view.state(device)
    return state is None or joined_peers.counts_as_never_connected(state, [peer])


def _apply_drbd_quorum(view: ClusterView, device: str, membership: str) -> str:
    state = view.state(device)
    if state is None:
        return "unknown"
    return apply_drbd_quorum(
        membership,
        replicas=len(state.peers) + 1,
        is_primary=state.is_primary,
        has_quorum=state.has_quorum,
        quorums_intersect=view.present.quorums_intersect,
    )


def _is_fencing_off(runner: Runner) -> bool:
    return is_false(cib.cluster_property(runner, "stonith-enabled", default="true"))
