# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether hosts are let in to a device that is held as a copy at a second site."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import ASKED, DONE, GIVEN_UP, HELD, RestoreOrder
from sanctl.model.names import DeviceName
from sanctl.model.site_copy import SiteCopy
from sanctl.model.site_takeover import Successor, Takeover
from sanctl.plan.cluster.preconditions import existing_device, refuse_unless_changeable
from sanctl.plan.device.notes_of_nodes import is_overtaken, nodes_with_newer_hold
from sanctl.plan.device.restore_changes import order_changes, unreadable_problem
from sanctl.plan.device.restore_refusals import (
    OLDER_CIB,
    being_restored_problem,
    half_problem,
    not_said_problems,
    older_cib_problem,
)
from sanctl.plan.site.takeover import takeover_text

#: The refusal to let hosts in to a device that is held, while another one may go on instead of it.
GOES_ON_ELSEWHERE = "SAN-REST-017"


def plan_released(
    cluster: Cluster,
    name: DeviceName,
    copy: SiteCopy | None = None,
    accepted: Collection[str] = (),
) -> tuple[Change, ...]:
    """Return the change by which hosts are let in to a device that is held; none if it is not.

    Args:
        cluster: as observed.
        name: the device.
        copy: the copy that it has to be; None: whichever it is held as.
        accepted: the codes of refusals that the operator accepts.

    Raises:
        Refused: there is no such device, it cannot be changed now, is being restored still, or is
            held as another copy; or it may be half of a copy; or what nodes have noted is
            newer, or not known; or another device goes on instead of it, or may do.
    """
    device = existing_device(cluster, name)
    order, noting = device.restore, nodes_with_newer_hold(cluster, device)
    if not (device.is_restoring or noting):
        return ()
    refuse_unless_changeable(cluster, device)
    if device.is_restoring and order is None:
        raise Refused(unreadable_problem(device))
    is_held = order is not None and order.state == HELD and copy in {None, order.copy}
    if device.is_restoring and not is_held and (copy or not is_overtaken(order, noting)):
        raise Refused(being_restored_problem(cluster, device))
    half = half_problem(cluster, device, noting)
    if half is not None:
        raise Refused(half)
    problems = [*not_said_problems(cluster, device)]
    if GOES_ON_ELSEWHERE not in accepted:
        problems += _elsewhere_problems(cluster, device, noting)
    if noting and (OLDER_CIB not in accepted or not all(noting.values())):
        problems.append(older_cib_problem(cluster, device, noting))
    if problems:
        raise Refused(*problems)
    if noting:
        return order_changes(device, _let_in(device, noting))
    return order_changes(device, order.in_state(DONE)) if order is not None else ()


def sites_to_ask(cluster: Cluster, device: DeviceSpec) -> tuple[str, ...]:
    """Return the sites that may know of another device that goes on instead of a held one.

    Those of the copies that it is held as, by the CIB and by what nodes have noted.
    """
    orders = (
        *((device.restore,) if device.is_restoring else ()),
        *nodes_with_newer_hold(cluster, device).values(),
    )
    copies = (copy for order in orders if order for copy in (order.copy, order.base))
    return tuple(dict.fromkeys(copy.site for copy in copies if copy is not None))


def _elsewhere_problems(
    cluster: Cluster, device: DeviceSpec, noting: Mapping[str, RestoreOrder | None]
) -> list[Problem]:
    """Return that another device goes on instead of this one, or may do, if so."""
    rivals = cluster.cib.takeovers_of(device)
    if rivals:
        return [goes_on_problem(device, rivals)]
    known = (*((device.restore,) if device.is_restoring else ()), *noting.values())
    asked = [each for each in known if each is not None and each.turn == ASKED]
    return [_asked_problem(device, asked[0], is_older=bool(noting))] if asked else []


def _let_in(device: DeviceSpec, noting: Mapping[str, RestoreOrder | None]) -> RestoreOrder:
    """Return the order that lets hosts in where the CIB is older than what nodes have noted.

    It says nothing of what the device holds: that is not known. No order that was noted is newer.
    """
    orders = [order for order in noting.values() if order is not None]
    newest = max(orders, key=lambda order: (order.given_s, order.token))
    known_s = max(order.given_s for order in (newest, device.restore) if order is not None)
    return newest._replace(given_s=known_s + 1).in_state(GIVEN_UP)


def rivals_after_turn(
    cluster: Cluster, device: DeviceSpec, copy: SiteCopy, there: Mapping[str, Successor]
) -> tuple[Takeover, ...]:
    """Return the takeovers of a device that the turn of its roles with a copy's device leaves.

    Args:
        cluster: the cluster.
        device: the device.
        copy: the copy that it is to hold.
        there: the takeovers that the site of the copy has, by the folder of the replaced device.
    """
    own = there.get(f"{device.name}.{device.uuid}")
    known = {each.site: each for each in cluster.cib.takeovers_of(device)}
    if own is not None:
        known[copy.site] = Takeover(device.name.value, copy.site, device.uuid, own)
    return tuple(
        each
        for each in known.values()
        if (each.site, each.successor.uuid) != (copy.site, copy.uuid)
    )


def _asked_problem(device: DeviceSpec, order: RestoreOrder, *, is_older: bool) -> Problem:
    """Return that a turn broke off; where the CIB is older the takeover alone is refused."""
    name, site = device.name, order.copy.site if order.copy is not None else "SITE"
    return Problem(
        GOES_ON_ELSEWHERE,
        f"the turn of the roles of device {name} was begun, and broke off: whether site {site} has "
        "noted that it goes on is not known here, and hosts may write to the other one",
        (
            f"'sanctl replicate failback {name} --from {site} --copy COPY --takeover' fills it "
            "anew, and turns the roles"
            if is_older
            else f"'sanctl replicate takeover {name}' notes it, or says that it was; then again"
        )
        + f". --accept {GOES_ON_ELSEWHERE} lets hosts in all the same: keep them off the other one",
    )


def goes_on_problem(device: DeviceSpec, rivals: Sequence[Takeover]) -> Problem:
    """Return that other devices go on instead of one that is held."""
    name = device.name
    said = "; ".join(
        takeover_text(each.site, each.successor, is_lost=each.is_lost) for each in rivals
    )
    return Problem(
        GOES_ON_ELSEWHERE,
        f"device {name} was taken over: {said}. Where hosts write to both, one of two versions is "
        "given up",
        f"its last copy, and the turn: 'sanctl replicate failback {name} --from {rivals[0].site} "
        f"--copy COPY --takeover'; or, where nothing that was written there is wanted, 'sanctl "
        f"replicate giveback {name} --at {rivals[0].site}', and then again. --accept "
        f"{GOES_ON_ELSEWHERE} lets hosts in all the same",
    )
