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

import contextlib
import os
import sys
import time
from collections.abc import Iterator

from sanctl.agents import cluster_toml, ocf
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.restore import closure, noted_hold, own_cib, unit
from sanctl.agents.restore.from_backup import BackupSource
from sanctl.agents.restore.from_site import SiteCopySource
from sanctl.drivers import gate, node_attributes, point_files, pool_files
from sanctl.drivers.pacemaker import Pacemaker
from sanctl.drivers.range_copy import FileSource, RangeCopy, Source
from sanctl.drivers.site_delta import NotTheBase, SiteDelta
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import COPYING, REPORT_PREFIX, RestoreOrder, RestoreReport
from sanctl.model.names import format_bytes
from sanctl.model.restore_point import RestorePoint
from sanctl.model.site_copy import SiteCopy
from sanctl.ops.noted_state import await_noted
from sanctl.ops.session import Session
from sanctl.plan.device import restore_changes, restoring
from sanctl.plan.device.noted_hold import may_be_base
from sanctl.plan.site.restored import plan_restored
from sanctl.system import state_files
from sanctl.system.clock import SystemClock
from sanctl.system.runner import LocalRunner

_LOCK_S = 2.0
_POLL_S = 1.0
#: How often it is published how far the copy is, and looked whether the order still stands.
_LOOK_S = 10.0
#: The next attempt to read from another server comes so much later: the reason may be that one's.
_AGAIN_S = 30.0
#: How long Pacemaker may take to write the CIB to this node's disk; else nothing is written.
_ON_DISK_S = 5.0
_Filling = RangeCopy | SiteDelta
_RUNNER = LocalRunner()
_log = DeviceLog("restore")


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
                _log(name, f"{error}; the next monitor starts it again")
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
        begin = _Begin(session, name, order)
        match step:
            case restoring.Wait(why=why):
                if why != said:
                    _report(name, RestoreReport(order.token, text=why))
                    said = why
                time.sleep(_POLL_S)
            case restoring.GiveUp(problem=problem):
                _fail(name, order, problem)
                _give_up(session, name, order)
                return
            case restoring.Stuck(problem=problem, noted=noted):
                _fail(name, order, problem)
                if noted is not None:
                    # Also once the node that has noted it is gone again.
                    closure.note_of_others(name, str(noted))
                return
            case restoring.Begin(goal=restoring.CopyFromSite(site=site, copy=copy, base=base)):
                with begin.gives_up():
                    brought = base if _may_be_base(name, order) else None
                    closure.note(name, str(order))
                    there = SiteCopySource(site, copy)
                    if brought is None or not _bring_changes(session, name, begin, there, brought):
                        _copy_from_site(session, name, begin, there)
                return
            case restoring.Begin(goal=restoring.Copy(point=point)):
                with begin.gives_up():
                    closure.note(name, str(order))
                    _copy(session, device, begin, point)
                return
            case restoring.Copy(point=point):
                try:
                    closure.note(name, str(order))
                    _copy(session, device, begin, point)
                except (SanctlError, OSError) as error:
                    _fail(name, order, _problem_of(error, order))
                return
            case restoring.CopyBackup(repository=repository, backup=backup):
                try:
                    closure.note(name, str(order))
                    source = BackupSource(_RUNNER, repository, backup)
                    _copy_backup(session, device, order, source)
                except (SanctlError, OSError) as error:
                    _fail(name, order, _problem_of(error, order))
                    time.sleep(_AGAIN_S)
                return
            case restoring.CopyFromSite(site=site, copy=copy):
                try:
                    closure.note(name, str(order))
                    _copy_from_site(session, name, begin, SiteCopySource(site, copy))
                except (SanctlError, OSError) as error:
                    _fail(name, order, _problem_of(error, order))
                    time.sleep(_AGAIN_S)
                return


def _noted_here(name: str) -> str:
    """Return what is noted beside the data here; empty also where that is not known.

    It is looked at once more, and has to be readable, before anything is written.
    """
    try:
        return noted_hold.read(name)
    except OSError:
        return ""


