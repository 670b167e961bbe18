# SPDX-License-Identifier: GPL-2.0-or-later
"""What the cluster's word about a peer is worth for one device.

Where two quorums need have no node in common, it is worth less.

With a majority of nodes, whoever goes on alone and whoever comes after it have a node in common,
and that node has the marks of outdated replicas in its CIB. Two nodes that are each enough
(votequorum's `two_node`) have none in common, nor have two that each had the vote of a quorum
device, which keeps no notes. A node that was down while the other served, and comes back when that
one is gone, holds a CIB from before the mark. It may fence the other, rightly by all that it knows,
and would serve the data of last week. So there, in addition:

* A replica that has not been connected since it was started is not made Primary on the word that
  the other node is fenced. One that has been connected knows whether it was behind, and one that
  was up to date then has been told everything until the link broke. DRBD 8.4 calls the first
  Consistent, and only that. DRBD 9 has more uses for the word (a survivor of a Primary, until it
  knows what the others have), so there a note is kept on tmpfs. An operator who has seen what it
  holds may call it good all the same (`device heal`): that too is a note, until it is started anew.
  8.4 goes on calling a replica UpToDate that has lost its Primary while no cluster software ran on
  its node: such a one is found by the first probe, and started anew (`is_left_over`).
* Where the operator has accepted to do without fencing (SAN-RISK-001), a node that is out of the
  membership is taken as gone. Nothing less would ever let the other go on.

That both must see each other before either may do anything after a start is corosync's
`wait_for_all`, which goes with `two_node`, and not with a quorum device.

For a device with three and more copies (DRBD 9) the word counts only as far as
`fence_rules.apply_drbd_quorum` says.
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection

from sanctl.drivers import cib, corosync, drbdsetup
from sanctl.model.drbd import ResourceState
from sanctl.model.vote_mode import Votes
from sanctl.parse.corosync import parse_conf_vote_mode
from sanctl.plan.failover.fence_rules import apply_drbd_quorum, apply_quorum_overlap, is_certain
from sanctl.system import state_files
from sanctl.system.files import read_text_or
from sanctl.system.runner import Runner

_NOT_CONNECTED_YET = "Consistent"
# A new one for each start of the unit: what it is called is not told to be used again.
_LIFE = "/sys/fs/cgroup/system.slice/pacemaker.service"
_FALSE = frozenset({"false", "no", "off", "0", "n"})


def standing_for_device(
    runner: Runner, device: str, peer: str, standing: str, *, has_joined: Callable[[], bool]
) -> str:
    """Return a peer's standing (see `fencing.peer_standing`) as it counts for this device.

    `has_joined` tells whether the peer takes part in Pacemaker, and so in this node's CIB.

    Raises:
        CommandError: corosync, Pacemaker or DRBD did not answer.
    """
    if is_certain(standing) and drbdsetup.generation() >= 9:
        standing = _among_several(runner, device, standing)
    if standing == "unknown":
        # The file first: this is asked over and over while I/O is frozen.
        tally = parse_conf_vote_mode(read_text_or(corosync.CONF, ""))
        if tally is None or tally.votes is not Votes.TWO_NODE:
            return standing
        seen = corosync.membership(runner)
        is_out = seen.is_two_node and seen.is_quorate and peer not in seen.members
        return "fenced" if is_out and _is_fencing_off(runner) else standing
    return apply_quorum_overlap(
        standing,
        has_joined=has_joined,
        is_never_connected=lambda: _is_untried(runner, device),
        quorums_intersect=lambda: corosync.membership(runner).quorums_intersect,
    )


def may_try_promotion(runner: Runner, state: ResourceState, others: Collection[str]) -> bool:
    """Whether it is worth trying to promote a replica here, as far as `weigh` is concerned.

    It has not met another since it was started, none of their nodes has joined the cluster, and the
    votes keep no notes: then the handler refuses, however often it is asked, and each time the
    replica would be stopped and started, so that no monitor could tell what it holds or obey an
    order.

    Args:
        runner: starts corosync-quorumtool and crm_attribute.
        state: the resource as DRBD reports it here.
        others: the device's other nodes.

    Raises:
        CommandError: corosync or Pacemaker did not answer.
    """
    if state.disk != _NOT_CONNECTED_YET or drbdsetup.generation() >= 9 or state.is_connected:
        return True
    if _trusted(state.name).exists():
        return True
    seen = corosync.membership(runner)
    if seen.quorums_intersect or not others:
        return True
    if any(_has_joined(runner, node) for node in seen.members & set(others)):
        return True
    return _is_fencing_off(runner)


def has_joined(state: ET.Element | None) -> bool:
    """Whether a node takes part in Pacemaker, by its `node_state`: then all have the same CIB.

    Corosync knows it as a member seconds before that. `crmd` is a word up to Pacemaker 2.1.6, and
    the time of joining with 0 for absent after that; `join` is `member` once the CIBs are one.
    """
    return (
        state is not None
        and state.get("join") == "member"
        and state.get("crmd") not in {None, "", "offline", "0"}
    )


def _has_joined(runner: Runner, node: str) -> bool:
    return has_joined(cib.node_state(runner, node))


def record_connection(device: str) -> None:
    """Remember that this node's replica has been connected in this life of the cluster software."""
    _met(device).write(_life())


