# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `sanctl device heal` on this node: discards a diverged replica, or revives one.

Replicas that have diverged refuse each other, and nothing in sanctl discards one by itself.
`sanctl device heal NAME --keep NODE` leaves an order in the CIB, a permanent attribute of the node
whose replica is to be discarded:

    sanctl-discard-NAME = UUID-OF-THE-DEVICE GENERATION bitmap|full

The agent there obeys only while its replica is a standby, is marked as outdated, and holds exactly
that generation: an order that comes late, or twice, or after the device was healed, finds another
generation and is dropped. The generation alone is not enough: a replica that had diverged already
keeps it while it serves alone (DRBD 8.4 makes a new one only where it has none for its bitmap,
drbd_nl.c and drbd_state.c). The mark is: the order came with it, and the operator who later keeps
this replica takes it off. The agent on the other node sees the order and connects again. The agent
here also waits until another node is Primary with quorum, so that the last replica is never
discarded: the node of the kept replica may have been lost since the order was given.
`sanctl-revive-NAME = UUID GENERATION` is the second order: to make an Outdated replica UpToDate,
because the replica that was ahead is gone for good, or to let one be a candidate that is UpToDate
and waits for a peer that has to join (fencing/quorum_overlap.py). It holds while that replica is
not marked. For a device with one replica it has `only` in place of the generation.

An order to discard is carried out once the resync has begun, not when the replicas are in contact.

Orders are read only while the replica is without contact, and those to revive also while the device
has two replicas that are in contact, and none is UpToDate (both lost their disks, docs/adr/0047).
The replica to be revived leaves its peer first: with a generation of its own, made without contact,
it fills the peer once they are connected again. An order names one of the data generations that the
monitor publishes of a replica without contact (no_contact.py).
"""

from __future__ import annotations

import contextlib
import os
import time

from sanctl.agents.connections import primary_node, reconnect_dropped
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.fencing import joined_peers, outdate
from sanctl.agents.recovery import no_contact
from sanctl.agents.replica import lost_writes, reinitialize
from sanctl.agents.replica.parts import Device
from sanctl.drivers import cib, drbdadm, drbdsetup, node_attributes, outdated_marks
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.drbd.data_generations import ONLY_REPLICA
from sanctl.system import state_files
from sanctl.system.runner import Runner

_QUERY_TIMEOUT_S = 8.0
# The other node's agent looks every 10 or 11 s; a monitor has 30 s.
_CONTACT_S = 13.0
_KEPT = "this replica is not marked: it was kept since"
_log = DeviceLog("heal")


def _drop_settled(runner: Runner, device: Device, here: str) -> None:
    """Drop an order to revive this replica, which is connected, and of which DRBD has settled it.

    Two replicas in contact were both unsure, and are so no more. Or one without contact had an
    order, and it could not be deleted once it was carried out. Left in the CIB, it would be carried
    out when contact is lost, though the peer may have gone on without this replica by then.
    """
    if not _unsure_note(device).exists():
        return
    value = _orders(runner, device).get(here, {}).get("revive")
    if value is not None:
        _drop(runner, device, "revive", value, "one of the replicas in contact is good, or filled")
    _unsure_note(device).remove()


def _unsure_note(device: Device) -> state_files.StateFile:
    """There may be an order to revive this replica: it had one, or is unsure, as is its peer."""
    return state_files.of_device(device.name, "unsure")


def carry_out_order(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Carry out an operator's order about this device, if there is one; return the new state.

    Raises:
        SanctlError: the order could not be carried out; the next monitor tries again.
        OSError: there is no room for a note.
    """
    here = os.uname().nodename
    if state.is_connected:
        _has_ended_discard(runner, device, state, here)
        if not no_contact.are_both_unsure(device, state):
            _drop_settled(runner, device, here)
            return state
        if not _unsure_note(device).exists():
            _unsure_note(device).write()
    elif len(device.nodes) < 2:
        return _accept_only(runner, device, state, here)
    orders = _orders(runner, device)
    own = orders.pop(here, {})
    if state.is_connected:
        own.pop("discard", None)
        orders.clear()
    discard, revive = (_words(own.get(kind, "")) for kind in ("discard", "revive"))
    is_marked = bool(own) and here in _marked(runner, device)
    # A resync that has ended may have taken the mark off before the attempt cut the connection.
    is_begun = bool(discard) and _discard_begun(device).read() == discard[0]
    if discard and not (is_marked or is_begun):
        _drop(runner, device, "discard", own["discard"], _KEPT)
    if revive and is_marked:
        why = "this replica is marked: another was kept since"
        _drop(runner, device, "revive", own["revive"], why)
    if revive and not is_marked:
        try:
            # First: an order that is not deleted once it was carried out is dropped by this.
            _unsure_note(device).write()
        except OSError as error:
            _log(device.name, f"the order to revive {revive[0]} waits: {error}", step="wait")
            return state
        _revive(runner, device, state, revive, here)
    elif discard and (is_marked or is_begun):
        _discard(runner, device, state, own["discard"], here, is_marked=is_marked)
    elif (
        any("discard" in other for other in orders.values())
        and drbdsetup.is_standalone(state)
        and not lost_writes.is_suspect(device.name, lost_writes.data_file(device.name))
    ):
        # The other node is about to discard its replica, and DRBD here refuses its connection.
        attempt = reconnect_dropped.connect_again(runner, device.name, state, device.nodes)
        if attempt.asked:
            _log(
                device.name,
                "connecting again: the other replica is to be discarded",
                step="connect",
            )
        attempt.raise_error()
    else:
        return state
    return drbdsetup.observe(runner, device.name) or state


