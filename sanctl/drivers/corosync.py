# SPDX-License-Identifier: GPL-2.0-or-later
"""Asks corosync how it counts and what it sees, and has it read its configuration again."""

from __future__ import annotations

from sanctl.errors import CommandError, Problem
from sanctl.model.vote_mode import Tally
from sanctl.parse.corosync import (
    Link,
    Membership,
    parse_cfgtool,
    parse_cmap_tally,
    parse_quorumtool,
)
from sanctl.system.runner import Runner

CONF = "/etc/corosync/corosync.conf"
_TIMEOUT_S = 10.0
_DEVICE_UNIT = "corosync-qdevice.service"


def membership(runner: Runner) -> Membership:
    """Return the partition this node is in.

    Raises:
        CommandError: corosync does not answer.
    """
    # 2: not quorate. 1: could not ask, which reads as not quorate and nobody there.
    return parse_quorumtool(
        runner.run(["corosync-quorumtool", "-s"], timeout_s=_TIMEOUT_S, ok=range(3)).stdout
    )


def live_tally(runner: Runner) -> Tally | None:
    """Return how the running corosync counts; None if it is in no way sanctl knows.

    Raises:
        CommandError: corosync does not answer.
    """
    return parse_cmap_tally(
        runner.run(["corosync-cmapctl", "quorum."], timeout_s=_TIMEOUT_S).stdout
    )


def links(runner: Runner) -> tuple[Link, ...]:
    """Return this node's links to the others.

    Raises:
        CommandError: corosync does not answer.
    """
    # 1: a link is down, which the text tells.
    return parse_cfgtool(
        runner.run(["corosync-cfgtool", "-s"], timeout_s=_TIMEOUT_S, ok=(0, 1)).stdout
    )


def device_state(runner: Runner) -> str:
    """Return what corosync-qdevice says of its host, such as `Connected`; empty if it is off."""
    result = runner.run(["corosync-qdevice-tool", "-s"], timeout_s=_TIMEOUT_S, ok=range(256))
    for line in result.stdout.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "State":
            return value.strip()
    return ""


def reload(runner: Runner) -> None:
    """Have the corosync of every node in this partition read its configuration again, at once.

    Corosync orders the request among its messages: all nodes change between the same two of them.

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


def set_device(runner: Runner, *, running: bool) -> None:
    """Start the daemon that asks the quorum device for its vote, or stop it.

    At a boot it starts by itself if corosync.conf has a device (role sanctl_qdevice). A start is
    not waited for: who calls has other things to do, and looks again. A stop is, as it has to come
    before what follows.

    Raises:
        CommandError: systemd could not, or the daemon did not end in time.
    """
    if running:
        runner.run(["systemctl", "start", "--no-block", _DEVICE_UNIT], timeout_s=10.0)
    else:
        runner.run(["systemctl", "stop", _DEVICE_UNIT], timeout_s=15.0)
