# SPDX-License-Identifier: GPL-2.0-or-later
"""Fields published of a replica without contact: since when, and its data generations.

`sanctl status` and `sanctl device heal` show them to the operator, whose orders (heal.py) name a
data generation.
"""

from __future__ import annotations

import contextlib
import os
import time

from sanctl.agents.connections import known_peers
from sanctl.agents.replica import device_files, lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, drbdsetup
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.drbd.data_generations import Generations, parse_generations
from sanctl.system.files import read_text_or, write_atomically
from sanctl.system.runner import Runner

_QUERY_TIMEOUT_S = 8.0
#: The disk state of a replica that is, or may be, behind by its own word. None of two such replicas
#: is promoted beside the other.
UNSURE = frozenset({"Outdated", "Consistent"})


def published_fields(runner: Runner, device: Device, state: ResourceState) -> str:
    """Return the fields published of a replica without contact: since when, and its generations.

    The time, in seconds since 1970, is kept beside the data, so that a reboot of the node does not
    lose it. For two replicas in contact that need an operator's word the fields are the generations
    alone; for any other replica in contact there are none.

    Raises:
        SanctlError: a suspect replica's peers cannot be made known to DRBD.
        OSError: the note of the time cannot be written or removed.
    """
    note = device_files.note_path(device, "apart")
    if state.is_connected or len(device.nodes) < 2:
        if note is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(note)
        if not are_both_unsure(device, state):
            return ""
    fields = ""
    if note is not None and not state.is_connected:
        since = read_text_or(note, "").strip()
        if not since.isdecimal():
            since = str(int(time.time()))
            write_atomically(note, f"{since}\n")
        fields = f" apart={since}"
    state = _with_known_peers(runner, device, state)
    held = data_generations(runner, device, state)
    if held is not None:
        ids = (held.current, held.bitmap, *held.history)
        fields += f" gi={':'.join(f'{each:016X}' for each in ids)}"
        fields += _bitmap_fields(runner, device, state)
        fields += " last=1" if held.was_primary else ""
    return fields


def _with_known_peers(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Return DRBD's state after a suspect replica that is attached alone has been told its peers.

    A start connects it to none, so DRBD 9 knows none, and says nothing of its generations. Of two
    such replicas, as after a loss of all power, `device heal` could compare nothing.
    """
    if (
        drbd_kernel.generation() < 9
        or state.is_primary
        or not state.is_attached
        or state.with_only_peers(device.nodes).peers
        or not lost_writes.is_suspect(device.name, lost_writes.data_file(device.name))
    ):
        return state
    return known_peers.make_known(runner, device.name, state, device.nodes)


def are_both_unsure(device: Device, state: ResourceState) -> bool:
    """Whether two replicas are in contact of which none is good, as far as is known."""
    return (
        len(device.nodes) == 2
        and state.is_connected
        and state.disk in UNSURE
        and all(peer.disk != "UpToDate" for peer in state.peers)
    )


def _bitmap_fields(runner: Runner, device: Device, state: ResourceState) -> str:
    """Return from which generation DRBD 9 counts what each of several peers lacks."""
    if len(device.nodes) < 3 or drbd_kernel.generation() < 9:
        return ""
    found = []
    for peer in state.peers:
        held = _generations_towards(runner, device, peer)
        if held is not None:
            found.append(f"{peer.name}:{held.bitmap:016X}")
    return f" bitmaps={','.join(found)}" if found else ""


def data_generations(runner: Runner, device: Device, state: ResourceState) -> Generations | None:
    """Return the data generations of this node's replica, None when they are not known.

    DRBD 9 keeps a bitmap generation for each peer: the result has that of the first peer, and never
    that of a replica which was dropped.
    """
    if drbd_kernel.generation() >= 9:
        peers = state.with_only_peers(device.nodes).peers
        return _generations_towards(runner, device, peers[0]) if peers else None
    text = drbdsetup.generation_identifiers(runner, str(device.minor), timeout_s=_QUERY_TIMEOUT_S)
    return None if text is None else parse_generations(text)


def _generations_towards(runner: Runner, device: Device, peer: PeerState) -> Generations | None:
    subject = [device.name, str(peer.node_id), "0"]
    text = drbdsetup.generation_identifiers(runner, *subject, timeout_s=_QUERY_TIMEOUT_S)
    return None if text is None else parse_generations(text)
