"""Attaches a replica again whose disk was dropped because the flash before its pool failed.

bcache fails the writes that are in flight while it lets go of flash that has failed, and only
those (`closure_bio_submit` in bcache.h). DRBD drops the disk for that, and has noted what it lacks.
"""

from __future__ import annotations

import os

from sanctl.agents import cache
from sanctl.agents.replica import RUNTIME, Device
from sanctl.drivers import drbd
from sanctl.model.drbd import ResourceState
from sanctl.model.poolcache import LOST_NOTE
from sanctl.system.runner import Runner

_DISKLESS = "Diskless"


def attach_again(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Attach a dropped disk once, if its pool goes on without its flash; return DRBD's state then.

    Once for each loss: a disk that fails again has another reason.

    Raises:
        CommandError: DRBD refused.
    """
    note = f"{RUNTIME}/attached-again-{device.name}"
    if state.disk != _DISKLESS:
        return state
    lost_s = _changed_s(f"{RUNTIME}/pool-{device.pool}.{LOST_NOTE}")
    if lost_s is None or (_changed_s(note) or 0.0) >= lost_s:
        return state
    with open(note, "w", encoding="utf-8"):
        pass
    cache.tell(device.name, "the pool's flash has failed; its disk is attached again", "reattach")
    drbd.attach(runner, device.name)
    return drbd.observe(runner, device.name) or state


def _changed_s(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return None
