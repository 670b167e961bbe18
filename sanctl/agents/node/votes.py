# SPDX-License-Identifier: GPL-2.0-or-later
"""The vote mode of this node: writes the wanted one to corosync.conf, publishes the present one.

Published with it: the members in corosync.conf, and those of the running corosync.

The wanted vote mode is a permanent attribute of each node, set for all nodes in one change of the
CIB (`sanctl cluster strategy set`). This module only ever changes the node's own files. A written
mode holds from corosync's next start or reload on, and `sanctl cluster strategy` reloads only after
every node has written.

Whether a mode is a safe next step is decided before it is set (`sanctl.plan.cluster.strategy`).
"""

from __future__ import annotations

from dataclasses import replace

from sanctl.agents.publish import attrd_cache
from sanctl.drivers import corosync, node_attributes
from sanctl.errors import ConfigError, SanctlError
from sanctl.model.vote_mode import VOTES_ATTRIBUTE, NodeVotes, VoteMode, Votes, WantedVotes
from sanctl.parse.corosync import parse_conf_members, parse_conf_vote_mode, section_span
from sanctl.render.corosync import quorum_section
from sanctl.system import journal
from sanctl.system.files import exists, read_text, read_text_or, write_atomically
from sanctl.system.runner import Runner

_TOML = "/etc/sanctl/cluster.toml"
# Its existence shows that the daemon runs: asking systemd would cost a process with every monitor.
_QDEVICE_SOCKET = "/run/corosync-qdevice/corosync-qdevice.sock"


def apply(runner: Runner, wanted: str) -> None:
    """Bring this node towards the wanted vote mode, and publish the present one.

    `wanted` is the node's permanent attribute, empty if there is none.

    Raises:
        SanctlError: corosync or Pacemaker does not answer; the next monitor tries again.
        OSError: a file cannot be written.
    """
    target = WantedVotes.parse(wanted)
    if target is not None:
        _write_wanted(runner, target)
    present = read_vote_mode(runner)
    _run_qdevice(runner, present)
    _publish(runner, present)


def read_vote_mode(runner: Runner) -> NodeVotes:
    """Return this node's vote mode and its list of nodes, on disk and live."""
    live, loaded = corosync.live_votes_and_members(runner)
    text = read_text_or(corosync.CONF, "")
    return NodeVotes(
        file=parse_conf_vote_mode(text),
        live=live,
        strategy=_strategy(),
        is_device_voting=live is not None
        and live.votes is Votes.QDEVICE
        and corosync.membership(runner).has_device_vote,
        written=tuple(sorted(parse_conf_members(text))),
        loaded=tuple(sorted(loaded)),
    )


def invalidate_published() -> None:
    """Make the next `apply` publish again, whatever was published before."""
    attrd_cache.of_votes().remove()


def _strategy() -> str:
    import tomllib  # noqa: PLC0415 - not for agents that never come here

    try:
        return str(tomllib.loads(read_text(_TOML))["cluster"]["strategy"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _write_wanted(runner: Runner, target: WantedVotes) -> None:
    """Write the wanted vote mode into this node's files, if they hold another."""
    text = read_text(corosync.CONF)
    if parse_conf_vote_mode(text) != target.vote_mode:
        if exists(_QDEVICE_SOCKET):
            # Before, not after: when corosync drops a quorum device whose daemon still runs, the
            # daemon fails, and corosync takes it for registered until corosync ends (3.1.9).
            corosync.set_qdevice(runner, running=False)
            _log(f"votes: the quorum device is stopped, before counting by {target.vote_mode}")
        start, end = section_span(text, "quorum")
        write_atomically(
            corosync.CONF, text[:start] + quorum_section(target.vote_mode) + text[end:]
        )
        _log(f"votes: {corosync.CONF} now counts by {target.vote_mode}")
    if _strategy() != target.strategy and _write_strategy(target.strategy):
        _log(f"votes: {_TOML} now says {target.strategy}")


def _write_strategy(strategy: str) -> bool:
    """Write the strategy into cluster.toml; return whether that was done.

    A rollout that is changing to another strategy may have written nodes that this strategy does
    not allow. Then the file is newer than the attribute, and is left alone.
    """
    from sanctl.config.cluster import parse, render  # noqa: PLC0415 - monitors do not pay for it
    from sanctl.model.topology import Strategy  # noqa: PLC0415

    text = read_text(_TOML)
    head = "".join(line for line in text.splitlines(keepends=True)[:1] if line.startswith("#"))
    wanted = render(replace(parse(text, source=_TOML), strategy=Strategy(strategy)))
    try:
        parse(wanted)
    except ConfigError:
        return False
    write_atomically(_TOML, head + wanted)
    return True


def _run_qdevice(runner: Runner, present: NodeVotes) -> None:
    """Run corosync-qdevice while corosync counts a quorum device's vote, and only then."""
    is_running = exists(_QDEVICE_SOCKET)
    if _is_qdevice(present.live) and _is_qdevice(present.file):
        if not is_running:
            corosync.set_qdevice(runner, running=True)
    elif is_running and not _is_qdevice(present.live):
        corosync.set_qdevice(runner, running=False)


def _is_qdevice(vote_mode: VoteMode | None) -> bool:
    return vote_mode is not None and vote_mode.votes is Votes.QDEVICE


def _publish(runner: Runner, present: NodeVotes) -> None:
    attrd_pid = attrd_cache.attrd_pid()
    if attrd_cache.is_current(attrd_cache.of_votes(), attrd_pid, str(present)):
        return
    node_attributes.publish(runner, VOTES_ATTRIBUTE, str(present))
    attrd_cache.record(attrd_cache.of_votes(), attrd_pid, str(present))


def _log(text: str) -> None:
    journal.write(text, priority=journal.NOTICE, action="votes")


def apply_or_log(runner: Runner, wanted: str) -> None:
    """Call `apply`, and log a failure: a device that serves does not depend on it."""
    try:
        apply(runner, wanted)
    except (SanctlError, OSError, ValueError) as error:
        journal.write(f"votes: {error}", priority=journal.ERROR, action="votes")
