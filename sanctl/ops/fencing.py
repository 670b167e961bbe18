# SPDX-License-Identifier: GPL-2.0-or-later
"""Proves that fencing works, and fences on request."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sanctl.drivers.stonith import StonithPort
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cluster import PRESENT, Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import NodeName
from sanctl.ops.node import put_in_standby
from sanctl.ops.session import Session
from sanctl.plan.cluster.node_service import (
    ACCEPT_STOP,
    check_fencing,
    plan_online,
    stranded_devices,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a fencing device said when this node asked it.

    Attributes:
        device: the fencing device.
        targets: the nodes it fences.
        watched_by: the nodes on which the cluster asks it all the time, and is answered.
        reason: why this node got no answer; empty if it got one, None if it may not ask.
    """

    device: str
    targets: tuple[str, ...]
    watched_by: tuple[str, ...]
    reason: str | None


def ask_devices(
    stonith: StonithPort, cluster: Cluster, target: str | None = None
) -> tuple[Answer, ...]:
    """Ask the fencing devices, all or those of one node, for their status from this node.

    Raises:
        CommandError: the fencer did not answer.
    """
    usable = stonith.registered()
    return tuple(
        Answer(
            device=fence.id,
            targets=fence.targets,
            watched_by=tuple(i.node for i in cluster.mon.instances_of(fence.id)),
            reason=stonith.ask(fence.id) if fence.id in usable else None,
        )
        for fence in cluster.cib.fencing
        if target is None or target in fence.targets
    )


def silent(answers: Collection[Answer]) -> Iterator[Finding]:
    """Return which devices did not answer."""
    for answer in answers:
        if not answer.reason:
            continue
        helpers = [_helper(answers, target) for target in answer.targets]
        is_covered = bool(helpers) and all(helpers)
        targets = " or ".join(answer.targets) or "a node"
        yield Finding(
            code="SAN-FEN-002",
            severity=Severity.WARNING if is_covered else Severity.CRITICAL,
            subject=f"fencing {answer.device}",
            what=f"it does not answer this node: {answer.reason}",
            why=f"if {targets} fails it is tried in vain first, and there is only "
            f"{' and '.join(sorted({*helpers}))} left"
            if is_covered
            else f"if {targets} fails, nothing that it served is taken over",
            do="is its BMC there (ping), are address, user and password right? They are in the "
            "inventory; run the rollout after a change",
        )


def _helper(answers: Collection[Answer], target: str) -> str:
    """Return a device that fences a node and answered; empty if there is none."""
    return next((a.device for a in answers if target in a.targets and a.reason == ""), "")


def ask_about(session: Session, stonith: StonithPort, name: NodeName) -> tuple[Answer, ...]:
    """Ask the fencing devices of a node for its power status, from this node.

    Raises:
        Refused: there is no such node, or nothing that could fence it.
    """
    cluster = session.observe()
    check_fencing(cluster, name)
    session.reporter.update(f"asking the fencing devices of {name}")
    return ask_devices(stonith, cluster, name.value)


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

    A node that is drained is put into standby for that. The standby is ended when it has been
    fenced, so that the node comes back into service; if fencing fails it stays, and is said so.

    Raises:
        Refused: no such node, nothing that could fence it, or a device would stop being served.
        NotConverged: the drain did not end.
        CommandError: it is not known to have been fenced.
    """
    cluster = session.observe()
    check_fencing(cluster, name)
    present = cluster.mon.state(name) in PRESENT
    stranded = stranded_devices(cluster, name) if present else ()
    if stranded and ACCEPT_STOP not in accepted:
        raise Refused(
            *(
                Problem(
                    ACCEPT_STOP,
                    f"device {device} would stop: no other node has an up-to-date replica of it",
                    f"wait for the resync, or accept that with --accept {ACCEPT_STOP}",
                )
                for device in stranded
            )
        )
    drained = False
    if present and drain:
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
