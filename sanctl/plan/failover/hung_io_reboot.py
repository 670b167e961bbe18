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
  request of the device is answered here any more.

A request that hangs can keep DRBD 8.4 from answering: a command that writes DRBD's metadata to such
a disk, or waits for the requests under way, has the lock of all commands meanwhile (drbd_nl.c:
adm_mutex, and the family is not one of parallel operations). Then the monitors of all devices go by
the kernel's files, and none fails while the end of the node is to be expected from the device that
hangs: a stop needs DRBD's answer, too, and what it ends with, minutes later, is the same. Silence
for another reason, or one that has lasted for too long, fails a monitor as ever.

A reboot ends every device of the node. The hosts of one device must not cost those of others what
they have: while another device is served by this node alone, and answered, the node goes on, the
one device waits, and an operator is told. When the others have a peer in sync the node reboots.

What a reboot interrupts is not acknowledged. What was, is on the peer, or on this node's disk,
where it still answers: the node is asked to sync it first.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from sanctl.model.drbd import OldRequest, ResourceState
from sanctl.model.hung_io import HungCause

#: A host's own patience with one command is 30 s (the kernel's scsi timeout); what comes after that
#: is its error handling, which waits for the same request.
FORGOTTEN_AFTER_S = 30.0
#: Longer than a disk takes that finds a sector again and then goes on.
HANGING_AFTER_S = 60.0
#: A request that has hung for so long explains why DRBD answers no command.
STUCK_AFTER_S = 10.0
#: For so long a device's silence is explained at all. By then the monitors of the one that hangs
#: have ended the node: they come every ten seconds, and the program that they ask first is given up
#: after twenty.
EXPLAINED_FOR_S = HANGING_AFTER_S + 60.0
#: After so long without an answer to requests that wait, another device counts as not served.
SILENT_AFTER_S = FORGOTTEN_AFTER_S
# DRBD has no data here, or knows that it is not all: the node is not what serves the device.
_NO_GOOD_DISK = frozenset({"Diskless", "Failed", "Detaching", "Inconsistent", "Outdated"})


class HungIoAction(StrEnum):
    """What is to be done about requests that hang."""

    FINE = "fine"
    WAIT = "wait"
    END = "end"
    """Reboot the node."""


class Verdict(NamedTuple):
    """What to do about the oldest requests of a device, and why.

    Attributes:
        action: what to do.
        cause: why a request hangs; None: none does.
        age_s: for how long the oldest one has hung.
        can_be_served: another node has a replica of the device that is in sync.
        needed_by: the other devices for which the node goes on; None: it is not known whether there
            are any.
    """

    action: HungIoAction
    cause: HungCause | None = None
    age_s: float = 0.0
    can_be_served: bool = False
    needed_by: tuple[str, ...] | None = ()


class OtherDevice(NamedTuple):
    """Another device of the node, as DRBD and its own monitor have seen it.

    Attributes:
        state: what DRBD says of it.
        has_one_replica: this node's is the only one; False where that is not known.
        is_silent: requests wait, and none has been answered for SILENT_AFTER_S; False where that is
            not known, and where none waits.
        shares_disk: its data is in the same pool; False where that is not known.
    """

    state: ResourceState
    has_one_replica: bool
    is_silent: bool
    shares_disk: bool


def choose_action(
    requests: Collection[OldRequest], state: ResourceState, *, is_silent: bool
) -> Verdict:
    """Return what to do about the oldest requests, as far as this device goes.

    `is_silent`: no request of the device was answered since the last observation.
    """
    if not state.is_primary or state.suspended != "no":
        return Verdict(HungIoAction.FINE)
    can_be_served = any(peer.is_in_sync for peer in state.peers)
    forgotten_s = max((r.age_s for r in requests if r.waits_for_nothing), default=0.0)
    if forgotten_s >= FORGOTTEN_AFTER_S:
        ends = can_be_served or is_silent
        return Verdict(
            HungIoAction.END if ends else HungIoAction.WAIT,
            HungCause.FORGOTTEN,
            forgotten_s,
            can_be_served,
        )
    hanging_s = max((r.age_s for r in requests if r.waits_for_disk), default=0.0)
    if hanging_s >= HANGING_AFTER_S:
        return Verdict(
            HungIoAction.END if can_be_served else HungIoAction.WAIT,
            HungCause.DISK,
            hanging_s,
            can_be_served,
        )
    return Verdict(HungIoAction.FINE)


def explains_silence(requests: Collection[OldRequest], state: ResourceState) -> bool:
    """Whether a device's requests hang, not for the peer, and are about to end the node.

    `state`: of the device with these requests, as the kernel's files show the device.
    """
    if not state.is_primary or state.suspended != "no":
        return False
    hanging = (r.age_s for r in requests if r.waits_for_disk or r.waits_for_nothing)
    hanging_s = max(hanging, default=0.0)
    return hanging_s >= STUCK_AFTER_S and any(peer.is_in_sync for peer in state.peers)


def spare_others(verdict: Verdict, others: Collection[OtherDevice] | None) -> Verdict:
    """Return the verdict of a device that would end the node, with regard to its other devices.

    Where the others cannot be looked at (`others` is None) the node goes on: that is known of this
    device alone, the next monitor looks again, and the operator is told. The other mistake would
    take the only server from devices that are well.
    """
    if verdict.action is not HungIoAction.END:
        return verdict
    if others is None:
        return verdict._replace(action=HungIoAction.WAIT, needed_by=None)
    needed_by = tuple(sorted(each.state.name for each in others if _needs_node(each, verdict)))
    if not needed_by:
        return verdict
    return verdict._replace(action=HungIoAction.WAIT, needed_by=needed_by)


def _needs_node(other: OtherDevice, verdict: Verdict) -> bool:
    """Whether this node alone serves another device, which a reboot would end.

    A device whose I/O is frozen counts: that freeze ends when its peer is fenced or back, and by
    then it is served here. One without a request counts: it would be answered.

    A device with one replica never gets a peer in sync. Who made it has taken it into account that
    it is not served while its node boots, so for the sake of a device that another node can serve
    it does not count. It does while the device that hangs gains nothing but a boot.
    """
    state = other.state
    if state.role == "Secondary" or state.disk in _NO_GOOD_DISK:
        return False
    if any(peer.is_in_sync for peer in state.peers):
        return False
    if other.is_silent and state.suspended == "no":
        return False
    if verdict.cause is HungCause.DISK and other.shares_disk:
        # The same disk holds its next request.
        return False
    return not (other.has_one_replica and verdict.can_be_served)