def predates_cluster_start(runner: Runner, state: ResourceState) -> bool:
    """Whether a standby is left from before the cluster software began here, and may be old.

    As after maintenance: DRBD went on while the cluster software was down, and 8.4 goes on calling
    a replica UpToDate that has lost its Primary. That one may have marked it, and that mark came
    to nobody here. Started anew it is Consistent, like any that has met no other.

    A contact is noted, as by each monitor.

    Args:
        runner: starts corosync-quorumtool.
        state: the resource as DRBD reports it here, at the probe with which that life begins.

    Raises:
        CommandError: corosync did not answer.
    """
    if state.is_connected:
        record_connection(state.name)
    if state.is_primary or state.is_connected or not state.peers or drbdsetup.generation() >= 9:
        return False
    if state.disk != "UpToDate" or _has_met(state.name) or _trusted(state.name).exists():
        return False
    return not corosync.membership(runner).quorums_intersect


def record_operator_trust(device: str) -> None:
    """Remember that an operator called this node's replica good, having seen what it holds.

    Whoever notes this has made sure that it still holds that.
    """
    _trusted(device).write()


def remove_operator_trust(device: str) -> None:
    """Forget that: the replica could not be called good."""
    _trusted(device).remove()


def remove_notes(device: str) -> None:
    """Forget both: the replica is stopped, or has just been started."""
    _met(device).remove()
    remove_operator_trust(device)


def _met(device: str) -> state_files.StateFile:
    return state_files.of_device(device, "connected")


def _trusted(device: str) -> state_files.StateFile:
    return state_files.of_device(device, "operator-trust")


def _life() -> str:
    """What tells this life of the cluster software from others of this boot; empty: nothing does.

    Then a note counts until the node is started anew, or the replica is.
    """
    try:
        return str(os.stat(_LIFE).st_ino)
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _has_met(device: str) -> bool:
    return _met(device).read("never") == _life()


def _is_untried(runner: Runner, device: str) -> bool:
    if _trusted(device).exists():
        return False
    if drbdsetup.generation() >= 9:
        return not _has_met(device)
    state = drbdsetup.observe(runner, device)
    return state is None or state.disk == _NOT_CONNECTED_YET


def _among_several(runner: Runner, device: str, standing: str) -> str:
    state = drbdsetup.observe(runner, device)
    if state is None:
        return "unknown"
    return apply_drbd_quorum(
        standing,
        replicas=len(state.peers) + 1,
        is_primary=state.is_primary,
        has_quorum=state.has_quorum,
        quorums_intersect=corosync.membership(runner).quorums_intersect,
    )


def _is_fencing_off(runner: Runner) -> bool:
    return cib.cluster_property(runner, "stonith-enabled", default="true").lower() in _FALSE
