# SPDX-License-Identifier: GPL-2.0-or-later
"""Gives a standby of DRBD 8.4 the activity log that its next start would give it.

Why it has become larger: sanctl/render/drbd.py. DRBD exchanges the log once nothing holds a part of
it, and keeps requests out of it meanwhile (drbd_nl.c, disk_opts_check_al_size). A standby of 8.4
uses none: what its peer writes goes into the log only where the peer has no disk (drbd_receiver.c,
receive_Data). What the old log has on the disk counts until it is written over, each time with all
of the new one: a crash marks more than has to be, at most. So it is exchanged at once, and no host
waits for it. A Primary keeps its log until it is a standby.

DRBD 9 uses a standby's log, too; there a start changes it.
"""

from __future__ import annotations

from sanctl.agents.replica import resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, drbdsetup
from sanctl.model.drbd import ResourceState
from sanctl.system.runner import Runner

#: What the smallest device has: an earlier release gave such a one less.
LEAST = 257


def enlarge(runner: Runner, device: Device, state: ResourceState) -> bool:
    """Enlarge the activity log of a standby in sync that has a smaller one; return whether it was.

    The file is written last: one that names another log than DRBD has would have DRBD refuse all
    options of a disk that is written to. A process that dies in between is followed by another
    attempt, which changes the file alone.

    Raises:
        CommandError: DRBD refused, or did not answer; the next monitor tries again.
    """
    if state.is_primary or not state.is_in_sync or drbd_kernel.generation() >= 9:
        return False
    present = resource_file.al_extents(device.name)
    if present is None or present >= LEAST:
        return False
    from sanctl.render.drbd import activity_log_extents  # noqa: PLC0415 - monitors do not pay for it

    wanted = activity_log_extents(device.size_bytes)
    drbdsetup.set_activity_log(runner, device.minor, extents=wanted)
    resource_file.set_al_extents(device.name, wanted)
    return True
