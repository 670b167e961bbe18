# SPDX-License-Identifier: GPL-2.0-or-later
"""Program of sanctl-restore@NAME.service: makes a device what a restore point, backup or copy is.

It runs on the node that serves the device, and may end at any point: the next monitor starts it
again, here or on the node that serves the device then, and it begins anew. What holds if it, its
node or another dies after each step:

1. The order is in the CIB, and with it the order for the point that keeps what is on the device.
   From then on each node that reads it lets no host in (closure.py). Nothing is written yet: where
   something is missing for too long, the order is given up, and hosts are let in again.
2. Hosts are kept out here, and on each other node with a replica that is there. What was on the
   device is kept, and the source is open: where that fails, the order is given up. One change of
   the CIB says that the copy begins. The order cannot be given up any more.
3. Both are read, and what differs is written, through the gate as hosts' writes are: DRBD
   replicates it, and a demotion closes the gate before the other node may serve. A new Primary has
   the order, keeps hosts out, and begins anew with its own file.
4. The device is flushed.
5. One change of the CIB, which only holds for the order that is still there, ends it. From then on
   nodes let hosts in again. The same change notes how long a restore from a second site took.

An order may have the device held once it is a copy at a site: step 5 says so, and no host is let
in. Nothing but this program can have written to it while that stands, so of a later copy only what
has changed is read and written. Before the first write, of whatever, one change of the CIB, which
is on this node's disk then, says that the device may be neither copy: whatever dies from there on,
all is read.

A device that is created from a backup or a copy at a second site has its order from the begin, and
holds nothing: it starts with step 3. Before step 5 the device is read once more, and its digest is
that of the backup or the copy; of one that was held what was written has the digests of its chunks.
"""

from __future__ import annotations

import os
import sys
import time

from sanctl.agents.restore import closure, filling, noted_hold, order_report, unit
from sanctl.agents.restore.from_backup import BackupSource
from sanctl.agents.restore.from_site import SiteCopySource
from sanctl.agents.restore.order_begin import AGAIN_S, Begin, give_up
from sanctl.drivers import gate
from sanctl.drivers.pacemaker import Pacemaker
from sanctl.errors import SanctlError
from sanctl.model.device_restore import RestoreReport
from sanctl.ops.session import Session
from sanctl.plan.device import restoring
from sanctl.system import state_files
from sanctl.system.clock import SystemClock
from sanctl.system.runner import LocalRunner

_LOCK_S = 2.0
_POLL_S = 1.0
_RUNNER = LocalRunner()


class _Silent:
    def update(self, text: str) -> None:
        """Nobody watches."""


def main() -> int:
    """Carry out the device's order, if there is one; return the exit status."""
    state_files.make_folder()
    name = sys.argv[1]
    # An action that ends this process waits for the lock.
    with state_files.locked(unit.lock_path(name), wait_s=_LOCK_S) as is_mine:
        if is_mine:
            try:
                _carry_out(name)
            except (SanctlError, OSError) as error:
                order_report.log(name, f"{error}; the next monitor starts it again")
    return 0


def _carry_out(name: str) -> None:
    session = Session(Pacemaker(_RUNNER), SystemClock(), _Silent())
    said = ""
    while True:
        cluster = session.observe()
        device = cluster.cib.device(name)
        known = device.restore if device else None
        step = restoring.next_step(
            cluster,
            name,
            os.uname().nodename,
            is_closed_here=closure.is_closed(name),
            now_s=time.time(),
            waited_s=unit.waited_s(name, known.token) if known is not None else 0.0,
            noted_here=_noted_here(name),
        )
        order = device.restore if device else None
        if device is None or order is None or isinstance(step, restoring.NothingToDo):
            return
        if not gate.gate_table(name).startswith("drbd"):
            return  # This node does not serve it, or not any more.
        begin = Begin(session, name, order)
        match step:
            case restoring.Wait(why=why):
                if why != said:
                    order_report.publish(name, RestoreReport(order.token, text=why))
                    said = why
                time.sleep(_POLL_S)
            case restoring.GiveUp(problem=problem):
                order_report.fail(name, order, problem)
                give_up(session, name, order)
                return
            case restoring.Stuck(problem=problem, noted=noted):
                order_report.fail(name, order, problem)
                if noted is not None:
                    # Also once the node that has noted it is gone again.
                    closure.note_of_others(name, str(noted))
                return
            case restoring.Begin(goal=restoring.CopyFromSite(site=site, copy=copy, base=base)):
                with begin.gives_up():
                    brought = base if filling.may_be_held_base(name, order) else None
                    closure.note(name, str(order))
                    there = SiteCopySource(site, copy)
                    if brought is None or not filling.bring_changes(
                        session, name, begin, there, brought
                    ):
                        filling.copy_from_site(session, name, begin, there)
                return
            case restoring.Begin(goal=restoring.Copy(point=point)):
                with begin.gives_up():
                    closure.note(name, str(order))
                    filling.copy_point(session, device, begin, point)
                return
            case restoring.Copy(point=point):
                try:
                    closure.note(name, str(order))
                    filling.copy_point(session, device, begin, point)
                except (SanctlError, OSError) as error:
                    order_report.fail(name, order, order_report.problem_of(error, order))
                return
            case restoring.CopyBackup(repository=repository, backup=backup):
                try:
                    closure.note(name, str(order))
                    source = BackupSource(_RUNNER, repository, backup)
                    filling.copy_backup(session, device, order, source)
                except (SanctlError, OSError) as error:
                    order_report.fail(name, order, order_report.problem_of(error, order))
                    time.sleep(AGAIN_S)
                return
            case restoring.CopyFromSite(site=site, copy=copy):
                try:
                    closure.note(name, str(order))
                    filling.copy_from_site(session, name, begin, SiteCopySource(site, copy))
                except (SanctlError, OSError) as error:
                    order_report.fail(name, order, order_report.problem_of(error, order))
                    time.sleep(AGAIN_S)
                return


def _noted_here(name: str) -> str:
    """Return what is noted beside the data here; empty also where that is not known.

    It is looked at once more, and has to be readable, before anything is written.
    """
    try:
        return noted_hold.read(name)
    except OSError:
        return ""
