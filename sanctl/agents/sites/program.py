# SPDX-License-Identifier: GPL-2.0-or-later
"""Program of sanctl-copy@DEVICE.SITE.service: makes the copy that a schedule has due.

It may end at any point: what is left follows from the CIB and the site (sanctl/ops/replicate.py).
Each standby of the device starts it, and all but the first one end at once. A node makes one copy
at a time: one that finds another under way ends, and the next monitor starts it again.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time

from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica import parts
from sanctl.agents.sites import due
from sanctl.drivers.node_facts import NodeFacts
from sanctl.drivers.pacemaker import Pacemaker
from sanctl.drivers.point_files import final_path
from sanctl.drivers.site_link import SiteLink
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.names import DeviceName, format_bytes
from sanctl.model.restore_point import PointOrder, RestorePoint
from sanctl.ops.replicate import SourceNode, point_name, replicate
from sanctl.ops.session import Session
from sanctl.plan.cluster.cib_size import DEFAULT_IPC_BUFFER_BYTES
from sanctl.plan.site.schedule import is_due, sender_of
from sanctl.system import journal, state_files
from sanctl.system.clock import SystemClock
from sanctl.system.runner import LocalRunner

_POINT_S = 60.0
#: Longer than `due.start_due` holds the lock to see whether a copy is under way.
_LOCK_WAIT_S = 0.5
_RUNNER = LocalRunner()
_log = DeviceLog("replicate")


class _Silent:
    def update(self, text: str) -> None:
        """Nobody watches."""


def main() -> int:
    """Make the copy, if it is due and this node's to make; return the exit status."""
    state_files.make_folder()
    device, _, site = sys.argv[1].partition(".")
    with state_files.locked(due.lock_path(), wait_s=_LOCK_WAIT_S) as is_mine:
        if not is_mine:
            return 0
        try:
            _copy(device, site)
        except (SanctlError, OSError) as error:
            text = f"no copy at site {site}: {error}"
            _log(device, text, priority=journal.WARNING)
    return 0


def _copy(name: str, site: str) -> None:
    session = Session(Pacemaker(_RUNNER), SystemClock(), _Silent())
    cluster, here = session.observe(), os.uname().nodename
    device, schedule = cluster.cib.device(name), cluster.cib.copy_schedule(name, site)
    if device is None or schedule is None or sender_of(cluster, device) != here:
        return
    if due.has_attempted(schedule) or not is_due(
        schedule, cluster.cib.copy(name, site), time.time()
    ):
        return
    due.note_attempt(schedule)
    now_s = int(time.time())
    seed = f"{here} {os.getpid()} {time.time_ns()} {time.monotonic_ns()} {name}"
    token = hashlib.sha256(os.urandom(32) + seed.encode()).hexdigest()[:16]
    made = replicate(
        session,
        DeviceName.parse(name),
        site,
        PointOrder(point_name(site, now_s), token, now_s),
        SourceNode(
            here, _file_of, NodeFacts(_RUNNER).ipc_buffer_bytes() or DEFAULT_IPC_BUFFER_BYTES
        ),
        connect=SiteLink.by_ssh,
        keep=schedule.rule.keep,
        from_active=False,
        timeout_s=_POINT_S,
    )
    copy = made.copy
    _log(
        name,
        f"copy {copy.name} is proven at site {site}: {format_bytes(copy.changed_bytes)} had "
        f"changed, {format_bytes(copy.sent_bytes)} were sent, {time.time() - now_s:.0f} s",
    )


def _file_of(point: RestorePoint) -> str:
    pool = parts.load_topology().pool(point.pool)
    if pool is None:
        raise CommandError(Problem("SAN-AGENT-004", f"cluster.toml has no pool {point.pool} here"))
    return final_path(str(pool.path), point.device, point.uuid, point.token)
