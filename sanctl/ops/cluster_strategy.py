# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `cluster strategy set`: takes running Corosyncs to another vote mode by steps."""

from __future__ import annotations

from dataclasses import replace

from sanctl.config import parse, render
from sanctl.drivers import corosync
from sanctl.errors import NotConverged, Problem, Refused
from sanctl.model.cib_change import Change, SetNodeAttribute
from sanctl.model.cib_names import POOL_RESOURCE
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.crm_mon import Role as MonRole
from sanctl.model.names import NodeName
from sanctl.model.topology import Strategy, Topology
from sanctl.model.vote_mode import VOTES_ATTRIBUTE, NodeVotes, VoteMode, WantedVotes
from sanctl.ops.session import Session
from sanctl.plan.cluster.removal import unwritten_member_problems
from sanctl.plan.cluster.strategy import VoteAction, VoteStep, newcomers, next_vote_step
from sanctl.system.runner import Runner

_POLL_S = 0.5
# As long as a quorum device needs to vote for nodes that have just reached it, with some to spare.
_VOTE_S = 60.0


def change_strategy(
    session: Session, runner: Runner, topology: Topology, strategy: Strategy, *, timeout_s: float
) -> bool:
    """Take the cluster to a strategy, step by step; return whether anything was to change.

    An interruption at any point leaves a safe state; the command, run again, goes on from there.

    Raises:
        ConfigError: the cluster's nodes do not go with the strategy.
        Refused: a storage node is away or its agent does not run, or its corosync.conf lacks a
            member; nothing was changed.
        CommandError: corosync refused a reload.
        NotConverged: a node did not follow in time; the change stands where it is. Or the quorum
            device gives no vote, and there is nothing to change.
    """
    goal = replace(topology, strategy=strategy)
    parse(render(goal), source="cluster.toml")  # raises if the nodes do not suit the strategy
    has_changed = False
    loaded: VoteMode | None = None
    begun_s = session.clock.monotonic_s()
    deadline = begun_s + timeout_s
    while True:
        seen = session.observe()
        nodes = _refuse_unless_complete(seen, topology, runner)
        published = {str(name): seen.votes_of(name) for name in nodes}
        step = next_vote_step(goal.vote_mode, published)
        if (
            step is not None
            and step.action is VoteAction.DONE
            and _all_publish(published, strategy)
        ):
            return has_changed
        do = ""
        if step is None:
            what = "every node to publish how it counts votes"
        elif step.action is VoteAction.RELOAD:
            # Once: a node publishes its new mode with its next monitor.
            if loaded != step.mode:
                corosync.reload(runner)
                loaded = step.mode
                has_changed = True
            what = f"every corosync to count by {step.mode}"
        elif step.action is VoteAction.AWAIT_DEVICE:
            is_settled = not has_changed and _all_publish(published, strategy)
            if is_settled and session.clock.monotonic_s() >= begun_s + min(timeout_s, _VOTE_S):
                raise NotConverged(_silent_device_problem(step.mode))
            what = f"the quorum device's vote from {step.mode.host}"
            do = (
                f"is {step.mode.host} up, and corosync-qnetd on it? 'corosync-qdevice-tool -s' on "
                "each node; "
            )
        else:
            has_changed = _order_step(session, topology, runner, step, strategy) or has_changed
            what = f"every node to write that it counts by {step.mode}"
        _pause(session, what, published, deadline, timeout_s, do=do)


def _all_publish(published: dict[str, NodeVotes], strategy: Strategy) -> bool:
    return all(votes.strategy == strategy for votes in published.values())


def _order_step(
    session: Session, topology: Topology, runner: Runner, step: VoteStep, strategy: Strategy
) -> bool:
    """Write the step into the CIB for every storage node that is a member, in one change."""
    wanted = WantedVotes(vote_mode=step.mode, strategy=strategy.value)

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        return tuple(
            SetNodeAttribute(node=name, attribute=VOTES_ATTRIBUTE, value=str(wanted))
            for name in _refuse_unless_complete(cluster, topology, runner)
            if cluster.wanted_votes(name) != wanted
        )

    return bool(session.change(decide))


def _refuse_unless_complete(
    cluster: Cluster, topology: Topology, runner: Runner
) -> tuple[NodeName, ...]:
    """Refuse without a storage node: an absent one would come back with the old vote mode.

    Nor is Corosync reloaded where that would take a member out of its list.

    Returns:
        the storage nodes that are members: those that a rollout is about to add count with none.
    """
    nodes = _members(cluster, topology, runner)
    problems = [
        Problem(
            "SAN-QUO-002",
            f"node {name} is {cluster.mon.state(name)} and cannot follow the change"
            if cluster.mon.state(name) is not NodeState.ONLINE
            else f"the agent sanctl-pool does not run on node {name}",
            f"a strategy changes only with every storage node online: bring {name} back and "
            "run the command again, which goes on from where the change is",
        )
        for name in nodes
        if not cluster.is_pool_agent_running(name)
        # An agent that is starting has not published its vote mode yet: that is waited for.
        and cluster.mon.role(POOL_RESOURCE, name) is not MonRole.STARTING
    ]
    problems += unwritten_member_problems(cluster, nodes)
    if not cluster.mon.has_quorum:
        problems.append(
            Problem(
                "SAN-CLU-001",
                "this part of the cluster has no quorum",
                "bring the other nodes back, or run the command where the majority is",
            )
        )
    if problems:
        raise Refused(*problems)
    return nodes


def _members(cluster: Cluster, topology: Topology, runner: Runner) -> tuple[NodeName, ...]:
    names = tuple(node.name for node in topology.storage_nodes)
    if all(cluster.mon.state(name) is not NodeState.UNKNOWN for name in names):
        return names
    new = newcomers(cluster, topology, corosync.members(runner))
    return tuple(name for name in names if name.value not in new)


def _silent_device_problem(mode: VoteMode) -> Problem:
    return Problem(
        "SAN-QUO-004",
        f"every node counts by {mode}, and nothing was to be changed; the quorum device on "
        f"{mode.host} gives no vote",
        f"is {mode.host} up, and corosync-qnetd on it? 'corosync-qdevice-tool -s' on each node. "
        "Until it votes, the next loss of a node may leave no majority",
    )


def _pause(
    session: Session,
    what: str,
    published: dict[str, NodeVotes],
    deadline: float,
    timeout_s: float,
    *,
    do: str,
) -> None:
    session.reporter.update(f"waiting for {what}")
    if session.clock.monotonic_s() >= deadline:
        last = "; ".join(f"{name}: {votes}" for name, votes in sorted(published.items()))
        raise NotConverged(
            Problem(
                "SAN-QUO-003",
                f"{what}: not within {timeout_s:g} s; last seen: {last}",
                f"{do}the cluster is safe as it is, but needs every storage node for quorum until "
                "the change is finished: run the command again",
            )
        )
    session.clock.sleep(_POLL_S)
