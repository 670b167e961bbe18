# SPDX-License-Identifier: GPL-2.0-or-later
"""Spares a standby's disk the flushes that do nothing: where each write is stable by itself.

DRBD has a standby flush its disk whenever a host sends a write after it had the answer to another.
In write-through nothing is there to be flushed. DRBD is told so in an order in which whoever dies
half way leaves flushes behind that are not needed, and never the opposite:

* cease: the resource file says so, then the kernel is told;
* begin: the kernel is told, and asked, then the file says so; and only then may writes cease to be
  stable.

Nothing else of the file is touched: what changes the nodes in it has an order of its own. See
docs/adr/0040.
"""

from __future__ import annotations

from sanctl.agents.replica import resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import backing_device, drbdsetup
from sanctl.model.drbd import ResourceState
from sanctl.plan.cache.allowed_mode import ORDERED_BY_FLUSH, is_ordered_by_flush
from sanctl.system.runner import Runner


def disable(runner: Runner, device: Device, state: ResourceState | None) -> bool:
    """Have DRBD flush no more, if it may; every write of the data file is stable from now on.

    Only DRBD 8.4: what the ninth generation does without flushes was not looked into. And only
    where zeros come as writes, too. A disk that is not attached is left for later.

    Returns:
        Whether DRBD was told so now.

    Raises:
        SanctlError: it could not be told; it goes on flushing.
    """
    if state is None or state.write_ordering != ORDERED_BY_FLUSH or not state.is_attached:
        return False
    if len(device.nodes) != 2 or not backing_device.refuses_write_zeroes(device.name):
        return False
    if state.minor is None or drbdsetup.generation() >= 9:
        return False
    if not resource_file.set_flushes(device.name, on=False):
        return False
    drbdsetup.set_disk_flushes(runner, state.minor, on=False)
    return True


def enable(runner: Runner, device: Device, state: ResourceState | None) -> ResourceState | None:
    """Have DRBD flush, before writes of the data file may cease to be stable; return its state.

    The kernel is believed and not the file: a file may have been written and not applied. Whether
    it flushes then is for the caller to look at: a disk whose flush has failed is not flushed again
    (`plan.caching.flushes`).

    Raises:
        SanctlError: DRBD did not answer, or did not take it.
    """
    if state is None:
        state = drbdsetup.observe(runner, device.name)
    if not is_ordered_by_flush(state) and state is not None and state.minor is not None:
        drbdsetup.set_disk_flushes(runner, state.minor, on=True)
        state = drbdsetup.observe(runner, device.name)
    if is_ordered_by_flush(state):
        resource_file.set_flushes(device.name, on=True)
    return state
