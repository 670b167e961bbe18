# SPDX-License-Identifier: GPL-2.0-or-later
"""Program of sanctl-point-hook@NAME.service: keeps an application quiet while a point is made.

`begin` runs the hook before, tells systemd READY, and stays for as long as the application may be
quiet; it never ends that itself. `end` runs the hook after. systemd starts it when `begin` has
ended, whatever it ended by: the stop that the restore point's process asks for, the limit, a
failure, a kill. So the hook after runs once the hook before was begun, unless systemd or the node
dies; and systemd starts `end` twice, of which the second does nothing if the first has succeeded.

What the hook's first run has left running is killed before its second run.
"""

from __future__ import annotations

import os
import sys
import time

from sanctl.agents import ocf
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.points import hook_unit
from sanctl.agents.points.systemd_notice import notify
from sanctl.drivers import hook_files
from sanctl.errors import CommandError, Problem
from sanctl.model.point_hook import HookRun
from sanctl.plan.device.point_hook import Held
from sanctl.system import journal, process_start, state_files
from sanctl.system.runner import run_in_own_group

#: Of a run that failed, and of one that did not end in time.
_CODES = {"before": ("SAN-HOOK-003", "SAN-HOOK-004"), "after": ("SAN-HOOK-005", "SAN-HOOK-005")}
_log = DeviceLog("hook")


def main() -> int:
    """Do what the first argument says, for the device of the second; return the exit status."""
    state_files.make_folder()
    return {"begin": begin, "end": end}[sys.argv[1]](sys.argv[2])


def begin(name: str) -> int:
    """Run the hook before, and keep the application quiet until the limit."""
    began_s = time.monotonic()
    run = HookRun.parse(hook_unit.run_note(name).read())
    if run is None or hook_unit.holders_of(run.group or (name,)):
        # The hook after of a restore point before has not succeeded: `end` runs it, and no more.
        return 1
    outcome = hook_unit.outcome_note(name, "before")
    try:
        path = hook_files.path_of(run.hook.name)
        deadline_s = began_s + run.hook.limit_s
        pid = os.getpid()
        # From here on the hook after runs.
        hook_unit.held_note(name).write(
            str(Held(run.token, pid, process_start.ticks(pid), deadline_s))
        )
        ocf.crash_point("hook-noted")
        _run(path, name, run, "before")
    except CommandError as error:
        outcome.write(f"{run.token} {error.problems[0].code} {error.problems[0].text}")
        _log(name, f"{error.problems[0].code}: {error.problems[0].text}", priority=journal.WARNING)
        return 1
    ocf.crash_point("hook-begun")
    notify("READY=1")
    time.sleep(max(0.0, deadline_s - time.monotonic()))
    _log(
        name,
        f"hook {run.hook.name}: the application was quiet for {run.hook.limit_s} s, its limit",
        priority=journal.WARNING,
    )
    return 0


def end(name: str) -> int:
    """Run the hook after, if the hook before was begun and it has not succeeded yet."""
    held = Held.parse(hook_unit.held_note(name).read())
    run = HookRun.parse(hook_unit.run_note(name).read())
    if held is None or run is None or held.token != run.token:
        return 0
    outcome = hook_unit.outcome_note(name, "after")
    try:
        path = hook_files.path_of(run.hook.name)
        _run(path, name, run, "after")
    except CommandError as error:
        problem = error.problems[0]
        outcome.write(f"{run.token} SAN-HOOK-005 {problem.text}")
        _log(
            name,
            f"SAN-HOOK-005: {problem.text}; the application may still be quiet",
            priority=journal.ERROR,
        )
        return 1
    hook_unit.held_note(name).remove()
    outcome.remove()
    return 0


def _run(path: str, name: str, run: HookRun, phase: str) -> None:
    failed, late = _CODES[phase]
    node, hook = os.uname().nodename, run.hook
    began_s = time.monotonic()
    environment = run.environment(device=name, node=node, phase=phase)
    status = run_in_own_group([path, phase], timeout_s=float(hook.limit_s), env=environment)
    when = f"{phase} restore point {run.point}"
    if status is None:
        raise CommandError(
            Problem(late, f"{node}: hook {hook.name} did not end in {hook.limit_s} s, {when}")
        )
    if status:
        how = f"exit status {status}" if status > 0 else f"signal {-status}"
        raise CommandError(Problem(failed, f"{node}: hook {hook.name} ended with {how}, {when}"))
    _log(name, f"hook {hook.name} ran {when}", duration_s=time.monotonic() - began_s)
