# SPDX-License-Identifier: GPL-2.0-or-later
"""Has Pacemaker write the CIB to this node's disk again, once there is room.

After one write that failed it tries none until it is told to, so a disk that was full for a moment
left marks in memory alone for good. What does not help is tried again ever later: a write that
fails once more leaves temporary files, and takes the place of an older CIB among those that are
kept.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sanctl.drivers import cib_daemon, corosync, node_attributes, own_disk
from sanctl.plan.health.own_disk_limits import is_low
from sanctl.system import journal, state_files

if TYPE_CHECKING:
    from sanctl.system.runner import Runner

#: Between the first two tries, and at most. Each is two changes of the CIB, after which Pacemaker
#: plans anew.
_FIRST_S, _LONGEST_S = 600.0, 86400.0
#: A monitor has 30 s for all that it does, and publishes after this.
_TIMEOUT_S = 3.0
#: An attribute of this node that is set and deleted: only a change is written.
ATTRIBUTE = "sanctl-written"


def resume(runner: Runner) -> bool:
    """Tell Pacemaker, where the disk has room and this node quorum; return whether it was told.

    Called where the file of the CIB stays behind. Without quorum nothing is changed in the CIB.

    Raises:
        SanctlError, OSError: it could not be done.
    """
    note = _tries()
    age_s, count = note.age_s(), note.read()
    tries = int(count) if count.isdecimal() else 0
    if age_s is not None and 0.0 <= age_s < min(_LONGEST_S, _FIRST_S * 2 ** min(tries - 1, 8)):
        return False
    if is_low(*own_disk.space_bytes()) or not corosync.membership(runner).is_quorate:
        return False
    # First: whatever fails or dies after this is for the next try.
    note.write(str(tries + 1))
    if not cib_daemon.enable_writes():
        _log("Pacemaker cannot be told to write the CIB to disk again", journal.WARNING)
        return False
    node = os.uname().nodename
    node_attributes.set_permanent(runner, node, ATTRIBUTE, "1", timeout_s=_TIMEOUT_S)
    node_attributes.delete_permanent(runner, node, ATTRIBUTE, timeout_s=_TIMEOUT_S)
    _log("Pacemaker was told to write the CIB to disk again", journal.NOTICE)
    return True


def succeeded() -> None:
    """Have the next failure's first try wait for none of before: the CIB is on the disk.

    Raises:
        OSError: /run refused.
    """
    _tries().remove()


def _tries() -> state_files.StateFile:
    return state_files.of_node("cib-writes-resumed")


def _log(text: str, priority: int) -> None:
    journal.write(text, priority=priority, action="own-disk")
