# SPDX-License-Identifier: GPL-2.0-or-later
"""Attaches a replica's disk again that DRBD detached at an I/O error, once the disk answers.

DRBD detaches from a disk at its first error, and stays Diskless. A cable, a controller that has
been reset, a full pool that has been emptied: the disk is good afterwards, and nothing else
attaches it before the node's next start. The peer's bitmap has what was written meanwhile. Where
every replica has lost its disk, each is marked before it is attached
(sanctl/plan/failover/dropped_disk.py).

A disk that goes on failing is tried at growing intervals: each attempt costs a resync.
"""

from __future__ import annotations

import os
import time

from sanctl.agents.cache import lost_flash
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.fencing import own_marks
from sanctl.agents.replica import drop_note, lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, drbdsetup, outdated_marks, pool_notes
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.failover import dropped_disk
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

_FIRST_WAIT_S = 20.0
_LONGEST_WAIT_S = 3600.0
_log = DeviceLog("reattach")


def retry_wait_s(tries: int) -> float:
    """Return how long to wait after so many failed attempts."""
    return float(min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(tries, 16)))


def reattach(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Attach the disk of a Diskless replica if the rules allow that and the wait is over.

    Beside a peer that has a disk and no good data it is left alone: its data may be all there is.

    Returns:
        DRBD's state afterwards.

    Raises:
        SanctlError: the cluster did not answer where no replica has a disk; nothing was attached.
    """
    peers = len(device.nodes) - 1
    has_good_peer = dropped_disk.has_good_peer(state)
    if not has_good_peer and dropped_disk.has_good_primary(state, peers=peers):
        marks = outdated_marks.read_device(runner, device.name).devices[device.name]
        has_good_peer = os.uname().nodename in marks.nodes()
    if not has_good_peer and not dropped_disk.are_all_lost(state, peers=peers):
        return state
    data = lost_writes.data_file(device.name)
    if data is None or pool_notes.exists(device.pool, pool_notes.SHUT_DOWN):
        return state  # The replica releases its files (fs_shutdown.py) and is restarted.
    if lost_writes.is_suspect(device.name, data):
        return state  # A resync by bitmap would miss its lost writes (docs/adr/0027).
    tries, tried_s = _attempts(device)
    # An attempt in the future was made before the clock was set: its age is not known.
    if 0 <= time.time() - tried_s < retry_wait_s(tries):
        return state
    if not has_good_peer and not own_marks.mark_of_all_lost(runner, device.name, peers=peers):
        return state
    _attempts_file(device).write(str(tries + 1))
    try:
        lost_flash.note(device)
        drbdadm.adjust(runner, device.name)
        _note_drop(device.name)
        found = drbdsetup.observe(runner, device.name) or state
    except (SanctlError, OSError) as error:
        _log(device.name, f"the disk cannot be attached: {error}", priority=journal.WARNING)
        return state
    _log(device.name, f"the disk answers and is attached again: {found.disk}")
    return found


def _note_drop(name: str) -> None:
    try:
        drop_note.add(name)
    except OSError as error:
        # The disk is attached all the same, and that is in the journal.
        _log(name, f"that it was dropped cannot be noted: {error}", priority=journal.WARNING)


def _attempts(device: Device) -> tuple[int, float]:
    """Return the number of attempts and the time of the last one, in seconds since the epoch.

    The count begins again once the longest wait has passed twice without an attempt.
    """
    text, written_ns = _attempts_file(device).read("0").strip(), _attempts_file(device).written_ns()
    tried_s = (written_ns or 0) / 1e9
    if time.time() - tried_s > 2 * _LONGEST_WAIT_S:
        return 0, 0.0
    return (int(text) if text.isdecimal() else 0), tried_s


def _attempts_file(device: Device) -> state_files.StateFile:
    """The number of attempts to attach; its age is the last attempt's."""
    return state_files.of_device(device.name, "reattach-tried")
