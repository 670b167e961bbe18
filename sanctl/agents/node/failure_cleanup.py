# SPDX-License-Identifier: GPL-2.0-or-later
"""Decides which Pacemaker failures have lost their cause (pool back, ...), and cleans them up.

Pacemaker keeps a failure until it is cleaned up, and does not repeat a failed start on that node
before (start-failure-is-fatal, pacemaker-schedulerd(7)). For a fault of the device that is right:
an operator looks first. But a pool comes back whose disk did not answer, or whose filesystem the
other replicas here had not closed yet; a cluster.toml that could not be read, or lacked the pool,
is written anew; and a monitor fails on purpose to have its replica restarted.

A start that ran out of time, because it was killed at its timeout or a program gave no answer,
is tried again, too: fifty starts at once may be too many for a busy node, and the next one finds
it quieter. So is one that made way for a failover, and one that was not begun, because an action
before it hangs in a system call (SAN-AGENT-015): none is tried again before that has ended. And one
whose disk gave an error for a file of the replica, to the agent or to a program of its, in a pool
that can be used: a disk may fail for a moment, as one does whose flash breaks, and a start changes
nothing that it could not read. Such attempts are further and further apart: the pool may look
usable while its disk fails. After some it is an operator's.

A promotion fails whose replica is marked as outdated, or whose peer is not certain to be, after it
was ordered: a mark and an order of one moment, as where two nodes lose their power in a row. The
cluster has promoted another replica since, or promotes this one again. A demotion fails where the
device's I/O is frozen, as no node that is left has quorum: the gate waits for it.

Each such failure is noted with its operation, and no other is cleaned up. The pool agent does it:
in a device's own action the cleanup, which waits for running actions, would wait for ever.

A cleanup erases the whole history of the resource on the node, whichever operation it names
(clear_rsc_history in crm_resource_runtime.c), and the controller then records no result of an
action that it has ordered there before: a promotion would succeed, not be known, and be undone. So
none is done while an action is ordered or runs; and that of a monitor, a promotion or a demotion,
once another node serves, where none is about to be ordered here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from sanctl.agents import ocf
from sanctl.agents.replica.parts import Device
from sanctl.drivers import cib, crm_resource, drbdsetup
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

START, MONITOR, PROMOTE, DEMOTE = "start", "monitor", "promote", "demote"
_TIMEOUT_S = 15.0
_SLOW_START = "slow-start"
#: The kinds of the notes, by operation.
_KINDS = {
    START: "failed-start",
    MONITOR: "failed-monitor",
    PROMOTE: "failed-promote",
    DEMOTE: "failed-demote",
    _SLOW_START: "failed-slow-start",
}
_START_ATTEMPTS = 5
#: After an error of the disk each attempt waits so many times longer than the one before: the last
#: one for eleven minutes.
_DISK_PAUSE_TIMES = 4
#: What a disk gives that fails, or that is exchanged below its filesystem, and what a filesystem
#: gives that has shut down, become read-only, or read what it cannot be.
_DISK_ERRORS = frozenset(
    {errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV, errno.EUCLEAN, errno.EBADMSG}
)
#: The same as programs say it; DRBD has words of its own (drbd.h, ERR_IO_MD_DISK).
_DISK_ERROR_TEXTS = (
    *(os.strerror(each) for each in sorted(_DISK_ERRORS - {errno.EBADMSG, errno.ENODEV})),
    "IO error(s) occurred during initial access to meta-data",
)
_NO_ANSWER = "SAN-CMD-002"
#: What a demotion fails with whose I/O is frozen: device-mapper waits for it, or drbdsetup does.
_FROZEN = frozenset({"SAN-DM-002", _NO_ANSWER})
#: A flush takes longer than the start has; the next start goes on with it.
_UNFINISHED = "SAN-CACHE-012"
#: The service of reservations did not run yet, or a change of reservations was under way.
_RESERVATIONS = frozenset({"SAN-RES-004", "SAN-RES-006"})
#: The start made way for a failover (agents/node/start_turn.py). The failover comes first, and
#: the cluster may take long to hear of the failure.
_MADE_WAY, _MADE_WAY_S = "SAN-AGENT-017", 50.0
# A younger failure may not be in the CIB yet; crm_resource would find nothing to clean up.
_MIN_AGE_S = 10.0
#: Actions of a resource on a node that were ordered and have no result yet (PCMK_EXEC_PENDING);
#: recurring monitors aside, whose result may come late.
_ORDERED = (
    "//node_state[@uname='{node}']//lrm_resource[@id='{device}']"
    "/lrm_rsc_op[@op-status='-1'][@interval='0']"
)


class Failure(NamedTuple):
    """A failure whose cause is gone.

    Attributes:
        device: the device's name.
        operation: the operation that failed.
        interval_ms: the operation's interval; 0 if it does not recur.
        written_ns: when the failure was noted.
        is_slow: whether it was a start of which each counts: mostly one that ran out of time.
    """

    device: str
    operation: str
    interval_ms: str
    written_ns: int
    is_slow: bool = False


@contextlib.contextmanager
def note_start_failure(device: Device) -> Iterator[None]:
    """Note a failed start where the code inside fails, or the process is killed inside.

    It is tried again once cluster.toml can be read, and the pool that it has can be used.

    Raises:
        SanctlError, OSError: the failure of the code inside.
    """
    write_note(device, START)
    try:
        yield
    except (SanctlError, OSError):
        write_note(device, START)
        raise
    remove_notes(device.name, START)


@contextlib.contextmanager
def note_start_out_of_time(device: Device) -> Iterator[None]:
    """Note a failed start where the code inside is killed, or a program gives it no answer in time.

    Also where its disk gives an error, where a flush takes longer than the start has, and where the
    service of reservations does not run: it may be about to.

    Raises:
        SanctlError, OSError: the failure of the code inside.
    """
    attempts = _slow_start(device.name).attempts + 1
    # From the beginning: who is killed writes nothing. It counts once the start must have ended.
    _write_slow_start(device, attempts, runs_s=ocf.remaining_s(0.0))
    try:
        yield
    except SanctlError as error:
        codes = {problem.code for problem in error.problems}
        if _MADE_WAY in codes:
            # No attempt: it has begun nothing.
            _write_slow_start(device, attempts - 1, runs_s=_MADE_WAY_S)
        elif codes & {_NO_ANSWER, _UNFINISHED, *_RESERVATIONS}:
            _write_slow_start(device, attempts, runs_s=0.0)
        else:
            _note_disk_error(device, attempts, is_one=_says_disk_error(error))
        raise
    except OSError as error:
        _note_disk_error(device, attempts, is_one=error.errno in _DISK_ERRORS)
        raise
    remove_notes(device.name, _SLOW_START)


def _note_disk_error(device: Device, attempts: int, *, is_one: bool) -> None:
    """Note an attempt that an error of the disk has ended; one that something else has is over."""
    # One that met it in its pool is noted already, and is tried again once that is usable.
    if is_one and not _note(device.name, START).exists():
        pause_s = _MIN_AGE_S * _DISK_PAUSE_TIMES ** (min(attempts, _START_ATTEMPTS) - 1)
        _write_slow_start(device, attempts, runs_s=pause_s - _MIN_AGE_S)
    else:
        remove_notes(device.name, _SLOW_START)


def _says_disk_error(error: SanctlError) -> bool:
    return any(text in problem.text for problem in error.problems for text in _DISK_ERROR_TEXTS)


def note_refused_promotion(device: Device) -> contextlib.AbstractContextManager[None]:
    """Note a failed promotion where DRBD refuses it for what its fence-peer handler has answered.

    Raises:
        SanctlError: the failure of the code inside.
    """
    return _noting(device, PROMOTE, drbdsetup.is_refused_for_peer)


def note_frozen_demotion(device: Device) -> contextlib.AbstractContextManager[None]:
    """Note a failed demotion where what it waited for gave no answer, as where I/O is frozen.

    Raises:
        SanctlError: the failure of the code inside.
    """
    return _noting(device, DEMOTE, _says_frozen)


def _says_frozen(error: SanctlError) -> bool:
    return _FROZEN.issuperset(problem.code for problem in error.problems)


@contextlib.contextmanager
def _noting(
    device: Device, operation: str, passes_by_itself: Callable[[SanctlError], bool]
) -> Iterator[None]:
    was_noted = _note(device.name, operation).exists()
    # A note of one before would have the failure of this one cleaned up, whatever that is.
    remove_notes(device.name, operation)
    try:
        yield
    except SanctlError as error:
        if passes_by_itself(error):
            write_note(device, operation)
        raise
    # Pacemaker keeps the failure of the one before: until this node is a standby in sync.
    if was_noted:
        write_note(device, operation)


def note_start_not_begun(device: Device) -> None:
    """Note a failed start that was not begun, because an action before it has not ended."""
    _write_slow_start(device, _slow_start(device.name).attempts + 1, runs_s=0.0)


class _SlowStart(NamedTuple):
    """What is noted of a start: its pool, until what age the start may run, and the attempts."""

    pool: str = ""
    runs_s: float = 0.0
    attempts: int = 0


def _slow_start(name: str) -> _SlowStart:
    fields = _note(name, _SLOW_START).read().split()
    try:
        pool, runs_s, attempts = fields
        return _SlowStart(pool, float(runs_s), int(attempts))
    except ValueError:
        return _SlowStart()


def _write_slow_start(device: Device, attempts: int, *, runs_s: float) -> None:
    with contextlib.suppress(OSError):
        _note(device.name, _SLOW_START).write(f"{device.pool} {runs_s:.0f} {attempts}")


def _slow_starts(usable: Collection[str]) -> Iterator[Failure]:
    """Yield the starts that ran out of time and are to be tried again."""
    for name in state_files.node_suffixes(_KINDS[_SLOW_START]):
        note = _note(name, _SLOW_START)
        found, written_ns = _slow_start(name), note.written_ns()
        if written_ns is None or found.pool not in usable or found.attempts >= _START_ATTEMPTS:
            continue
        age_s = time.time() - written_ns / 1e9
        if 0 <= age_s < found.runs_s + _MIN_AGE_S:
            continue
        yield Failure(name, START, "0", written_ns, is_slow=True)


def write_note(device: Device, operation: str) -> None:
    """Note that this operation fails for a reason that passes by itself."""
    with contextlib.suppress(OSError):
        _note(device.name, operation).write(f"{device.pool} {ocf.meta('interval', '0')}")


def remove_notes(name: str, *operations: str) -> None:
    """Remove notes of a device, if they are there."""
    for operation in operations:
        _note(name, operation).remove()


def remove_all_notes(name: str) -> None:
    """Remove all notes of a device that is deleted."""
    remove_notes(name, START, MONITOR, PROMOTE, DEMOTE, _SLOW_START)


def resolved_failures(runner: Runner, usable: Collection[str]) -> list[Failure]:
    """Return the noted failures of this node whose cause is gone.

    That of a start is gone once its pool is usable; that of a monitor, a promotion and a demotion,
    once the restarted replica is a standby that is in sync with one that serves.

    `usable`: the pools that are mounted and take writes.

    Raises:
        SanctlError, OSError: DRBD could not be asked.
    """
    found = list(_slow_starts(usable))
    for operation in (START, MONITOR, PROMOTE, DEMOTE):
        for name in state_files.node_suffixes(_KINDS[operation]):
            note = _note(name, operation)
            pool, _, interval_ms = note.read().partition(" ")
            written_ns = note.written_ns()
            if written_ns is None or pool not in usable:
                continue
            if 0 <= time.time() - written_ns / 1e9 < _MIN_AGE_S:
                continue
            if operation == START or _is_standby(drbdsetup.observe(runner, name)):
                found.append(Failure(name, operation, interval_ms, written_ns))
    # A process that was killed, and hangs in a system call, counts: a start after it would wait for
    # half of its time, and the cluster with it.
    return [each for each in found if not ocf.is_action_running(each.device)]


def _is_standby(state: ResourceState | None) -> bool:
    """Whether a replica is in sync, and another one serves: no promotion is ordered here."""
    return (
        state is not None
        and state.disk == "UpToDate"
        and not state.is_primary
        and state.is_connected
        and state.has_primary_peer
    )


def clean_up(runner: Runner, failures: Collection[Failure]) -> None:
    """Clean up these failures in Pacemaker, which then starts the resources here again.

    A cleanup that fails, or is interrupted, is repeated by the next call. One of a device of which
    an action is ordered here waits for that.
    """
    here = os.uname().nodename
    for one in failures:
        try:
            ordered = _ORDERED.format(node=here, device=one.device)
            if cib.query(runner, ordered, timeout_s=_TIMEOUT_S) is not None:
                continue
            crm_resource.clean_up(
                runner,
                one.device,
                node=here,
                operation=one.operation,
                interval_ms=one.interval_ms,
                timeout_s=_TIMEOUT_S,
            )
            outcome, priority = "is cleaned up", journal.NOTICE
            if one.is_slow:
                _count_attempt(one)
            elif _note(one.device, one.operation).written_ns() == one.written_ns:
                remove_notes(one.device, one.operation)
        except SanctlError as error:
            outcome, priority = f"is not cleaned up yet: {error}", journal.WARNING
        why = f"the cause of a failed {one.operation} is gone"
        if one.is_slow:
            why = "a start ran out of time, or its disk gave an error"
        journal.write(
            f"{one.device}: {why}: the failure {outcome}",
            priority=priority,
            device=one.device,
            action="failure-cleanup",
            step=one.operation,
        )


def _count_attempt(one: Failure) -> None:
    """Keep the number of attempts only: the next start counts on, and this one is not repeated."""
    note, found = _note(one.device, _SLOW_START), _slow_start(one.device)
    if note.written_ns() == one.written_ns:
        with contextlib.suppress(OSError):
            note.write(f"- 0 {found.attempts}")


def _note(name: str, operation: str) -> state_files.StateFile:
    # A file of the node, not of the device: the stop that follows a failure must not remove it.
    return state_files.of_node(f"{_KINDS[operation]}.{name}")
