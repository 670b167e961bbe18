# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on a device that goes back to a restore point: under way, or stuck."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import ASKED, HELD, TURNED, RestoreOrder
from sanctl.model.findings import Finding, Severity
from sanctl.model.site_copy import SiteCopy
from sanctl.plan.device.notes_of_nodes import is_open_note, is_overtaken, nodes_with_newer_hold
from sanctl.plan.device.restore_progress import progress_text, stuck_problem
from sanctl.plan.device.restore_refusals import (
    not_said_of_hold_problems,
    older_cib_hint,
    older_cib_text,
)
from sanctl.plan.site.takeover import successor_text, takeover_text


def restore_findings(cluster: Cluster, device: DeviceSpec) -> Iterator[Finding]:
    """Return that no host is let in to a device, as it goes back to a restore point."""
    subject = f"device {device.name}"
    yield from _unnoted_findings(cluster, device)
    noting, order = nodes_with_newer_hold(cluster, device), device.restore
    is_held = device.is_restoring and order is not None and order.state == HELD
    if is_overtaken(order, noting):
        yield Finding(
            code="SAN-HLT-170",
            severity=Severity.CRITICAL,
            subject=subject,
            what=f"{_let_in_text(cluster, device, noting)}: {older_cib_text(device, noting)}",
            why="what is on it may be another device's copy, or a part of one, and its roles "
            "may have turned since: a host would write what no copy has",
            do=older_cib_hint(cluster, device, noting),
        )
        return
    if not device.is_restoring:
        return
    source = device.restore.source if device.restore else "?"
    way = f"go back to another point: 'sanctl device restore {device.name} --to POINT'"
    if device.restore and device.restore.backup:
        way = f"delete it: 'sanctl device delete {device.name}'"
    elif device.restore and device.restore.copy:
        way = (
            f"take another copy: 'sanctl replicate failback {device.name} --from SITE --copy COPY"
            + (" --hold'" if device.restore.holds else "'")
            + (f"; or {way}" if device.restore.kept_token else "")
        )
    if is_held and order is not None:
        yield _held_finding(cluster, subject, device, order)
        return
    problem = stuck_problem(cluster, device)
    if problem is None:
        # It goes on by itself where that is over in a minute, as each boot of a node is.
        silent = not_said_of_hold_problems(cluster, device)
        yield Finding(
            code="SAN-HLT-110",
            severity=Severity.WARNING,
            subject=subject,
            what=f"it is being restored from {source}: {progress_text(cluster, device)}",
            why="no host is let in before it is what it was then",
            do=f"it waits, as {silent[0].text}: {silent[0].hint}"
            if silent
            else "wait; it goes on by itself, on whichever node serves the device",
        )
        return
    yield Finding(
        code="SAN-HLT-111",
        severity=Severity.CRITICAL,
        subject=subject,
        what=f"its restore from {source} gets no further: {problem.text}",
        why="it may hold parts of two states, so no host is let in",
        do=problem.hint or f"mend that, and it goes on by itself; or {way}",
    )


def _unnoted_findings(cluster: Cluster, device: DeviceSpec) -> Iterator[Finding]:
    """Return that nodes cannot note beside the data by which order a device is held, or its end."""
    nodes = [
        node.value for node in device.nodes if cluster.replica(device.name, node).is_hold_unnoted
    ]
    if not nodes:
        return
    what = "by which order it is held" if device.is_restoring else "that it is held no more"
    if device.is_restoring and device.restore is not None and not device.restore.is_of_holds:
        # One that follows a hold is noted as well; where the note cannot be read, it may.
        what = "its restore, which is noted where it was held before"
    yield Finding(
        code="SAN-HLT-175",
        severity=Severity.WARNING,
        subject=f"device {device.name}",
        what=f"{', '.join(nodes)} cannot note beside its data {what}",
        why="where that node comes back with an older CIB, it would go by what that says of the "
        "device; an order to fill it does not begin meanwhile",
        do=f"make room in pool {device.pool} there, or see to its disk: 'sanctl status', and the "
        "kernel's log; each monitor tries again",
    )


