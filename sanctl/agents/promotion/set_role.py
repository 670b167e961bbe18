# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD's role alone, without gate and LIO: makes the replica here Primary, or Secondary."""

from __future__ import annotations

import time

from sanctl.agents.fencing import outdate
from sanctl.drivers import drbdsetup
from sanctl.errors import CommandError, Problem
from sanctl.system.runner import Runner

#: DRBD notices a dead peer within 2 x ping-int + ping-timeout, 3.8 s (render/drbd.py). A peer that
#: lives, and that the cluster takes for a standby, demotes itself (forgotten_role.py), on a busy
#: node with many devices after some 15 s. A failed promotion costs a stop and a start of both.
_OTHER_PRIMARY_S = 30.0
#: How long DRBD is asked often: each attempt is a process.
_OFTEN_S = 5.0
# Of drbd_state.h (enum drbd_state_rv), in the words of drbdsetup.
_TWO_PRIMARIES = "(-1)"


def promote(runner: Runner, name: str, minor: int, deadline: float) -> None:
    """Make a resource Primary, trying again while DRBD has not noticed that its peer is dead.

    After a crash the cluster may be faster than DRBD: until DRBD has noticed the dead connection
    it refuses a second Primary, which is right. A peer that is still Primary after that lives, and
    may be about to be demoted.

    DRBD may notice the dead connection during the attempt. Then it calls fence-peer in its last try
    (drbd_nl.c, drbd_set_role), and refuses although the peer is outdated by now. One more attempt
    succeeds; only one is made, because a refusal with any other peer is what the handler meant.

    `deadline` is of the whole action, on the monotonic clock.

    Raises:
        CommandError: DRBD refuses for good, or did not answer.
    """
    begun_s = time.monotonic()
    until_s = min(deadline, begun_s + _OTHER_PRIMARY_S)
    has_retried = False
    while True:
        try:
            left = max(deadline - time.monotonic(), 1.0)
            with outdate.promoting(name):
                drbdsetup.primary(runner, name, minor, timeout_s=left)
        except CommandError as error:
            is_refused = drbdsetup.is_refused_for_peer(error)
            if is_refused and not has_retried and _peer_is_outdated(runner, name):
                has_retried = True
            elif _TWO_PRIMARIES in str(error) and time.monotonic() <= until_s:
                time.sleep(0.2 if time.monotonic() - begun_s < _OFTEN_S else 0.5)
            else:
                raise
        else:
            return


def demote(runner: Runner, name: str, minor: int, deadline: float) -> None:
    """Make a resource Secondary, at a moment when no handler is marking the peer.

    The peer may be promoted from here on: a mark set after this could hit the node that serves. A
    handler that reads the role later sees that its node is no Primary any more. One of another
    device that marks for this one, too, is waited for, whatever has become of this device's own.
    The gate is closed by now: no I/O is held here that a handler, kept waiting for the lock, would
    have to release.

    `deadline` is of the whole action, on the monotonic clock.

    Raises:
        CommandError: a handler holds the lock for too long, or DRBD refuses or did not answer.
    """
    outdate.cancel_promotion(name)
    wait_s = max(1.0, deadline - time.monotonic())
    with outdate.locked_against_marks(name, wait_s=wait_s) as is_mine:
        if not is_mine:
            raise CommandError(
                Problem(
                    "SAN-AGENT-011",
                    f"{name}: a DRBD handler has been marking the peer for {wait_s:.0f} s",
                    "the cluster does not answer: 'journalctl SANCTL_ACTION=fence-peer'",
                )
            )
        left = max(1.0, deadline - time.monotonic())
        drbdsetup.secondary(runner, name, minor, timeout_s=left)


def _peer_is_outdated(runner: Runner, name: str) -> bool:
    state = drbdsetup.observe(runner, name)
    missing = [] if state is None else [peer for peer in state.peers if not peer.is_connected]
    return bool(missing) and all(peer.disk == "Outdated" for peer in missing)
