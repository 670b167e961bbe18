# SPDX-License-Identifier: GPL-2.0-or-later
"""What of a replica's file is for whom: who has an entry, is kept out for a while, or taken off."""

from __future__ import annotations

from collections.abc import Collection

from sanctl.agents.replica.parts import Device
from sanctl.drivers.reservation_file import Kept
from sanctl.errors import CommandError, Problem
from sanctl.model.reservation import Reservations


def to_give(device: Device, kept: Kept | None) -> Reservations:
    """Return what a target is given of a replica's file.

    Only of initiators that have an entry, or are to have one: what the kernel is given besides it
    keeps until the backstore goes, and puts in force with a later entry, whatever came since.
    """
    return to_keep(device, kept).limited_to(device.all_initiators)


def to_keep(device: Device, kept: Kept | None) -> Reservations:
    """Return what stays of a replica's file: not what an initiator had that was taken off the list.

    One that is kept out for a while comes back with what it had.
    """
    if kept is None:
        return Reservations()
    reservations = kept.stored.reservations
    return reservations if is_closed(device) else reservations.limited_to(device.all_initiators)


def is_closed(device: Device) -> bool:
    """Whether who has no entry may have one later, and is not known to have been taken off.

    Which initiators a host has that this release cannot read is not known here.
    """
    return bool(device.restore or device.held or device.leaves_list or device.unreadable_hosts)


def check_holder(device: Device, kept: Kept | None, entries: Collection[str]) -> None:
    """Check that the kernel has a reservation in force once these initiators have their entries.

    It takes a registration back with its initiator's entry alone: others would write to what is
    held by one that has none here, as its secret is missing, say. Not if nobody is let in, nor for
    one that was taken off the list, or where an order to clear stands, which the first monitor
    carries out.

    Raises:
        CommandError: it would not.
    """
    if kept is None or not entries or is_ordered_to_clear(device, kept):
        return
    held = to_keep(device, kept)
    if held.holder is None or held.limited_to(entries).holder is not None:
        return
    raise CommandError(
        Problem(
            "SAN-RES-005",
            f"{held.holder} holds {device.name}, and has no entry in the access list on this node: "
            "the kernel would drop the reservation, and let others write",
            "see why it is not let in ('sanctl status', SAN-HLT-094), or take its host off the "
            f"list; 'sanctl target reservations {device.name} clear' gives the reservation up",
        )
    )


def is_ordered_to_clear(device: Device, kept: Kept) -> bool:
    """Whether an operator's order to clear the reservations stands that was not carried out."""
    token = device.clear_reservations
    return bool(token) and kept.stored.cleared != token
