# SPDX-License-Identifier: GPL-2.0-or-later
"""What sanctl-reservations.service and other nodes' messages need to know of a replica here.

Written by the start of a replica whose device has reservations, gone with its stop.
"""

from __future__ import annotations

import contextlib
import json
from typing import NamedTuple

from sanctl.agents.replica import device_files
from sanctl.agents.replica.parts import Device
from sanctl.drivers import reservation_file
from sanctl.errors import CommandError, Problem
from sanctl.model.published_reservations import NOTE_KIND
from sanctl.system import state_files

_KIND = NOTE_KIND
#: A demotion waits for the lock: a change that waits for a replica ends.
_CLOSING = "reservations-closing"
#: Of the node: the order to clear reservations that stood when the file was first missed.
_MISSED = "reservations-missed"
#: Of a device: its target was there while nobody kept what LIO has written.
_UNKEPT = "reservations-unkept"
#: Of a device: a host's command waits on a standby that has not followed yet.
_BEHIND = "reservations-behind"
#: The kind of the lock of who changes a device's reservations here.
LOCK = "reservation"


class Replica(NamedTuple):
    """A replica whose device has reservations.

    Attributes:
        device: the device's name.
        uuid: 32 hex digits, the unit serial number.
        minor: the DRBD minor.
        nodes: the replica nodes.
        path: the file with its reservations.
    """

    device: str
    uuid: str
    minor: int
    nodes: tuple[str, ...]
    path: str


def write(device: Device) -> Replica:
    """Note the replica, whose data file is attached; return it.

    Raises:
        CommandError: no data file is attached.
        OSError: /run has no room.
    """
    path = device_files.note_path(device, reservation_file.KIND)
    if path is None:
        raise CommandError(
            Problem("SAN-AGENT-005", f"the data file of {device.name} is not attached here")
        )
    replica = Replica(device.name, device.uuid, device.minor, device.nodes, path)
    text = json.dumps(replica._asdict())
    note = state_files.of_device(device.name, _KIND)
    if note.read() != text:
        note.write(text)
    return replica


def read(name: str) -> Replica | None:
    """Return the replica of a device, None where it is not up here or has no reservations.

    Raises:
        OSError: it is not known.
    """
    text = state_files.of_device(name, _KIND).read()
    if not text:
        return None
    found = json.loads(text)
    # A newer release may have noted more: handlers ask here.
    fields = {key: found[key] for key in Replica._fields}
    return Replica(**{**fields, "nodes": tuple(fields["nodes"])})


def remove(name: str) -> None:
    """Forget the replica: its device has no reservations any more."""
    state_files.of_device(name, _KIND).remove()
    behind(name).remove()


def unkept(name: str) -> state_files.StateFile:
    """Return the note that LIO may have told hosts of a device's what nobody has kept."""
    return state_files.of_device(name, _UNKEPT)


def behind(name: str) -> state_files.StateFile:
    """Return the note that a command waits on a standby here that lacks what it was sent before."""
    return state_files.of_device(name, _BEHIND)


def note_all_unkept() -> None:
    """Note that of all devices here, once the service's folder is mounted anew.

    A start has it mounted before it notes its replica: at the first time there is none.

    Raises:
        OSError: /run has no room.
    """
    for name in state_files.devices_with(_KIND):
        unkept(name).write()


def missed(name: str) -> state_files.StateFile:
    """Return the note of the order that stood when the file of a device was first missed here."""
    return state_files.of_node(f"{_MISSED}.{name}")


def forget_missed(name: str) -> None:
    """End that note: the file is there. With the next loss an order of until then is an old one."""
    with contextlib.suppress(OSError):
        missed(name).remove()


def of_serial(serial: str) -> Replica | None:
    """Return the replica whose backstore has this unit serial number, None where there is none.

    Raises:
        OSError: it is not known.
    """
    for name in state_files.devices_with(_KIND):
        replica = read(name)
        if replica is not None and replica.uuid == serial:
            return replica
    return None


def serials() -> list[str]:
    """Return the unit serial numbers of the replicas here.

    Raises:
        OSError: they are not known.
    """
    found = map(read, state_files.devices_with(_KIND))
    return [replica.uuid for replica in found if replica is not None]


def lock_path(name: str) -> str:
    """Return the path of the lock of who changes a device's reservations on this node."""
    return state_files.device_lock(name, LOCK)


def held_path(name: str) -> str:
    """Return the path of the lock that is shared by hosts' commands that wait on a standby."""
    return state_files.device_lock(name, "held")


def reload_path(name: str) -> str:
    """Return the path of the lock that is held while a target's reservations are put in force."""
    return state_files.device_lock(name, "reload")


def is_reloading(name: str) -> bool:
    """Whether other reservations are put in force in a target right now, its sessions ended.

    Raises:
        OSError: it is not known.
    """
    with state_files.locked(reload_path(name), wait_s=0.0, shared=True) as is_free:
        return not is_free


def set_closing(name: str, *, is_on: bool) -> None:
    """Have what holds that lock give up, as the device is demoted here; or no more.

    Without room for the note a demotion waits for the change, and fails if that does not end.
    """
    note = state_files.of_device(name, _CLOSING)
    with contextlib.suppress(OSError):
        if is_on:
            note.write()
        else:
            note.remove()


def is_closing(name: str) -> bool:
    """Whether a demotion waits for the lock, or was killed before its end."""
    try:
        return state_files.of_device(name, _CLOSING).exists()
    except OSError:
        return True  # not known