class _Begin:
    """The step after which an order cannot be given up, as it may have come to that."""

    def __init__(self, session: Session, name: str, order: RestoreOrder) -> None:
        self._session, self._name, self.order = session, name, order
        self._was_tried = False
        # One that has begun does not say any more what the device was held as. One that is to hold
        # is noted beside the data as well: an older CIB may not have it as one that has begun.
        self._may_be_claimed = order.is_of_holds or order.state == COPYING

    def __call__(self) -> RestoreOrder:
        """Note that the device may hold parts of two states from here on; once.

        Where the CIB has said that the device is a copy, this node's disk has that it is none any
        more when this returns.

        Returns:
            The order as noted.

        Raises:
            CommandError: the CIB did not change, or is not on this node's disk: nothing is to be
                written.
        """
        order = self.order
        if order.state != COPYING:
            self._was_tried = True
            ocf.crash_point("restore-ready")
            # What nodes have noted is asked for once more: one may be back since, with a newer one.
            # One that is silent for a moment is waited for: else all is read again, for hours.
            await_noted(self._session, self._name)
            self._session.change(
                lambda seen: restore_changes.plan_begun(seen, self._name, order), can_wait=False
            )
            self.order = order.in_state(COPYING)
        if self._may_be_claimed:
            # The node's own CIB has the order then, so its version is not one of before.
            _check_stands(self._name, self.order)
            if not own_cib.is_on_disk(_RUNNER, wait_s=_ON_DISK_S):
                raise CommandError(_not_on_disk_problem(self._name))
            # Where another node goes on with an older CIB, and this one follows that.
            noted_hold.keep(self._name, str(self.order))
            self._may_be_claimed = False
        return self.order

    @contextlib.contextmanager
    def gives_up(self) -> Iterator[None]:
        """Have an error give the order up, if it comes before this step was tried.

        Raises:
            SanctlError: this step failed, as where others change the CIB all the time, or it is not
                known whether it did; or the order was not given up. The next monitor goes on.
        """
        try:
            yield
        except (SanctlError, OSError) as error:
            if self._was_tried and self.order.state != COPYING:
                raise
            _fail(self._name, self.order, _problem_of(error, self.order))
            if not self._was_tried and not _give_up(self._session, self._name, self.order):
                time.sleep(_AGAIN_S)


def _give_up(session: Session, name: str, order: RestoreOrder) -> bool:
    """Let hosts in again, as nothing was written; unless what nodes have noted says otherwise.

    Returns:
        False: the order stays, and hosts stay out; the next monitor tries again.

    Raises:
        CommandError: the order was replaced, or the copy has begun: it is not given up any more.
            Or it is not known what nodes have noted.
    """
    change = session.change(
        lambda seen: restore_changes.plan_given_up(seen, name, order), can_wait=False
    )
    return bool(change)


def _copy(session: Session, device: DeviceSpec, begin: _Begin, point: RestorePoint) -> None:
    began_s, name = time.monotonic(), device.name.value

    def open_file(path: str, flags: int) -> int:
        try:
            return point_files.open_whole(path, point.size_bytes, flags)
        except FileNotFoundError as error:
            here = os.uname().nodename
            others = tuple(node for node in point.nodes if node != here)
            lacking = restoring.lacking_problem(device, point._replace(nodes=others), here)
            raise CommandError(lacking) from error

    with RangeCopy(FileSource(_file_of(point), open_file), gate.target_device(name)) as copy:
        # Only now, when it is known to be there, the order is one that cannot be given up.
        is_first, order = begin.order.state != COPYING, begin()
        if is_first:
            _check_order(name, order)
        _write(name, order, copy)
    _end(session, name, order, copy, began_s)


def _copy_backup(
    session: Session, device: DeviceSpec, order: RestoreOrder, backup: BackupSource
) -> None:
    began_s, name = time.monotonic(), device.name.value
    # Before hours of copying, after which another backup may have the repository's lock.
    wanted = backup.digest()
    with backup.image(device.size.bytes) as image:
        copy = _fill(name, order, image)
    digest = backup.check(gate.target_device(name), device.size.bytes, wanted)
    _log(name, f"holds backup {backup.name}, SHA-256 {digest}")
    _end(session, name, order, copy, began_s)


def _copy_from_site(session: Session, name: str, begin: _Begin, source: SiteCopySource) -> None:
    began_s, device = time.monotonic(), gate.target_device(name)
    _report(name, RestoreReport(begin.order.token, text="the site reads its copy"))
    with source.image(device) as image:
        # The site may have read for an hour. Only now, when it is known to have the copy, the order
        # is one that cannot be given up.
        order = begin()
        _check_order(name, order)
        copy = _fill(name, order, image)
    digest = source.check(device)
    _log(name, f"holds {order.source}, digest {digest}; {source.received_bytes} bytes came")
    _end(session, name, order, copy, began_s)


def _may_be_base(name: str, order: RestoreOrder) -> bool:
    """Whether nothing noted beside the data here says that the device is not what it was held as.

    Raises:
        OSError: it is not known.
    """
    may_be = may_be_base(order, noted_hold.read(name))
    if not may_be:
        _log(
            name,
            "what is noted beside the data is not what the CIB says that the device was held as: "
            "the CIB was older; all is read",
        )
    return may_be


