# SPDX-License-Identifier: GPL-2.0-or-later
"""What the device agent calls for reservations; light, as most devices have none.

What does the work is imported where a device has reservations, or had them until now.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sanctl.agents import ocf
from sanctl.agents.replica import device_files
from sanctl.agents.replica.parts import Device
from sanctl.errors import SanctlError
from sanctl.model.published_reservations import NOTE_KIND
from sanctl.model.reservation import Reservations
from sanctl.system import state_files
from sanctl.system.files import exists
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    from sanctl.agents.replica.access_list import LettingIn

#: Before it, FUSE does not hand out again what a process has read and not answered.
_LINUX = (6, 9)
_RELEASE = re.compile(r"(\d+)\.(\d+)")


def are_kept_here() -> bool:
    """Whether this node keeps reservations over the end of the process that stores them."""
    found = _RELEASE.match(os.uname().release)
    return found is not None and (int(found[1]), int(found[2])) >= _LINUX


def at_start(runner: Runner, device: Device) -> Reservations | None:
    """See `in_force.at_start`."""
    if not device.reservations:
        path = device_files.note_path(device, NOTE_KIND)
        if path is None or not exists(path):
            return None
    from sanctl.agents.reservations import in_force  # noqa: PLC0415 - see the module's docstring

    return in_force.at_start(runner, device)


def check_before_promotion(device: Device, *, is_first: bool, was_primary: bool = False) -> None:
    """See `in_force.check_before_promotion`; what serves hosts already goes on (`promoting`)."""
    if device.reservations:
        from sanctl.agents.reservations import in_force  # noqa: PLC0415 - as above

        if was_primary and in_force.serves(device):
            return
        in_force.check_before_promotion(device, is_first=is_first)


@contextlib.contextmanager
def promoting(
    runner: Runner, device: Device, steps: ocf.Steps, deadline: float, *, was_primary: bool = False
) -> Iterator[None]:
    """Let hosts in within: all replicas have what is in force then, and no change comes before.

    Once DRBD is Primary here: what the file has now no push replaces any more. What serves hosts
    already has done that: it goes on without a replica that does not answer, and with what LIO has
    told hosts and not written, which a monitor stores.

    Args:
        runner: starts programs.
        device: as the cluster wants it.
        steps: of the promotion.
        deadline: on the monotonic clock.
        was_primary: DRBD was Primary here before this promotion.

    Raises:
        SanctlError: they have not; this node does not serve.
        OSError: the same.
    """
    if not device.reservations:
        yield
        return
    from sanctl.agents.reservations import in_force  # noqa: PLC0415 - as above

    if was_primary and in_force.serves(device):
        yield
        return
    with in_force.locked(device):
        in_force.settle(runner, device, deadline)
        steps.done("settled", "reservations stored on all replicas that may be promoted")
        if in_force.at_promotion(device):
            steps.done("reservations", "reservations in force; hosts log in again")
        yield


def letting_in(device: Device) -> LettingIn | None:
    """Return how initiators get onto the access list, see `let_in.letting_in`; None: just so."""
    if not device.reservations:
        return None
    from sanctl.agents.reservations import let_in  # noqa: PLC0415 - as above

    return functools.partial(let_in.letting_in, device)


def keeping_out(device: Device) -> contextlib.AbstractContextManager[None]:
    """Return what initiators are taken off the access list within, see `let_in.keeping_out`."""
    if not device.reservations:
        return contextlib.nullcontext()
    from sanctl.agents.reservations import let_in  # noqa: PLC0415 - as above

    return let_in.keeping_out(device)


def demoting(device: Device) -> contextlib.AbstractContextManager[None]:
    """See `in_force.demoting`."""
    if not device.reservations:
        return contextlib.nullcontext()
    from sanctl.agents.reservations import in_force  # noqa: PLC0415 - as above

    return in_force.demoting(device)


def at_stop(runner: Runner, device: Device) -> None:
    """Take back what was published of a replica that is stopped, as far as there is time."""
    if _is_without(device.name):
        return
    from sanctl.agents.reservations import upkeep  # noqa: PLC0415 - as above

    with contextlib.suppress(SanctlError, OSError):
        upkeep.withdraw_at_stop(runner, device.name)


def look_after(runner: Runner, device: Device, *, is_active: bool, attrd_pid: str) -> bool:
    """See `upkeep.look_after`."""
    if not device.reservations and _is_without(device.name):
        return False
    from sanctl.agents.reservations import upkeep  # noqa: PLC0415 - as above

    return upkeep.look_after(runner, device, is_active=is_active, attrd_pid=attrd_pid)


@contextlib.contextmanager
def has_current(runner: Runner, device: str, peer: str) -> Iterator[bool]:
    """See `keeper.has_current`."""
    if _is_without(device):
        yield True
        return
    from sanctl.agents.reservations import keeper  # noqa: PLC0415 - as above

    with keeper.has_current(runner, device, peer) as may:
        yield may


def is_not_older(device: str, peer: str) -> bool:
    """See `keeper.is_not_older`."""
    if _is_without(device):
        return True
    from sanctl.agents.reservations import keeper  # noqa: PLC0415 - as above

    return keeper.is_not_older(device, peer)


def _is_without(name: str) -> bool:
    """Whether the replica here has no reservations: it has no note of them (replica_note.py)."""
    try:
        return not state_files.of_device(name, NOTE_KIND).exists()
    except OSError:
        return False  # not known
