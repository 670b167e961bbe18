# SPDX-License-Identifier: GPL-2.0-or-later
"""Program of sanctl-copy@DEVICE.SITE.service: makes the copy that a schedule has due.

Of sanctl-copy@DEVICE.SITE.group.service, DEVICE the first of a group, the copies of all of it.

It may end at any point: what is left follows from the CIB and the site (sanctl/ops/replicate.py).
Each standby of the device starts it, and all but the first one end at once; that one, too, while a
copy of the device is under way, as by the node that was first before. A node makes one copy
at a time: one that finds another under way ends, and the next monitor starts it again.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Sequence

from sanctl.agents import cluster_toml
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.sites import due
from sanctl.drivers.node_facts import NodeFacts
from sanctl.drivers.pacemaker import Pacemaker
from sanctl.drivers.point_files import final_path
from sanctl.drivers.site_link import SiteLink
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName, format_bytes
from sanctl.model.restore_point import PointOrder, RestorePoint
from sanctl.ops.copy_run import CopyMade, SourceNode
from sanctl.ops.copy_watch import copies_under_way
from sanctl.ops.replicate import point_name, replicate
from sanctl.ops.replicate_group import replicate_group
from sanctl.ops.session import Session
from sanctl.plan.cluster.cib_size import DEFAULT_IPC_BUFFER_BYTES
from sanctl.plan.device.point_group import group_orders
from sanctl.plan.site.choosing import stuck_problem
from sanctl.plan.site.copy_progress import UNDER_WAY
from sanctl.plan.site.copying import base_problem
from sanctl.plan.site.group_record import is_group_due, sender_of_group
from sanctl.plan.site.schedule import is_due, sender_of
from sanctl.system import journal, state_files
from sanctl.system.clock import SystemClock
from sanctl.system.runner import LocalRunner

_POINT_S = 120.0
#: Longer than `due.start_due` holds the lock to see whether a copy is under way.
_LOCK_WAIT_S = 0.5
_NO_STANDBY = "no standby is in sync"
_NO_GROUP_STANDBY = "no node serves all devices of the group, or none is a standby in sync of each"
_RUNNER = LocalRunner()
_log = DeviceLog("replicate")


class _Silent:
    def update(self, text: str) -> None:
        """Nobody watches."""


def main() -> int:
    """Make the copy, if it is due and this node's to make; return the exit status."""
    state_files.make_folder()
    device, site, *kind = sys.argv[1].split(".")
    with state_files.locked(due.lock_path(), wait_s=_LOCK_WAIT_S) as is_mine:
        if not is_mine:
            return 0
        try:
            if kind == [due.GROUP]:
                _copy_group(device, site)
            else:
                _copy(device, site)
        except (SanctlError, OSError) as error:
            text = f"no copy at site {site}: {error}"
            _log(device, text, priority=journal.WARNING)
    return 0


def _copy(name: str, site: str) -> None:
    session = _session()
    cluster, here = session.observe(), os.uname().nodename
    device, schedule = cluster.cib.device(name), cluster.cib.copy_schedule(name, site)
    if device is None or schedule is None:
        return
    turn = due.Turn.of_device(schedule)
    if due.has_attempted(turn) or not is_due(schedule, cluster.cib.copy(name, site), time.time()):
        return
    sender = sender_of(cluster, device)
    why = "no node serves it" if cluster.active_node(device.name) is None else _NO_STANDBY
    _say_wait(turn, site, why if sender is None else "")
    if sender != here or _is_under_way(session, cluster, (name,), site):
        return
    due.note_attempt(turn)
    now_s = int(time.time())
    made = replicate(
        session,
        DeviceName.parse(name),
        site,
        PointOrder(point_name(site, now_s), _token(name), now_s),
        _node(here),
        connect=SiteLink.by_ssh,
        keep=schedule.rule.keep,
        from_active=False,
        timeout_s=_POINT_S,
        accepted={UNDER_WAY},  # It has just looked, and its attempt is noted.
    )
    _say_made(name, site, made, now_s)


