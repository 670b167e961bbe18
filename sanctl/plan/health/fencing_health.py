# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on fencing (devices, history, watchdog, no-quorum-policy) and on iscsi reachability."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cib import FencingResource
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, NodeState, Role
from sanctl.model.findings import Finding, Severity
from sanctl.model.meta_attribute import and_texts, deletions
from sanctl.model.name_list import in_words
from sanctl.model.pacemaker_boolean import is_true
from sanctl.model.sbd_mode import DISK, DISKLESS, MODES, OFF

_FENCE_SBD = "fence_sbd"
CRITICAL, WARNING = Severity.CRITICAL, Severity.WARNING


def fencing_findings(cluster: Cluster) -> Iterator[Finding]:
    """Return what is wrong with fencing, before it is needed."""
    properties = cluster.cib.properties
    if not is_true(properties.get("stonith-enabled", "true")):
        yield Finding(
            code="SAN-HLT-010",
            severity=CRITICAL,
            subject="fencing",
            what="fencing is switched off",
            why="a node that falls silent may still write: taking over then can destroy data",
            do="crm_attribute --name stonith-enabled --update true",
        )
    if not is_true(properties.get("startup-fencing", "true")):
        yield Finding(
            code="SAN-HLT-017",
            severity=CRITICAL,
            subject="fencing",
            what="startup-fencing is off",
            why="a node that starts alone takes the others for down: both may serve, or connect to "
            "replicas of which they know nothing",
            do="crm_attribute --name startup-fencing --delete",
        )
    watchdog = _fenced_by_watchdog(cluster)
    if not cluster.cib.fencing and not watchdog:
        yield Finding(
            code="SAN-HLT-011",
            severity=CRITICAL,
            subject="fencing",
            what="no fencing device is configured",
            why="when a node falls silent nothing can be taken over: all its devices stop",
            do="run the rollout again with a fencing device for each node",
        )
        return
    # A fencing device without a host list asks its hardware; it may fence any node.
    if not watchdog and all(fence.targets for fence in cluster.cib.fencing):
        covered = {target for fence in cluster.cib.fencing for target in fence.targets}
        for node in cluster.cib.nodes:
            if node.name.value not in covered:
                yield Finding(
                    code="SAN-HLT-012",
                    severity=CRITICAL,
                    subject=f"node {node.name}",
                    what="no fencing device is for it",
                    why="when it falls silent nothing it served can be taken over",
                    do="run the rollout again with a fencing device for it",
                )
    yield from _sbd_findings(cluster, is_reset=watchdog)
    yield from _history_findings(cluster)
    for fence in cluster.cib.fencing:
        yield from _user_findings(cluster, fence)
        if fence.disabled_by:
            yield _disabled_finding(cluster, fence)
        elif not any(i.role is Role.STARTED for i in cluster.mon.instances_of(fence.id)):
            yield Finding(
                code="SAN-HLT-013",
                severity=WARNING,
                subject=f"fencing {fence.id}",
                what="it does not run: its monitor failed or no node may run it",
                why="fencing with it is likely to fail when it is needed",
                do=f"test it: 'stonith_admin --list-registered', then "
                f"'crm_resource --cleanup --resource {fence.id}'",
            )
    policy = properties.get("no-quorum-policy", "stop")
    if policy not in {"stop", "suicide", "fence", "demote"}:
        yield Finding(
            code="SAN-HLT-014",
            severity=CRITICAL,
            subject="cluster",
            what=f"no-quorum-policy is {policy}",
            why="a part of the cluster without quorum would go on serving",
            do="crm_attribute --name no-quorum-policy --update stop",
        )


def _disabled_finding(cluster: Cluster, fence: FencingResource) -> Finding:
    """Return SAN-HLT-156: Pacemaker's fencer leaves out a device that is disabled."""
    others = [
        next(
            (
                each.id
                for each in cluster.cib.fencing
                if not each.disabled_by and (target in each.targets or not each.targets)
            ),
            "",
        )
        for target in fence.targets
    ]
    by_watchdog = _fenced_by_watchdog(cluster)
    is_covered = by_watchdog or (bool(others) and all(others))
    left = ["its watchdog"] if by_watchdog else sorted({*others})
    targets = " or ".join(fence.targets) or "a node"
    return Finding(
        code="SAN-HLT-156",
        severity=WARNING if is_covered else CRITICAL,
        subject=f"fencing {fence.id}",
        what=f"it is disabled: {and_texts(fence.disabled_by)}",
        why=f"Pacemaker does not use it; {targets} can still be fenced, by {in_words(left)}"
        if is_covered
        else f"Pacemaker does not use it: {targets} cannot be fenced, and what it served is not "
        "taken over when it falls silent",
        do=deletions(fence.disabled_by),
    )


