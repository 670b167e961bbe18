# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD's fence-peer and unfence-peer handlers.

DRBD with `fencing resource-and-stonith` freezes a Primary's I/O when it loses its peer, and calls
fence-peer; what that returns decides whether I/O goes on. A Secondary that is to become Primary
without its peer asks the same. The question is always: is it certain that the peer will not serve
this device with the data it has?

DRBD 9 asks it about each peer, at the same time. With three and more copies and `resource-only` it
freezes nothing by that: its quorum does, where the majority of the copies is gone.

The answer is a permanent node attribute of the peer, `sanctl-outdated-NAME`, which a location rule
of every device turns into "never promote there". It is set only by a partition with quorum, and a
promotion elsewhere reads the same CIB. Silence is not absence: while the peer is out of the
membership and not known to be fenced, this waits, and I/O stays frozen.

A node that stays without quorum does not wait for ever: it reboots itself
(sanctl/plan/failover/frozen_io_reboot.py).

Exit codes as in drbd_nl.c (conn_try_outdate_peer): 4 the peer is outdated, 7 the peer was fenced;
anything DRBD does not know means "not certain".
"""

from __future__ import annotations

import contextlib
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator

from sanctl.agents.cache import minimum_redundancy, write_cache
from sanctl.agents.fencing import quorum_overlap
from sanctl.agents.handlers import drbd_environment
from sanctl.drivers import cib, corosync, drbdsetup, node_attributes, outdated_marks, self_fence
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.plan.failover import fence_rules, frozen_io_reboot
from sanctl.system import journal, state_files
from sanctl.system.runner import LocalRunner, Runner

_UNCERTAIN = 1
_MARKED = "marked"
_GIVEN_UP = frozenset({"Disconnecting", "StandAlone"})
# A promotion has 60 s; what is left is for the agent to say why it failed.
_PROMOTION_DEADLINE_S = 40.0
_TELL_EVERY_S = 30.0
# Who holds the lock holds it for a few answers of the cluster.
_LOCK_PATIENCE_S = 10.0
_RUNNER = LocalRunner()


def fence_peer() -> int:
    """Make sure that the peer will not serve the device; return DRBD's code for how.

    Called for a promotion, this gives up before the promotion's own time is over. Called for a
    Primary whose I/O is frozen it does not give up while that is so: nobody would ask again. It
    ends that itself, with the node, when nobody else can.
    """
    device, peer = drbd_environment.resource(), drbd_environment.peer()
    if not device or not peer:
        journal.write("fence-peer: DRBD named no resource or peer", priority=journal.ERROR)
        return _UNCERTAIN
    begin = time.monotonic()
    told_s = 0.0
    alone_since: float | None = None
    while True:
        try:
            # Before the mark: a crash while this flushes must leave the peer's copy to go on with.
            _note_given_up(device, peer)
            write_cache.leave_write_back_unless_two(_RUNNER, device)
            with locked(device, wait_s=_LOCK_PATIENCE_S) as is_mine:
                if is_mine and not _may_mark(_RUNNER, device, peer):
                    return _uncalled_for(device, peer)
                standing = mark_outdated(_RUNNER, device, peer) if is_mine else "unknown"
            last = "this node has no quorum" if standing == "alone" else f"{peer} is {standing}"
        except (SanctlError, OSError) as error:
            # Whatever it is: a handler that ends is not called again while I/O is frozen.
            standing, last = _standing_in_silence(_RUNNER), str(error)
        alone_since = frozen_io_reboot.quorum_lost_since(
            alone_since, time.monotonic(), is_alone=standing == "alone"
        )
        waited_s = time.monotonic() - begin
        if standing == _MARKED:
            journal.write(
                f"{device}: not promoted: this node's replica is marked as outdated; who marked it"
                f" has more (for good gone? 'sanctl device heal {device}')",
                priority=journal.ERROR,
                device=device,
                action="fence-peer",
                step="marked",
            )
            return _UNCERTAIN
        if fence_rules.is_certain(standing):
            journal.write(
                f"{device}: {peer} cannot be promoted any more ({standing}), I/O goes on",
                priority=journal.NOTICE,
                device=device,
                action="fence-peer",
                step=standing,
                duration_ms=round(waited_s * 1000),
            )
            return fence_rules.handler_exit_code(standing)
        if waited_s - told_s > _TELL_EVERY_S:
            told_s = waited_s
            journal.write(
                f"{device}: not certain that {peer} is gone, I/O is frozen: {last}",
                priority=journal.ERROR,
                device=device,
                action="fence-peer",
                step="uncertain",
            )
        if waited_s > _PROMOTION_DEADLINE_S and not _waits_as_primary(device, peer):
            return _UNCERTAIN
        if frozen_io_reboot.must_reboot(alone_since, time.monotonic()) and _is_frozen(device, peer):
            self_fence.reboot(
                _RUNNER,
                f"{device}: its I/O is frozen and this node has had no quorum for"
                f" {frozen_io_reboot.REBOOT_AFTER_S:g} s: nobody is going to fence it",
                device=device,
            )
        time.sleep(0.2)


def _note_given_up(device: str, peer: str) -> None:
    """Have the monitor connect to a peer again whose connection a Primary that is held gave up.

    DRBD 9.3.3 refuses what would cost it its quorum if it can: that a peer's disk has failed. It
    then ends the connection for good (drbd_receiver.c, receive_state).
    """
    if not minimum_redundancy.is_required(device):
        return
    state = drbdsetup.observe(_RUNNER, device)
    if state is None or not state.is_primary:
        return
    if any(each.connection in _GIVEN_UP for each in state.with_only_peer(peer).peers):
        from sanctl.agents.handlers import before_resync_source  # noqa: PLC0415 - which imports this module

        before_resync_source.write_note(device, peer)


def _uncalled_for(device: str, peer: str) -> int:
    journal.write(
        f"{device}: {peer} is not marked: it is back, or this node is no Primary any more",
        priority=journal.NOTICE,
        device=device,
        action="fence-peer",
        step="late",
    )
    return _UNCERTAIN


def mark_outdated(runner: Runner, device: str, peer: str) -> str:
    """Mark the peer's replica as outdated if that can be certain, and return its standing.

    Of a promotion whose own replica is marked it is `marked`: that one is not to happen.

    The order matters. A mark counts only if this partition is quorate, which the CIB does not
    insist on for node attributes: so quorum is asked before, lest a lonely node change its CIB,
    and after, lest it was lost in between. Last the mark is read back: partitions that met
    meanwhile may have agreed on the CIB of the other one.

    Raises:
        SanctlError: the cluster did not answer; nothing is certain.
    """
    before, seen = _weigh(runner, device, peer)
    if seen is None or not fence_rules.is_certain(before):
        return before
    if seen.is_own_marked and _promotion(device).exists():
        # The order to promote this replica is older than that: a node that joined brought it along.
        return _MARKED
    has_outranked = fence_rules.must_outrank_peer_cib(before)
    outdated_marks.set_mark(runner, device, peer, seen, raises_admin_epoch=has_outranked)
    after, seen = _weigh(runner, device, peer)
    if seen is None:
        return after
    is_kept = seen.is_marked and (has_outranked or not fence_rules.must_outrank_peer_cib(after))
    return after if is_kept else "unknown"


def _weigh(runner: Runner, device: str, peer: str) -> tuple[str, outdated_marks.MarkState | None]:
    """Return a peer's standing, and where there is quorum what the CIB says, asked in this order.

    Raises:
        SanctlError: the cluster did not answer.
    """
    present = corosync.membership(runner)
    if not present.is_quorate:
        return "alone", None
    seen = outdated_marks.read(runner, device, peer)
    standing = fence_rules.peer_membership(
        is_quorate=True,
        is_member=peer in present.members,
        is_fenced=lambda: seen.state is not None and is_fenced(seen.state),
    )
    worth = quorum_overlap.standing_for_device(
        runner, device, peer, standing, has_joined=lambda: quorum_overlap.has_joined(seen.state)
    )
    return worth, seen


def _may_mark(runner: Runner, device: str, peer: str) -> bool:
    """Whether there is still something here that a mark is wanted for; asked under the lock."""
    if _promotion(device).exists():
        return True
    state = drbdsetup.observe(runner, device)
    return fence_rules.may_mark(state and state.with_only_peer(peer), is_promoting=False)


@contextlib.contextmanager
def promoting(device: str) -> Iterator[None]:
    """Let fence-peer know that it is called for a promotion, for as long as that lasts."""
    _promotion(device).write()
    try:
        yield
    finally:
        cancel_promotion(device)


def cancel_promotion(device: str) -> None:
    """Make a handler that was called for a promotion give up: the promotion is not wanted."""
    _promotion(device).remove()


def _promotion(device: str) -> state_files.StateFile:
    return state_files.of_device(device, "promoting")


def _waits_as_primary(device: str, peer: str) -> bool:
    """Whether this node is Primary and still without the peer."""
    try:
        state = drbdsetup.observe(_RUNNER, device)
    except SanctlError:
        return True
    return state is not None and state.is_primary and not state.with_only_peer(peer).is_connected


def _is_frozen(device: str, peer: str) -> bool:
    """Whether I/O is frozen here for want of the peer; with a majority of the copies it is not."""
    if not _waits_as_primary(device, peer):
        return False
    try:
        state = drbdsetup.observe(_RUNNER, device)
    except SanctlError:
        return True
    return state is None or not state.has_quorum or state.suspended != "no"


def _standing_in_silence(runner: Runner) -> str:
    """Return `unknown` for a node of the majority that Pacemaker does not answer, else `alone`.

    Who cannot ask corosync cannot show that it is part of the majority.
    """
    with contextlib.suppress(SanctlError):
        if corosync.membership(runner).is_quorate:
            return "unknown"
    return "alone"


def reboot_after_failed_stop(runner: Runner, device: str, reason: str) -> None:
    """Reboot this node if a stop failed and there is nobody to fence it for that.

    With quorum the cluster fences a node whose stop failed, and this returns.
    """
    try:
        is_quorate: bool | None = corosync.membership(runner).is_quorate
    except SanctlError:
        is_quorate = None
    if frozen_io_reboot.must_reboot_after_failed_stop(is_quorate):
        self_fence.reboot(
            runner,
            f"{device}: it could not be stopped, and without quorum nobody fences this node: "
            + reason,
            device=device,
        )


def unfence_peer() -> int:
    """Let the peers' replicas be promoted again, if they have become the same as this one."""
    device = drbd_environment.resource()
    peers = drbd_environment.peer().split()
    from sanctl.agents.sync import scheduler  # noqa: PLC0415 - not for the handler that freezes I/O

    # Also to tell the cluster, which would else hear of it from the next monitor.
    scheduler.start_unit(_RUNNER)
    try:
        clear_marks(_RUNNER, device, peers)
    except SanctlError as error:
        journal.write(
            f"{device}: a peer is still marked as outdated: {error}; the monitor tries again",
            priority=journal.WARNING,
            device=device,
            action="unfence-peer",
        )
        return 1
    return 0


