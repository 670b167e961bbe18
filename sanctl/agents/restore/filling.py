# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes a device what a restore point, a backup or a copy at a site is, and ends the order.

What is read and what is written, in which order, and what is published meanwhile. Whether anything
may be written yet is order_begin.py's.
"""

from __future__ import annotations

import os
import time

from sanctl.agents import cluster_toml, ocf
from sanctl.agents.restore import noted_hold, order_report
from sanctl.agents.restore.from_backup import BackupSource
from sanctl.agents.restore.from_site import SiteCopySource
from sanctl.agents.restore.order_begin import Begin, check_order, require_closed
from sanctl.drivers import gate, point_files, pool_files
from sanctl.drivers.range_copy import FileSource, RangeCopy, Source
from sanctl.drivers.site_delta import NotTheBase, SiteDelta
from sanctl.errors import CommandError, Problem
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import COPYING, RestoreOrder, RestoreReport
from sanctl.model.names import format_bytes
from sanctl.model.restore_point import RestorePoint
from sanctl.model.site_copy import SiteCopy
from sanctl.ops.session import Session
from sanctl.plan.device import restore_changes, restoring
from sanctl.plan.device.noted_hold import may_be_base
from sanctl.plan.site.restored import plan_restored

#: How often it is published how far the copy is, and looked whether the order still stands.
_LOOK_S = 10.0
_Filling = RangeCopy | SiteDelta


def copy_point(session: Session, device: DeviceSpec, begin: Begin, point: RestorePoint) -> None:
    """Make the device the same as a restore point, and end the order."""
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
            check_order(name, order)
        _write(name, order, copy)
    _end(session, name, order, copy, began_s)


def copy_backup(
    session: Session, device: DeviceSpec, order: RestoreOrder, backup: BackupSource
) -> None:
    """Make the device the same as a backup, and end the order."""
    began_s, name = time.monotonic(), device.name.value
    # Before hours of copying, after which another backup may have the repository's lock.
    wanted = backup.digest()
    with backup.image(device.size.bytes) as image:
        copy = _fill(name, order, image)
    digest = backup.check(gate.target_device(name), device.size.bytes, wanted)
    order_report.log(name, f"holds backup {backup.name}, SHA-256 {digest}")
    _end(session, name, order, copy, began_s)


def copy_from_site(session: Session, name: str, begin: Begin, source: SiteCopySource) -> None:
    """Make the device the same as a copy at a site, all of which is read; end the order."""
    began_s, device = time.monotonic(), gate.target_device(name)
    order_report.publish(name, RestoreReport(begin.order.token, text="the site reads its copy"))
    with source.image(device) as image:
        # The site may have read for an hour. Only now, when it is known to have the copy, the order
        # is one that cannot be given up.
        order = begin()
        check_order(name, order)
        copy = _fill(name, order, image)
    digest = source.check(device)
    order_report.log(
        name, f"holds {order.source}, digest {digest}; {source.received_bytes} bytes came"
    )
    _end(session, name, order, copy, began_s)


def may_be_held_base(name: str, order: RestoreOrder) -> bool:
    """Whether nothing noted beside the data here says that the device is not what it was held as.

    Raises:
        OSError: it is not known.
    """
    may_be = may_be_base(order, noted_hold.read(name))
    if not may_be:
        order_report.log(
            name,
            "what is noted beside the data is not what the CIB says that the device was held as: "
            "the CIB was older; all is read",
        )
    return may_be


def bring_changes(
    session: Session, name: str, begin: Begin, source: SiteCopySource, base: SiteCopy
) -> bool:
    """Make a device that is held as a copy the later one; return whether that could be done."""
    began_s, device = time.monotonic(), gate.target_device(name)
    order_report.publish(
        name, RestoreReport(begin.order.token, text="the site reads what has changed")
    )
    with source.changes(device, base) as delta:
        if delta is None:
            order_report.log(name, f"the site does not say what has changed since copy {base.name}")
            return False
        order = begin()
        ocf.crash_point("restore-begun")
        check_order(name, order)
        try:
            _write(name, order, delta)
        except NotTheBase as error:
            order_report.log(name, f"the device was not copy {base.name}: {error}; all is read")
            return False
        delta.check()
    copy = order.copy
    order_report.log(
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
            check_order(name, order)
            _report_progress(name, order, copy)
            looked_s = time.monotonic()
        has_more = copy.step()
        ocf.crash_point("restore-chunk")
    copy.flush()


def _end(session: Session, name: str, order: RestoreOrder, copy: _Filling, began_s: float) -> None:
    ocf.crash_point("restore-copied")
    require_closed(name)
    # Without a question for replicas' states: no answer would have all of it done again.
    session.change(
        lambda seen: (
            *restore_changes.plan_done(seen, name, order, os.uname().nodename),
            *plan_restored(seen, name, order, time.time()),
        ),
        reads_replicas=False,
        can_wait=False,
    )
    order_report.end(name)
    order_report.log(
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


def _report_progress(name: str, order: RestoreOrder, copy: _Filling) -> None:
    order_report.publish(
        name,
        RestoreReport(order.token, "", "", copy.done_bytes, copy.size_bytes, copy.written_bytes),
    )