def _marked(runner: Runner, device: Device) -> frozenset[str]:
    return outdated_marks.read_device(runner, device.name).devices[device.name].nodes()


def _drop(runner: Runner, device: Device, kind: str, value: str, why: str) -> None:
    """Delete an order that a later decision has overtaken, while it is the one that was read.

    The decision after that may have given another order of this kind meanwhile, which stays.
    """
    path = node_attributes.permanent_path(os.uname().nodename, _attribute(device, kind), value)
    cib.delete_at(runner, [path], timeout_s=_QUERY_TIMEOUT_S)
    _log(device.name, f"order to {kind} dropped: {why}", step="drop")


def _orders(runner: Runner, device: Device) -> dict[str, dict[str, str]]:
    """Return the orders for this device, by node and kind, as they are in the CIB."""
    kinds = {_attribute(device, kind): kind for kind in ("discard", "revive")}
    wanted = " or ".join(f"@name='{name}'" for name in kinds)
    xpath = f"//nodes/node[instance_attributes/nvpair[{wanted}]]"
    nodes = cib.query(runner, xpath, timeout_s=_QUERY_TIMEOUT_S)
    if nodes is None:
        return {}
    found: dict[str, dict[str, str]] = {}
    for node in nodes.iter("node"):
        for entry in node.iter("nvpair"):
            kind, value = kinds.get(entry.get("name", "")), entry.get("value", "")
            # With an apostrophe it is none of ours, and no XPath could name it.
            if kind is not None and value.split()[:1] == [device.uuid] and "'" not in value:
                found.setdefault(node.get("uname", ""), {})[kind] = value
    return found


def _words(value: str) -> list[str]:
    """Return the words of an order after the device's UUID."""
    return value.split()[1:]


