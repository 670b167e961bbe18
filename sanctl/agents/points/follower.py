# SPDX-License-Identifier: GPL-2.0-or-later
"""Takes this standby's copy while the active node holds I/O: one process for each restore point.

The process may die at any point: the active node then makes no restore point, and the pool agent
removes what is left.
"""

from __future__ import annotations

import contextlib
from typing import Any

from sanctl.agents import ocf
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.points import replica_states
from sanctl.agents.points.local_copy import LocalCopy
from sanctl.drivers.node_channel import Channel
from sanctl.errors import SanctlError
from sanctl.model.restore_point import PointFailure
from sanctl.plan.device.hold import HOLD_S

_STEP_S = 130.0
#: Half of what the active node waits for it.
_SETTLE_S = 5.0
#: The most that a hook may take before the copy, whatever the active node says.
MAX_HOOK_S = 300.0
_log = DeviceLog("snapshot")


def serve(channel: Channel, wanted: dict[str, Any]) -> None:
    """Take part in the restore point that the active node asks for with `prepare`.

    Errors are logged, and told to the active node.
    """
    name = str(wanted.get("device", ""))
    try:
        _follow(channel, name, int(wanted["minor"]), wanted)
    except (SanctlError, OSError, ValueError, LookupError) as error:
        failure = PointFailure.of(wanted.get("token", ""), error)
        _log(name, f"restore point: {error}")
        # Where that fails, the active node has gone, or has refused itself.
        with contextlib.suppress(SanctlError):
            channel.send("refused", code=failure.code, text=failure.text, hint=failure.hint)


def _follow(channel: Channel, name: str, minor: int, wanted: dict[str, Any]) -> None:
    with LocalCopy(wanted["pool"], name, wanted["uuid"], wanted["token"]) as copy:
        replica_states.check_standby(name, minor)
        channel.send("ready", extents=copy.prepare())
        ocf.crash_point("point-peer-ready")
        # A hook that hangs, and its end, come before the next word: nothing is held here meanwhile.
        hook_s = min(float(wanted.get("hook_s", 0.0)), MAX_HOOK_S)
        word = channel.expect(("settle", "copy"), within_s=_STEP_S + hook_s)
        if word["kind"] == "settle":
            # Others took longer, or a hook has had the host write what it remembered.
            copy.catch_up(within_s=_SETTLE_S)
            channel.send("settled")
            word = channel.receive("copy", within_s=_STEP_S)
        # The active node holds I/O: what is UpToDate and connected now holds all that hosts wrote.
        replica_states.check_standby(name, minor)
        # No longer than the active node holds it, and no longer than that node waits: it says
        # nothing more before, and ends the connection where it gives up, or dies.
        left_s = min(float(word.get("left_s", HOLD_S)), HOLD_S)
        seconds = copy.take(within_s=left_s, unless_readable=channel.fileno())
        channel.send("copied", seconds=seconds)
        ocf.crash_point("point-peer-copied")
        channel.receive("flush", within_s=_STEP_S)
        copy.make_stable()
        copy.may_be_known = True
        channel.send("flushed")
        ocf.crash_point("point-peer-flushed")
        verdict = channel.expect(("keep", "drop"), within_s=_STEP_S)
        if verdict["kind"] == "drop":
            copy.may_be_known = False
            return
        copy.keep()
        channel.send("kept")
