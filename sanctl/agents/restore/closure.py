# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps hosts out of a device that goes back to a restore point.

An action of Pacemaker's has the parameters of the moment in which it was ordered. A monitor that
was ordered before the restore, and runs after its begin, would let hosts in again. So a note stays
on the node once an action has seen the order, and an action that has not asks the CIB. The note
stays as well while a process here still copies: one that a demotion could not end, as where its
node has hung, and another node has finished the copy since.

Where an order has said that the device is a copy, hosts are let in once this node's disk has the
CIB that says so no more: what they write would else be that copy after a loss of all power. Such an
order is noted beside the data as well, for a node that comes back with an older CIB: hosts are kept
out until the CIB knows of it (noted_hold.py).
"""

from __future__ import annotations

import contextlib

from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica import access_list, older_cib
from sanctl.agents.replica.parts import Device
from sanctl.agents.restore import noted_hold, unit
from sanctl.drivers import cib, lio
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.system import state_files
from sanctl.system.runner import Runner

_KIND = "restoring"
_TIMEOUT_S = 8.0
_NOT_KNOWN = "not known"
#: In the note: an order has said here that the device is a copy. An order may follow: that one is
#: noted beside the data, where it has to be.
_CLAIMED = "claimed"
#: The process that has ended the order itself is about to end.
_GRACE_S = 2.0
#: How long Pacemaker may take to write the CIB to this node's disk; then the next monitor looks.
_ON_DISK_S = 2.0
_log = DeviceLog("restore")


def as_ordered(device: Device, order: str) -> Device:
    """Return the device with an empty access list, if its parameter `restore` calls for that."""
    return device.closed(order) if _closes(order) else device


def at_start(runner: Runner, device: Device, data: str) -> Device:
    """Return the device as a start makes it: closed, if it was held here and may still be.

    Args:
        runner: runs the tools.
        device: the device.
        data: the path of its data file, which need not be attached yet.

    Raises:
        OSError: it is to be closed, and there is no room to note that. The start has failed then.
    """
    note = state_files.of_device(device.name, _KIND)
    if note.read():
        return as_known(runner, device, data)
    try:
        noted = noted_hold.read(device.name, data)
    except OSError as error:
        _log(device.name, f"hosts are kept out: whether it was held is not known: {error}")
        note.write(_CLAIMED)
        older_cib.note(device.name, _NOT_KNOWN)
        return as_known(runner, device, data)
    if noted and (device.restore or _may_be_open(noted)):
        # Without room the start fails: it would be said that the next copy has not begun. Before
        # the state file, by which a start that is tried again would not come here.
        noted_hold.keep_after_start(device.name, device.restore, data)
        note.write(_CLAIMED)
    return as_known(runner, device, data)


def as_known(runner: Runner, device: Device, data: str | None = None) -> Device:
    """Return the device, also closed if it was closed here, unless the CIB says that it is over.

    Args:
        runner: runs the tools.
        device: the device.
        data: the path of its data file; None: of the one that is attached here, if any.
    """
    note = state_files.of_device(device.name, _KIND)
    if device.restore:
        # Without the note the copy does not begin: here (`note`), or where this is published.
        with contextlib.suppress(OSError):
            try:
                _note(device.name, device.restore, data)
                older_cib.forget_unnoted(device.name)
            except OSError:
                older_cib.note_unnoted(device.name)
        return device
    try:
        if not note.exists():
            return device
        order = read_order(runner, device.name)
        if _closes(order):
            return device.closed(order)
        if not unit.end(runner, device.name, grace_s=_GRACE_S):
            return device.closed(order or _NOT_KNOWN)
        if note.read():
            if not _has_ended(runner, device.name, order, data):
                return device.closed(order or _NOT_KNOWN)
            if not _note_end(device.name, order, data):
                return device
        older_cib.forget(device.name)
        older_cib.forget_unnoted(device.name)
        note.remove()
    except (SanctlError, OSError):
        return device.closed(_NOT_KNOWN)
    return device


def read_order(runner: Runner, name: str) -> str:
    """Return the device's parameter `restore` as the CIB has it on this node; empty: none.

    Raises:
        CommandError: the CIB gave no answer.
    """
    path = f"//primitive[@id='{name}']/instance_attributes/nvpair[@name='restore']"
    found = cib.query(runner, path, timeout_s=_TIMEOUT_S)
    if found is None:
        return ""
    return next((pair.get("value", "") for pair in found.iter("nvpair")), "")


def note(name: str, order: str = "") -> None:
    """Note that hosts are kept out here, by which order.

    Raises:
        OSError: there is no room for the note.
    """
    if order:
        _note(name, order)
        return
    made = state_files.of_device(name, _KIND)
    made.write(made.read())


def note_of_others(name: str, newest: str) -> None:
    """Note beside the data what other nodes have noted, and publish it: so the CIB is older.

    Raises:
        OSError: it cannot be noted.
    """
    noted_hold.keep_of_others(name, newest)
    kept = noted_hold.read(name)
    if kept:
        older_cib.note(name, kept)


def is_closed(name: str) -> bool:
    """Whether the kernel lets no host in to the device on this node, and none is there.

    An entry is removed once the commands of its sessions have ended (drivers/target/
    target_core_tpg.c, core_tpg_del_initiator_node_acl, waits for them).
    """
    return not lio.access(name)


def is_closed_as_wanted(device: Device) -> bool:
    """Whether hosts are kept out, where they are to be."""
    return not device.restore or is_closed(device.name)


def close_before_promotion(device: Device) -> None:
    """Keep hosts out of a device before this node serves it.

    Of one that goes back to a restore point, and of one that awaits a site
    (promotion/admission.py).

    Raises:
        CommandError: the kernel still lets hosts in; the device must not be served.
    """
    if not device.restore and not device.held:
        return
    access_list.update(device)
    if not is_closed(device.name):
        why = "is going back to a restore point" if device.restore else "awaits its second site"
        raise CommandError(
            Problem("SAN-AGENT-016", f"{device.name} {why}, and hosts could not be kept out")
        )


def _note(name: str, order: str, data: str | None = None) -> None:
    note = state_files.of_device(name, _KIND)
    said = note.read()
    if not said and not _may_claim(order):
        # Also where the other note cannot be read: an action without the order asks the CIB then.
        if not note.exists():
            note.write()
        # One that follows a hold is noted as well: half of it is no device for a host.
        if not noted_hold.read(name, data):
            older_cib.forget(name)
            return
    wanted = f"{_CLAIMED} {order}"
    if said == wanted:
        return
    if not said:
        note.write(_CLAIMED)
    # Before it is published that no host is let in here, which the copy waits for.
    if noted_hold.keep(name, order, data):
        # Also while an order is open: one that is given in its place has to be newer than both, and
        # what this one says of the device may not be so.
        kept = noted_hold.read(name, data)
        if kept and kept != order:
            older_cib.note(name, kept)
        else:
            older_cib.forget(name)
        note.write(wanted)


def _has_ended(runner: Runner, name: str, order: str, data: str | None) -> bool:
    """Whether a device that was held is held no more, by a CIB that is on this node's disk."""
    from sanctl.plan.device.noted_hold import closes_older  # noqa: PLC0415 - rarely needed

    noted = noted_hold.read(name, data)
    if closes_older(order, noted):
        if older_cib.note(name, noted):
            _log(
                name,
                "hosts are kept out: the CIB is older than what is noted beside the data here, by "
                "which the device is held (SAN-HLT-170: 'sanctl status' says what to do)",
            )
        return False
    return _is_on_disk(runner, name)


