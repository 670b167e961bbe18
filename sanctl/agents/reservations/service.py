# SPDX-License-Identifier: GPL-2.0-or-later
"""Program of sanctl-reservations.service: answers LIO's writes of reservations once they are kept.

LIO writes all reservations of a backstore into a file for each PERSISTENT RESERVE OUT, and tells
the host that it was made whatever becomes of that write (docs/adr/0055). The file is in a
filesystem of this process, which answers when the change is kept by every replica, and until then
not at all.

The process may die at any time. systemd keeps the connection (FileDescriptorStoreMax), writes
wait, and the next process is handed those that were not answered (Linux 6.9). On an older kernel
they cannot be answered any more: such a node does not say that it keeps reservations.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
import time

from sanctl.agents.device_log import DeviceLog
from sanctl.agents.reservations import in_force, listener, peers, replica_note, service_unit
from sanctl.agents.reservations.ahead import Ahead
from sanctl.agents.reservations.replica_note import Replica
from sanctl.agents.reservations.store import NotPrimaryError, Store
from sanctl.drivers import drbdsetup, fuse, lio, lio_backstore, lio_reservations, reservation_file
from sanctl.drivers.fuse import Write
from sanctl.model.drbd import ResourceState
from sanctl.model.reservation import Reservations, StoredReservations
from sanctl.parse.aptpl import parse_aptpl
from sanctl.plan.failover import reservation_rules
from sanctl.plan.failover.reservation_rules import StandbyAnswer
from sanctl.system import journal, state_files, timed_call
from sanctl.system.runner import LocalRunner

_PREFIX = "aptpl_"
#: What LIO writes for a CLEAR alone (target_core_pr.c, core_scsi3_update_and_write_aptpl). Where
#: nobody is registered any more, as after the last unregister, its text has no newline
#: (core_scsi3_update_aptpl_buf).
_CLEARED = b"No Registrations or Reservations\n"
_RETRY_S, _STANDBY_S = 0.1, 3.0
_CONNECTION, _FOLDER = "fuse", "below"
_RUNNER = LocalRunner()
_log = DeviceLog("reservations")


def main() -> int:
    """Serve until the folder is unmounted; return the exit status."""
    from systemd import daemon  # noqa: PLC0415 - of the distribution, not in a checkout

    state_files.make_folder()
    # Each host's command is a thread, and may ask Corosync.
    timed_call.allow_in_threads()
    kept = dict(zip(_names(), daemon.listen_fds(), strict=False))
    below, connection = kept.get(_FOLDER), kept.get(_CONNECTION)
    is_new = connection is None or below is None
    if connection is None or below is None:
        path = service_unit.folder()
        while service_unit.is_mounted():
            # Of a process that died before systemd had its connection: it fails, whoever looks.
            fuse.unmount(path)
        os.makedirs(path, mode=0o700, exist_ok=True)
        handles = {}
        if below is None:
            # What other targets than sanctl's keep there stays where it is.
            below = handles[_FOLDER] = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        connection = handles[_CONNECTION] = fuse.mount(path)
        # Once it is mounted: where that fails again and again each monitor would reload for the
        # note. Before systemd has the connection: the process after one that dies here notes it.
        try:
            replica_note.note_all_unkept()
        except OSError as error:
            # LIO's writes fail while nobody serves the folder: that comes first.
            in_force.log_failure("", f"what was told hosts until now is not stored: {error}")
        # None twice: systemd takes no more than there is room for, and the next process would be
        # without the connection.
        for name, handle in handles.items():
            daemon.notify(f"FDSTORE=1\nFDNAME={name}", fds=[handle])
    writes = Writes(below)
    served = fuse.Folder(connection, writes.answer, writes.known_names)
    if not is_new:
        try:
            served.ask_again()
        except OSError as error:
            _log("", f"unanswered writes are not handed out again: {error}")
    for each in (listener.listen, Ahead(writes.store, lambda: served.is_idle).follow):
        threading.Thread(target=each, daemon=True).start()
    daemon.notify("READY=1")
    served.serve()
    return 0


def _names() -> list[str]:
    return os.environ.get("LISTEN_FDNAMES", "").split(":")


class Writes:
    """Answers the writes, each in its own thread."""

    def __init__(self, below: int) -> None:
        """Keep the texts of other targets in the folder that is mounted over, by its descriptor."""
        self._below = below
        # Of one process, as each begins an epoch of its own (R4); used under the device's lock.
        self.store = Store(_RUNNER, yields=True)
        self._texts = _Texts()

    def known_names(self) -> list[str]:
        """Return the names of files that LIO may write to without a look at them before."""
        try:
            ours = [
                f"{_PREFIX}{serial}"
                for serial in (*replica_note.serials(), *lio_backstore.serials())
            ]
            return [*ours, *os.listdir(self._below)]
        except (OSError, ValueError, LookupError, TypeError) as error:
            in_force.log_failure("", f"a change of reservations waits: {error}")
            return []

    def answer(self, write: Write) -> int:
        """Return 0 once a write is made good, an errno where LIO has to refuse the command."""
        serial = write.name.removeprefix(_PREFIX)
        with contextlib.ExitStack() as held:
            return self._answer(write, serial, held)

    def _is_void(self, write: Write, serial: str) -> bool:
        """Whether the host's session is being ended, and what its command did to this target goes.

        No answer reaches the host any more. The kernel waits for this one before it ends the
        session; the change goes with the reload that is under way, with the next one of a standby,
        or with the target. Of the node that serves it is noted, as its host may only be taken off
        the list (let_in.py): the next monitor looks at it anew, and until there is room for the
        note it is not void. Else a change on the active node stays, and is stored as ever.

        Raises:
            OSError: it is not known, or could not be noted.
        """
        if not write.interrupted.is_set():
            return False
        replica = replica_note.of_serial(serial)
        if replica is None:
            return True
        if replica_note.is_reloading(replica.device):
            if lio.alua_state(replica.device, replica.minor) == "Active/Optimized":
                note = replica_note.unkept(replica.device)
                if not note.exists():
                    note.write()
            return True
        state = drbdsetup.observe(_RUNNER, replica.device)
        return state is None or not state.is_primary

    def _answer(self, write: Write, serial: str, held: contextlib.ExitStack) -> int:
        command: _Command | None = None
        is_held = False
        while True:
            try:
                if self._is_void(write, serial):
                    # Not an error: LIO would write no later change of this target any more.
                    return 0
                replica = replica_note.of_serial(serial)
                # One of sanctl's waits for its note; where the device was stopped meanwhile,
                # whoever has sent the command is gone.
                if replica is None and command is None and serial not in lio_backstore.serials():
                    return self._keep_for_others(write)
                if replica is not None:
                    if command is None:
                        command = _Command(self.store, self._texts, replica, write)
                    # No monitor takes the LUN away until it is answered; one that is about to has
                    # the lock, and ends the session.
                    is_held = is_held or _hold(replica_note.held_path(replica.device), held)
                    if (answer := command.answer(replica)) is not None:
                        return answer
            except Exception as error:
                in_force.log_failure(serial, f"a change of reservations waits: {error}")
                time.sleep(1.0)
            time.sleep(_RETRY_S)

    def _keep_for_others(self, write: Write) -> int:
        name = os.path.basename(write.name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        try:
            handle = os.open(name, flags, 0o600, dir_fd=self._below)
            try:
                os.write(handle, write.data)
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            return error.errno or errno.EIO
        return 0


def _hold(path: str, held: contextlib.ExitStack) -> bool:
    """Take a lock, shared, until the stack ends; return whether it was free."""
    with contextlib.ExitStack() as tried:
        is_free = tried.enter_context(state_files.locked(path, wait_s=0.0, shared=True))
        if is_free:
            held.enter_context(tried.pop_all())
    return is_free


class _Texts:
    """The latest text of each device that has arrived, by when LIO has made it (fuse.Write)."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[int, Reservations]] = {}
        self._lock = threading.Lock()

    def latest(self, uuid: str, number: int, text: Reservations) -> Reservations:
        """Return a text that has arrived, or one that has and was made after it."""
        with self._lock:
            if number >= self._latest.get(uuid, (0, text))[0]:
                self._latest[uuid] = number, text
            return self._latest[uuid][1]


