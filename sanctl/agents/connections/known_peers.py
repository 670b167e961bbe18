# SPDX-License-Identifier: GPL-2.0-or-later
"""Has DRBD 9 know the peers of a replica that was attached, or is diskless, without them.

A step that DRBD refuses is taken again every few minutes only, and said once: the monitors of many
such replicas would start three programs each, every ten seconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from sanctl.agents.device_log import DeviceLog
from sanctl.drivers import drbdadm, drbdsetup
from sanctl.model.drbd import ResourceState
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

#: The last attempt that has made no peer known, and what was refused.
_KIND = "peers-unknown"
_AGAIN_S = 180.0
#: An attempt that had no answer: a busy node has just booted, and an operator may wait.
_NO_ANSWER_AGAIN_S = 25.0
_NO_ANSWER = "no answer"
_log = DeviceLog("connections", priority=journal.WARNING)


def make_known(
    runner: Runner, device: str, state: ResourceState, nodes: Collection[str]
) -> ResourceState:
    """Have DRBD know the peers that the resource file names, StandAlone; return the state then.

    It is done once one of `nodes` is known.

    Raises:
        SanctlError: drbdadm or DRBD did not answer.
    """
    note = state_files.of_device(device, _KIND)
    age_s, told = note.age_s(), note.read()
    pause_s = _NO_ANSWER_AGAIN_S if told == _NO_ANSWER else _AGAIN_S
    if age_s is not None and 0 <= age_s < pause_s:
        return state
    # First: an attempt that hangs, or in which this process ends, is one as well. Without room for
    # the note there is one each time.
    with contextlib.suppress(OSError):
        note.write(_NO_ANSWER)
    refusal = drbdadm.make_peers_known(runner, device)
    now = drbdsetup.observe(runner, device) or state
    if now.with_only_peers(nodes).peers:
        note.remove()
        return now
    why = refusal or "no command was refused"
    if why != told:
        _log(
            device, f"DRBD knows none of its peers after new-peer and new-path: {why}", step="peers"
        )
    with contextlib.suppress(OSError):
        note.write(why)
    return now