def _discard(
    runner: Runner,
    device: Device,
    state: ResourceState,
    value: str,
    here: str,
    *,
    is_marked: bool,
) -> None:
    order = _words(value)
    if len(device.nodes) > 2:
        return  # No such order is given: which of several peers would be the source is not tried.
    if state.is_primary:
        return  # The cluster demotes the replica first: the order came together with a mark.
    held = no_contact.data_generations(runner, device, state)
    if held is None or len(order) != 2:
        return
    begun = _discard_begun(device).read() == order[0]
    if held.name != order[0]:
        if not begun:
            # The device is healed already, or has other data than the operator was shown.
            _drop(runner, device, "discard", value, f"it names {order[0]}, this is {held.name}")
        elif not held.is_blank:
            _reconnect_interrupted_discard(runner, device, order[0], here)
        return
    if not is_marked:
        _drop(runner, device, "discard", value, _KEPT)
        return
    if not primary_node.find(runner, device):
        _log_waiting(device)
        return
    _waits_note(device).remove()
    _discard_begun(device).write(order[0])
    _log(
        device.name,
        f"discarding this replica's {order[0]} ({order[1]}), as ordered",
        step="discard",
    )
    if order[1] == "full" or lost_writes.is_suspect(
        device.name, lost_writes.data_file(device.name)
    ):
        # A bitmap does not have the blocks of the writes that a suspect replica lost.
        reinitialize.reset(runner, device)
        return
    drbdadm.disconnect(runner, device.name)
    drbdadm.connect_discarding(runner, device.name)
    deadline = time.monotonic() + _CONTACT_S
    now: ResourceState | None = None
    while time.monotonic() < deadline:
        now = drbdsetup.observe(runner, device.name)
        if now is not None and now.is_connected and _has_ended_discard(runner, device, now, here):
            return
        time.sleep(0.3)
    # The permission to discard must not outlive this attempt: while it stands, DRBD would use it
    # whenever the peer connects. The first handshake uses it up: after that the source may still
    # wait for its handler.
    if now is None or not now.is_connected or any(peer.replication == "Off" for peer in now.peers):
        drbdadm.disconnect(runner, device.name)


def _log_waiting(device: Device) -> None:
    """Log once that an order to discard waits for the kept replica."""
    if _waits_note(device).exists():
        return
    # Without room for the note it is logged again.
    with contextlib.suppress(OSError):
        _waits_note(device).write()
    _log(
        device.name,
        "this replica is discarded once another node serves the device from the kept one",
        step="wait",
    )


def _waits_note(device: Device) -> state_files.StateFile:
    return state_files.of_device(device.name, "discard-waits")


def _reconnect_interrupted_discard(
    runner: Runner, device: Device, discarded: str, here: str
) -> None:
    """Reconnect a replica whose resync had begun when the attempt to discard it ended.

    The connection came so late that the end of the attempt cut the resync off. The replica has
    another generation since the resync began: no permission to discard is needed any more, and a
    plain connection would not overwrite a replica that has changes of its own.
    """
    drbdadm.disconnect(runner, device.name)
    drbdadm.adjust(runner, device.name)
    _log(
        device.name,
        f"the resync that replaces {discarded} was interrupted: reconnecting",
        step="connect",
    )
    _finish_discard(runner, device, here)


def _revive(
    runner: Runner, device: Device, state: ResourceState, order: list[str], here: str
) -> None:
    held = no_contact.data_generations(runner, device, state)
    if held is None:
        return  # The order stays: the next monitor asks again.
    is_meant = order == [held.name] and not state.is_primary
    path = lost_writes.data_file(device.name)
    if is_meant and path is not None and lost_writes.is_suspect(device.name, path):
        # Nothing connects a suspect replica, and it is none from here on.
        _have_connected(device, here)
        # First: the fence-peer handler, which DRBD calls next, refuses a suspect replica.
        lost_writes.clear_marker(device.name, path)
        _log(
            device.name, f"{order[0]} is accepted although it lost writes, as ordered", step="trust"
        )
    # DRBD 9 lets none be promoted without a majority, unless it is told that the others are behind.
    if is_meant and (state.disk in no_contact.UNSURE or state.has_quorum is False):
        if state.is_connected and not _leave_peer(runner, device, state, here):
            return
        # Without it the handler would wait for a peer that may have newer data, until its timeout.
        joined_peers.record_operator_trust(device.name)
        try:
            with outdate.promoting(device.name):
                drbdsetup.force_up_to_date(runner, device.name, device.minor)
        except SanctlError:
            # The order is still there: the next monitor tries again.
            joined_peers.remove_operator_trust(device.name)
            raise
        _log(device.name, f"{order[0]} is made UpToDate, as ordered", step="revive")
    elif (
        is_meant
        and state.disk == "UpToDate"
        and not state.is_connected
        and joined_peers.counts_as_never_connected(state, set(device.nodes) - {here})
    ):
        # It is good by its own word, and is no candidate, as no peer has joined since its start.
        # Not by the note of that, for which there may be no room, and which a suspect one has not.
        joined_peers.record_operator_trust(device.name)
        _log(device.name, f"{order[0]} is trusted without a peer, as ordered", step="trust")
    _delete_order(runner, device, "revive", here)
    # With it each monitor is a whole one, until a contact.
    with contextlib.suppress(OSError):
        _unsure_note(device).remove()