def clear_marks(runner: Runner, device: str, peers: Iterable[str]) -> bool:
    """Take the mark "outdated" off those peers of a Primary that are in sync with it.

    Only the node that would set the mark clears it, under the lock of the handler that sets it:
    if the link breaks now, the handler runs afterwards, and its mark stays. What a standby sees
    proves nothing, it may notice a broken link seconds after its Primary has gone on without it.

    Only with quorum, as for setting: a node that was cut off and has changed its own CIB by a mark
    would change it twice by clearing that, and could bring back a CIB newer than the others'.

    Returns:
        Whether the marks are off.

    Raises:
        SanctlError: the cluster or DRBD did not answer.
    """
    with locked(device, wait_s=0.0) as is_mine:
        state = drbdsetup.observe(runner, device) if is_mine else None
        for peer in peers:
            if state is None or not fence_rules.may_clear(state.with_only_peer(peer)):
                return False
            if not fence_rules.is_certain(peer_standing(runner, peer)):
                return False
            node_attributes.delete_permanent(
                runner, peer, outdated_marks.attribute_name(device), timeout_s=8.0
            )
    return True


def locked(device: str, *, wait_s: float) -> contextlib.AbstractContextManager[bool]:
    """Hold the device's fencing lock, if it can be had in that time; tell whether it could.

    A kernel lock on an open file: it ends with the process, whatever ends that.
    """
    return state_files.locked(state_files.device_lock(device, "fence"), wait_s=wait_s)


