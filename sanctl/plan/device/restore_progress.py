# SPDX-License-Identifier: GPL-2.0-or-later
"""How far a device has come that goes back to a restore point, and what keeps it, for people."""

from __future__ import annotations

from sanctl.errors import Problem
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import COPYING, HELD, TURNED, RestoreOrder, RestoreReport
from sanctl.model.names import format_bytes
from sanctl.plan.device.restore_changes import unreadable_problem
from sanctl.plan.device.restore_kept import is_kept_by_nobody
from sanctl.plan.device.restoring import goal_of


def report_of(cluster: Cluster, device: DeviceSpec) -> RestoreReport | None:
    """Return what the node that serves a device says of the order that is open, if it does."""
    active, order = cluster.active_node(device.name), device.restore
    if order is None or active is None:
        return None
    report = cluster.cib.restore_reports.get((device.name.value, active))
    return report if report is not None and report.token == order.token else None


def stuck_problem(cluster: Cluster, device: DeviceSpec) -> Problem | None:
    """Return why a device that is being restored gets no further; None: it does, or may."""
    order, active = device.restore, cluster.active_node(device.name)
    if not device.is_restoring:
        return None
    if order is None:
        return unreadable_problem(device)
    if active is None or order.state == HELD:
        return None  # findings of their own
    # Of an order that has not begun the node gives up, and says why.
    if order.state == COPYING and order.backup is None:
        goal = goal_of(cluster, device, order, active)
        if isinstance(goal, Problem):
            return goal
    if is_kept_by_nobody(cluster, device, order):
        return _unkept_problem(device, order)
    report = report_of(cluster, device)
    return Problem(report.code, report.text) if report is not None and report.code else None


def _unkept_problem(device: DeviceSpec, order: RestoreOrder) -> Problem:
    """Return that an order waits for another one, which keeps what is there."""
    name, holds = device.name, " --hold" if order.holds else ""
    return Problem(
        "SAN-REST-018",
        f"what is on device {name} is not known, and nothing keeps it: a replica was chosen while "
        "the CIB was older than what nodes have noted",
        f"fill it anew, which keeps what is there first: 'sanctl replicate failback {name} --from "
        f"SITE --copy COPY{holds}', or 'sanctl device restore {name} --to POINT'",
    )


def given_up_problem(cluster: Cluster, device: DeviceSpec, order: RestoreOrder) -> Problem:
    """Return why an order was given up, as the node says that gave it up."""
    reports = [
        report
        for (name, _), report in cluster.cib.restore_reports.items()
        if name == device.name.value and report.token == order.token and report.code
    ]
    if reports:
        return Problem(reports[0].code, f"{reports[0].text}; nothing was written")
    return Problem(
        "SAN-REST-007",
        f"the order to restore device {device.name} was given up; nothing was written",
        f"journalctl SANCTL_DEVICE={device.name} SANCTL_ACTION=restore on its nodes says why",
    )


def progress_text(cluster: Cluster, device: DeviceSpec) -> str:
    """Return in a few words how far a device has come that is being restored."""
    if device.restore is not None and device.restore.state == HELD:
        turned = ", and the roles have turned" if device.restore.turn == TURNED else ""
        return f"held: it is that copy{turned}"
    if cluster.active_node(device.name) is None:
        return "no node serves it"
    report = report_of(cluster, device)
    if report is None or (report.text and not report.code):
        return report.text if report else "not begun yet"
    if report.code:
        return f"{report.code}: {report.text}"
    return f"{report.percent:.0f} % compared, {format_bytes(report.written_bytes)} differed so far"
