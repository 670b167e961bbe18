# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: what is refused while a device goes back to a restore point."""

from __future__ import annotations

from collections.abc import Mapping

from sanctl.errors import Problem, Refused
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import HELD, KEPT_PREFIX, ORDERED, RestoreOrder
from sanctl.model.restore_point import RestorePoint
from sanctl.model.utc_time import utc_text
from sanctl.plan.device.notes_of_nodes import (
    is_overtaken,
    knows_hold,
    nodes_with_newer_hold,
    silent_nodes,
)

#: The refusal to let hosts in where the CIB is older than what nodes have noted of a hold.
OLDER_CIB = "SAN-REST-015"
#: The refusal to end a hold by a failback that does not hold.
ENDS_HOLD = "SAN-REST-016"


def being_restored_problem(cluster: Cluster, device: DeviceSpec) -> Problem:
    """Return that a device is going back to a restore point, or is held as a copy."""
    if device.restore is not None and device.restore.state == HELD:
        return held_problem(device, device.restore)
    return Problem(
        "SAN-REST-005",
        f"device {device.name} is being restored, from "
        f"{device.restore.source if device.restore else '?'}",
        f"wait until it has: 'sanctl device show {device.name}' shows how far it is"
        + (
            f"; nothing is written yet: 'sanctl device restore {device.name} --cancel' withdraws it"
            if device.restore is not None
            and device.restore.state == ORDERED
            and not device.restore.is_unsure
            # Nor where it has begun by what one has noted (restore_changes.py, plan_cancelled).
            and not nodes_with_newer_hold(cluster, device)
            else ""
        ),
    )


def held_problem(device: DeviceSpec, order: RestoreOrder) -> Problem:
    """Return that a device is held: it is a copy, and no host is let in."""
    return Problem(
        "SAN-REST-014",
        f"device {device.name} is held as {order.source}: no host is let in, and nothing but a "
        "later copy changes it",
        f"'sanctl replicate failback {device.name} --release' lets hosts in to that copy, unless "
        "another device goes on instead of it"
        + (
            f"; 'sanctl device restore {device.name}' goes back to what was kept"
            if order.kept_token
            else ""
        ),
    )


def ends_hold_problem(cluster: Cluster, device: DeviceSpec, order: RestoreOrder | None) -> Problem:
    """Return that a failback would end a hold, and let hosts in, without having been told to.

    Args:
        cluster: as observed.
        device: the device.
        order: by which it is held; None: by what a node has noted, and it cannot be read.
    """
    name = device.name
    said = "may be held, by a note that cannot be read,"
    if order is not None:
        state = "held" if order.state == HELD else "to be held"
        said = f"is {state} as {order.source}, by an order of {utc_text(order.given_s)} UTC,"
    copy = order.copy if order is not None else None
    # No roles turn by a copy of the device itself.
    is_own = copy is not None and copy.uuid == device.uuid
    return Problem(
        ENDS_HOLD,
        f"device {name} {said} until the roles turn or hosts are let in: this failback would end "
        "that, and let hosts in",
        "with --hold it stays held"
        + ("" if is_own else ", with --takeover the roles turn first")
        + _hold_end_text(cluster, device)
        + f"; --accept {ENDS_HOLD} lets them in to the copy that was named, and turns nothing",
    )


def _hold_end_text(cluster: Cluster, device: DeviceSpec) -> str:
    """Return by which command a hold ends, or is withdrawn; empty: by none."""
    name, order = device.name, device.restore
    if order is None or not device.is_restoring or nodes_with_newer_hold(cluster, device):
        return ""
    if order.state == HELD:
        return (
            f"; 'sanctl replicate failback {name} --release' lets hosts in to what it is held as, "
            "unless another device goes on instead of it"
        )
    if order.state == ORDERED and order.base is None and not order.is_unsure:
        return f"; 'sanctl device restore {name} --cancel' withdraws that"
    return ""


def unsure_problem(device: DeviceSpec, order: RestoreOrder) -> Problem:
    """Return that an order is not withdrawn, as the device may be half of another copy."""
    return Problem(
        "SAN-REST-013",
        f"device {device.name} is to be overwritten from {order.source}, and may hold parts of two "
        "states until then: nodes have noted a newer hold than the CIB knew of when that was "
        "ordered. It is not withdrawn: hosts would see that",
        f"wait until it is whole: 'sanctl device show {device.name}' shows how far it is, and what "
        "it waits for; or fill it from another copy or restore point, which takes its place",
    )


def not_said_problems(cluster: Cluster, device: DeviceSpec) -> tuple[Problem, ...]:
    """Return that nodes with a replica do not say what they have noted of a hold, if so.

    An order that does not know of it would let hosts in where it is given up.
    """
    silent = silent_nodes(cluster, device)
    if not silent:
        return ()
    return (
        Problem(
            "SAN-REST-019",
            f"what {', '.join(silent)} has noted beside the data of device {device.name} is not "
            "known: that it was held, say, and that the CIB is older than that",
            "try again in a minute; 'sanctl status' shows whether its state is known. A node that "
            "stays silent is not waited for while its replica is stopped: 'sanctl node standby "
            f"{silent[0]}'",
        ),
    )


def not_said_of_hold_problems(cluster: Cluster, device: DeviceSpec) -> tuple[Problem, ...]:
    """Return that nodes do not say what they have noted, where a hold is known.

    Elsewhere an order ends without that, and nobody waits for them.
    """
    return not_said_problems(cluster, device) if knows_hold(cluster, device) else ()


