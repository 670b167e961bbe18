# SPDX-License-Identifier: GPL-2.0-or-later
"""Has the reservations that a replica keeps in force in LIO: at its start, before it serves, after.

A target that takes reservations is exported only while sanctl-reservations.service can keep them:
without it a host would be told that a change was made which nobody keeps.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica import device_files
from sanctl.agents.replica.parts import Device
from sanctl.agents.reservations import access, replica_note, service_unit
from sanctl.agents.reservations.replica_note import Replica
from sanctl.agents.reservations.store import Store
from sanctl.drivers import lio, lio_backstore, lio_reload, lio_reservations, reservation_file
from sanctl.drivers.reservation_file import Kept
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.reservation import Reservations, StoredReservations, Version
from sanctl.plan.failover import reservation_rules
from sanctl.system import journal, state_files
from sanctl.system.files import exists
from sanctl.system.runner import Runner

#: A promotion or a demotion waits so long for a change that is under way; hosts wait meanwhile.
_LOCK_S = 15.0
#: What the kernel has been given, or has taken from hosts, as far as is known: for a standby.
_MIRRORED = "reservations-mirrored"
_SENT_S = 600.0
#: Of a device: the replicas that were sent the state, or were marked, when it was last promoted.
SETTLED = "reservations-settled"
_log = DeviceLog("reservations")


def at_start(runner: Runner, device: Device) -> Reservations | None:
    """Return what the target that a start is about to make has in force; None: the device has none.

    Raises:
        CommandError: the service does not run.
        OSError: /run has no room, or the pool refused.
    """
    if not device.reservations:
        try:
            empty_file(device)
        except (SanctlError, OSError) as error:
            # Only a later switch on needs it, and stores an empty state itself.
            log_failure(device.name, f"the file of its reservations is as it was: {error}")
        replica_note.remove(device.name)
        return None
    service_unit.run(runner)
    replica = replica_note.write(device)
    if not lio.is_exported(device.name):
        # One that is half made may have been given registrations already.
        lio.remove(device.name, device.minor)
    # The lock's file is made here: promotion and demotion must not depend on room for it in /run.
    for path in (replica_note.reload_path, replica_note.held_path):
        with state_files.locked(path(device.name), wait_s=0.0, shared=True):
            pass
    with locked(device):
        # A standby may be without: it is not promoted then, and gets it from the node that serves.
        kept = reservation_file.load_whole(replica.path)
        if kept is not None:
            replica_note.forget_missed(device.name)
    given = access.to_give(device, kept)
    note_mirrored(device.name, given.limited_to(device.all_initiators))
    return given


def check_before_promotion(device: Device, *, is_first: bool) -> None:
    """Check that this replica's reservations are known, before DRBD is Primary (R6).

    The first activation makes them: none. So does an order to clear them that was given since the
    file is missed: the way out where no replica has one.

    Raises:
        CommandError: they are not: the device is not served from here.
        OSError: the same.
    """
    if not device.reservations:
        return
    replica = replica_note.write(device)
    replica_note.set_closing(device.name, is_on=False)
    with locked(device):
        kept = reservation_file.load_to_replace(replica.path)
        own = None if kept is None else kept.stored.version
        if reservation_rules.may_promote(own, is_first_activation=is_first):
            # Before DRBD is Primary, too: another node may be the better one.
            access.check_holder(device, kept, lio.initiators(device.name))
            if kept is None:
                empty = StoredReservations(Version(0, 0), Reservations())
                reservation_file.store(replica.path, Kept(empty))
            replica_note.forget_missed(device.name)
            return
        missed = replica_note.missed(device.name)
        if not missed.exists():
            missed.write(device.clear_reservations)
        if device.clear_reservations and device.clear_reservations != missed.read():
            begin_anew(replica, cleared=device.clear_reservations)
            missed.remove()
            return
    raise CommandError(
        Problem(
            "SAN-RES-002",
            f"{replica.path} is missing, or not whole: which reservations are in force is not "
            "known here",
            f"bring a node with a good replica back; or 'sanctl target reservations {device.name} "
            "clear' gives them up: docs/howto/night-page.md, SAN-RES-002",
        )
    )


def begin_anew(replica: Replica, *, cleared: str = "") -> None:
    """Write a state without reservations where there is no file: newer than any that was before.

    A replica that was away with one of these stays the older one.
    """
    version = Version(reservation_file.epoch_above_lost(), 0)
    state = StoredReservations(version, Reservations(), cleared)
    reservation_file.store(replica.path, Kept(state, version.epoch))
    _log(replica.device, f"reservations begin anew: {replica.path} has none", step="anew")


def empty_file(device: Device) -> None:
    """Have the file of a device whose reservations are off say that there are none.

    It stays, with its version: switched on again, the state has to be newer than what another
    replica, which is away now, still has.

    Raises:
        CommandError: another process holds the lock.
        OSError: the pool refused.
    """
    path = device_files.note_path(device, reservation_file.KIND)
    if path is None or not exists(path):
        return
    with _locked(device.name):
        kept = reservation_file.load_whole(path)
        if kept is not None and kept.stored.reservations != Reservations():
            stored = kept.stored._replace(reservations=Reservations())
            reservation_file.store(path, kept._replace(stored=stored))


@contextlib.contextmanager
def locked(device: Device, *, wait_s: float = _LOCK_S) -> Iterator[None]:
    """Keep changes of reservations out while the replica's role changes.

    Args:
        device: as the cluster wants it.
        wait_s: for a change that is under way, in seconds.

    Raises:
        CommandError: a change is under way, and does not end.
    """
    if not device.reservations:
        yield
        return
    with _locked(device.name, wait_s):
        yield


@contextlib.contextmanager
def _locked(name: str, wait_s: float = _LOCK_S) -> Iterator[None]:
    with state_files.locked(replica_note.lock_path(name), wait_s=wait_s) as is_mine:
        if not is_mine:
            raise CommandError(
                Problem(
                    "SAN-RES-004",
                    f"a change of the reservations of {name} is under way on this node, and "
                    f"does not end within {wait_s:.0f} s",
                    f"'journalctl -u {service_unit.NAME}' says what it waits for",
                )
            )
        yield


@contextlib.contextmanager
def demoting(device: Device) -> Iterator[None]:
    """As `locked`, for a demotion: what waits for a replica gives up."""
    if device.reservations:
        replica_note.set_closing(device.name, is_on=True)
    with locked(device):
        yield
        replica_note.set_closing(device.name, is_on=False)


def settle(runner: Runner, device: Device, deadline: float) -> Store:
    """Store the state of this Primary in a new epoch, before hosts are served (R7).

    Called under `locked`, once DRBD is Primary here: what a standby was sent is in the file now.

    Returns:
        What stores further changes of this process.

    Raises:
        SanctlError: a replica neither stores it nor is marked: this node does not serve.
        OSError: the file could not be written.
    """
    replica, store = replica_note.write(device), Store(runner)
    store.settle(replica, until=deadline)
    # Without room for it the monitor stores it once more.
    with contextlib.suppress(OSError):
        _settled(device.name).write(" ".join(replica.nodes))
    return store


def is_settled(device: Device) -> bool:
    """Whether all replicas of now were sent the state lately, those that have lost it, too.

    A replica without a file is not promoted, and gets one from the node that serves alone.

    Raises:
        OSError: it is not known.
    """
    note = _settled(device.name)
    age_s = note.age_s()
    return age_s is not None and 0 <= age_s < _SENT_S and note.read() == " ".join(device.nodes)


def _settled(name: str) -> state_files.StateFile:
    return state_files.of_device(name, SETTLED)


def bring_up_to_date(device: Device, *, must_reload: bool = False) -> bool:
    """Have in force what this replica keeps; return whether hosts' sessions were ended for it.

    Called under `locked`, while no host's command waits; with `must_reload` one that does is ended.

    Raises:
        CommandError: the kernel refused; nothing is served by a target without its reservations.
        OSError: the same.
    """
    if not device.reservations:
        return False
    replica = replica_note.write(device)
    kept = reservation_file.load_whole(replica.path)
    return put_in_force(device, access.to_give(device, kept), must_reload=must_reload)


def at_promotion(device: Device) -> bool:
    """As `bring_up_to_date`, before hosts are served; a command that waits is ended.

    Raises:
        CommandError: as there; or who holds the device has no entry here.
        OSError: the same.
    """
    if not device.reservations:
        return False
    kept = reservation_file.load_whole(replica_note.write(device).path)
    access.check_holder(device, kept, lio.initiators(device.name))
    given = access.to_give(device, kept)
    if kept is not None and access.is_ordered_to_clear(device, kept):
        # It counts from now on; the first monitor stores it. So it is a way out of whatever LIO
        # does not put in force.
        given = Reservations()
    with state_files.locked(replica_note.held_path(device.name), wait_s=0.0) as is_free:
        has_reloaded = put_in_force(device, given, must_reload=not is_free)
    # What this target has told hosts as a standby's goes with that. Where the note cannot be
    # removed the first monitor reloads once more.
    with contextlib.suppress(OSError):
        replica_note.unkept(device.name).remove()
        replica_note.behind(device.name).remove()
    return has_reloaded


def serves(device: Device) -> bool:
    """Whether hosts are served here, by ALUA: what the target has counts (service.py)."""
    return lio.alua_state(device.name, device.minor) == "Active/Optimized"


def put_in_force(device: Device, given: Reservations, *, must_reload: bool = False) -> bool:
    """Have just these reservations in force; return whether hosts' sessions were ended for it.

    While a host's command waits only with `must_reload`: what such a command has changed is undone,
    and what is in force is not asked, as the kernel may spin under that lock until the command is
    answered (service.py).

    Raises:
        CommandError: the kernel refused.
        OSError: the same.
    """
    backstore = lio_backstore.folder(device.name, device.minor)
    wanted = given.limited_to(lio.initiators(device.name))
    was_on = lio_reservations.is_on(backstore)
    if not was_on:
        # What the kernel remembers of an earlier time goes with the LUN (docs/adr/0055), and what
        # it is given while reservations are off, it drops.
        reload(device, Reservations())
        lio_reservations.set_mode(backstore, is_on=True)
        note_mirrored(device.name, Reservations())
    elif not must_reload and is_in_force(device, wanted):
        return False
    if was_on or wanted != Reservations():
        # Of those that have an entry alone: where all registrants hold, LIO needs one that has.
        reload(device, wanted)
    note_mirrored(device.name, wanted)
    _log(
        device.name,
        f"{len(wanted.registrations)} registrations are in force, of which this target had others; "
        "its sessions were ended",
        step="reloaded",
    )
    return True


def reload(device: Device, given: Reservations) -> None:
    """Have LIO take other reservations in place of those that it has.

    The kernel ends the sessions first, and waits for the host's command that waits here; the
    service answers it once it sees this lock, as what it did is undone, and no host hears of it.

    Raises:
        CommandError: the kernel refused, or another process is about it.
        OSError: the same.
    """
    with reloading(device):
        lio_reload.reload(device.name, device.minor, given)


@contextlib.contextmanager
def reloading(device: Device) -> Iterator[None]:
    """Have the service answer, as void, what a host whose session ends for this has asked for.

    Raises:
        CommandError: another process reloads.
    """
    with state_files.locked(replica_note.reload_path(device.name), wait_s=_LOCK_S) as is_mine:
        if not is_mine:
            raise CommandError(
                Problem("SAN-RES-004", f"another process reloads the target of {device.name}")
            )
        yield


def is_in_force(device: Device, wanted: Reservations) -> bool:
    """Whether the target is whole and has just these reservations.

    Who holds the device is read last, and only where all else is as wanted: a command that comes
    meanwhile, and one that preempts its sender, make the kernel spin under that lock (service.py).
    """
    if not lio_reload.is_whole(device.name, device.minor):
        return False
    backstore = lio_backstore.folder(device.name, device.minor)
    registered = lio_reservations.read_registrations(backstore)
    if registered is not None and dict(registered) != wanted.keys:
        return False
    if wanted.registrations and not lio_reservations.is_writing(backstore):
        return False
    found = lio_reservations.read(backstore) if registered else None
    if registered == []:
        found = Reservations()  # A holder is one that is registered.
    # LIO lists no more than a page: then what it was given, or has written since, is compared.
    return (mirrored(device.name) if found is None else found) == wanted


def has_all(device: Device, kept: Kept) -> bool:
    """Whether an active node's target is whole, with the registrations that its file has.

    And goes on to write changes: a CLEAR that waits longer than the REGISTER after it ends that.
    Who holds the device is not asked, as hosts' commands may be under way (service.py).
    """
    if not lio_reload.is_whole(device.name, device.minor):
        return False
    backstore = lio_backstore.folder(device.name, device.minor)
    found = lio_reservations.read_registrations(backstore)
    wanted = access.to_give(device, kept).limited_to(lio.initiators(device.name))
    return found is None or (
        dict(found) == wanted.keys and (not found or lio_reservations.is_writing(backstore))
    )


def note_mirrored(name: str, reservations: Reservations) -> None:
    """Note what the kernel has, for the next command that a standby gets."""
    state = StoredReservations(Version(0, 0), reservations)
    text = json.dumps(reservation_file.encode(state))
    state_files.of_device(name, _MIRRORED).write(text)


def mirrored(name: str) -> Reservations:
    """Return what the kernel had before the latest command.

    Raises:
        OSError: it is not known; ValueError and KeyError: the note is not whole.
    """
    text = state_files.of_device(name, _MIRRORED).read()
    return reservation_file.decode(json.loads(text)).reservations if text else Reservations()


def log_failure(name: str, text: str) -> None:
    """Log what keeps a change of reservations from being made."""
    _log(name, text, priority=journal.ERROR)
