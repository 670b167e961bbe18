# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `node fence`: asks fencing devices for their status, or fences a node now."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sanctl.drivers.stonith import StonithPort
from sanctl.errors import CommandError, NotConverged, Problem, Refused, SanctlError
from sanctl.model.cib_names import DRAINED_ATTRIBUTE
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, NodeState
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import NodeName
from sanctl.ops.node_drain import drain_node
from sanctl.ops.session import Session
from sanctl.plan.cluster.draining import DRAIN_CONSTRAINT
from sanctl.plan.cluster.preconditions import kept_node_problem
from sanctl.plan.cluster.standby import check_fencing, refuse_fencing


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
    here: str,
    accepted: Collection[str],
    drain: bool,
    timeout_s: float,
) -> bool:
    """Fence a node for real, drained first if it is in service; return whether it was drained.

    The drain ends with the node's membership, so the node is in service again once it is back,
    whatever becomes of this command. Where the node is not fenced after all the drain is ended; if
    fencing fails it stays, as the error says: the node may be off, or go off yet.

    Args:
        session: the cluster.
        stonith: the fencer.
        name: the node to fence.
        here: this node.
        accepted: codes of refusals to go on despite.
        drain: let other nodes serve its devices first.
        timeout_s: for the drain, and for the fencing.

    Raises:
        Refused: as `refuse_fencing` says, before the drain or after it; or the node cannot be
            drained.
        NotConverged: the drain did not end. Nothing was fenced.
        CommandError: the node is not known to have been fenced.
    """
    cluster = session.observe()
    refuse_fencing(cluster, name, here, accepted=accepted)
    is_drained_now = drain and cluster.mon.state(name) in MEMBER_STATES
    was_drained = name.value in cluster.cib.drained
    try:
        if is_drained_now:
            _drain(session, cluster, name, timeout_s=timeout_s)
            # Another node may have been lost meanwhile, or another part have taken over.
            refuse_fencing(session.observe(), name, here, accepted=accepted)
        session.reporter.update(f"fencing {name}")
    except BaseException:
        if is_drained_now and not was_drained:
            with contextlib.suppress(SanctlError):
                session.set_transient_attribute(name, DRAINED_ATTRIBUTE, None)
        raise
    try:
        ways = sum(name.value in fence.targets for fence in cluster.cib.fencing)
        stonith.fence(name.value, ways=ways, timeout_s=timeout_s)
    except CommandError as error:
        kept = f"; {name} stays drained: 'sanctl node undrain {name}'" if is_drained_now else ""
        raise CommandError(
            Problem(
                "SAN-FEN-003",
                f"{name} is not known to have been fenced: {error.problems[0].text}",
                f"'sanctl node fence {name} --test', 'stonith_admin --history {name}'{kept}",
            )
        ) from error
    return is_drained_now


def _drain(session: Session, cluster: Cluster, name: NodeName, *, timeout_s: float) -> None:
    """Let other nodes serve the devices of a node that is to be fenced.

    Raises:
        Refused: the CIB is of a rollout that knows no drain, or the node is in maintenance.
        NotConverged: not all devices have moved, or what a resync wrote elsewhere is not flushed.
    """
    if DRAIN_CONSTRAINT not in cluster.cib.ids:
        raise Refused(
            Problem(
                "SAN-FEN-006",
                f"{name} cannot be drained: the CIB has no constraint {DRAIN_CONSTRAINT} yet",
                "run the playbook, which makes it; or fence without, with --no-drain",
            )
        )
    if cluster.mon.state(name) is NodeState.MAINTENANCE:
        kept = kept_node_problem(name)
        hint = f"{kept.hint}. Or fence without a drain, with --no-drain"
        raise Refused(Problem(kept.code, kept.text, hint))
    outcome = drain_node(session, name, timeout_s=timeout_s)
    if outcome.late or outcome.unflushed:
        what = [f"{each} is still being moved" for each in outcome.late]
        what += [f"{each} is not flushed on another node" for each in outcome.unflushed]
        raise NotConverged(
            Problem(
                "SAN-WAIT-001",
                f"the drain of {name} has not ended within {timeout_s:g} s: {', '.join(what)}; "
                f"{name} was not fenced, and may serve again",
                "'sanctl status' shows the state of the cluster; --no-drain does not wait",
            )
        )