def _copy_group(first: str, site: str) -> None:
    session = _session()
    cluster, here = session.observe(), os.uname().nodename
    found = (e for e in cluster.cib.copy_groups if (e.devices[0], e.site) == (first, site))
    group = next(found, None)
    rule = group.rule if group is not None else None
    if group is None or rule is None:
        return
    turn = due.Turn.of_group(group, rule)
    if due.has_attempted(turn) or not is_group_due(group, time.time()):
        return
    sender = sender_of_group(cluster, group)
    _say_wait(turn, site, _NO_GROUP_STANDBY if sender is None else "")
    if sender != here or _is_under_way(session, cluster, group.devices, site):
        return
    due.note_attempt(turn)
    now_s = int(time.time())
    devices = [DeviceName.parse(each) for each in group.devices]
    copies = replicate_group(
        session,
        group_orders(devices, point_name(site, now_s), _token(first), now_s),
        site,
        _node(here),
        connect=SiteLink.by_ssh,
        without=(),
        keep=rule.keep,
        from_active=False,
        timeout_s=_POINT_S,
        accepted={UNDER_WAY},  # It has just looked, and its attempt is noted.
    )
    for name, made in copies.items():
        _say_made(name, site, made, now_s)


def _say_wait(turn: due.Turn, site: str, why: str) -> None:
    """Log once why no node can make a copy that is due; empty: one can."""
    if due.note_wait(turn, why) and why:
        text = f"no copy at site {site}: {why}; the copy waits for that"
        _log(turn.devices[0], text, priority=journal.WARNING)


def _is_under_way(session: Session, cluster: Cluster, devices: Sequence[str], site: str) -> bool:
    """Whether a copy of one of the devices is being made: as by the node that was first before.

    What it has sent would be thrown away, which may be days. The next monitor looks again.
    """
    copies = copies_under_way(session, cluster)
    return any((device, site) in copies for device in devices)


def _session() -> Session:
    return Session(Pacemaker(_RUNNER), SystemClock(), _Silent())


def _node(here: str) -> SourceNode:
    return SourceNode(
        here, _file_of, NodeFacts(_RUNNER).ipc_buffer_bytes() or DEFAULT_IPC_BUFFER_BYTES
    )


def _token(name: str) -> str:
    seed = f"{os.uname().nodename} {os.getpid()} {time.time_ns()} {time.monotonic_ns()} {name}"
    return hashlib.sha256(os.urandom(32) + seed.encode()).hexdigest()[:16]


def _say_made(name: str, site: str, made: CopyMade, began_s: int) -> None:
    copy = made.copy
    how = "" if made.is_by_extents else "; the content was compared"
    how += f"; read as a whole: {made.why_whole}" if made.why_whole else ""
    _log(
        name,
        f"copy {copy.name} is proven at site {site}: {format_bytes(copy.changed_bytes)} had "
        f"changed, {format_bytes(copy.sent_bytes)} were sent, {time.time() - began_s:.0f} s{how}",
    )

    if made.unread:
        names = ", ".join(made.unread)
        text = f"SAN-SITE-035: what site {site} has noted of copies cannot be read: {names}; none "
        _log(name, f"{text}of the device is removed there", priority=journal.WARNING)
    if made.stuck:
        _log(name, str(stuck_problem(site, name, made.stuck)), priority=journal.WARNING)
    if made.base is not None and made.base_error:
        problem = base_problem(made.base.name, made.base_error)
        _log(name, str(problem), priority=journal.WARNING)


def _file_of(point: RestorePoint) -> str:
    pool = cluster_toml.load_topology().pool(point.pool)
    if pool is None:
        raise CommandError(Problem("SAN-AGENT-004", f"cluster.toml has no pool {point.pool} here"))
    return final_path(str(pool.path), point.device, point.uuid, point.token)
