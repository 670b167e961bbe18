# SPDX-License-Identifier: GPL-2.0-or-later
"""How this node counts votes: brings it to what the cluster asks for, and tells how it is.

The cluster's wish is a permanent attribute of each node, set for all of them in one change of the
CIB (`sanctl cluster strategy set`). This only ever changes the node's own files. What is written
holds from corosync's next start or reload on, and nobody reloads before every node has written.

Whether a wish is a safe next step is decided before it is made (`sanctl.plan.cluster.strategy`).
"""

from __future__ import annotations

from dataclasses import replace

from sanctl.agents.publish import attrd_cache
from sanctl.drivers import corosync, node_attributes
from sanctl.errors import ConfigError, SanctlError
from sanctl.model.vote_mode import VOTES_ATTRIBUTE, NodeVotes, VoteMode, Votes, WantedVotes
from sanctl.parse.corosync import parse_conf_vote_mode, section_span
from sanctl.render.corosync import quorum_section
from sanctl.system import journal
from sanctl.system.files import exists, read_text, read_text_or, write_atomically
from sanctl.system.runner import Runner

_TOML = "/etc/sanctl/cluster.toml"
# Looked at instead of asking systemd, which would cost a process with every monitor.
_DEVICE_SOCKET = "/run/corosync-qdevice/corosync-qdevice.sock"


def apply(runner: Runner, wished: str) -> None:
    """Bring this node towards what is wished for, and publish how it counts.

    Args:
        runner: runs corosync's tools.
        wished: the node's permanent attribute, empty if there is none.

    Raises:
        SanctlError: corosync or Pacemaker does not answer; the next monitor tries again.
        OSError: a file cannot be written.
    """
    wish = WantedVotes.parse(wished)
    if wish is not None:
        _follow(runner, wish)
    ballot = read_vote_mode(runner)
    _run_device(runner, ballot)
    _publish(runner, ballot)


def read_vote_mode(runner: Runner) -> NodeVotes:
    """Return how this node counts."""
    live = corosync.live_vote_mode(runner)
    return NodeVotes(
        file=parse_conf_vote_mode(read_text_or(corosync.CONF, "")),
        live=live,
        strategy=_strategy(),
        is_device_voting=live is not None
        and live.votes is Votes.QDEVICE
        and "Qdevice" in corosync.membership(runner).flags,
    )


def invalidate_published() -> None:
    """Have the next `cast` publish again, whatever was told before."""
    attrd_cache.of_votes().remove()


def _strategy() -> str:
    import tomllib  # noqa: PLC0415 - not for agents that never come here

    try:
        return str(tomllib.loads(read_text(_TOML))["cluster"]["strategy"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _follow(runner: Runner, wish: WantedVotes) -> None:
    """Write what is wished for into this node's files, if it is not there."""
    text = read_text(corosync.CONF)
    if parse_conf_vote_mode(text) != wish.vote_mode:
        if exists(_DEVICE_SOCKET):
            # Before, not after: when corosync drops a device whose daemon still runs, the daemon
            # fails, and corosync believes to the end of its days that it is registered (3.1.9).
            corosync.set_qdevice(runner, running=False)
            _note(f"votes: the quorum device is let go of, before counting by {wish.vote_mode}")
        start, end = section_span(text, "quorum")
        write_atomically(corosync.CONF, text[:start] + quorum_section(wish.vote_mode) + text[end:])
        _note(f"votes: {corosync.CONF} now counts by {wish.vote_mode}")
    if _strategy() != wish.strategy and _write_strategy(wish.strategy):
        _note(f"votes: {_TOML} now says {wish.strategy}")


def _write_strategy(strategy: str) -> bool:
    """Put the strategy into cluster.toml; return whether that was done.

    A rollout that is on its way to another strategy may have written nodes that do not go with this
    one. Then the file is the newer word, and is left alone.
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


def _run_device(runner: Runner, ballot: NodeVotes) -> None:
    """Run the device's daemon while corosync counts with one, and only then."""
    is_running = exists(_DEVICE_SOCKET)
    if _is_device(ballot.live) and _is_device(ballot.file):
        if not is_running:
            corosync.set_qdevice(runner, running=True)
    elif is_running and not _is_device(ballot.live):
        corosync.set_qdevice(runner, running=False)


def _is_device(tally: VoteMode | None) -> bool:
    return tally is not None and tally.votes is Votes.QDEVICE


def _publish(runner: Runner, ballot: NodeVotes) -> None:
    listener = attrd_cache.attrd_pid()
    if attrd_cache.is_current(attrd_cache.of_votes(), listener, str(ballot)):
        return
    node_attributes.publish(runner, VOTES_ATTRIBUTE, str(ballot))
    attrd_cache.record(attrd_cache.of_votes(), listener, str(ballot))


def _note(text: str) -> None:
    journal.write(text, priority=journal.NOTICE, action="votes")


def apply_or_log(runner: Runner, wished: str) -> None:
    """As `cast`; a failure is logged, because what serves does not depend on it."""
    try:
        apply(runner, wished)
    except (SanctlError, OSError, ValueError) as error:
        journal.write(f"votes: {error}", priority=journal.ERROR, action="votes")
