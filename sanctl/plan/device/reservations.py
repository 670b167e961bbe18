# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether a device's reservations may be switched, the order to clear them, their progress.

`published` is what nodes say of the reservations (model/published_reservations.py), by node; a node
that does not say, or whose text cannot be read, is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cib_change import Change, ClearParameter, SetParameter
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.host_session import HostSession
from sanctl.model.names import DeviceName, NodeName, PoolName
from sanctl.model.published_reservations import (
    CLEAR_PARAMETER,
    ON,
    PARAMETER,
    PublishedReservations,
)
from sanctl.model.release_needs import RESERVATIONS
from sanctl.plan.cluster.convergence import Progress, primaries_not_shown
from sanctl.plan.cluster.preconditions import existing_device, refuse_unless_changeable
from sanctl.plan.device.host_logins import host_logins
from sanctl.plan.device.release_needs import needed

HOSTS_LOGGED_IN = "SAN-RES-011"
HOSTS_REGISTERED = "SAN-RES-012"

Published = Mapping[str, PublishedReservations]


def keeping_problem(cluster: Cluster, pool: PoolName, nodes: Sequence[NodeName]) -> Problem | None:
    """Return the problem of nodes whose release does not keep reservations; None without one.

    Such a node would serve the device without them after a failover, and let in together what they
    keep apart.
    """
    older = [
        node for node in nodes if not ((p := cluster.pool(pool, node)) and p.keeps_reservations)
    ]
    if not older:
        return None
    return Problem(
        "SAN-RES-014",
        f"sanctl on {', '.join(map(str, older))} does not say that it keeps persistent "
        "reservations over a failover",
        "this release and Linux 6.9 are needed on all nodes: run the playbook, and try again after "
        "half a minute; or leave them off",
    )


def plan_reservations(
    cluster: Cluster,
    name: DeviceName,
    sessions: Mapping[str, Collection[HostSession]],
    published: Published,
    *,
    is_on: bool,
) -> tuple[Change, ...]:
    """Return the change that switches a device's reservations; nothing where they are like that.

    Args:
        cluster: as observed.
        name: the device.
        sessions: of hosts, by node; a node that does not say is left out.
        published: what nodes say of the device's reservations.
        is_on: whether hosts are to be able to make reservations.

    Raises:
        Refused: a host is logged in, or that is not known: it would not learn of the change. Or
            hosts are registered that would be let in together then, or a node cannot keep them.
    """
    device = existing_device(cluster, name)
    refuse_unless_changeable(cluster, device)
    if device.reservations == is_on:
        # Another release, or another program, may have switched it and left the word as it was.
        return needed(device, RESERVATIONS, is_on=is_on)
    problems = [*_session_problems(cluster, device, sessions)]
    if is_on:
        keeping = keeping_problem(cluster, device.pool, device.nodes)
        problems += [keeping] if keeping is not None else []
    else:
        problems += _registered_problems(cluster, device, published)
    if problems:
        raise Refused(*problems)
    # An order is of the reservations of before: it must not clear later ones.
    without_order: tuple[Change, ...] = (
        (ClearParameter(name=name, parameter=CLEAR_PARAMETER),) if device.clear_reservations else ()
    )
    needs = needed(device, RESERVATIONS, is_on=is_on)
    if is_on:
        return (*without_order, SetParameter(name=name, parameter=PARAMETER, value=ON), *needs)
    return (*without_order, ClearParameter(name=name, parameter=PARAMETER), *needs)


def _session_problems(
    cluster: Cluster, device: DeviceSpec, sessions: Mapping[str, Collection[HostSession]]
) -> tuple[Problem, ...]:
    hosts, silent = host_logins(cluster, device, sessions)
    problems = []
    if hosts:
        problems.append(
            Problem(
                HOSTS_LOGGED_IN,
                f"hosts are logged in to device {device.name}: {', '.join(hosts)}",
                "a host asks once what a device can do: stop what uses it there, log out, and try "
                "again after half a minute",
            )
        )
    if silent:
        problems.append(
            Problem(
                HOSTS_LOGGED_IN,
                f"it is not known whether hosts are logged in to device {device.name} on "
                f"{', '.join(silent)}",
                "each node says so about every ten seconds while its pool agent runs: 'sanctl "
                "status' shows what is wrong with the node",
            )
        )
    return tuple(problems)


