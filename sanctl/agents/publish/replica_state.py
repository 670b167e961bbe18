# SPDX-License-Identifier: GPL-2.0-or-later
"""Publishes a replica's state, in its text form, and its promotion score."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

from sanctl.agents.cache import read_cache, write_cache_status
from sanctl.agents.connections import reconnect_dropped, standby_first
from sanctl.agents.connections.peers import CHANGE_NOTE
from sanctl.agents.fencing import joined_peers, outdate, own_marks, quorum_overlap
from sanctl.agents.promotion import admission, compared_data, first_activation, needed_release
from sanctl.agents.publish import attrd_cache, node_states, withheld_note
from sanctl.agents.replica import (
    access_list,
    drop_note,
    lost_writes,
    older_cib,
    resync_note,
    sync_policy,
)
from sanctl.agents.replica.device_files import note_path
from sanctl.agents.replica.parts import Device
from sanctl.agents.reservations import hooks
from sanctl.drivers import drbd_kernel, drbdsetup, gate, lio, node_attributes, pool_files
from sanctl.errors import SanctlError
from sanctl.model import hung_io
from sanctl.model import promotion_score as scores
from sanctl.model.drbd import ResourceState
from sanctl.model.resync_record import ResyncRecord
from sanctl.plan.failover.fence_rules import may_mark_without_disk, serves_from_peer
from sanctl.plan.failover.promotion import FirstStep, are_all_blank, promotion_score
from sanctl.system import journal, state_files
from sanctl.system.files import read_text_or
from sanctl.system.runner import DeadlineRunner, Runner

_UNFLUSHED = "unflushed=1"
#: How long hosts wait for marks to be cleared, at most.
_CLEAR_S = 6.0


def published_value(
    state: ResourceState | None, *, nodes: int = 1, lun_bytes: int | None = None
) -> str:
    """Return DRBD's state of this replica as it is published, `key=value` each.

    `nodes` is the number of replicas. `lun_bytes` is the size of what hosts reach here, None where
    there is none: a device has grown once that has, too. DRBD 8.4 no longer shows a connection that
    it has given up: a missing connection of a device with several replicas is StandAlone.
    """
    if state is None:
        return "disk=Down connection=Unknown peer-disk=DUnknown out-of-sync=? role=Unknown size=?"
    if nodes == 1 and not any(peer.connection == "Connected" for peer in state.peers):
        # DRBD 8.4 shows a peer of an only replica, and counts all blocks as out of sync.
        state = state._replace(peers=())
    connections = ",".join(peer.connection for peer in state.peers)
    connections = connections or ("StandAlone" if nodes > 1 else "None")
    replications = ",".join(peer.replication for peer in state.peers) or "Off"
    disks = ",".join(peer.disk for peer in state.peers) or "None"
    out_of_sync = "?" if state.out_of_sync_kib is None else str(state.out_of_sync_kib)
    size_bytes = _size_bytes(state, lun_bytes)
    size = "?" if size_bytes is None else str(size_bytes)
    # The values of several peers need the peers' names.
    names = ",".join(each.name for each in state.peers)
    peers = f" peers={names}" if names and nodes > 2 else ""
    return (
        f"disk={state.disk} connection={connections} replication={replications} "
        f"peer-disk={disks} out-of-sync={out_of_sync} role={state.role} size={size} "
        f"suspended={state.suspended}{peers}"
    )


def _size_bytes(state: ResourceState, lun_bytes: int | None) -> int | None:
    if state.size_kib is None:
        return None
    size_bytes = state.size_kib * 1024
    return size_bytes if lun_bytes is None else min(size_bytes, lun_bytes)


def _file_field(device: Device, size_bytes: int | None, data: str | None) -> str:
    """Return the length of the data file of a replica that is smaller than it is to be.

    Where no file has grown the growth may be taken back (plan/device/alteration.py).
    """
    length = None
    if size_bytes is not None and size_bytes < device.size_bytes and data is not None:
        with contextlib.suppress(OSError):
            length = pool_files.size_bytes(data)
    return "" if length is None else f" file={length}"


def access_list_digest(words: Iterable[str]) -> str:
    """Return eight hex digits that identify an access list."""
    from hashlib import sha256  # noqa: PLC0415

    return sha256(" ".join(sorted(words)).encode()).hexdigest()[:8]


def publish(
    runner: Runner,
    device: Device,
    state: ResourceState | None,
    *,
    no_contact_fields: str = "",
    clears_marks: bool = True,
    score_alone: bool = False,
) -> bool:
    """Publish this replica's state and promotion score, if they changed.

    They are published again in each period (plan/device/short_monitor.py), after a restart of
    pacemaker-attrd, and where the CIB has lost the score (agents/cib_check.py). An error is logged,
    not raised: the replica's state does not depend on it, and the next monitor tries again.

    Returns whether nothing is left to publish, to mark or to clear: if not, the next monitor has to
    be a whole one.

    `no_contact_fields` is what a monitor adds for a replica without contact
    (sanctl/agents/recovery/no_contact.py). With `clears_marks` a Primary also clears the marks of
    peers that are in sync. With `score_alone` the state of a device that was never active is left
    to the next call.
    """
    try:
        # Each time, and first: pacemaker-attrd may be away when the CIB is not.
        mark_without_disk(runner, device, state)
    except (SanctlError, OSError) as error:
        log_publish_failure(device.name, error)
        is_marked = False
    else:
        is_marked = True
    try:
        is_published = _publish(
            runner,
            device,
            state,
            no_contact_fields,
            clears_marks=clears_marks,
            score_alone=score_alone,
        )
        standby_first.forget_kept(runner, device.name, state)
    except (SanctlError, OSError) as error:
        log_publish_failure(device.name, error)
        return False
    return is_marked and is_published


def mark_without_disk(runner: Runner, device: Device, state: ResourceState | None) -> None:
    """Mark as outdated what a Primary goes on without: a peer without a disk, or the replica here.

    Raises:
        SanctlError, OSError: the cluster or DRBD did not answer; the next monitor tries again.
    """
    if state is None or not state.is_primary:
        return
    others = sorted(set(device.nodes) - {os.uname().nodename})
    without_disk = [node for node in others if may_mark_without_disk(state, node, others=others)]
    if without_disk:
        outdate.mark_without_disk(runner, device.name, without_disk, others=others)
    if serves_from_peer(state, others=others):
        own_marks.mark_served_from_peer(runner, device.name, others)


def publish_primary_score(runner: Runner, name: str) -> None:
    """Publish a Primary's promotion score, unless it is published.

    Before a peer that is in sync again may be promoted: with the score of a standby the cluster
    would move the device there. A promotion without a peer leaves it to this, and to the monitor.

    Raises:
        SanctlError, OSError: it could not be published.
    """
    pid, cached = attrd_cache.attrd_pid(), attrd_cache.of_score(name)
    if cached.read() == f"{pid} {scores.PRIMARY}":
        return
    state = drbdsetup.observe(runner, name)
    if state is not None and state.is_primary and state.disk == "UpToDate":
        node_attributes.set_promotion_score(runner, name, scores.PRIMARY)
        attrd_cache.record(cached, pid, str(scores.PRIMARY))


def clear_marks_before_writes(runner: Runner, device: Device) -> bool:
    """Clear the marks of peers that were filled from here, before a promotion lets hosts write.

    Returns whether there was one that may be marked no more.

    A standby's end of a resync clears none. If this node were lost before the end of the promotion
    cleared them, the peer would have every write, and could not be promoted; and once this node is
    back it is the source of the resync, as DRBD has a crashed Primary be where neither has gone on
    (drbd_receiver.c, rule 40 of drbd_uuid_compare), with a disk that may lack what was acknowledged
    in its last moment and not flushed.

    An error is logged: the end of the promotion, and each monitor, try again. So it is left to them
    where the device has reservations, which are settled with the peers meanwhile.
    """
    here = os.uname().nodename
    if device.reservations:
        return False
    filled = [
        node for node in device.nodes if node != here and outdate.has_found_mark(device.name, node)
    ]
    if not filled:
        return False
    runner = DeadlineRunner(runner, time.monotonic() + _CLEAR_S)
    try:
        state = drbdsetup.observe(runner, device.name)
        if state is None or not state.is_primary:
            return False
        in_sync = [node for node in filled if state.with_only_peer(node).is_in_sync]
        if not in_sync:
            return False
        publish_primary_score(runner, device.name)
        return outdate.clear_marks(runner, device.name, in_sync, hooks.has_current)
    except (SanctlError, OSError) as error:
        log_publish_failure(device.name, error)
        return False


def log_publish_failure(name: str, error: SanctlError | OSError) -> None:
    """Log that an attribute of a device could not be published."""
    journal.write(
        f"{name}: this replica's state could not be published: {error}",
        priority=journal.WARNING,
        device=name,
        action="publish",
    )


def has_changed(device: Device, state: ResourceState) -> bool:
    """Whether this state differs from the published one, apart from amounts.

    Also where what a resync wrote is not stable, or is since: a drop of its source waits for that.
    A resync between two monitors leaves all else as it was.

    False for a replica of which nothing is published: it is being started or stopped. Also for a
    replica without contact: only its monitor knows all the fields that are published then.
    """
    published = attrd_cache.published_fields(attrd_cache.of_device(device.name))
    fields = published_value(state, nodes=len(device.nodes)).split()
    return (
        bool(published)
        and state.is_connected
        and not are_all_blank(state, replicas=len(device.nodes))
        and (
            any(
                field not in published and not field.startswith(("out-of-sync=", "size="))
                for field in fields
            )
            or (_UNFLUSHED in published) is not _is_unflushed(device)
        )
    )


def _is_unflushed(device: Device) -> bool:
    return bool(resync_note.published_field(lost_writes.data_file(device.name)))


def _publish(
    runner: Runner,
    device: Device,
    state: ResourceState | None,
    no_contact_fields: str,
    *,
    clears_marks: bool,
    score_alone: bool,
) -> bool:
    others = sorted(set(device.nodes) - {os.uname().nodename})
    if state is not None and state.is_connected:
        joined_peers.record_connection(runner, state, others)
    if state is not None:
        compared_data.record(device, state)
    is_new = (
        state is not None
        and first_activation.step_here(device, state) is not FirstStep.NONE
        and first_activation.is_new(runner, device)
    )
    score = promotion_score(
        state,
        is_new=is_new,
        is_first=device.nodes[:1] == (os.uname().nodename,),
        replicas=len(device.nodes),
    )
    if score == scores.NEW and first_activation.leaves_to_first(runner, device):
        score = None
    data = lost_writes.data_file(device.name)
    if lost_writes.is_suspect(device.name, data):
        score = None
    is_active = state is not None and state.is_primary
    if standby_first.is_noted(device.name) and not is_active:
        score = None
    lacks = needed_release.found_lacking(device)
    # One that serves goes on: without a score Pacemaker would take it from its hosts.
    if lacks and not is_active:
        score = None
    is_withheld = (
        score is not None
        and state is not None
        and not quorum_overlap.may_try_promotion(runner, state, others)
    )
    withheld_note.record(device.name, is_withheld=is_withheld)
    withheld = withheld_note.published_field(
        None if state is None else state.disk, is_withheld=is_withheld, has_score=score is not None
    )
    if is_withheld or (
        score is not None
        and state is not None
        and not compared_data.is_candidate(runner, device, state)
    ):
        score = None
    access = access_list_digest(lio.access(device.name))
    policy = str(sync_policy.in_force(device.name)).replace(" ", "+") or "default"
    lun_bytes = gate.size_bytes(device.name)
    value = published_value(state, nodes=len(device.nodes), lun_bytes=lun_bytes)
    if state is not None:
        value += _file_field(device, _size_bytes(state, lun_bytes), data)
    value += f" acl={access} policy={policy}{no_contact_fields}"
    value += resync_note.published_field(data)
    value += access_list.published_field(device)
    value += admission.published_field(device.name)
    value += needed_release.published_field(lacks)
    value += older_cib.published_field(device.name)
    hung = state_files.of_device(device.name, hung_io.NOTE_KIND).read()
    value += f" {hung_io.KEY}={hung}" if hung else ""
    # Written where a change of nodes waits for a lost peer (agents/connections/peers.py).
    waits_for = state_files.of_device(device.name, CHANGE_NOTE).read()
    value += f" change-waits={waits_for}" if waits_for else ""
    value += withheld
    value += reconnect_dropped.published_field(device.name, state)
    value += standby_first.published_field(device.name)
    value += drop_note.published_field(device.name)
    path = note_path(device, "sync")
    latest = ResyncRecord.parse(read_text_or(path, "")) if path is not None else None
    if latest is not None:
        value += f" resync={latest}"
    value += write_cache_status.published_fields(device, state) + read_cache.published_fields(
        runner, device, state
    )
    attrd_pid = attrd_cache.attrd_pid()
    # Each by itself: a state changes several times in a failover, the score once.
    cached_score, cached = attrd_cache.of_score(device.name), attrd_cache.of_device(device.name)
    period = attrd_cache.period_of_device(device.name, is_in_sync=_is_seldom_due(device, state))
    within_s = period.passed_s
    has_score = attrd_cache.is_current(cached_score, attrd_pid, str(score), within_s=within_s)
    compared = _without_growth(value, state)
    if has_score and attrd_cache.is_current(cached, attrd_pid, compared, within_s=within_s):
        return True
    if not has_score:
        node_attributes.set_promotion_score(runner, device.name, score)
        attrd_cache.record(cached_score, attrd_pid, str(score))
    # Of a device that has been active an older state may still be published: of lost files, say.
    if score_alone and is_new:
        return False
    node_states.publish(runner, device.name, value)
    if clears_marks and state is not None and state.is_primary:
        # After a change, and where the pool agent has seen a mark (agents/cib_check.py): a
        # reconnection without a resync calls no handler.
        in_sync = [node for node in others if state.with_only_peer(node).is_in_sync]
        if in_sync and not outdate.clear_marks(runner, device.name, in_sync, hooks.has_current):
            # Not recorded: a standby that stays marked cannot take over, so the next monitor asks.
            return False
    attrd_cache.record(cached, attrd_pid, compared)
    return True


def _is_seldom_due(device: Device, state: ResourceState | None) -> bool:
    """Whether this replica is one of those in sync whose monitors may be short.

    Each monitor of any other is a whole one anyway.
    """
    return (
        state is not None
        and state.is_in_sync
        and len(device.nodes) == 2
        and not device.cache
        and drbd_kernel.generation() < 9
    )


def _without_growth(value: str, state: ResourceState | None) -> str:
    """Return what of a value has to differ for it to be published again within the minute.

    While a peer is away each write of a host adds to what is out of sync, and each publication
    starts a program.
    """
    if state is None or state.is_connected:
        return value
    return " ".join(
        "out-of-sync=+" if word.startswith("out-of-sync=") and word[12:] not in {"0", "?"} else word
        for word in value.split(" ")
    )


def withdraw(runner: Runner, device: Device) -> None:
    """Delete this replica's attributes: the node is no candidate for promotion any more."""
    attrd_cache.of_score(device.name).remove()
    attrd_cache.of_device(device.name).remove()
    # Each by itself: of two that have too little time the second one may have enough.
    with contextlib.suppress(SanctlError, OSError):
        node_attributes.delete_promotion_score(runner, device.name)
    with contextlib.suppress(SanctlError, OSError):
        node_states.withdraw(runner, device.name)