def _have_connected(device: Device, here: str) -> None:
    """Have a monitor connect, wherever this attempt ends.

    Also one that drops the order, as the generation that it names is no more.
    """
    for node in device.nodes:
        if node != here:
            reconnect_dropped.write_later(device.name, node)


def _leave_peer(runner: Runner, device: Device, state: ResourceState, here: str) -> bool:
    """End the contact of a replica that is to be revived; return whether that is so.

    Not while a resync runs, or is about to: that may be the end of it. The peer goes on looking for
    this replica, and finds it once that has a generation of its own.
    """
    if any((peer.replication, peer.role) != ("Established", "Secondary") for peer in state.peers):
        return False
    _have_connected(device, here)
    drbdadm.disconnect(runner, device.name)
    now = drbdsetup.observe(runner, device.name)
    if now is None or any(peer.is_connected for peer in now.peers):
        return False
    _log(device.name, "disconnected, to be made UpToDate and to fill the other one", step="leave")
    return True


def _accept_only(runner: Runner, device: Device, state: ResourceState, here: str) -> ResourceState:
    """Let a device's only replica serve again that is suspect or Outdated, if that is ordered.

    The order names no data generation, so it goes first: one that was left in the CIB would accept
    the next loss, too. Where this process dies after that the operator has to say it again. Nothing
    is asked of a healthy replica, not even the CIB.
    """
    path = lost_writes.data_file(device.name)
    is_suspect = path is not None and lost_writes.is_suspect(device.name, path)
    is_outdated = state.disk in {"Outdated", "Consistent"}
    if path is None or state.is_primary or not (is_suspect or is_outdated):
        return state
    order = _words(_orders(runner, device).get(here, {}).get("revive", ""))
    if order != [ONLY_REPLICA] or here in _marked(runner, device):
        return state
    _delete_order(runner, device, "revive", here)
    if is_suspect:
        lost_writes.clear_marker(device.name, path)
    if is_outdated:
        with outdate.promoting(device.name):
            drbdsetup.force_up_to_date(runner, device.name, device.minor)
    _log(device.name, "the only replica is accepted as it is, as ordered", step="trust")
    return drbdsetup.observe(runner, device.name) or state


def _has_ended_discard(runner: Runner, device: Device, state: ResourceState, here: str) -> bool:
    """Delete an order to discard whose resync has begun, or has nothing to do; return whether.

    Not as soon as there is contact: the source's handler before the resync may refuse, which ends
    the connection, and the replicas have diverged as before. DRBD gives the target another
    generation in the moment in which the resync begins (receive_sync_uuid() in drbd_receiver.c, 8.4
    and 9): from then on no permission to discard is needed.
    """
    discarded = _discard_begun(device).read()
    if not discarded:
        return False
    if not state.is_in_sync:
        held = no_contact.data_generations(runner, device, state)
        if held is None or held.name == discarded:
            return False
    _finish_discard(runner, device, here)
    return True


def _finish_discard(runner: Runner, device: Device, here: str) -> None:
    """Delete an order to discard that has been carried out."""
    _delete_order(runner, device, "discard", here)
    _discard_begun(device).remove()
    _log(device.name, "connected again; the discarded replica is resynced", step="done")


def _discard_begun(device: Device) -> state_files.StateFile:
    """The data generation that is being discarded; removed once the order is carried out."""
    return state_files.of_device(device.name, "discard-begun")


def _delete_order(runner: Runner, device: Device, kind: str, here: str) -> None:
    node_attributes.delete_permanent(
        runner, here, _attribute(device, kind), timeout_s=_QUERY_TIMEOUT_S
    )


def _attribute(device: Device, kind: str) -> str:
    """Return the name of the node attribute that holds an order."""
    return f"sanctl-{kind}-{device.name}"