def _note_end(name: str, order: str, data: str | None) -> bool:
    """Note beside the data that a device is held no more; return whether that is so now.

    Hosts are let in where it is not: the disk has the CIB, which says so as well. Each monitor
    tries again, as an older CIB would say that the device is the copy still.
    """
    older_cib.forget(name)
    try:
        noted_hold.keep(name, order, data)
    except OSError as error:
        if older_cib.note_unnoted(name):
            _log(name, f"it cannot be noted that it is held no more: {error} (SAN-HLT-175)")
        return False
    older_cib.forget_unnoted(name)
    return True


def _may_be_open(noted: str) -> bool:
    from sanctl.model.device_restore import closes  # noqa: PLC0415 - rarely needed

    return closes(noted)


def _is_on_disk(runner: Runner, name: str) -> bool:
    from sanctl.agents.restore import own_cib  # noqa: PLC0415 - rarely needed

    is_there = own_cib.is_on_disk(runner, wait_s=_ON_DISK_S)
    if not is_there:
        _log(
            name,
            "hosts are kept out: the CIB that says the device is held no more is not on this "
            "node's disk yet ('sanctl doctor'); the next monitor looks again",
        )
    return is_there


def _may_claim(order: str) -> bool:
    """Whether an order says that the device is a copy, or one of another release may."""
    from sanctl.model.device_restore import RestoreOrder  # noqa: PLC0415 - rarely needed

    read = RestoreOrder.parse(order)
    return read is None or read.is_of_holds


def _closes(order: str) -> bool:
    if not order:
        return False
    from sanctl.model.device_restore import closes  # noqa: PLC0415 - rarely needed

    return closes(order)
