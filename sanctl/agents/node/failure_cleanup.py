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
import glob
import os
import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

from sanctl.agents import ocf
from sanctl.agents.replica.parts import RUNTIME, Device
from sanctl.drivers import drbd
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.system import journal
from sanctl.system.files import read_text_or
from sanctl.system.runner import Runner

START, MONITOR = "start", "monitor"
_TIMEOUT_S = 15.0
# Until then a failure may not be in the CIB yet; crm_resource would find nothing to clean up.
_YOUNG_S = 10.0
# crm_resource(8): there is no such resource; its device was deleted meanwhile.
_NO_SUCH = 105


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
def noted(device: Device) -> Iterator[None]:
    """Note that a start fails for want of its pool, if it does in here, or is killed in here.

    Raises:
        SanctlError, OSError: what happened in here.
    """
    note(device, START)
    try:
        yield
    except (SanctlError, OSError):
        note(device, START)
        raise
    forget(device.name, START)


def note(device: Device, operation: str) -> None:
    """Note that this operation fails, for a reason that passes by itself."""
    with (
        contextlib.suppress(OSError),
        open(_path(device.name, operation), "w", encoding="utf-8") as file,
    ):
        file.write(f"{device.pool} {ocf.meta('interval', '0')}")


def forget(name: str, *operations: str) -> None:
    """Remove notes of a device; one that is gone is fine."""
    for operation in operations:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_path(name, operation))


def over(runner: Runner, usable: Collection[str]) -> list[Failure]:
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
        for path in sorted(glob.glob(_path("*", operation))):
            name = path.removeprefix(_path("", operation))
            pool, _, interval_ms = read_text_or(path, "").partition(" ")
            written_ns = _written_ns(path)
            if pool not in usable or 0 <= time.time() - written_ns / 1e9 < _YOUNG_S:
                continue
            if operation == START or _is_in_sync(drbd.observe(runner, name)):
                found.append(Failure(name, operation, interval_ms, written_ns))
    return found


def _is_in_sync(state: ResourceState | None) -> bool:
    return (
        state is not None
        and state.disk == "UpToDate"
        and not state.is_primary
        and state.is_in_contact
    )


def have_forgotten(runner: Runner, failures: Collection[Failure]) -> None:
    """Have the cluster forget these failures, and start what it kept from this node for them.

    One that fails, or is interrupted, is repeated by the next call.
    """
    here = os.uname().nodename
    for one in failures:
        try:
            runner.run(
                ["crm_resource", "--cleanup", "--resource", one.device, "--node", here,
                 "--operation", one.operation, "--interval", f"{one.interval_ms}ms"],
                timeout_s=_TIMEOUT_S,
                ok=(0, _NO_SUCH),
            )  # fmt: skip
            what, priority = "is cleaned up", journal.NOTICE
            if _written_ns(_path(one.device, one.operation)) == one.written_ns:
                forget(one.device, one.operation)
        except SanctlError as error:
            what, priority = f"is not cleaned up yet: {error}", journal.WARNING
        journal.write(
            f"{one.device}: the failure of its {one.operation} here is over, and {what}",
            priority=priority,
            device=one.device,
            action="retry",
            step=one.operation,
        )


def _written_ns(path: str) -> int:
    with contextlib.suppress(FileNotFoundError):
        return os.stat(path).st_mtime_ns
    return -1


def _path(name: str, operation: str) -> str:
    return f"{RUNTIME}/failed-{operation}-{name}"