def peer_standing(runner: Runner, peer: str) -> str:
    """Return what the cluster knows of a node: `member`, `fenced` or `unknown`.

    `alone` where this node is not in a quorate partition: then nothing it knows counts.

    Quorum and membership are asked of corosync, not of the CIB: when a partition forms, the CIB
    follows by up to seconds, and what it says meanwhile is yesterday's.

    Raises:
        SanctlError: one of the two did not answer.
    """
    seen = corosync.membership(runner)

    def fenced() -> bool:
        state = cib.node_state(runner, peer)
        if state is None:
            raise CommandError(Problem("SAN-AGENT-012", f"the CIB has no state of node {peer}"))
        return is_fenced(state)

    return fence_rules.peer_membership(
        is_quorate=seen.is_quorate, is_member=peer in seen.members, is_fenced=fenced
    )


def is_fenced(state: ET.Element) -> bool:
    """Judge a node that is not a member by its `node_state`.

    Pacemaker Explained, "Node status": a node that left cleanly or was fenced is expected to be
    down and has joined nothing; until then it counts as unclean. `in_ccm` and `crmd` are words up
    to 2.1.6, and times of joining with 0 for absent after that.
    """
    return (
        state.tag == "node_state"
        and state.get("in_ccm") in {"false", "0"}
        and state.get("crmd") in {"offline", "0"}
        and state.get("expected") == "down"
        and state.get("join") == "down"
    )
