# SPDX-License-Identifier: GPL-2.0-or-later
"""What a monitor does for reservations: switches, mirrors, clears by order, publishes."""

from __future__ import annotations

import contextlib
import math
import time

from sanctl.agents import ocf
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica.parts import Device
from sanctl.agents.reservations import access, in_force, replica_note, service_unit, unwritten
from sanctl.agents.reservations.replica_note import Replica
from sanctl.agents.reservations.store import Store
from sanctl.drivers import lio, lio_backstore, lio_reservations, node_attributes, reservation_file
from sanctl.errors import SanctlError
from sanctl.model.published_reservations import (
    RESERVATIONS_PREFIX,
    PublishedReservations,
    format_published,
)
from sanctl.model.reservation import Reservations, StoredReservations
from sanctl.system import state_files
from sanctl.system.runner import Runner

#: A monitor has 30 s for all that it does; a replica that does not answer is for the next one.
_STORE_S, _SERVICE_S = 8.0, 5.0
#: What a stop has left at least before it waits for pacemaker-attrd, 5 s: that, and what follows.
_STOP_REST_S = 25.0
_PUBLISHED = "reservations-published"
_log = DeviceLog("reservations")


def look_after(runner: Runner, device: Device, *, is_active: bool, attrd_pid: str) -> bool:
    """Do what is due; return whether anything was.

    Args:
        runner: starts programs.
        device: as the cluster wants it.
        is_active: this node is Primary.
        attrd_pid: the process that holds what was published (publish/attrd_cache.py).

    Raises:
        SanctlError: it could not be done; the next monitor tries again.
        OSError: the same.
    """
    if not lio.is_exported(device.name):
        return False
    backstore = lio_backstore.folder(device.name, device.minor)
    if not device.reservations:
        return _switch_off(runner, device, backstore)
    was_on = lio_reservations.is_on(backstore)
    if not was_on:
        service_unit.run(runner, within_s=_SERVICE_S)
    is_kept = not was_on or _has_service(runner, device)
    was_mirrored = False
    replica = replica_note.write(device)
    with state_files.locked(replica_note.lock_path(device.name), wait_s=0.0) as is_mine:
        if not is_mine or (is_active and replica_note.is_closing(device.name)):
            return False
        if not was_on:
            _switch_on(runner, device, replica, is_active=is_active)
        elif is_active:
            _follow(runner, device, replica, is_kept=is_kept)
        else:
            was_mirrored = _mirror(device)
    # pacemaker-attrd may take its time: no change of hosts', and no promotion, waits for it.
    if is_active:
        return _publish(runner, replica, attrd_pid) or not was_on
    return withdraw(runner, device.name) or was_mirrored or not was_on


def _mirror(device: Device) -> bool:
    """Have a standby follow; return whether hosts' sessions were ended for it.

    A reload would end a host's command that waits here, as the one that comes by all paths does for
    a moment. One that waits because this standby has not followed ends with it.
    """
    note = replica_note.behind(device.name)
    with state_files.locked(replica_note.held_path(device.name), wait_s=0.0) as is_free:
        if not (is_free or note.exists()):
            return False
        was_mirrored = in_force.bring_up_to_date(device, must_reload=not is_free)
    # Where it cannot be removed a later command may be ended once that would have been answered.
    with contextlib.suppress(OSError):
        note.remove()
    return was_mirrored


def _has_service(runner: Runner, device: Device) -> bool:
    """Whether the service keeps what hosts reserve; where it does not it is started, in time.

    An order to clear, or who was taken off the list, waits for no service.
    """
    try:
        service_unit.begin(runner)
    except (SanctlError, OSError) as error:
        in_force.log_failure(device.name, str(error))
        return False
    return True


def _switch_on(runner: Runner, device: Device, replica: Replica, *, is_active: bool) -> None:
    """Have a target take reservations that has refused them until now; no host is logged in.

    In this order: all replicas know that there are none before the first host may make one, and
    what the kernel remembers of an earlier time is gone (docs/adr/0055).
    """
    if is_active:
        if reservation_file.load_to_replace(replica.path) is None:
            in_force.begin_anew(replica)
        until = time.monotonic() + _STORE_S
        store = in_force.settle(runner, device, until)
        store.change(replica, Reservations(), until=until)
        in_force.put_in_force(device, Reservations())
    else:
        # The node that serves may have been faster.
        in_force.bring_up_to_date(device)
    _log(device.name, "persistent reservations are on", step="on")


