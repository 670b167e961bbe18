# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which node sends a device's copy to a site, from what base, and which points then go.

What is at a site is known there alone, and asked at the begin of each run; the CIB's record says
which restore points of the cluster were made for it. So whatever a run that died has left follows
from both.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cib_change import Change, SetCopy
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import DONE
from sanctl.model.names import DeviceName, NodeName
from sanctl.model.restore_point import RestorePoint
from sanctl.model.site import CopyRecord, ProvenCopy, Site
from sanctl.model.site_copy import SiteCopy
from sanctl.plan.cluster.preconditions import existing_device, no_replica_problem
from sanctl.plan.device.restore_points import plan_point_deletion
from sanctl.plan.site.copy_order import is_surely_older, newest_first


class Base(NamedTuple):
    """What a new copy begins with.

    Attributes:
        copy: the copy at the site.
        point: the restore point on this node that it was made of; None: this node has none of any
            copy there, so the content is compared.
        folder: the folder at the site that has it, DEVICE.UUID; empty: the device's own.
    """

    copy: ProvenCopy
    point: RestorePoint | None
    folder: str = ""


def base_problem(point: str, error: str) -> Problem:
    """Return that a copy was made although the restore point of the one before is damaged here.

    Args:
        point: the name of that restore point.
        error: why it cannot be read as a whole.
    """
    return Problem(
        "SAN-SITE-014",
        f"restore point {point}, of which the copy before was made, cannot be read as a whole on "
        f"this node ({error}); what could not be compared was sent, and the copy is proven",
        "the node's disk may be failing: look at its kernel's log",
    )


def refuse_sender(
    cluster: Cluster, name: DeviceName, here: str, *, from_active: bool
) -> DeviceSpec:
    """Return the device, if this node may send a copy of it.

    A standby in sync does: a copy is read as a whole for its digest, and hosts wait for the active
    node's disks.

    Args:
        cluster: the cluster.
        name: the device.
        here: the name of this node.
        from_active: the operator wants it of the active node all the same.

    Raises:
        Refused: it may not; says which node may.
    """
    device = existing_device(cluster, name)
    nodes = {node.value: node for node in device.nodes}
    active = cluster.serving_node(name)
    standbys = [
        node.value
        for node in device.nodes
        if node.value != active and cluster.is_in_sync(device, node)
    ]
    if here not in nodes:
        hint = f"run it on {' or '.join(standbys)}" if standbys else ""
        problem = no_replica_problem(device, NodeName.parse(here))
        raise Refused(Problem(problem.code, problem.text, hint or problem.hint))
    if here == active and not from_active:
        raise Refused(
            Problem(
                "SAN-SITE-010",
                f"this node serves device {name}, and a copy is read from a standby: hosts would "
                "wait for its disks",
                f"run it on {' or '.join(standbys)}"
                if standbys
                else "no standby is in sync; --from-active reads here all the same",
            )
        )
    if here != active and here not in standbys:
        raise Refused(
            Problem(
                "SAN-SITE-011",
                f"the replica of device {name} on this node is not in sync, so it would get no "
                "restore point",
                f"run it on {' or '.join(standbys)}" if standbys else "'sanctl status' shows why",
            )
        )
    return device


def choose_base(
    copies: Sequence[ProvenCopy], points: Collection[RestorePoint], here: str
) -> Base | None:
    """Return what a new copy begins with; None: the site has nothing of the device.

    The newest copy whose restore point this node has: the two files' extents then say what has
    changed. A copy whose restore point is gone serves as well: its content is compared.

    Args:
        copies: the proven copies at the site.
        points: the restore points of the device.
        here: the name of this node.
    """
    ordered = newest_first(copies)
    known = {
        point.token: point for point in points if here in point.nodes and not point.is_deleting
    }
    for copy in ordered:
        if copy.token in known:
            return Base(copy, known[copy.token])
    return Base(ordered[0], None) if ordered else None


def origin_of(device: DeviceSpec, site: str) -> SiteCopy | None:
    """Return the copy at a site that a device was made from, or put back to; None: there is none.

    The first copy of it begins with that.
    """
    order = device.restore
    copy = order.copy if order is not None and order.state == DONE else None
    return copy if copy is not None and copy.site == site else None


