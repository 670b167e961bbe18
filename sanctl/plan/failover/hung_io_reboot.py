# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: after how long one hung request (in DRBD, at the disk) reboots a node, in a stop too.

Frozen I/O is ended elsewhere (sanctl/plan/failover/frozen_io_reboot.py). A request that hangs while
nothing is frozen holds the host that sent it, and the gate, the demotion and the stop of the
device. There are two kinds:

* A disk below DRBD that gives no answer. The peer has all that was acknowledged, so another node
  can serve; without a peer in sync a reboot gains nothing.
* A request that DRBD has forgotten. 8.4 keeps an empty flush out of its transfer log. One that its
  disk answers just while I/O is suspended is held back until that ends, and what lets held requests
  go walks the transfer log (drbd_req.c: drbd_send_and_submit, mod_rq_state, _tl_restart). Nothing
  but the end of the kernel lets it go, and as soon as the peer is back, drbd_suspend_io waits for
  it, and everything else for that. So the node reboots when another one can serve, or when no
  request is answered here any more.

What a reboot interrupts is not acknowledged. What was, is on the peer, or on this node's disk,
where it still answers: the node is asked to sync it first.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from sanctl.model.drbd import OldRequest, ResourceState

#: A host's own patience with one command is 30 s (the kernel's scsi timeout); what comes after that
#: is its error handling, which waits for the same request.
FORGOTTEN_AFTER_S = 30.0
#: Longer than a disk takes that finds a sector again and then goes on.
HANGING_AFTER_S = 60.0


class HungIoAction(StrEnum):
    """What is to be done about requests that hang."""

    FINE = "fine"
    WAIT = "wait"
    END = "end"
    """Reboot the node."""


def choose_action(
    requests: Collection[OldRequest], state: ResourceState, *, is_silent: bool
) -> tuple[HungIoAction, str]:
    """Return what to do about the oldest requests, and what is wrong with them.

    `is_silent`: no request of the device was answered since the last observation.
    """
    if not state.is_primary or state.suspended != "no":
        return HungIoAction.FINE, ""
    can_be_served = any(peer.is_in_sync for peer in state.peers)
    forgotten = max((r.age_s for r in requests if r.waits_for_nothing), default=0.0)
    if forgotten >= FORGOTTEN_AFTER_S:
        ends = can_be_served or is_silent
        return (
            HungIoAction.END if ends else HungIoAction.WAIT,
            f"DRBD has held a request for {forgotten:.0f} s that waits for nothing any more",
        )
    hanging = max((r.age_s for r in requests if r.waits_for_disk), default=0.0)
    if hanging >= HANGING_AFTER_S:
        return (
            HungIoAction.END if can_be_served else HungIoAction.WAIT,
            f"the disk has not answered a request for {hanging:.0f} s",
        )
    return HungIoAction.FINE, ""