def _switch_off(runner: Runner, device: Device, backstore: str) -> bool:
    is_on = lio_reservations.is_on(backstore)
    if not is_on and replica_note.read(device.name) is None:
        return False
    if is_on:
        # First, as it is done again if it fails: the kernel remembers what is registered until the
        # LUN goes, and takes it for true when it takes reservations again.
        in_force.reload(device, Reservations())
        lio_reservations.set_mode(backstore, is_on=False)
    in_force.empty_file(device)
    withdraw(runner, device.name, is_certain=False)
    # Last: it says that something is left to be done.
    replica_note.remove(device.name)
    _log(device.name, "persistent reservations are off", step="off")
    return True


def _follow(runner: Runner, device: Device, replica: Replica, *, is_kept: bool) -> None:
    """Carry out an order to clear; forget who was taken off the access list.

    Args:
        runner: starts programs.
        device: as the cluster wants it.
        replica: of the device.
        is_kept: the service's folder is mounted. Without it what is noted as kept by nobody stays
            so: hosts' sessions would end for what the next change makes untrue.
    """
    kept = reservation_file.load(replica.path)
    if kept is None:
        return  # What hosts ask for waits, and the service says why.
    until = time.monotonic() + _STORE_S
    token = device.clear_reservations
    if token and kept.stored.cleared != token:
        with state_files.locked(replica_note.held_path(device.name), wait_s=0.0) as is_free:
            if not is_free:
                return  # A host's command is under way, for which a reload would wait.
            # The kernel first: what dies in between is begun again, as the order still stands.
            in_force.put_in_force(device, Reservations())
        Store(runner).change(replica, Reservations(), cleared=token, until=until)
        _log(device.name, "reservations cleared, as ordered", step="cleared")
        return
    with state_files.locked(replica_note.held_path(device.name), wait_s=0.0) as is_free:
        # The kernel drops a registration with its initiator's entry: one that was off the list for
        # a while has lost it there. A command that is under way is no such difference.
        is_unkept = is_free and is_kept and replica_note.unkept(device.name).exists()
        if is_unkept or (is_free and not in_force.has_all(device, kept)):
            if unwritten.may_be(device):
                kept = unwritten.store(runner, device, replica, kept, until)
            else:
                unwritten.warn_where_unlisted(device)
            in_force.bring_up_to_date(device)
        if is_unkept:
            replica_note.unkept(device.name).remove()
    # The kernel has forgotten such a registration, and a failover must not bring it back. What the
    # kernel has besides is not stored here: a host's command may be under way, which the service
    # stores before it is answered.
    left = access.to_keep(device, kept)
    if left != kept.stored.reservations:
        Store(runner).change(replica, left, until=until)
    elif not in_force.is_settled(device):
        in_force.settle(runner, device, until)


def withdraw_at_stop(runner: Runner, name: str) -> None:
    """As `withdraw`, in a stop: not where that has little time left, as its end has a node fenced.

    Raises:
        CommandError, OSError: as of `withdraw`.
    """
    if ocf.remaining_s(math.inf) >= _STOP_REST_S:
        withdraw(runner, name)


def withdraw(runner: Runner, name: str, *, is_certain: bool = True) -> bool:
    """Take back what this node has published of a device that it does not serve any more.

    Else it would be shown for what is in force when the node serves the device again, until its
    first monitor then.

    Args:
        runner: starts programs.
        name: the device.
        is_certain: it was published only if that is noted.

    Returns:
        Whether anything was done.

    Raises:
        CommandError: pacemaker-attrd did not answer.
        OSError: whether it was published is not known.
    """
    note = state_files.of_device(name, _PUBLISHED)
    if is_certain and not note.exists():
        return False
    node_attributes.delete(runner, f"{RESERVATIONS_PREFIX}{name}")
    note.remove()
    return True


def _publish(runner: Runner, replica: Replica, attrd_pid: str) -> bool:
    kept = reservation_file.load(replica.path)
    if kept is None:
        return False
    text = format_published(_published(kept.stored))
    note, said = state_files.of_device(replica.device, _PUBLISHED), f"{attrd_pid} {text}"
    if attrd_pid and note.read() == said:
        return False
    node_attributes.publish_private(runner, f"{RESERVATIONS_PREFIX}{replica.device}", text)
    note.write(said)
    return True


def _published(state: StoredReservations) -> PublishedReservations:
    return PublishedReservations(state.version, state.reservations, state.cleared)
