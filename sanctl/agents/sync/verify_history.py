# SPDX-License-Identifier: GPL-2.0-or-later
"""The results of a device's verifies, kept beside its data and published from there.

Two attributes: the latest verify, and the newest that has come to an end, with the time since when
the schedule is known. The next verify may be interrupted, or never end: what the one before has
found must not be forgotten with its beginning.
"""

from __future__ import annotations

import contextlib

from sanctl.agents.publish import replica_state
from sanctl.agents.replica import device_files
from sanctl.agents.replica.parts import Device
from sanctl.drivers import node_attributes
from sanctl.errors import SanctlError
from sanctl.model.verify_result import INTERRUPTED, VerifyRecord, VerifyResult
from sanctl.system.files import read_text_or, write_atomically
from sanctl.system.runner import Runner

_LENGTH = 100
#: No verify has this number. The entry says since when the device has its schedule here.
_SCHEDULED = 0


def attribute(name: str) -> str:
    """Return the node attribute that holds the latest verify of a device."""
    return f"sanctl.verify.{name}"


def ended_attribute(name: str) -> str:
    """Return the node attribute that holds the newest verify of a device that came to an end."""
    return f"sanctl.verified.{name}"


def results(device: Device) -> list[VerifyResult]:
    """Return the results of this node's latest verifies of a device, the newest last."""
    return [entry for entry in _entries(device) if entry.order != _SCHEDULED]


def latest(device: Device) -> VerifyResult | None:
    """Return this node's latest verify of a device; None: there was none."""
    return next(iter(reversed(results(device))), None)


def record(runner: Runner, device: Device, entry: VerifyResult) -> None:
    """Write a result beside the data, then publish it.

    Raises:
        OSError: it cannot be written; nothing is published.
    """
    others = [old for old in results(device) if old.order != entry.order]
    _write(device, [*others, entry], _scheduled(device))
    publish(runner, device)


def note_schedule(runner: Runner, device: Device, schedule: str, now_s: int) -> None:
    """Note since when a device has its schedule: by it one that ends no verify is found."""
    noted = _scheduled(device)
    if noted is None or noted.ranges != (schedule,):
        entry = VerifyResult(_SCHEDULED, INTERRUPTED, 0, now_s, 0, (schedule,))
        _write(device, results(device), entry)
        publish(runner, device)


def forget_schedule(runner: Runner, device: Device) -> None:
    """Drop the note of a device that has no schedule: the same one set again counts from then.

    Raises:
        OSError: the note stays; the next monitor tries again.
    """
    if _scheduled(device) is None:
        return
    _write(device, results(device), None)
    if any(entry.has_ended for entry in results(device)):
        publish(runner, device)
        return
    # Nothing is left to publish there. Where it stays, the next schedule's note takes its place.
    try:
        node_attributes.delete(runner, ended_attribute(device.name))
    except (SanctlError, OSError) as error:
        replica_state.log_publish_failure(device.name, error)


def publish(runner: Runner, device: Device) -> None:
    """Publish the latest result; after an error it is published at the next start.

    First the newest that came to an end: the latest takes its place in the other attribute.
    """
    found, noted = results(device), _scheduled(device)
    ended = next((entry for entry in reversed(found) if entry.has_ended), None)
    try:
        if ended is not None or noted is not None:
            known = VerifyRecord(0 if noted is None else noted.ended_s, ended)
            node_attributes.publish(runner, ended_attribute(device.name), str(known))
        if found:
            node_attributes.publish(runner, attribute(device.name), found[-1].published)
    except SanctlError as error:
        replica_state.log_publish_failure(device.name, error)


def withdraw(runner: Runner, device: Device) -> None:
    """Delete the attributes of a device that is stopped here; its history stays beside its data."""
    for name in (attribute(device.name), ended_attribute(device.name)):
        with contextlib.suppress(SanctlError):
            node_attributes.delete(runner, name)


def _scheduled(device: Device) -> VerifyResult | None:
    return next((entry for entry in _entries(device) if entry.order == _SCHEDULED), None)


def _entries(device: Device) -> list[VerifyResult]:
    path = device_files.note_path(device, "verify")
    lines = [] if path is None else read_text_or(path, "").splitlines()
    return [entry for line in lines if (entry := VerifyResult.parse(line)) is not None]


def _write(device: Device, entries: list[VerifyResult], scheduled: VerifyResult | None) -> None:
    path = device_files.note_path(device, "verify")
    if path is None:
        return
    # First: an older release takes the last line for the latest verify.
    lines = [*([] if scheduled is None else [scheduled]), *_most_recent(entries)]
    write_atomically(path, "".join(f"{line}\n" for line in lines))


def _most_recent(entries: list[VerifyResult]) -> list[VerifyResult]:
    """Return the entries to keep: many interrupted ones do not push the last that ended out."""
    kept = entries[-_LENGTH:]
    ended = next((entry for entry in reversed(entries) if entry.has_ended), None)
    return kept if ended is None or ended in kept else [ended, *kept[1:]]
