# SPDX-License-Identifier: GPL-2.0-or-later
"""What LIO has told hosts and nobody has kept: stored before a reload would undo it.

While the service's folder was not mounted, too: LIO's writes failed, of which hosts are told
nothing, and a failover would do without them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica.parts import Device
from sanctl.agents.reservations import in_force, replica_note
from sanctl.agents.reservations.replica_note import Replica
from sanctl.agents.reservations.store import Store
from sanctl.drivers import lio, lio_backstore, lio_reload, lio_reservations, reservation_file
from sanctl.drivers.reservation_file import Kept
from sanctl.model.reservation import Reservations
from sanctl.system import journal
from sanctl.system.runner import Runner

_log = DeviceLog("reservations")


def may_be(device: Device) -> bool:
    """Whether the target of a node that serves may have what LIO has told hosts and nobody keeps.

    RESERVE, RELEASE and PREEMPT are written only while the last REGISTER was, and no CLEAR came
    after it (target_core_pr.c, pr_aptpl_active), and are GOOD without that. With nobody registered
    nothing is taken for such a change: a reload gives hosts what they had. Nor where LIO does not
    list all who are: `warn_where_unlisted` says so.
    """
    backstore = lio_backstore.folder(device.name, device.minor)
    return _is_possible(device, backstore) and bool(lio_reservations.read_registrations(backstore))


def warn_where_unlisted(device: Device) -> None:
    """Log that what LIO has told hosts and nobody keeps is not stored, where it cannot be read."""
    backstore = lio_backstore.folder(device.name, device.minor)
    if _is_possible(device, backstore) and lio_reservations.read_registrations(backstore) is None:
        _warn_unlisted(device)


def _is_possible(device: Device, backstore: str) -> bool:
    return in_force.serves(device) and (
        replica_note.unkept(device.name).exists() or not lio_reservations.is_writing(backstore)
    )


def _warn_unlisted(device: Device) -> None:
    _log(
        device.name,
        "LIO has more registrations than it lists, and told hosts of changes while nobody kept "
        "them: what these were is not known, is not stored, and ends with the next reload of the "
        "target, move or failover. Have each host register its key again: one such command stores "
        "all that is in force. Who is missing: 'sanctl target reservations "
        f"{device.name}', beside the keys that a host reads (sg_persist --in --read-keys)",
        step="unlisted",
        priority=journal.WARNING,
    )


def store(runner: Runner, device: Device, replica: Replica, kept: Kept, until: float) -> Kept:
    """Store what LIO has told hosts and nobody keeps, which the reload that is due would undo.

    Called under `in_force.locked`, while no host's command waits, and followed by the reload.

    Returns:
        What is kept now.

    Raises:
        SanctlError: it could not be stored; hosts are served as before.
        OSError: the same.
    """
    # First what needs no reading: while a replica neither answers nor is marked, hosts' sessions
    # must not end with each monitor.
    changes = Store(runner)
    changes.settle(replica, until=until)
    # One that is half unmapped has nothing registered in LIO, and keeps what it had. Before what is
    # in force and after it, as in service.py.
    entries = set(lio.mapped_initiators(device.name))
    with _undisturbed(device) as found:
        if found is None:
            # More were registered since `may_be` looked.
            _warn_unlisted(device)
        else:
            entries.intersection_update(lio.mapped_initiators(device.name))
            wanted = found.with_absent(kept.stored.reservations, entries)
            state = changes.change(replica, wanted, until=until)
            if state.reservations != kept.stored.reservations:
                _log(
                    device.name, "stored what LIO had told hosts and nobody kept", step="unwritten"
                )
    return reservation_file.load(replica.path) or kept


@contextlib.contextmanager
def _undisturbed(device: Device) -> Iterator[Reservations | None]:
    """Have what is in force, while no host can change it: None where LIO does not list all of it.

    Followed by a reload, until which the TPG is disabled. It is enabled again where that is not to
    come. No command waits within, for which the kernel would spin under the lock of the holder.

    Raises:
        CommandError: the kernel refused, or another process reloads.
        OSError: the same.
    """
    with in_force.reloading(device):
        try:
            lio_reload.disable(device.name, device.minor)
            yield lio_reservations.read(lio_backstore.folder(device.name, device.minor))
        except BaseException:
            lio_reload.enable(device.name, device.minor)
            raise
