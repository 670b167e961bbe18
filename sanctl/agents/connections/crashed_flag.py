# SPDX-License-Identifier: GPL-2.0-or-later
"""Has DRBD 8.4 note on its disk that a replica which crashed as Primary was filled since.

DRBD forgets in memory, at the end of the resync, that the replica crashed as Primary, but writes
its flags before it forgets (drbd_state.c: `__drbd_set_state`, then `after_state_ch`), and again
with the next change of state alone. If both nodes lose their power before there is one, the standby
says that it, too, crashed as Primary, and which of the two becomes the source of the resync is left
to chance (drbd_receiver.c, rule 40). The Primary is the better one: DRBD answers a flush of a host
once the Primary's disk has flushed.

A resync that is paused and resumed while none runs is such a change of state.
"""

from __future__ import annotations

import contextlib

from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, drbdsetup
from sanctl.model.drbd import ResourceState
from sanctl.system import state_files
from sanctl.system.runner import Runner

_KIND = "crashed-flag"
_PAUSED = "paused"


def note(device: str) -> None:
    """Note that the replica, which starts, crashed as Primary."""
    # Without room for it the flag stays.
    with contextlib.suppress(OSError):
        _note(device).write()


def clear_if_in_sync(runner: Runner, device: Device, state: ResourceState) -> None:
    """Have the flag written anew once the replica is in sync.

    Raises:
        SanctlError: DRBD did not answer.
        OSError: a note cannot be read or written. The next monitor tries again; whatever it finds,
            a resync that was paused goes on.
    """
    noted = _note(device.name)
    if not noted.exists() or drbd_kernel.generation() >= 9:
        return
    if noted.read() != _PAUSED:
        if not state.is_in_sync:
            return
        noted.write(_PAUSED)
        drbdsetup.set_resync_paused(runner, device.minor, is_paused=True)
    drbdsetup.set_resync_paused(runner, device.minor, is_paused=False)
    noted.remove()


def _note(device: str) -> state_files.StateFile:
    return state_files.of_device(device, _KIND)