def _fenced_by_watchdog(cluster: Cluster) -> bool:
    """Whether every node resets itself by its watchdog when it has lost quorum (diskless SBD)."""
    wait = cluster.cib.properties.get("stonith-watchdog-timeout", "0")
    return wait.strip().rstrip("sm") not in {"", "0"}


def _sbd_findings(cluster: Cluster, *, is_reset: bool) -> Iterator[Finding]:
    """Return the nodes whose SBD does not do what the cluster counts on when it fences them.

    A witness publishes nothing: the rollout looks there.
    """
    wanted = DISKLESS if is_reset else DISK
    if not is_reset and all(fence.agent != _FENCE_SBD for fence in cluster.cib.fencing):
        return
    modes = {node: usage.sbd for (_, node), usage in cluster.cib.pools.items() if usage.sbd}
    for node, mode in sorted(modes.items()):
        # Of a mode that a later release has nothing is known.
        if mode == wanted or mode not in MODES or cluster.mon.state(node) not in MEMBER_STATES:
            continue
        yield Finding(
            code="SAN-HLT-131",
            severity=CRITICAL,
            subject=f"node {node}",
            what="SBD does not run there" if mode == OFF else f"SBD runs there as {mode}",
            why="the others take the node for reset a moment after it has lost quorum "
            "(stonith-watchdog-timeout), and it would go on"
            if is_reset
            else "the others take the node for reset once a message is on SBD's disk, and it reads "
            "none",
            do=f"'sanctl node standby {node}', 'systemctl restart corosync pacemaker' there, "
            f"'sanctl node online {node}'; if it stays so, the playbook (docs/howto/fencing.md)",
        )


def _user_findings(cluster: Cluster, fence: FencingResource) -> Iterator[Finding]:
    """Return fencing devices that no other node could use when their target has failed."""
    allowed = {node.name.value for node in cluster.cib.nodes} - {*fence.banned}
    # A shared disk (SBD) is for every node, its own included: what counts is which node is left.
    users = {target: allowed - {target} for target in fence.targets}
    alone = [target for target, others in users.items() if not others]
    left = [
        target
        for target, others in users.items()
        if others and not any(cluster.mon.state(node) in MEMBER_STATES for node in others)
    ]
    if alone:
        yield Finding(
            code="SAN-HLT-015",
            severity=CRITICAL,
            subject=f"fencing {fence.id}",
            what=f"only {' and '.join(alone)} may use it, the node that it is to fence",
            why="a node that has failed cannot fence, itself included",
            do="remove the constraints that keep it from the other nodes, or run the rollout again",
        )
    if left:
        possible = sorted({node for target in left for node in users[target]})
        yield Finding(
            code="SAN-HLT-015",
            severity=CRITICAL,
            subject=f"fencing {fence.id}",
            what=f"of the nodes that may use it ({', '.join(possible)}) none is a member now",
            why=f"no node can fence {' or '.join(left)} now",
            do="bring one of them back",
        )


def _history_findings(cluster: Cluster) -> Iterator[Finding]:
    for node in cluster.cib.nodes:
        last = cluster.mon.last_fencing(node.name)
        if last is None or last.status == "success":
            continue
        unclean = cluster.mon.state(node.name) is NodeState.UNCLEAN
        yield Finding(
            code="SAN-HLT-016",
            severity=CRITICAL if unclean else Severity.NOTE,
            subject=f"node {node.name}",
            what=f"its last fencing, ended {last.completed}, {last.status}"
            + (f": {last.reason}" if last.reason else ""),
            why="what it served stays stopped until it is fenced, or is back"
            if unclean
            else "the next one may fail too",
            do=f"test it: 'sanctl node fence {node.name} --test'; an old failure is "
            f"cleared with 'stonith_admin --cleanup --history {node.name}'",
        )


def reach_findings(cluster: Cluster) -> Iterator[Finding]:
    """Return which nodes reach none of the addresses on the iscsi network that they ping."""
    watched = {
        node: count
        for node, count in cluster.cib.reach.items()
        if cluster.mon.state(node) in MEMBER_STATES
    }
    for node, count in sorted(watched.items()):
        if count:
            continue
        is_everywhere = not any(watched.values())
        yield Finding(
            code="SAN-HLT-021",
            severity=WARNING,
            subject=f"node {node}",
            what="on the iscsi network it reaches none of the addresses it pings",
            why="no node does, so devices stay where they are"
            if is_everywhere
            else "hosts cannot reach it either: its devices have moved, or cannot",
            do="check its iscsi cable and switch"
            if not is_everywhere
            else "check the iscsi network, or the addresses (sanctl_pacemaker_reach_targets)",
        )