class _Command:
    """A host's command whose text LIO has written, and which waits for its answer.

    Args:
        store: of this process.
        texts: of this process.
        replica: of the device.
        write: LIO's.
    """

    def __init__(self, store: Store, texts: _Texts, replica: Replica, write: Write) -> None:
        self._store, self._texts, self._number = store, texts, write.number
        self._after = parse_aptpl(write.data.decode("ascii", "replace"))
        self._is_clear = write.data.rstrip(b"\0") == _CLEARED
        # What a process before this one has read is noted already: then nothing has changed, and
        # such a command is answered on a standby once all of it is true.
        self._before = in_force.mirrored(replica.device)
        in_force.note_mirrored(replica.device, self._after)
        self._standby_until: float | None = None
        self._is_noted = False

    def answer(self, replica: Replica) -> int | None:
        """Return the answer; None: as this node's role stands, not yet."""
        state = drbdsetup.observe(_RUNNER, replica.device)
        if state is not None and state.is_primary:
            return self._keep(replica)
        return self._answer_on_standby(replica, state)

    def _keep(self, replica: Replica) -> int | None:
        with state_files.locked(replica_note.lock_path(replica.device), wait_s=1.0) as is_mine:
            # While sessions are being ended each try would begin an epoch, and give it up.
            if not is_mine or replica_note.is_reloading(replica.device):
                return None
            # A promotion compares what is in force here with the file, under this lock, before it
            # serves. Until then this target may have what other hosts have replaced since.
            if lio.alua_state(replica.device, replica.minor) != "Active/Optimized":
                return None
            # Before what is in force, and after it: one that gets its entry in between is in the
            # latter, one that loses it in between (access_list.py waits for no lock) may not be.
            entries = set(lio.mapped_initiators(replica.device))
            # Of two commands at once the older text may come last. Then the later one says who
            # holds the device, and what is registered is at least as new as that. The kernel is not
            # asked who does while a command waits: it spins under that lock until this very command
            # is answered, where another host preempts its sender (target_core_pr.c,
            # __core_scsi3_free_registration).
            backstore = lio_backstore.folder(replica.device, replica.minor)
            found = self._texts.latest(replica.uuid, self._number, self._after)
            if (registered := lio_reservations.read_registrations(backstore)) is not None:
                found = found.with_registrations(registered)
            entries.intersection_update(lio.mapped_initiators(replica.device))
            kept = reservation_file.load(replica.path)
            # After a CLEAR nobody is registered, those who are kept out just now included.
            if kept is not None and not self._is_clear:
                found = found.with_absent(kept.stored.reservations, entries)
            try:
                state = self._store.change(replica, found)
            except NotPrimaryError:
                return None
            in_force.note_mirrored(replica.device, found)
        _log(
            replica.device,
            f"reservations {state.version.epoch}.{state.version.generation}: "
            f"{len(found.registrations)} registered, "
            + (f"reserved by {found.holder}" if found.holder else "no reservation"),
            step="kept",
            priority=journal.INFO,
        )
        return 0

    def _answer_on_standby(self, replica: Replica, state: ResourceState | None) -> int | None:
        kept = reservation_file.load_whole(replica.path)
        if kept is None:
            return None
        verdict = self._verdict(kept.stored)
        if verdict is StandbyAnswer.ANSWER:
            # This node may have what is still on its way to another replica. The own file of the
            # one that serves is written last (R1).
            primary = _primary(replica, state)
            stored = None if primary is None else peers.stored_by(replica, primary)
            is_true = stored is not None and self._verdict(stored) is StandbyAnswer.ANSWER
            return 0 if is_true else None
        now = time.monotonic()
        if self._standby_until is None:
            self._standby_until = now + _STANDBY_S
        if verdict is StandbyAnswer.WAIT and now > self._standby_until:
            # LIO tells the host that its registration was not made, and goes on to write changes
            # only if it had written one before.
            backstore = lio_backstore.folder(replica.device, replica.minor)
            if not lio_reservations.is_writing(backstore):
                return None
            _log(
                replica.device,
                "a host's registration failed on this standby: the node that serves has not stored "
                f"the same within {_STANDBY_S:.0f} s",
                step="refused",
            )
            return errno.EIO
        if verdict is StandbyAnswer.HOLD and now > self._standby_until:
            self._note_behind(replica, kept.stored.reservations)
        return None

    def _note_behind(self, replica: Replica, canonical: Reservations) -> None:
        """Have a monitor reload, where this target had others than it was sent before the command.

        Monitors wait for the command otherwise, and it for what a reload would bring. So it is with
        a REGISTER anew of a host that was preempted meanwhile: its key is what this target has of
        it, and the holder another one. A host asks again each time its session ends.
        """
        # What was mirrored is of hosts that have an entry here alone.
        if self._is_noted or self._before == canonical.limited_to(lio.initiators(replica.device)):
            return
        # Without room for the note monitors wait as ever.
        with contextlib.suppress(OSError):
            replica_note.behind(replica.device).write()
            self._is_noted = True

    def _verdict(self, stored: StoredReservations) -> StandbyAnswer:
        canonical = stored.reservations
        return reservation_rules.answer_on_standby(self._before, self._after, canonical)


def _primary(replica: Replica, state: ResourceState | None) -> str | None:
    """Return the node that serves, None where DRBD sees none."""
    for peer in () if state is None else state.peers:
        if peer.role == "Primary" and peer.is_connected:
            others = set(replica.nodes) - {os.uname().nodename}
            # DRBD 8.4 names no peer, and has one.
            return peer.name if peer.name in others else min(others)
    return None


if __name__ == "__main__":
    sys.exit(main())