def older_cib_problem(
    cluster: Cluster, device: DeviceSpec, noting: Mapping[str, RestoreOrder | None]
) -> Problem:
    """Return that the CIB is older than what nodes have noted of a device that was held."""
    hint = older_cib_hint(cluster, device, noting)
    return Problem(OLDER_CIB, older_cib_text(device, noting), hint)


def older_cib_text(device: DeviceSpec, noting: Mapping[str, RestoreOrder | None]) -> str:
    """Return what nodes have noted of a device, and that the CIB does not know it, for people."""
    said = ", ".join(
        f"{node} has noted of {utc_text(order.given_s)} UTC that it {_state_text(order)}"
        if order is not None
        else f"{node} has a note that cannot be read"
        for node, order in sorted(noting.items())
    )
    order = device.restore
    half = (
        f"; by the CIB it was being filled from {order.source}, and may hold parts of two states"
        if order is not None and device.is_half_restored
        else ""
    )
    return f"device {device.name} was held, and the CIB is older than that: {said}{half}"


def half_problem(
    cluster: Cluster, device: DeviceSpec, noting: Mapping[str, RestoreOrder | None]
) -> Problem | None:
    """Return that a device may be half of a copy by the CIB itself, so no host is let in.

    None: it is not, or the node that serves has noted the end of that: hosts have written since.
    """
    noted = noting.get(cluster.active_node(device.name) or "")
    if not device.is_half_restored or (noted is not None and not noted.is_open):
        return None
    name = device.name
    return Problem(
        "SAN-REST-013",
        f"no host is let in to device {name}: {older_cib_text(device, noting)}; the node that "
        "serves it has noted no end of that",
        "start the other nodes: one of them may have the newer CIB; or fill it anew: 'sanctl "
        f"replicate failback {name} --from SITE --copy COPY --hold', or 'sanctl device restore "
        f"{name} --to POINT'",
    )


def older_cib_hint(
    cluster: Cluster, device: DeviceSpec, noting: Mapping[str, RestoreOrder | None]
) -> str:
    """Return what is to be done where the CIB is older than what nodes have noted."""
    name = device.name
    first = (
        "start the other nodes: one of them may have the newer CIB, and then this ends by itself; "
        f"or fill the device anew, from a copy at a site: 'sanctl replicate failback {name} --from "
        "SITE --copy COPY --hold', which lets no host in beside another device"
    )
    if half_problem(cluster, device, noting) is not None:
        # No acceptance lets hosts in to that.
        return f"{first}; or from a restore point: 'sanctl device restore {name} --to POINT'"
    if all(noting.values()):
        return (
            f"{first}; or, if you know that what is on it is to go on: 'sanctl replicate failback "
            f"{name} --release --accept {OLDER_CIB}'"
        )
    return (
        f"{first}, and then 'sanctl replicate failback {name} --release'; or, where the site is "
        f"lost, go back to a restore point: 'sanctl device restore {name} --to POINT'. Which order "
        "is newer than a note that cannot be read is not known, so hosts are not let in without one"
    )


def _state_text(order: RestoreOrder) -> str:
    if not order.is_open:
        return "is held no more"
    if order.state == HELD:
        return f"is {order.source}"
    if order.base is not None:
        return f"is copy {order.base.name}, and was to be {order.source}"
    return f"was being filled from {order.source}"


def unknown_content_problem(cluster: Cluster, device: DeviceSpec) -> Problem | None:
    """Return that what is on a device is not known, as the CIB is older than what nodes have noted.

    So it is nothing to be kept, and no reason for anything older to go.
    """
    noting = nodes_with_newer_hold(cluster, device)
    if not noting:
        return None
    return Problem(
        "SAN-REST-018",
        f"what is on device {device.name} is not known: {older_cib_text(device, noting)}",
        f"{older_cib_hint(cluster, device, noting)}; then again",
    )


def refuse_unknown_content(cluster: Cluster, device: DeviceSpec) -> None:
    """Raise Refused if what is on a device is not known.

    Also where a node does not say so of a device of which a hold is known.
    """
    problem = unknown_content_problem(cluster, device)
    problems = not_said_of_hold_problems(cluster, device) if problem is None else (problem,)
    if problems:
        raise Refused(*problems)


def refuse_while_restoring(cluster: Cluster, device: DeviceSpec) -> None:
    """Raise Refused if a device is going back to a restore point, or what is on it is not known."""
    order = device.restore
    if device.is_restoring and not is_overtaken(order, nodes_with_newer_hold(cluster, device)):
        raise Refused(being_restored_problem(cluster, device))
    problem = unknown_content_problem(cluster, device)
    if problem is not None:
        raise Refused(problem)


def refuse_deletion_of(cluster: Cluster, point: RestorePoint) -> None:
    """Raise Refused if a restore of a device needs a restore point: its goal, or the way back."""
    device = cluster.cib.device(point.device)
    if device is None:
        return
    order = device.restore
    if device.is_restoring and (
        order is None or point.token in {order.point_token, order.kept_token}
    ):
        raise Refused(being_restored_problem(cluster, device))
    is_of_before = point.name.startswith(KEPT_PREFIX)
    if order is not None and order.is_open and order.is_unsure and is_of_before:
        # After a choice of a replica no order says which of them is of before the hold.
        raise Refused(being_restored_problem(cluster, device))
    noting = nodes_with_newer_hold(cluster, device)
    problem = unknown_content_problem(cluster, device)
    if problem is not None and any(
        each is None or point.token in {each.point_token, each.kept_token}
        for each in noting.values()
    ):
        raise Refused(problem)