def _registered_problems(
    cluster: Cluster, device: DeviceSpec, published: Published
) -> tuple[Problem, ...]:
    found = published_by_active(cluster, device, published)
    break_them = (
        f"'sanctl target reservations {device.name}' shows more, and with 'clear' behind it breaks "
        "them"
    )
    if found is None:
        return (
            Problem(
                HOSTS_REGISTERED,
                f"it is not known which hosts are registered with device {device.name}",
                f"the node that serves it says so; {break_them}",
            ),
        )
    if not found.reservations.registrations:
        return ()
    who = ", ".join(iqn for iqn, _ in found.reservations.registrations)
    return (
        Problem(
            HOSTS_REGISTERED,
            f"hosts are registered with device {device.name}, logged in or not: {who}",
            "without reservations all hosts on its access list may write: have them take their "
            f"registrations back; {break_them}",
        ),
    )


def published_by_active(
    cluster: Cluster, device: DeviceSpec, published: Published
) -> PublishedReservations | None:
    """Return what the node that serves a device says of its reservations; None: not known.

    What another node says may be of the time when it served the device. Pacemaker shows no role for
    a moment after a reload of the agent; the node goes on serving, and says so.
    """
    active = cluster.serving_node(device.name)
    return None if active is None else published.get(active)


def switch_progress(cluster: Cluster, name: DeviceName, published: Published) -> Progress:
    """A switch is done when the active node publishes reservations, or none where they are off."""
    device = existing_device(cluster, name)
    active = cluster.active_node(name)
    if active is None:
        return Progress(is_done=False, seen="no node serves the device")
    unseen = primaries_not_shown(cluster, device)
    if unseen:
        nodes = ", ".join(map(str, unseen))
        return Progress(is_done=False, seen=f"Pacemaker does not show {nodes} as serving")
    if (active in published) != device.reservations:
        still = "has none yet" if device.reservations else "still has reservations"
        return Progress(is_done=False, seen=f"{active} {still}")
    return Progress(is_done=True, seen="applied")


def plan_clear(
    cluster: Cluster, name: DeviceName, token: str, published: Published
) -> tuple[Change, ...]:
    """Return the order to clear a device's reservations; nothing where none is registered.

    Given also where who is registered is not known: that is how a state that is lost ends.

    Raises:
        Refused: there is no such device, it has no reservations, or it cannot be changed now.
    """
    device = existing_device(cluster, name)
    refuse_unless_changeable(cluster, device)
    if not device.reservations:
        raise Refused(
            Problem(
                "SAN-RES-013",
                f"device {name} has persistent reservations switched off: there are none to clear",
                f"a host is kept out by its access list: 'sanctl target deny {name} IQN'",
            )
        )
    found = published_by_active(cluster, device, published)
    if found is not None and not found.reservations.registrations:
        return ()
    return (SetParameter(name=name, parameter=CLEAR_PARAMETER, value=token),)


def clear_progress(
    cluster: Cluster, name: DeviceName, token: str, published: Published
) -> Progress:
    """An order is carried out when the active node says so, or that no host is registered.

    Hosts that are alive may have registered again before it is looked at.

    Raises:
        CommandError: another order replaced it, or reservations were switched off.
    """
    device = existing_device(cluster, name)
    if device.clear_reservations != token:
        raise CommandError(
            Problem(
                "SAN-RES-015",
                f"the order to clear the reservations of device {name} was replaced",
                f"'sanctl target reservations {name}' shows who is registered now",
            )
        )
    active = cluster.active_node(name)
    if active is None:
        return Progress(is_done=False, seen="no node serves the device")
    found = published.get(active)
    if found is None:
        return Progress(is_done=False, seen=f"{active} does not say who is registered")
    count = len(found.reservations.registrations)
    if found.cleared == token or not count:
        return Progress(is_done=True, seen="cleared")
    return Progress(is_done=False, seen=f"{active} says that {count} hosts are registered")
