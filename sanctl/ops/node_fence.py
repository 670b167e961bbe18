# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `node fence`: asks fencing devices for their status, or fences a node now."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sanctl.drivers.stonith import StonithPort
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import NodeName
from sanctl.ops.node_standby import put_in_standby
from sanctl.ops.session import Session
from sanctl.plan.cluster.preconditions import refuse_without_quorum
from sanctl.plan.cluster.standby import ACCEPT_STOP, check_fencing, plan_online, stop_problems


@dataclass(frozen=True, slots=True, kw_only=True)
class FencingAnswer:
    """The answer of a fencing device to a status request of this node.

    Attributes:
        device: the fencing device.
        targets: the nodes it fences.
        watched_by: the nodes where Pacemaker's monitor of the device runs and succeeds.
        reason: why this node got no answer; empty: it got one; None: it may not use the device.
    """

    device: str
    targets: tuple[str, ...]
    watched_by: tuple[str, ...]
    reason: str | None


def query_fencing_devices(
    stonith: StonithPort, cluster: Cluster, target: str | None = None
) -> tuple[FencingAnswer, ...]:
    """Ask the fencing devices, all or those of one node, for their status from this node.

    Raises:
        CommandError: the fencer did not answer.
    """
    usable = stonith.registered()
    return tuple(
        FencingAnswer(
            device=fence.id,
            targets=fence.targets,
            watched_by=tuple(i.node for i in cluster.mon.instances_of(fence.id)),
            reason=stonith.ask(fence.id) if fence.id in usable else None,
        )
        for fence in cluster.cib.fencing
        if target is None or target in fence.targets
    )


def silent_device_findings(answers: Collection[FencingAnswer]) -> Iterator[Finding]:
    """Return a finding for each fencing device that did not answer."""
    for answer in answers:
        if not answer.reason:
            continue
        others = [_answering_device(answers, target) for target in answer.targets]
        is_covered = bool(others) and all(others)
        targets = " or ".join(answer.targets) or "a node"
        yield Finding(
            code="SAN-FEN-002",
            severity=Severity.WARNING if is_covered else Severity.CRITICAL,
            subject=f"fencing {answer.device}",
            what=f"it does not answer this node: {answer.reason}",
            why=f"if {targets} fails, this device is tried in vain first; the only one left is "
            f"{' and '.join(sorted({*others}))}"
            if is_covered
            else f"if {targets} fails, no other node may take over its devices",
            do="check that its BMC is reachable (ping), and address, user and password in the "
            "inventory; run the rollout after a change",
        )


def _answering_device(answers: Collection[FencingAnswer], target: str) -> str:
    """Return a device that fences a node and answered; empty if there is none."""
    return next((a.device for a in answers if target in a.targets and a.reason == ""), "")


def query_fencing_of_node(
    session: Session, stonith: StonithPort, name: NodeName
) -> tuple[FencingAnswer, ...]:
    """Ask the fencing devices of a node for its power status, from this node.

    Raises:
        Refused: there is no such node, or no fencing device for it.
    """
    cluster = session.observe()
    check_fencing(cluster, name)
    session.reporter.update(f"asking the fencing devices of {name}")
    return query_fencing_devices(stonith, cluster, name.value)


def fence_node(
    session: Session,
    stonith: StonithPort,
    name: NodeName,
    *,
    accepted: Collection[str],
    drain: bool,
    timeout_s: float,
) -> bool:
    """Fence a node for real, drained first if it is in service; return whether it was drained.

    To drain the node, the command puts it into standby, and ends the standby once the node has been
    fenced, so that it comes back into service. If fencing fails the standby stays, as the error
    says.

    Raises:
        Refused: no such node, no fencing device for it, no quorum here, or a device would or may
            stop being served.
        NotConverged: the drain did not end.
        CommandError: the node is not known to have been fenced.
    """
    cluster = session.observe()
    check_fencing(cluster, name)
    # The fencer obeys without quorum, too: this part would cut off the node that serves.
    refuse_without_quorum(cluster)
    is_member = cluster.mon.state(name) in MEMBER_STATES
    problems = stop_problems(cluster, name) if is_member else ()
    if problems and ACCEPT_STOP not in accepted:
        raise Refused(*problems)
    drained = False
    if is_member and drain:
        drained = put_in_standby(session, name, accepted=accepted, timeout_s=timeout_s)
    session.reporter.update(f"fencing {name}")
    try:
        ways = sum(name.value in fence.targets for fence in cluster.cib.fencing)
        stonith.fence(name.value, ways=ways, timeout_s=timeout_s)
    except CommandError as error:
        kept = f"; {name} stays in standby: 'sanctl node online {name}'" if drained else ""
        raise CommandError(
            Problem(
                "SAN-FEN-003",
                f"{name} is not known to have been fenced: {error.problems[0].text}",
                f"'sanctl node fence {name} --test', 'stonith_admin --history {name}'{kept}",
            )
        ) from error
    if drained:
        session.change(lambda seen: plan_online(seen, name))
    return drained