def surplus_copies(
    copies: Sequence[ProvenCopy], keep: int, in_use: Collection[str] = (), latest: str = ""
) -> tuple[str, ...]:
    """Return the tokens of the copies at a site that are not kept, the oldest first.

    A copy goes only if so many others are newer beyond doubt (copy_order.py); there are more than
    `keep` where clocks were wrong, or a run has overtaken another one.

    Args:
        copies: the proven copies at the site.
        keep: how many of the newest are kept; one is in any case.
        in_use: the tokens of those that devices are being filled from, which stay.
        latest: the token of the copy that was proven just now, whatever its times: the base of the
            next one.
    """
    kept = {*in_use, latest}
    return tuple(
        each.token
        for each in reversed(newest_first(copies))
        if each.token not in kept
        and sum(is_surely_older(each, other) for other in copies) >= max(keep, 1)
    )


def plan_attempt(
    cluster: Cluster, device: DeviceSpec, site: str, token: str, copies: Sequence[ProvenCopy]
) -> tuple[Change, ...]:
    """Return the changes before a restore point is made for a site.

    Notes which one it will be, so that it goes if the run dies. The one of a run that died goes
    now, unless the site has proven it: only the answer was lost then, and it is the next base.

    Args:
        cluster: the cluster.
        device: the device.
        site: the site's name.
        token: the token of the restore point that will be made.
        copies: the proven copies at the site.
    """
    known = _record(cluster, device, site)
    proven = known.proven if known else None
    tokens: list[str] = []
    if known is not None and known.attempt:
        unnoted = next((each for each in copies if each.token == known.attempt), None)
        if unnoted is None:
            tokens.append(known.attempt)
        else:
            tokens += [proven.token] if proven else []
            proven = unnoted
    record = CopyRecord(device.name.value, site, device.uuid, token, proven)
    return (SetCopy(record=record), *point_removal(cluster, device.name.value, tokens))


def plan_proven(
    cluster: Cluster, device: DeviceSpec, site: Site, copy: ProvenCopy
) -> tuple[Change, ...]:
    """Return the changes after a copy was proven: it is noted, and the base before it goes.

    Args:
        cluster: the cluster.
        device: the device.
        site: the site as it was when the copy was made.
        copy: the copy.

    Raises:
        CommandError: the device or the site was removed meanwhile, or the site is at another place,
            which has not got this copy.
    """
    current, there = cluster.cib.device(device.name), cluster.cib.site(site.name)
    if there is not None and _place(there) != _place(site):
        raise CommandError(
            Problem(
                "SAN-SITE-009",
                f"the copy of {device.name} is proven at {site.host}:{site.path}, and site "
                f"{site.name} was set to another place meanwhile",
                "the next copy goes there",
            )
        )
    if current is None or current.uuid != device.uuid or there is None:
        raise CommandError(
            Problem(
                "SAN-SITE-009",
                f"the copy of {device.name} is proven at the site, and device or site were removed "
                "from the cluster meanwhile",
            )
        )
    known = _record(cluster, device, site.name)
    before = known.proven.token if known and known.proven else ""
    attempt = known.attempt if known and known.attempt != copy.token else ""
    record = CopyRecord(device.name.value, site.name, device.uuid, attempt, copy)
    gone = (before,) if before != copy.token else ()
    return (SetCopy(record=record), *point_removal(cluster, device.name.value, gone))


def _place(site: Site) -> tuple[str, int, str, str]:
    return site.host, site.port, site.path, site.mark


def plan_given_up(
    cluster: Cluster, device: DeviceSpec, site: str, token: str
) -> tuple[Change, ...]:
    """Return the changes after an attempt failed: its restore point goes."""
    known = _record(cluster, device, site)
    is_noted = known is not None and known.attempt == token
    return (
        *((SetCopy(record=known._replace(attempt="")),) if known and is_noted else ()),
        *point_removal(cluster, device.name.value, (token,)),
    )


def point_removal(cluster: Cluster, device: str, tokens: Collection[str]) -> tuple[Change, ...]:
    """Return the changes by which restore points go that were made for a site.

    One that something else needs by now stays, as a restore point like any other.
    """
    changes: list[Change] = []
    for point in cluster.cib.points_of(device):
        if point.token in tokens:
            try:
                changes += plan_point_deletion(cluster, DeviceName.parse(device), point.name)
            except Refused:
                continue
    return tuple(changes)


def _record(cluster: Cluster, device: DeviceSpec, site: str) -> CopyRecord | None:
    """Return what is known of a device's copies; not of a device before it that had the name."""
    found = cluster.cib.copy(device.name.value, site)
    return found if found is not None and found.uuid == device.uuid else None
