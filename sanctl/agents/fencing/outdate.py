# SPDX-License-Identifier: GPL-2.0-or-later
"""Sets and clears a peer's outdated mark in the CIB safely: lock, quorum, read-back.

The mark is a location constraint, "never promote there". A partition sets marks only with quorum,
and a promotion on another node reads the same CIB. DRBD asks for a mark by its handler fence-peer
(sanctl/agents/handlers/fence_peer.py).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator

from sanctl.agents.fencing import quorum_overlap, shared_marks
from sanctl.drivers import corosync, drbd_kernel, drbdsetup, outdated_marks
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import uses_quorum
from sanctl.plan.failover import fence_rules
from sanctl.plan.failover import shared_marks as shared_rules
from sanctl.system import files, lock_priority, state_files
from sanctl.system.runner import DeadlineRunner, Runner

# A monitor of a device that serves has 30 s for all it does.
_MONITOR_S = 12.0
# A promotion waits so long for its lock, which others hold only to look at it.
_LOOK_S = 1.0
# A mark that was found on the target of a resync is looked for again after this time.
_LOOK_AGAIN_S = 30.0
# The times of the lock's file: the latter takes back what the lock says, and needs no room.
_VALID, _CANCELLED = (1.0, 1.0), (0.0, 0.0)
_BESIDE_LOCK = "lock"
#: In place of the peer's membership: the replica that is to be promoted is marked itself.
OWN_MARKED = shared_rules.OWN_MARKED
#: In place of it: the peer is unknown, and marked, as this node serves on without it.
AHEAD = shared_rules.AHEAD


def mark_outdated(
    runner: Runner,
    device: str,
    peer: str,
    *,
    wait_s: float = shared_marks.WAIT_S,
    may_lead_alone: bool = True,
    keeps_mark: bool = False,
    last: str | None = None,
) -> str:
    """Mark the peer's replica as outdated if that can be certain; return the peer's membership.

    Called under the device's fencing lock. Handlers of other devices that mark the same peer at the
    same time share the change of the CIB (`shared_marks.mark`, which has the order and its reason).

    Returns `marked` where a promotion is under way here and this node's own replica is marked: that
    promotion must not happen.

    Args:
        runner: starts the cluster's tools.
        device: the device's name.
        peer: the node's name.
        wait_s: how long a handler that marks for this one, too, is waited for.
        may_lead_alone: after that, make a change of its own, without the lock of those.
        keeps_mark: a mark that is there is enough, if nobody but this node can have removed it
            since: for the source of a resync that has one peer.
        last: see `shared_marks.mark`; for fence-peer.

    Raises:
        SanctlError: the cluster did not answer; nothing is certain.
    """
    return shared_marks.mark(
        runner,
        device,
        peer,
        is_promoting=_is_promoting,
        wait_s=wait_s,
        may_lead_alone=may_lead_alone,
        keeps_mark=keeps_mark,
        last=last,
    )


def may_mark(runner: Runner, device: str, peer: str) -> bool:
    """Whether a mark of the peer is still wanted here; called under the fencing lock."""
    if _is_promoting(device):
        return True
    state = drbdsetup.observe(runner, device)
    return fence_rules.may_mark(state and state.with_only_peer(peer), is_promoting=False)


@contextlib.contextmanager
def promoting(device: str) -> Iterator[None]:
    """Hold a lock while a promotion runs, by which fence-peer knows that the promotion needs it.

    A start has made the lock's file (`make_lock`), so that the promotion needs no room on /run; the
    lock ends with the process, however the process ends. Without the file, and without room for it,
    a promotion that needs the handler is refused by it.

    The note beside it is for handlers of the release before, which may lead, or wait, while the
    release is exchanged, and knows no such lock. Goes after 0.1.0.
    """
    path = _promotion_lock(device)
    with contextlib.ExitStack() as held:
        is_held = False
        with contextlib.suppress(OSError):
            is_held = held.enter_context(state_files.locked(path, wait_s=_LOOK_S))
            os.utime(path, _VALID)
        with contextlib.suppress(OSError):
            _promotion_note(device).write(_BESIDE_LOCK if is_held else "")
        try:
            yield
        finally:
            cancel_promotion(device)


def cancel_promotion(device: str) -> None:
    """Have a handler that was called for a promotion give up, also while its lock is held."""
    with contextlib.suppress(FileNotFoundError):
        os.utime(_promotion_lock(device), _CANCELLED)
    _promotion_note(device).remove()


def _is_promoting(device: str) -> bool:
    """Whether a promotion of a device's replica is under way here.

    A note alone counts where a process without the lock has written it: of the release before.

    Raises:
        OSError: it is not known.
    """
    path = _promotion_lock(device)
    if files.is_locked(path):
        with contextlib.suppress(FileNotFoundError):
            return os.stat(path).st_mtime != _CANCELLED[1]
    return _promotion_note(device).read(_BESIDE_LOCK) != _BESIDE_LOCK


def _promotion_lock(device: str) -> str:
    return state_files.device_lock(device, "promote")


def _promotion_note(device: str) -> state_files.StateFile:
    return state_files.of_device(device, "promoting")


#: Whether a peer's replica has what DRBD does not replicate, while its mark is removed within.
HasAll = Callable[[Runner, str, str], contextlib.AbstractContextManager[bool]]


def clear_marks(runner: Runner, device: str, peers: Collection[str], has_all: HasAll) -> bool:
    """Clear the outdated marks of those peers of a Primary that are in sync with the Primary.

    Only the node that would set the mark clears it, under the lock of the handler that sets it:
    if the link breaks now, the handler runs afterwards, and its mark stays. What a standby sees
    proves nothing: a standby may notice a broken link seconds after its Primary has gone on alone.

    Only with quorum, as for setting: a node that was cut off and has changed its own CIB by a mark
    would change that CIB a second time by clearing the mark, and could bring back a CIB newer than
    the others'.

    Args:
        runner: starts the cluster's tools.
        device: the device's name.
        peers: the nodes.
        has_all: whether a node's replica has the reservations, as long as the mark is removed
            within (agents/reservations/keeper.py). Given the runner, the device and the node.

    Returns:
        Whether the marks are cleared.

    Raises:
        SanctlError: the cluster or DRBD did not answer.
    """
    with locked(device, wait_s=0.0) as is_mine:
        if not is_mine:
            return False
        marks = outdated_marks.read_device(runner, device).devices[device]
        for peer in set(peers) - marks.nodes():
            forget_found_mark(device, peer)
        state = drbdsetup.observe(runner, device) if marks.paths else None
        for peer in marks.nodes() & set(peers):
            if state is None or not fence_rules.may_clear(state.with_only_peer(peer)):
                return False
            if not fence_rules.is_certain(peer_membership(runner, device, peer)):
                return False
            with has_all(runner, device, peer) as may_go:
                if not may_go:
                    return False
                forget_found_mark(device, peer)
                outdated_marks.clear(runner, marks, [peer])
    return True


def mark_without_disk(
    runner: Runner, device: str, peers: Iterable[str], *, others: Collection[str]
) -> None:
    """Mark those peers of a Primary that are connected and have no disk, if that can be certain.

    Under the handlers' lock, as for clearing. A mark that comes too late, when the peer is in sync
    again, is cleared by the next monitors. Each monitor asks, for as long as the peer has no disk:
    the lock may be taken, quorum be away, or the mark not be kept.

    `others` are the nodes of the other replicas.

    Raises:
        SanctlError: the cluster or DRBD did not answer; the next monitor tries again.
    """
    runner = DeadlineRunner(runner, time.monotonic() + _MONITOR_S)
    with locked(device, wait_s=0.0) as is_mine:
        if not is_mine:
            return
        state = drbdsetup.observe(runner, device)
        for peer in peers:
            if (
                fence_rules.may_mark_without_disk(state, peer, others=others)
                and peer not in outdated_marks.read_device(runner, device).devices[device].nodes()
            ):
                # A monitor has less time than a handler, and the next one tries again: one for
                # each device of a pool, on their own, would be more than the cluster bears.
                mark_outdated(runner, device, peer, wait_s=5.0, may_lead_alone=False)


def mark_sync_targets(runner: Runner, device: str, peers: Iterable[str]) -> bool:
    """Mark those peers whose resync from here began without a mark; return whether one was set.

    Under the handlers' lock, and while DRBD says that the resync goes on. One that ends meanwhile
    leaves the mark on a peer that is in sync: the caller has it cleared. A mark that was found, or
    set by the handler, is looked for again after a while: a query of the CIB for each device that
    is filled, with every monitor, would be too much.

    Raises:
        SanctlError: the cluster or DRBD did not answer; the next monitor tries again.
    """
    due = [peer for peer in peers if not _was_found(_found_note(device, peer))]
    if not due:
        return False
    runner = DeadlineRunner(runner, time.monotonic() + _MONITOR_S)
    has_marked = False
    with locked(device, wait_s=0.0) as is_mine:
        if not is_mine:
            return False  # by before-resync-source, say
        state = drbdsetup.observe(runner, device)
        for peer in due:
            if not fence_rules.is_sync_target(state, peer):
                continue
            if peer not in outdated_marks.read_device(runner, device).devices[device].nodes():
                membership = mark_outdated(runner, device, peer, wait_s=5.0, may_lead_alone=False)
                has_marked = True
                if not fence_rules.is_certain(membership):
                    continue
            record_found_mark(device, peer)
    return has_marked


def record_found_mark(device: str, peer: str) -> None:
    """Note that the target of a resync from here is marked: the next monitors need not look."""
    # Without room for it they do.
    with contextlib.suppress(OSError):
        _found_note(device, peer).write()


def has_found_mark(device: str, peer: str) -> bool:
    """Whether that is noted, however long ago: the peer was filled from here, and may be marked."""
    try:
        return _found_note(device, peer).exists()
    except OSError:
        return False


def forget_found_mark(device: str, peer: str) -> None:
    """Remove that note, before the mark is removed: the next resync may begin without one."""
    with contextlib.suppress(OSError):
        _found_note(device, peer).remove()


def _found_note(device: str, peer: str) -> state_files.StateFile:
    return state_files.of_device(device, f"resync-marked.{peer}")


def _was_found(note: state_files.StateFile) -> bool:
    try:
        age_s = note.age_s()
    except OSError:
        return False
    return age_s is not None and 0 <= age_s < _LOOK_AGAIN_S


def mark_lost_and_without_disk(runner: Runner, device: str, peer: str, *, last: str = "") -> str:
    """Mark a lost peer, and with it the connected ones that are without a disk where that is due.

    With three and four replicas the node goes on as soon as the handlers have answered: with the
    lost peer a replica whose disk is back could be promoted, before a monitor here has looked.
    Called under the device's fencing lock.

    Where DRBD has a majority without the lost peer, the node has gone on already: the peer is
    marked as soon as it is no member, and the answer is `AHEAD` until it is certain.

    `last` is what the same handler was answered before.

    Returns:
        The peer's membership, `unknown` where one of the others is not certain, as `mark_outdated`.

    Raises:
        SanctlError: the cluster or DRBD did not answer; nothing is certain.
    """
    membership = mark_outdated(runner, device, peer, last=last)
    if not fence_rules.is_certain(membership) and membership != AHEAD:
        return membership
    if drbd_kernel.generation() < 9:
        return membership
    state = drbdsetup.observe(runner, device)
    if state is None or not any(each.is_connected and each.name != peer for each in state.peers):
        # With two replicas, that is: nothing more is read, and nothing can fail, while I/O waits.
        return membership
    from sanctl.agents.replica import resource_file  # noqa: PLC0415 - this handler must start fast

    others = {*resource_file.replica_nodes(device)} - {os.uname().nodename}
    if not uses_quorum(1 + len(others)) or not fence_rules.is_soon_missed(state, others=others):
        return membership
    for each in sorted(others - {peer}):
        if (
            fence_rules.may_mark_without_disk(state, each, others=others)
            and each not in outdated_marks.read_device(runner, device).devices[device].nodes()
            and not fence_rules.is_certain(mark_outdated(runner, device, each))
            and membership != AHEAD
        ):
            return "unknown"
    return membership


def locked(device: str, *, wait_s: float) -> contextlib.AbstractContextManager[bool]:
    """Hold the device's fencing lock if it is free within that time; yields whether it is held.

    A kernel lock on an open file: the lock ends with the process, however the process ends.
    """
    lock_priority.run_as_actions_do()
    return state_files.locked(state_files.device_lock(device, "fence"), wait_s=wait_s)


@contextlib.contextmanager
def locked_against_marks(device: str, *, wait_s: float) -> Iterator[bool]:
    """Hold the device's fencing lock, and keep every handler of another device from marking for it.

    For a demotion, and for who marks the replica here. Yields whether both are held within that
    time.
    """
    deadline = time.monotonic() + wait_s
    with contextlib.ExitStack() as held:
        is_held = held.enter_context(locked(device, wait_s=wait_s))
        if is_held:
            left_s = max(0.0, deadline - time.monotonic())
            # Without the file, and without room to make it, no other process has it either.
            with contextlib.suppress(OSError):
                is_held = held.enter_context(shared_marks.change_lock(device, wait_s=left_s))
        yield is_held


def make_lock(device: str) -> None:
    """Make the locks' files: promotion and demotion must not depend on room for them in /run.

    Raises:
        OSError: there is no room.
    """
    with (
        locked(device, wait_s=0.0),
        shared_marks.change_lock(device, wait_s=0.0),
        # Shared: a process that has it for itself promotes.
        state_files.locked(_promotion_lock(device), wait_s=0.0, shared=True),
    ):
        pass


def peer_membership(runner: Runner, device: str, peer: str) -> str:
    """Return what the cluster knows of a device's peer: `member`, `fenced` or `unknown`.

    `alone` where this node is in no quorate partition: then nothing that this node knows counts.

    Quorum and membership come from corosync, not from the CIB: when a partition forms, the CIB
    follows by up to seconds, and is out of date meanwhile.

    Raises:
        SanctlError: corosync or the CIB did not answer.
    """
    seen = corosync.membership(runner)

    def fenced() -> bool:
        known = outdated_marks.read(runner, [device], peer)
        if known.state is None:
            raise CommandError(Problem("SAN-AGENT-012", f"the CIB has no state of node {peer}"))
        return fence_rules.is_fenced(
            is_down=quorum_overlap.is_down(known.state), is_primary=device in known.primary
        )

    return fence_rules.peer_membership(
        is_quorate=seen.is_quorate,
        is_member=peer in seen.members,
        # Who asks here removes a mark of a peer that is in sync, or has DRBD connect: that may be
        # done beside a member that has not joined Pacemaker yet, too (sanctl/safety).
        has_joined=lambda: True,
        is_fenced=fenced,
    )
