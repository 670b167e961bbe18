# SPDX-License-Identifier: GPL-2.0-or-later
"""Has failures forgotten that are over: a start for which there was no pool, and a restart.

Pacemaker keeps a failure until somebody cleans it up, and does not repeat a failed start on that
node before (start-failure-is-fatal, pacemaker-schedulerd(7)). For what is wrong with a device that
is right: an operator looks first. But a pool whose disk did not answer, or that the others here
have not let go of yet, comes back; and a monitor fails on purpose to have its replica started anew.

Each such failure is noted with its operation, and no other is cleaned up. It is done by the pools'
agent: for a device's own the cleanup, which waits for what is under way, would wait for ever.
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
# Until then a failure may not be in the CIB yet; crm_resource would find nothing to clean up.
_YOUNG_S = 10.0


class Failure(NamedTuple):
    """A failure that is over.

    Attributes:
        device: whose.
        operation: what failed.
        interval_ms: of a recurring operation; 0.
        written_ns: when it was noted.
    """

    device: str
    operation: str
    interval_ms: str
    written_ns: int


@contextlib.contextmanager
def note_start_failure(device: Device) -> Iterator[None]:
    """Note that a start fails for want of its pool, if it does in here, or is killed in here.

    Raises:
        SanctlError, OSError: what happened in here.
    """
    write_note(device, START)
    try:
        yield
    except (SanctlError, OSError):
        write_note(device, START)
        raise
    remove_notes(device.name, START)


def write_note(device: Device, operation: str) -> None:
    """Note that this operation fails, for a reason that passes by itself."""
    with contextlib.suppress(OSError):
        _note(device.name, operation).write(f"{device.pool} {ocf.meta('interval', '0')}")


def remove_notes(name: str, *operations: str) -> None:
    """Remove notes of a device; one that is gone is fine."""
    for operation in operations:
        _note(name, operation).remove()


def ended_failures(runner: Runner, usable: Collection[str]) -> list[Failure]:
    """Return the failures of this node that are over.

    A start's is once its pool is there; a monitor's once the replica that was started anew is a
    standby that is in sync.

    Args:
        runner: starts what asks DRBD.
        usable: the pools that are there, and take writes.

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
            if 0 <= time.time() - written_ns / 1e9 < _YOUNG_S:
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
    """Have the cluster forget these failures, and start what it kept from this node for them.

    One that fails, or is interrupted, is repeated by the next call.
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
            what, priority = "is cleaned up", journal.NOTICE
            if _note(one.device, one.operation).written_ns() == one.written_ns:
                remove_notes(one.device, one.operation)
        except SanctlError as error:
            what, priority = f"is not cleaned up yet: {error}", journal.WARNING
        journal.write(
            f"{one.device}: the failure of its {one.operation} here is over, and {what}",
            priority=priority,
            device=one.device,
            action="retry",
            step=one.operation,
        )


def _note(name: str, operation: str) -> state_files.StateFile:
    # Of the node, not of the device: the stop that follows a failure must not remove it.
    return state_files.of_node(f"failed-{operation}.{name}")
