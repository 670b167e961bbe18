# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks of `sanctl doctor` of what a storage node needs of other servers, before it is needed.

Copies, backups and restore points are made by whichever node serves a device, or has a standby of
it, and that changes with a failover. So that one node gets in says nothing of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from sanctl.drivers.remote_services import RemoteServicesPort
from sanctl.errors import ConfigError, Problem, SanctlError
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, NodeState
from sanctl.model.findings import Finding, Severity
from sanctl.model.topology import Node, Topology

_AT_ONCE = 8
#: Another backup has the repository: so it answers.
_IN_USE = "SAN-BKP-012"
_POINTS_WHY = "no restore point, backup or copy is made of a device that both nodes have"
_RESERVATIONS_WHY = "hosts' changes of a reservation wait for that node, and fail"
_SITE_WHY = "while it is this node's turn no copy is sent there, and no takeover is heard of"
_REPOSITORY_WHY = "while it is this node's turn no backup is made there"


class _Question(NamedTuple):
    code: str
    subject: str
    why: str
    ask: Callable[[], None]


def remote_findings(
    remote: RemoteServicesPort, cluster: Cluster, topology: Topology, here: Node
) -> Iterator[Finding]:
    """Ask everything at once; yield what did not answer as it should.

    Args:
        remote: how the others are asked.
        cluster: the cluster; a node that is no member is not asked.
        topology: cluster.toml.
        here: this node, which holds data.
    """
    questions = list(_of_nodes(remote, cluster, topology, here))
    questions += [
        _Question("SAN-DOC-050", f"site {site.name}", _SITE_WHY, partial(remote.ask_site, site))
        for site in cluster.cib.sites
    ]
    try:
        questions += [
            _Question(
                "SAN-DOC-051",
                f"repository {each.name}",
                _REPOSITORY_WHY,
                partial(remote.ask_repository, each),
            )
            for each in remote.repositories()
        ]
    except ConfigError as error:
        for wrong in error.problems:
            yield _finding("SAN-DOC-051", "backup.toml", _REPOSITORY_WHY, wrong)
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        for question, problem in zip(questions, pool.map(_ask, questions), strict=True):
            if problem is not None and problem.code != _IN_USE:
                yield _finding(question.code, question.subject, question.why, problem)


def _of_nodes(
    remote: RemoteServicesPort, cluster: Cluster, topology: Topology, here: Node
) -> Iterator[_Question]:
    for peer in topology.storage_nodes:
        if peer == here or cluster.mon.state(peer.name) not in MEMBER_STATES:
            continue
        subject = f"node {peer.name}"
        yield _Question(
            "SAN-DOC-052", subject, _POINTS_WHY, partial(remote.ask_for_points, peer, here)
        )
        # Its service need not run without such a replica, as in standby.
        if cluster.mon.state(peer.name) is NodeState.ONLINE and any(
            device.reservations and {here.name, peer.name} <= {*device.nodes}
            for device in cluster.cib.devices
        ):
            yield _Question(
                "SAN-DOC-053",
                subject,
                _RESERVATIONS_WHY,
                partial(remote.ask_for_reservations, peer, here),
            )


def _ask(question: _Question) -> Problem | None:
    """Return why there was no right answer; None: there was one."""
    try:
        question.ask()
    except SanctlError as error:
        return error.problems[0]
    except Exception as error:  # another server's answer must end no doctor
        return Problem("SAN-CMD-003", f"it could not be asked: {error!r}")
    return None


def _finding(code: str, subject: str, why: str, problem: Problem) -> Finding:
    return Finding(
        code=code,
        severity=Severity.WARNING,
        subject=subject,
        what=f"asked from this node: {problem.text} ({problem.code})",
        why=why,
        do=problem.hint or f"'sanctl explain {problem.code}' says what that is",
    )