def _let_in_text(
    cluster: Cluster, device: DeviceSpec, noting: Mapping[str, RestoreOrder | None]
) -> str:
    """Return where no host is let in, as the CIB is older than what nodes have noted."""
    active = cluster.active_node(device.name)
    if active is None or device.is_restoring:
        return "no host is let in"
    if active in noting and is_open_note(noting[active]):
        return "no host is let in"
    closed = ", ".join(sorted(node for node, order in noting.items() if is_open_note(order)))
    return f"on {closed} no host is let in; {active} serves it, and lets hosts in"


def _held_finding(
    cluster: Cluster, subject: str, device: DeviceSpec, order: RestoreOrder
) -> Finding:
    release = f"'sanctl replicate failback {device.name} --release'"
    severity, copy = Severity.WARNING, order.copy
    site = copy.site if copy is not None else "SITE"
    rivals = cluster.cib.takeovers_of(device)
    if rivals and order.turn == TURNED:
        # Since then: the turn has ended the one of before.
        rival = rivals[0]
        severity = Severity.CRITICAL
        what = (
            "the roles have turned, and yet "
            f"{takeover_text(rival.site, rival.successor, is_lost=rival.is_lost)}"
        )
        why = "so what is written there is not in the copy that this one is: hosts stay out here"
        do = (
            "once hosts write there no more, its last copy, and the turn: 'sanctl replicate "
            f"failback {device.name} --from {rival.site} --copy COPY --takeover'; or, where "
            "nothing that was written there is wanted, 'sanctl replicate giveback "
            f"{device.name} --at {rival.site}' and then {release}"
        )
    elif order.turn == TURNED:
        severity = Severity.CRITICAL
        what = f"the roles have turned: it goes on instead of {_replaced(copy)}, says site {site}"
        why = "so the hosts of neither have it: the other one was taken over, and this one is held"
        do = f"let hosts in: {release}"
    elif order.turn == ASKED:
        severity = Severity.CRITICAL
        what = (
            f"the turn of the roles was begun, and broke off: whether site {site} has noted that "
            f"it goes on instead of {_replaced(copy)} is not known here"
        )
        why = "until that is known no host is to write to either: they would have two versions"
        do = (
            f"'sanctl replicate takeover {device.name}' notes it, or says that it was; where that "
            "is refused, the failback with --takeover once more, as the refusal says; then let "
            f"hosts in: {release}"
        )
    elif copy is not None and copy.uuid == device.uuid:
        what = "it is a copy of the device itself, so no roles turn by it"
        why = "so the next copy comes as what has changed since this one"
        do = (
            f"let hosts in to it: {release}; or the next copy: 'sanctl replicate failback "
            f"{device.name} --from {site} --copy COPY --hold'"
        )
    else:
        taken = rivals[0] if rivals else None
        goes_on = f": {successor_text(taken.successor)} goes on" if taken is not None else ""
        what = f"the roles have not turned{goes_on}"
        why = "so the next copy comes as what has changed since this one"
        first = (
            f"'sanctl replicate giveback {device.name} --at {taken.site}' and then "
            if taken is not None
            else ""
        )
        do = (
            "once hosts write to the other one no more, its last copy, and the turn: 'sanctl "
            f"replicate failback {device.name} --from {site} --copy COPY --takeover'; a copy "
            "before that: with --hold; or let hosts in to this one, where the other is given up: "
            f"{first}{release}"
        )
    return Finding(
        code="SAN-HLT-167",
        severity=severity,
        subject=subject,
        what=f"it is held as {order.source}, and no host is let in; {what}",
        why=why,
        do=do,
    )


def _replaced(copy: SiteCopy | None) -> str:
    return f"{copy.device}.{copy.uuid[:8]}" if copy is not None else "the other one"
