# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which devices await their second sites after a restart, and what lets their hosts in.

The nodes' own decision is in admission.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from sanctl.errors import Problem, Refused
from sanctl.model.admission import ASKING
from sanctl.model.cib_change import Change, ClearParameter, SetParameter
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, Role
from sanctl.model.device import DeviceSpec, ReplicaState
from sanctl.model.names import DeviceName
from sanctl.model.release_needs import AWAITS
from sanctl.model.site_takeover import Successor
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.cluster.hold_nodes import asks_as_before, runs_of, unfit_for_hold
from sanctl.plan.cluster.preconditions import existing_device, refuse_without_quorum
from sanctl.plan.device.release_needs import needed
from sanctl.plan.site.definition import existing_site

#: What a site says: who has taken devices over, by their folder; or why it says nothing, a code.
Answer = Mapping[str, Successor] | str
NO_SITE, TAKEN_OVER = "SAN-SITE-002", "SAN-SITE-021"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A device that lets no host in.

    Attributes:
        runs: the runs of the cluster software on the nodes that keep hosts out; those that are not
            known are left out.
        why: the code of what keeps its sites from answering, or what they have said; ASKING: they
            are being asked.
    """

    runs: tuple[str, ...]
    why: str


def held(cluster: Cluster, device: DeviceSpec) -> Held | None:
    """Return that hosts are kept out of a device, if its nodes say so; None also: not known.

    Where a node lets hosts in, the others do so once they have heard of it.
    """
    states = _replicas(cluster, device)
    if any(each.is_let_in for each in states):
        return None
    found = [each for each in states if each.held_run is not None]
    if not found:
        return None
    reasons = sorted({each.held_why or ASKING for each in found} - {ASKING})
    # What a site has said goes before what another node could not ask.
    why = TAKEN_OVER if TAKEN_OVER in reasons else (reasons or [ASKING])[0]
    return Held(runs=tuple(sorted({each.held_run for each in found if each.held_run})), why=why)


def is_let_in(cluster: Cluster, device: DeviceSpec) -> bool:
    """Whether a node says that hosts are let in to a device that awaits sites."""
    return any(each.is_let_in for each in _replicas(cluster, device))


def _replicas(cluster: Cluster, device: DeviceSpec) -> list[ReplicaState]:
    return [
        cluster.replica(device.name, node)
        for node in device.nodes
        if device.awaits and cluster.mon.state(node) in MEMBER_STATES
    ]


def verdict(device: DeviceSpec, answers: Mapping[str, Answer]) -> str:
    """Return why a device stays held by what its sites say; empty: hosts may be let in.

    Args:
        device: the device.
        answers: by the site's name; a site that is not there has not been asked, or too long ago.
    """
    said = [_said(device, answers.get(site)) for site in device.awaits]
    return TAKEN_OVER if TAKEN_OVER in said else next(filter(None, said), "")


def _said(device: DeviceSpec, answer: Answer | None) -> str:
    if answer is None:
        return ASKING
    if isinstance(answer, str):
        return answer
    return TAKEN_OVER if f"{device.name}.{device.uuid}" in answer else ""


def plan_admission(
    cluster: Cluster, asked: Collection[tuple[DeviceSpec, Held]]
) -> tuple[Change, ...]:
    """Return the orders by which hosts are let in to devices whose sites have said so.

    Args:
        cluster: the cluster now.
        asked: the devices as they were before the sites were asked, and held in which runs. If the
            cluster was started anew since, these runs are over, and the order lets nobody in.
    """
    if not cluster.mon.has_quorum:
        return ()
    changes: list[Change] = []
    for before, found in asked:
        device = cluster.cib.device(before.name)
        if device is not None and (device.uuid, device.awaits) == (before.uuid, before.awaits):
            changes += _release(device, found)
    return tuple(changes)


def plan_release(
    cluster: Cluster, name: DeviceName, shown: Held | None = None
) -> tuple[Change, ...]:
    """Return the order by which hosts are let in without the sites' answer; none: they are.

    Where no node that keeps hosts out knows its run, no order would be of it: the device awaits no
    site any more then.

    Args:
        cluster: as observed.
        name: the device.
        shown: why hosts were kept out when an operator was asked; None: nobody was asked.

    Raises:
        Refused: there is no such device, no quorum, or it is not known whether hosts are let in; or
            its site has said since the question that it was taken over.
    """
    refuse_without_quorum(cluster)
    device = existing_device(cluster, name)
    if not device.awaits or is_let_in(cluster, device):
        return ()
    found = held(cluster, device)
    if found is None:
        raise Refused(
            Problem(
                "SAN-SITE-023",
                f"no node says whether it keeps hosts out of device {name}",
                "the order holds for a node that runs the device: start it, and try again",
            )
        )
    if shown is not None and found.why == TAKEN_OVER != shown.why:
        raise Refused(
            Problem(
                "SAN-SITE-033",
                f"device {name} was taken over, as its site has said since you were asked: hosts "
                "of both sites would write",
                f"'sanctl replicate status {name}' says by whom; run the command again if hosts "
                "are to be let in all the same",
            )
        )
    return _release(device, found) if found.runs else _end_of_setting(device)


def _release(device: DeviceSpec, found: Held) -> tuple[Change, ...]:
    if not found.runs or set(found.runs) <= set(device.released):
        return ()
    value = " ".join(found.runs)
    return (SetParameter(name=device.name, parameter="released", value=value),)


def release_progress(cluster: Cluster, name: DeviceName) -> Progress:
    """A release is done when no running replica keeps hosts out."""
    return _settled(cluster, name, lambda state: state.held_run is None)


def plan_hold(cluster: Cluster, name: DeviceName, site: str, *, holds: bool) -> tuple[Change, ...]:
    """Return the changes by which a device awaits a site after a restart, or does no more.

    Raises:
        Refused: there is no such device or site, no quorum; hosts are kept out now, or that is not
            known; or a node would let hosts in all the same, or keep them out for good.
    """
    refuse_without_quorum(cluster)
    device = existing_device(cluster, name)
    if holds:
        existing_site(cluster, site)
    wanted = sorted({*device.awaits, site} if holds else {*device.awaits} - {site})
    if wanted == list(device.awaits):
        # Another release, or another program, may have changed it and left the word as it was.
        return needed(device, AWAITS, is_on=bool(wanted))
    if device.awaits and not is_let_in(cluster, device):
        raise Refused(held_problem(device))
    if holds:
        unfit = (
            *unfit_for_hold(cluster, device.pool, device.nodes),
            *asks_as_before(cluster, without=device.nodes),
        )
        if unfit:
            raise Refused(*unfit)
    if wanted:
        awaits = SetParameter(name=name, parameter="awaits", value=" ".join(wanted))
        needs = needed(device, AWAITS, is_on=True)
        if device.awaits:
            return (awaits, *needs)
        # Hosts are let in now, also where none is in the access list: the setting holds nothing.
        runs = " ".join(runs_of(cluster, device.pool, device.nodes))
        return (awaits, SetParameter(name=name, parameter="released", value=runs), *needs)
    return _end_of_setting(device)


def _end_of_setting(device: DeviceSpec) -> tuple[Change, ...]:
    return (
        ClearParameter(name=device.name, parameter="awaits"),
        ClearParameter(name=device.name, parameter="released"),
        *needed(device, AWAITS, is_on=False),
    )


def hold_progress(cluster: Cluster, name: DeviceName) -> Progress:
    """The setting is in force when each running replica says that hosts are let in."""
    device = cluster.cib.device(name)
    if device is not None and not device.awaits:
        return Progress(is_done=True, seen="applied")
    return _settled(cluster, name, lambda state: state.is_let_in)


def held_problem(device: DeviceSpec) -> Problem:
    """Return that the setting of a device stays while hosts are kept out."""
    return Problem(
        "SAN-SITE-023",
        f"device {device.name} keeps hosts out, or no node says that it does not: the setting "
        "stays as it is",
        f"'sanctl replicate status {device.name}' says why; 'sanctl replicate release "
        f"{device.name}' lets hosts in",
    )


def held_text(found: Held) -> str:
    """Return why hosts are kept out, for people."""
    if found.why == ASKING:
        return "its site is being asked"
    if found.why == TAKEN_OVER:
        return "it was taken over, as its site says or has said"
    return f"its site has not answered ({found.why})"


def _settled(
    cluster: Cluster, name: DeviceName, is_settled: Callable[[ReplicaState], bool]
) -> Progress:
    device = cluster.cib.device(name)
    if device is None:
        return Progress(is_done=False, seen="the device is gone")
    behind = sorted(
        node.value
        for node in device.nodes
        if cluster.mon.role(name, node) in {Role.PROMOTED, Role.UNPROMOTED}
        and not is_settled(cluster.replica(name, node))
    )
    seen = f"not yet applied on {', '.join(behind)}" if behind else "applied"
    return Progress(is_done=not behind, seen=seen)
