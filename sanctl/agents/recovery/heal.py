# SPDX-License-Identifier: GPL-2.0-or-later
"""Diverged replicas: tells the cluster what each side has, and carries out what an operator chose.

Replicas that have diverged refuse each other, and nothing in sanctl throws one away by itself.
`sanctl device heal NAME --keep NODE` leaves an order in the CIB, a permanent attribute of the node
whose copy is to go:

    sanctl-discard-NAME = UUID-OF-THE-DEVICE GENERATION bitmap|full

The agent there obeys only while its replica is a standby and holds exactly that generation, which
no other data ever has: an order that comes late, or twice, or after somebody else has healed the
device, finds another generation and is dropped. The agent on the other node sees the order and
connects again. `sanctl-revive-NAME = UUID GENERATION` is the second order: to call a replica good
that knows it is behind, because the one that was ahead is gone for good.

Nothing here runs while the replicas are in contact.
"""

from __future__ import annotations

import contextlib
import os
import time

from sanctl.agents.fencing import outdate, quorum_overlap
from sanctl.agents.replica import lost_writes, parts, reinitialize
from sanctl.agents.replica.parts import Device
from sanctl.drivers import cib, drbdadm, drbdsetup, node_attributes
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.drbd.data_generations import Generations, parse_generations
from sanctl.system import journal, state_files
from sanctl.system.files import read_text_or, write_atomically
from sanctl.system.runner import Runner

_QUERY_TIMEOUT_S = 8.0
# The other node's agent looks every 10 or 11 s; a monitor has 30 s.
_CONTACT_S = 13.0


def no_contact_fields(runner: Runner, device: Device, state: ResourceState) -> str:
    """Return what is published of a replica without contact: since when, and its generations.

    Since when it is known to be without contact is kept beside the data, as a node that reboots
    must not forget it.
    """
    note = parts.note_path(device, "apart")
    if state.is_connected or len(device.nodes) < 2:
        if note is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(note)
        return ""
    words = ""
    if note is not None:
        since = read_text_or(note, "").strip()
        if not since.isdecimal():
            since = str(int(time.time()))
            write_atomically(note, f"{since}\n")
        words = f" apart={since}"
    held = data_generations(runner, device, state)
    if held is not None:
        ids = (held.current, held.bitmap, *held.history)
        words += f" gi={':'.join(f'{each:016X}' for each in ids)}"
        words += " last=1" if held.was_primary else ""
    return words


def data_generations(runner: Runner, device: Device, state: ResourceState) -> Generations | None:
    """Return the generations of this node's replica, None when it has none.

    DRBD 9 keeps a bitmap's generation for each peer, and so tells them only beside an only one.
    """
    subject = [str(device.minor)]
    if drbdsetup.generation() >= 9:
        if len(state.peers) != 1:
            return None
        subject = [device.name, str(state.peers[0].node_id), "0"]
    text = drbdsetup.generation_identifiers(runner, *subject, timeout_s=_QUERY_TIMEOUT_S)
    return None if text is None else parse_generations(text)


