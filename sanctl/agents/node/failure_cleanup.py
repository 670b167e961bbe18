# SPDX-License-Identifier: GPL-2.0-or-later
"""Decides which Pacemaker failures have lost their cause (pool back, ...), and cleans them up.

Pacemaker keeps a failure until it is cleaned up, and does not repeat a failed start on that node
before (start-failure-is-fatal, pacemaker-schedulerd(7)). For a fault of the device that is right:
an operator looks first. But a pool comes back whose disk did not answer, or whose filesystem the
other replicas here had not closed yet; and a monitor fails on purpose to have its replica
restarted.

Each such failure is noted with its operation, and no other is cleaned up. The pool agent does it:
in a device's own action the cleanup, which waits for running actions, would wait for ever.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

from sanctl.agents import ocf
from sanctl.agents.replica.parts import Device
from sanctl.drivers import crm_resource, drbdsetup
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

START, MONITOR = "start", "monitor"
_TIMEOUT_S = 15.0
# A younger failure may not be in the CIB yet; crm_resource would find nothing to clean up.
_MIN_AGE_S = 10.0


class Failure(NamedTuple):
    """A failure whose cause is gone.

    Attributes:
        device: the device's name.
        operation: the operation that failed.
        interval_ms: the operation's interval; 0 if it does not recur.
        written_ns: when the failure was noted.
    """

    device: str
    operation: str
    interval_ms: str
    written_ns: int


@contextlib.contextmanager
def note_start_failure(device: Device) -> Iterator[None]:
    """Note a failed start where the code inside fails, or the process is killed inside.

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


def write_note(device: Device, operation: str) -> None:
    """Note that this operation fails for a reason that passes by itself."""
    with contextlib.suppress(OSError):
        _note(device.name, operation).write(f"{device.pool} {ocf.meta('interval', '0')}")


def remove_notes(name: str, *operations: str) -> None:
    """Remove notes of a device, if they are there."""
    for operation in operations:
        _note(name, operation).remove()


def resolved_failures(runner: Runner, usable: Collection[str]) -> list[Failure]:
    """Return the noted failures of this node whose cause is gone.

    That of a start is gone once its pool is usable; that of a monitor once the restarted replica is
    a standby that is in sync.

    Args:
        runner: starts drbdsetup.
        usable: the pools that are mounted and take writes.

    Raises:
        SanctlError, OSError: DRBD could not be asked.
    """
    found = []
    for operation in (START, MONITOR):
        for name in state_files.node_suffixes(f"failed-{operation}"):
            note = _note(name, operation)
            pool, _, interval_ms = note.read().partition(" ")
            written_ns = note.written_ns()
            if written_ns is None or pool not in usable:
                continue
            if 0 <= time.time() - written_ns / 1e9 < _MIN_AGE_S:
                continue
            if operation == START or _is_in_sync(drbdsetup.observe(runner, name)):
                found.append(Failure(name, operation, interval_ms, written_ns))
    return found


def _is_in_sync(state: ResourceState | None) -> bool:
    return (
        state is not None
        and state.disk == "UpToDate"
        and not state.is_primary
        and state.is_connected
    )


def clean_up(runner: Runner, failures: Collection[Failure]) -> None:
    """Clean up these failures in Pacemaker, which then starts the resources here again.

    A cleanup that fails, or is interrupted, is repeated by the next call.
    """
    here = os.uname().nodename
    for one in failures:
        try:
            crm_resource.clean_up(
                runner,
                one.device,
                node=here,
                operation=one.operation,
                interval_ms=one.interval_ms,
                timeout_s=_TIMEOUT_S,
            )
            outcome, priority = "is cleaned up", journal.NOTICE
            if _note(one.device, one.operation).written_ns() == one.written_ns:
                remove_notes(one.device, one.operation)
        except SanctlError as error:
            outcome, priority = f"is not cleaned up yet: {error}", journal.WARNING
        journal.write(
            f"{one.device}: the cause of a failed {one.operation} is gone: the failure {outcome}",
            priority=priority,
            device=one.device,
            action="failure-cleanup",
            step=one.operation,
        )


def _note(name: str, operation: str) -> state_files.StateFile:
    # A file of the node, not of the device: the stop that follows a failure must not remove it.
    return state_files.of_node(f"failed-{operation}.{name}")
