# SPDX-License-Identifier: GPL-2.0-or-later
"""Corosync on this node: quorum, members, vote mode, links; reload; the qdevice daemon."""

from __future__ import annotations

from sanctl.errors import CommandError, Problem
from sanctl.model.vote_mode import VoteMode
from sanctl.parse.corosync import (
    Link,
    Membership,
    member_span,
    parse_cfgtool,
    parse_cmap_members,
    parse_cmap_vote_mode,
    parse_quorumtool,
)
from sanctl.system.files import read_text, write_atomically
from sanctl.system.runner import Runner, limit_s

CONF = "/etc/corosync/corosync.conf"
_TIMEOUT_S = 10.0
_DEVICE_UNIT = "corosync-qdevice.service"


def membership(runner: Runner) -> Membership:
    """Return the partition this node is in: whether it has quorum, and its members.

    Raises:
        CommandError: corosync does not answer.
    """
    from sanctl.drivers import quorum_library  # noqa: PLC0415 - a monitor does not ask

    seen = quorum_library.membership(within_s=limit_s(runner, _TIMEOUT_S, "corosync"))
    if seen is not None:
        return seen
    # 2: not quorate. 1: could not ask, which reads as not quorate and without members.
    return parse_quorumtool(
        runner.run(["corosync-quorumtool", "-s"], timeout_s=_TIMEOUT_S, ok=range(3)).stdout
    )


def live_votes_and_members(runner: Runner) -> tuple[VoteMode | None, frozenset[str]]:
    """Return how the running corosync counts votes, and the names in its list of nodes.

    The mode is None if it counts in no way that sanctl knows; both are asked by one process.

    Raises:
        CommandError: corosync does not answer.
    """
    text = runner.run(["corosync-cmapctl", "quorum.", "nodelist."], timeout_s=_TIMEOUT_S).stdout
    return parse_cmap_vote_mode(text), parse_cmap_members(text)


def members(runner: Runner) -> frozenset[str]:
    """Return the names of all nodes in the running corosync's list, present or not.

    Raises:
        CommandError: corosync does not answer.
    """
    return parse_cmap_members(
        runner.run(["corosync-cmapctl", "nodelist."], timeout_s=_TIMEOUT_S).stdout
    )


def drop_member(name: str) -> bool:
    """Take a node out of this node's corosync.conf; return whether it was in it.

    In force from corosync's next start or reload on.

    Raises:
        OSError: the file cannot be read or written.
        ValueError: its list of nodes is not one that sanctl writes.
    """
    text = read_text(CONF)
    span = member_span(text, name)
    if span is None:
        return False
    write_atomically(CONF, text[: span[0]] + text[span[1] :])
    return True


def links(runner: Runner) -> tuple[Link, ...]:
    """Return this node's links to the others.

    Raises:
        CommandError: corosync does not answer.
    """
    # 1: a link is down, which the text shows.
    return parse_cfgtool(
        runner.run(["corosync-cfgtool", "-s"], timeout_s=_TIMEOUT_S, ok=(0, 1)).stdout
    )


def qdevice_state(runner: Runner) -> str:
    """Return the state of corosync-qdevice's connection, such as `Connected`; empty if off."""
    result = runner.run(["corosync-qdevice-tool", "-s"], timeout_s=_TIMEOUT_S, ok=range(256))
    for line in result.stdout.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "State":
            return value.strip()
    return ""


def reload(runner: Runner) -> None:
    """Have the corosync of every node in this partition reload its configuration, at once.

    Corosync orders the request among its messages: all nodes change between the same two messages.

    Raises:
        CommandError: a node refused; `journalctl -u corosync` there says why.
    """
    result = runner.run(["corosync-cfgtool", "-R"], timeout_s=30.0, ok=range(256))
    if result.status:
        said = (result.stderr or result.stdout).strip()[-200:]
        raise CommandError(
            Problem(
                "SAN-QUO-001",
                f"corosync does not take its new configuration: {said}",
                "'corosync -t' and 'journalctl -u corosync' on each node say why",
            )
        )


def set_qdevice(runner: Runner, *, running: bool) -> None:
    """Start or stop corosync-qdevice, which asks the quorum device for its vote.

    At a boot the daemon starts by itself if corosync.conf has a device (role sanctl_qdevice). A
    start is not waited for: the caller has other things to do, and looks again. A stop is waited
    for, as the steps after it need the daemon gone.

    Raises:
        CommandError: systemd could not, or the daemon did not end in time.
    """
    if running:
        runner.run(["systemctl", "start", "--no-block", _DEVICE_UNIT], timeout_s=10.0)
    else:
        runner.run(["systemctl", "stop", _DEVICE_UNIT], timeout_s=15.0)
