# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes the failover strategy of the running cluster, and waits for every node to follow."""

from __future__ import annotations

from dataclasses import replace

from sanctl.config import parse, render
from sanctl.drivers import corosync
from sanctl.errors import NotConverged, Problem, Refused
from sanctl.model.cib_change import Change, SetNodeAttribute
from sanctl.model.cluster import POOL_RESOURCE, Cluster, NodeState
from sanctl.model.cluster import Role as MonRole
from sanctl.model.topology import Strategy, Topology
from sanctl.model.vote_mode import ATTRIBUTE, Ballot, Tally, Wish
from sanctl.ops.session import Session
from sanctl.plan.cluster.strategy import Act, Step, next_step
from sanctl.system.runner import Runner

_POLL_S = 0.5


def change(
    session: Session, runner: Runner, topology: Topology, strategy: Strategy, *, timeout_s: float
) -> bool:
    """Take the cluster to a strategy, step by step; return whether anything was to change.

    Whatever ends it half-way leaves a safe state: run again, it looks and goes on from there.

    Raises:
        ConfigError: the cluster's nodes do not go with the strategy.
        Refused: a storage node is away or its agent does not run; nothing was changed.
        CommandError: corosync refused a reload.
        NotConverged: a node did not follow in time; the change stands where it is.
    """
    goal = replace(topology, strategy=strategy)
    parse(render(goal), source="cluster.toml")  # raises for what does not go together
    nodes = tuple(node.name for node in topology.storage_nodes)
    has_changed = False
    loaded: Tally | None = None
    deadline = session.clock.monotonic_s() + timeout_s
    while True:
        seen = session.observe()
        _require_all(seen, topology)
        ballots = {str(name): seen.ballot(name) for name in nodes}
        step = next_step(goal.tally, ballots)
        if step is not None and step.act is Act.DONE and _is_told(ballots, strategy):
            return has_changed
        if step is None:
            what = "every node to say how it counts votes"
        elif step.act is Act.RELOAD:
            # Once: a node tells of it with its next monitor.
            if loaded != step.tally:
                corosync.reload(runner)
                loaded = step.tally
                has_changed = True
            what = f"every corosync to count by {step.tally}"
        elif step.act is Act.AWAIT_DEVICE:
            what = f"the quorum device's vote from {step.tally.host}"
        else:
            has_changed = _ask(session, topology, step, strategy) or has_changed
            what = f"every node to write that it counts by {step.tally}"
        _pause(session, what, ballots, deadline, timeout_s)


def _is_told(ballots: dict[str, Ballot], strategy: Strategy) -> bool:
    return all(ballot.strategy == strategy for ballot in ballots.values())


def _ask(session: Session, topology: Topology, step: Step, strategy: Strategy) -> bool:
    """Note the step as what every storage node is to do, in one change of the CIB."""
    wish = Wish(tally=step.tally, strategy=strategy.value)

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        _require_all(cluster, topology)
        return tuple(
            SetNodeAttribute(node=node.name, attribute=ATTRIBUTE, value=str(wish))
            for node in topology.storage_nodes
            if cluster.wish(node.name) != wish
        )

    return bool(session.change(decide))


def _require_all(cluster: Cluster, topology: Topology) -> None:
    """Refuse to go on without a storage node: it would come back counting in the old way."""
    problems = [
        Problem(
            "SAN-QUO-002",
            f"node {node.name} is {cluster.mon.state(node.name)} and cannot follow the change"
            if cluster.mon.state(node.name) is not NodeState.ONLINE
            else f"the agent sanctl-pool does not run on node {node.name}",
            "a strategy changes only with every storage node online; bring it back and run the "
            "command again, it goes on from where it is",
        )
        for node in topology.storage_nodes
        if not cluster.is_pool_agent_running(node.name)
        # On its way: it has not told yet how it counts, which is waited for.
        and cluster.mon.role(POOL_RESOURCE, node.name) is not MonRole.STARTING
    ]
    if not cluster.mon.has_quorum:
        problems.append(
            Problem("SAN-CLU-001", "this part of the cluster has no quorum", "bring nodes back")
        )
    if problems:
        raise Refused(*problems)


def _pause(
    session: Session, what: str, ballots: dict[str, Ballot], deadline: float, timeout_s: float
) -> None:
    session.reporter.update(f"waiting for {what}")
    if session.clock.monotonic_s() >= deadline:
        last = "; ".join(f"{name}: {ballot}" for name, ballot in sorted(ballots.items()))
        raise NotConverged(
            Problem(
                "SAN-QUO-003",
                f"{what}: not within {timeout_s:g} s; last seen: {last}",
                "the cluster is safe as it is, and serves only whole until the change is "
                "finished: run the command again",
            )
        )
    session.clock.sleep(_POLL_S)
