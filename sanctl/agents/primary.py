"""Makes DRBD Primary on this node, where the cluster may know more than DRBD does."""

from __future__ import annotations

import time

from sanctl.drivers import drbd
from sanctl.errors import CommandError
from sanctl.system.runner import Runner

#: DRBD notices a dead peer within ping-int + ping-timeout (render/drbd.py), 3.5 s; with a margin.
_NOTICE_S = 8.0
# Codes of drbd_state.h (enum drbd_state_rv), in the words of drbdsetup.
_TWO_PRIMARIES = "(-1)"
_PEER_NOT_OUTDATED = "(-7)"


def become(runner: Runner, name: str, minor: int, deadline: float) -> None:
    """Make a resource Primary, waiting for a moment while DRBD still believes in a dead peer.

    After a crash the cluster may be faster than DRBD: until DRBD has noticed the dead connection
    it refuses a second Primary, which is right. A peer that is still Primary after that lives.

    Noticing it while it tries, DRBD calls fence-peer in its last try (drbd_nl.c, drbd_set_role),
    and refuses although the peer is outdated by now. Then it only has to be asked again; once,
    because a refusal with any other peer is what the handler meant.

    Args:
        runner: starts DRBD's tools.
        name: the resource.
        minor: its DRBD minor.
        deadline: of the whole action, on the monotonic clock, in seconds.

    Raises:
        CommandError: DRBD refuses for good, or did not answer.
    """
    patience = min(deadline, time.monotonic() + _NOTICE_S)
    was_late = False
    while True:
        try:
            left = max(deadline - time.monotonic(), 1.0)
            drbd.primary(runner, name, minor, timeout_s=left)
        except CommandError as error:
            text = str(error)
            if _PEER_NOT_OUTDATED in text and not was_late and _peer_is_outdated(runner, name):
                was_late = True
            elif _TWO_PRIMARIES in text and time.monotonic() <= patience:
                time.sleep(0.2)
            else:
                raise
        else:
            return


def _peer_is_outdated(runner: Runner, name: str) -> bool:
    state = drbd.observe(runner, name)
    missing = [] if state is None else [peer for peer in state.peers if not peer.is_in_contact]
    return bool(missing) and all(peer.disk == "Outdated" for peer in missing)
