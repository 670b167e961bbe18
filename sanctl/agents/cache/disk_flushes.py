# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD's disk-flushes: off in write-through, where every write is stable, on again before others.

DRBD has a standby flush its disk whenever a host sends a write after it had the answer to another.
In write-through there is nothing to flush. The order of the steps is such that a kill half way
leaves flushes on that are not needed, and never off where they are:

* disable: the resource file is written, then the kernel is set;
* enable: the kernel is set, and asked, then the file is written; only then may writes cease to be
  stable.

Nothing else in the file is changed: a change of the nodes in it has an order of its own. See
docs/adr/0040.
"""

from __future__ import annotations

from sanctl.agents.replica import resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import backing_device, drbd_kernel, drbdsetup
from sanctl.model.drbd import ResourceState
from sanctl.plan.cache.allowed_mode import ORDERED_BY_FLUSH, is_ordered_by_flush
from sanctl.system.runner import Runner


def disable(runner: Runner, device: Device, state: ResourceState | None) -> bool:
    """Turn DRBD's flushes off, if allowed; every write of the data file is already stable.

    Only DRBD 8.4: what DRBD 9 does without flushes was not examined. And only where zeros arrive
    as writes, too. A disk that is not attached is left for later.

    Returns:
        Whether flushes were turned off now.

    Raises:
        SanctlError: DRBD did not take it; it goes on flushing.
    """
    if state is None or state.write_ordering != ORDERED_BY_FLUSH or not state.is_attached:
        return False
    if len(device.nodes) != 2 or not backing_device.refuses_write_zeroes(device.name):
        return False
    if state.minor is None or drbd_kernel.generation() >= 9:
        return False
    if not resource_file.set_disk_flushes(device.name, on=False):
        return False
    drbdsetup.set_disk_flushes(runner, state.minor, on=False)
    return True


def enable(runner: Runner, device: Device, state: ResourceState | None) -> ResourceState | None:
    """Turn DRBD's flushes on, before writes of the data file cease to be stable; return its state.

    The kernel's state counts, not the file's: a file may have been written and not applied. The
    caller has to check whether DRBD flushes then: a disk whose flush has failed is not flushed
    again (`is_ordered_by_flush` in sanctl/plan/cache/allowed_mode.py).

    Raises:
        SanctlError: DRBD did not answer, or did not take it.
    """
    if state is None:
        state = drbdsetup.observe(runner, device.name)
    if not is_ordered_by_flush(state) and state is not None and state.minor is not None:
        drbdsetup.set_disk_flushes(runner, state.minor, on=True)
        state = drbdsetup.observe(runner, device.name)
    if is_ordered_by_flush(state):
        resource_file.set_disk_flushes(device.name, on=True)
    return state