def _bring_changes(
    session: Session, name: str, begin: _Begin, source: SiteCopySource, base: SiteCopy
) -> bool:
    """Make a device that is held as a copy the later one; return whether that could be done."""
    began_s, device = time.monotonic(), gate.target_device(name)
    _report(name, RestoreReport(begin.order.token, text="the site reads what has changed"))
    with source.changes(device, base) as delta:
        if delta is None:
            _log(name, f"the site does not say what has changed since copy {base.name}")
            return False
        order = begin()
        ocf.crash_point("restore-begun")
        _check_order(name, order)
        try:
            _write(name, order, delta)
        except NotTheBase as error:
            _log(name, f"the device was not copy {base.name}: {error}; all is read")
            return False
        delta.check()
    copy = order.copy
    _log(
        name,
        f"holds {order.source}, digest {copy.digest if copy else '?'}; {source.received_bytes} "
        f"bytes came; {delta.size_bytes} bytes were read, which may have changed since {base.name}",
    )
    _end(session, name, order, delta, began_s)
    return True


def _fill(name: str, order: RestoreOrder, source: Source) -> RangeCopy:
    """Make the device the same as the source, on the disks; return what that was."""
    with RangeCopy(source, gate.target_device(name)) as copy:
        _write(name, order, copy)
    return copy


def _write(name: str, order: RestoreOrder, copy: _Filling) -> None:
    looked_s = time.monotonic()
    _report_progress(name, order, copy)
    has_more = True
    while has_more:
        if time.monotonic() - looked_s > _LOOK_S:
            _check_order(name, order)
            _report_progress(name, order, copy)
            looked_s = time.monotonic()
        has_more = copy.step()
        ocf.crash_point("restore-chunk")
    copy.flush()


def _end(session: Session, name: str, order: RestoreOrder, copy: _Filling, began_s: float) -> None:
    ocf.crash_point("restore-copied")
    if not closure.is_closed(name):
        raise CommandError(_let_in_problem(name))
    # Without a question for replicas' states: no answer would have all of it done again.
    session.change(
        lambda seen: (
            *restore_changes.plan_done(seen, name, order, os.uname().nodename),
            *plan_restored(seen, name, order, time.time()),
        ),
        reads_replicas=False,
        can_wait=False,
    )
    with contextlib.suppress(SanctlError):
        node_attributes.delete(_RUNNER, f"{REPORT_PREFIX}{name}")
    _log(
        name,
        f"restored from {order.source}: {format_bytes(copy.written_bytes)} of "
        f"{format_bytes(copy.size_bytes)} differed, {time.monotonic() - began_s:.0f} s",
    )


def _file_of(point: RestorePoint) -> str:
    pool = cluster_toml.load_topology().pool(point.pool)
    if pool is None:
        raise CommandError(Problem("SAN-AGENT-004", f"cluster.toml has no pool {point.pool} here"))
    pool_files.check_marker(str(pool.path), pool.uuid)
    return point_files.final_path(str(pool.path), point.device, point.uuid, point.token)


def _check_order(name: str, order: RestoreOrder) -> None:
    """Check that the order still stands, and that no host is let in.

    Raises:
        CommandError: it does not, or that is not known.
    """
    _check_stands(name, order)
    if not closure.is_closed(name):
        raise CommandError(_let_in_problem(name))


def _check_stands(name: str, order: RestoreOrder) -> None:
    if closure.read_order(_RUNNER, name) != str(order):
        raise CommandError(Problem("SAN-REST-006", f"the order to restore {name} was replaced"))


def _let_in_problem(name: str) -> Problem:
    return Problem("SAN-REST-008", f"{name}: the access list is not empty")


def _not_on_disk_problem(name: str) -> Problem:
    here = os.uname().nodename
    return Problem(
        "SAN-REST-008",
        f"the CIB that says {name} is being overwritten is not on the disk of {here} after "
        f"{_ON_DISK_S:.0f} s, so nothing is written",
        "'sanctl doctor' shows what is wrong with that disk; the next monitor tries again",
    )


def _problem_of(error: SanctlError | OSError, order: RestoreOrder) -> Problem:
    if isinstance(error, SanctlError):
        return error.problems[0]
    return Problem("SAN-REST-008", f"{os.uname().nodename} cannot copy {order.source}: {error}")


def _report_progress(name: str, order: RestoreOrder, copy: _Filling) -> None:
    _report(
        name,
        RestoreReport(order.token, "", "", copy.done_bytes, copy.size_bytes, copy.written_bytes),
    )


def _fail(name: str, order: RestoreOrder, problem: Problem) -> None:
    _log(name, f"restore from {order.source}: {problem.code}: {problem.text}")
    _report(name, RestoreReport(order.token, problem.code, problem.text))


def _report(name: str, report: RestoreReport) -> None:
    """Publish how far it is. Only for people: an error of it is nothing."""
    with contextlib.suppress(SanctlError):
        node_attributes.publish(_RUNNER, f"{REPORT_PREFIX}{name}", str(report))