def carry_out_order(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Carry out an operator's order about this device, if there is one; return the new state.

    Raises:
        SanctlError: it could not be carried out; the next monitor tries again.
    """
    here = os.uname().nodename
    if state.is_connected:
        _finish(runner, device, here)
        return state
    if len(device.nodes) < 2:
        return state
    orders = _orders(runner, device)
    own = orders.pop(here, {})
    discard, revive = own.get("discard", []), own.get("revive", [])
    if revive:
        _revive(runner, device, state, revive, here)
    elif discard:
        _discard(runner, device, state, discard, here)
    elif (
        any("discard" in other for other in orders.values())
        and drbdsetup.is_standalone(state)
        and not lost_writes.is_suspect(device.name, lost_writes.data_file(device.name))
    ):
        # The other node is about to throw its copy away: without this it would knock in vain.
        drbdadm.adjust(runner, device.name)
        _tell(device, "connecting again: the other replica is to be discarded", "connect")
    else:
        return state
    return drbdsetup.observe(runner, device.name) or state


def _orders(runner: Runner, device: Device) -> dict[str, dict[str, list[str]]]:
    """Return the orders about this very device, by node and kind, as words after its UUID."""
    kinds = {f"sanctl-{kind}-{device.name}": kind for kind in ("discard", "revive")}
    wanted = " or ".join(f"@name='{name}'" for name in kinds)
    xpath = f"//nodes/node[instance_attributes/nvpair[{wanted}]]"
    nodes = cib.query(runner, xpath, timeout_s=_QUERY_TIMEOUT_S)
    if nodes is None:
        return {}
    found: dict[str, dict[str, list[str]]] = {}
    for node in nodes.iter("node"):
        for entry in node.iter("nvpair"):
            kind = kinds.get(entry.get("name", ""))
            words = entry.get("value", "").split()
            if kind is not None and words[:1] == [device.uuid]:
                found.setdefault(node.get("uname", ""), {})[kind] = words[1:]
    return found


def _discard(
    runner: Runner, device: Device, state: ResourceState, order: list[str], here: str
) -> None:
    if state.is_primary:
        return  # The cluster demotes it first: the order came together with a mark.
    held = data_generations(runner, device, state)
    if held is None or len(order) != 2:
        return
    begun = _begun(device).read() == order[0]
    if held.name != order[0]:
        if not begun:
            # Healed already, or other data than the operator was shown.
            _forget(runner, device, "discard", here)
            _tell(
                device, f"order to discard {order[0]} dropped: the replica is {held.name}", "drop"
            )
        elif not held.is_blank:
            _go_on(runner, device, order[0], here)
        return
    _begun(device).write(order[0])
    _tell(device, f"discarding this replica's {order[0]} ({order[1]}), as ordered", "discard")
    if order[1] == "full" or lost_writes.is_suspect(
        device.name, lost_writes.data_file(device.name)
    ):
        # A bitmap does not know of the writes that a suspect replica lost.
        reinitialize.reset(runner, device)
        return
    drbdadm.disconnect(runner, device.name)
    drbdadm.connect_discarding(runner, device.name)
    deadline = time.monotonic() + _CONTACT_S
    while time.monotonic() < deadline:
        now = drbdsetup.observe(runner, device.name)
        if now is not None and now.is_connected:
            _finish(runner, device, here)
            return
        time.sleep(0.3)
    # The permission to discard must not outlive this attempt: while it stands, DRBD would act on
    # it whenever the peer turns up.
    drbdadm.disconnect(runner, device.name)


def _go_on(runner: Runner, device: Device, discarded: str, here: str) -> None:
    """Reconnect a replica whose discarding had begun when its attempt was over.

    Contact came so late that the attempt's end cut the resync off. What was to be discarded has
    another generation since the resync began: nothing needs a permission any more, and the plain
    connection would not overwrite a replica that has something of its own.
    """
    drbdadm.disconnect(runner, device.name)
    drbdadm.adjust(runner, device.name)
    _tell(device, f"{discarded} was being replaced when contact was lost: going on", "connect")
    _finish(runner, device, here)


def _revive(
    runner: Runner, device: Device, state: ResourceState, order: list[str], here: str
) -> None:
    held = data_generations(runner, device, state)
    is_meant = held is not None and order == [held.name] and not state.is_primary
    path = lost_writes.data_file(device.name)
    was_suspect = is_meant and path is not None and lost_writes.is_suspect(device.name, path)
    if was_suspect and path is not None:
        # First: the fence-peer handler, which DRBD calls next, does not go on with a suspect copy.
        lost_writes.clear_marker(device.name, path)
        _tell(device, f"{order[0]} is trusted although it lost writes, as ordered", "trust")
    if is_meant and state.disk in {"Outdated", "Consistent"}:
        # Without it the handler would wait for a peer that could tell more, until it is too late.
        quorum_overlap.record_operator_trust(device.name)
        try:
            with outdate.promoting(device.name):
                drbdsetup.force_up_to_date(runner, device.name, device.minor)
        except SanctlError:
            quorum_overlap.remove_operator_trust(
                device.name
            )  # The order is still there: the next monitor is asked.
            raise
        _tell(device, f"{order[0]} is called up to date, as ordered", "revive")
    if was_suspect:
        drbdadm.adjust(runner, device.name)
    _forget(runner, device, "revive", here)


def _finish(runner: Runner, device: Device, here: str) -> None:
    """Take back an order that has been carried out."""
    if not _begun(device).exists():
        return
    _forget(runner, device, "discard", here)
    _begun(device).remove()
    _tell(device, "in contact again; what was to be discarded is being replaced", "done")


def _begun(device: Device) -> state_files.StateFile:
    """The data generation that is being discarded, while it is."""
    return state_files.of_device(device.name, "discard-begun")


def _forget(runner: Runner, device: Device, kind: str, here: str) -> None:
    node_attributes.delete_permanent(
        runner, here, f"sanctl-{kind}-{device.name}", timeout_s=_QUERY_TIMEOUT_S
    )


def _tell(device: Device, text: str, step: str) -> None:
    journal.write(
        f"{device.name}: {text}",
        priority=journal.NOTICE,
        device=device.name,
        action="heal",
        step=step,
    )
