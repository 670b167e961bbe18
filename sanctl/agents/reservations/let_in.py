# SPDX-License-Identifier: GPL-2.0-or-later
"""Lets hosts in again with what they have registered, or not at all; and keeps them out."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from sanctl.agents.replica.parts import Device
from sanctl.agents.reservations import access, in_force, replica_note, unwritten
from sanctl.drivers import lio, lio_reload, reservation_file
from sanctl.drivers.reservation_file import Kept
from sanctl.errors import CommandError, Problem
from sanctl.system import state_files

#: A monitor lets hosts in, which has 30 s for all that it does; the next one tries again.
_LOCK_S = 3.0
#: Who is to be kept out is out whoever reloads the target.
_RELOAD_S = 1.0


@contextlib.contextmanager
def letting_in(
    device: Device, new: Collection[str], *, are_refused: bool = False
) -> Iterator[None]:
    """Let initiators onto the access list within: with what they have registered, or not at all.

    The kernel takes registrations while the target has no LUN. So the TPG is disabled meanwhile, if
    one of them has a registration: no host writes before the reservation is in force. It is enabled
    again also where they are not let in after all: the other hosts wait.

    Of those that the kernel has refused until now, that is done only once it has taken one.

    Args:
        device: as the cluster wants it.
        new: who gets an entry within.
        are_refused: the kernel has refused them until now, and may do so again.

    Raises:
        CommandError: the kernel refused, or a change of reservations is under way; or they would be
            served without the reservation that is held.
        OSError: the same.
    """
    replica = replica_note.write(device)
    is_first = in_force.serves(device) and not lio.mapped_initiators(device.name)
    if not is_first and not _has_any(reservation_file.load_whole(replica.path), new):
        # Without an entry nobody registers meanwhile: this waits for no host's change.
        yield
        return
    with contextlib.ExitStack() as held:
        held.enter_context(in_force.locked(device, wait_s=_LOCK_S))
        kept = reservation_file.load_whole(replica.path)
        if is_first:
            # The first ones, after a time in which nobody was let in: as for a promotion.
            access.check_holder(device, kept, new)
        if not _has_any(kept, new):
            # Nothing is put in force: hosts' changes go on.
            held.close()
            yield
            return
        if unwritten.may_be(device):
            raise CommandError(
                Problem(
                    "SAN-RES-004",
                    f"{device.name}: what LIO has told hosts and not written is stored first",
                    "the next monitor lets them in",
                )
            )
        unwritten.warn_where_unlisted(device)
        if are_refused:
            with _trying(device, kept, new):
                yield
        else:
            with _reloading(device, kept, is_first=is_first):
                yield


@contextlib.contextmanager
def keeping_out(device: Device) -> Iterator[None]:
    """Take initiators off the access list within, also one whose command waits for a replica.

    The kernel ends a session once the command is answered. The service gives up what it stores, and
    answers it as void while this lasts. What the command has changed in the kernel is noted as kept
    by nobody, by the service, too, of one that comes after the look here: the next look stores it,
    or what is left of it, as no host was told anything.

    Raises:
        OSError: /run has no room.
    """
    with state_files.locked(replica_note.held_path(device.name), wait_s=0.0) as is_free:
        pass
    if not is_free:
        replica_note.unkept(device.name).write()
    with state_files.locked(replica_note.reload_path(device.name), wait_s=_RELOAD_S):
        yield


@contextlib.contextmanager
def _reloading(device: Device, kept: Kept | None, *, is_first: bool) -> Iterator[None]:
    """Let initiators in within while no host is logged in, and put in force what is kept."""
    refusal: CommandError | None = None
    with in_force.reloading(device):
        try:
            lio_reload.disable(device.name, device.minor)
            yield
        finally:
            if is_first:
                # The kernel may have refused the holder alone. Where the others cannot be taken
                # out again the TPG stays disabled: no host is logged in.
                try:
                    access.check_holder(device, kept, lio.mapped_initiators(device.name))
                except CommandError as error:
                    refusal = error
                    lio.remove_initiators(device.name, keep=())
            given = access.to_give(device, kept).limited_to(lio.initiators(device.name))
            lio_reload.reload(device.name, device.minor, given)
    in_force.note_mirrored(device.name, given)
    if refusal is not None:
        raise refusal


@contextlib.contextmanager
def _trying(device: Device, kept: Kept | None, new: Collection[str]) -> Iterator[None]:
    """Let in within those that the kernel has refused; put in force what one has that it takes.

    Until then that one is registered nowhere in the kernel, and no host's change is stored, by
    which it would be registered nowhere at all: this is called under the lock of changes.
    """
    try:
        yield
    finally:
        if _has_any(kept, set(new).intersection(lio.mapped_initiators(device.name))):
            given = access.to_give(device, kept).limited_to(lio.initiators(device.name))
            in_force.reload(device, given)
            in_force.note_mirrored(device.name, given)


def _has_any(kept: Kept | None, initiators: Collection[str]) -> bool:
    """Whether one of these initiators has a registration in a replica's file."""
    return kept is not None and not kept.stored.reservations.keys.keys().isdisjoint(initiators)
