# SPDX-License-Identifier: GPL-2.0-or-later
"""The record of a replica's latest resync, and whether sanctl-resync.service is needed for it."""

from __future__ import annotations

from sanctl.agents.replica import device_files, lost_writes, resync_note
from sanctl.agents.replica.parts import Device
from sanctl.agents.sync import verify
from sanctl.model.drbd import ResourceState
from sanctl.model.resync_record import INVALIDATING, RUNNING, ResyncRecord
from sanctl.system.files import read_text_or, write_atomically


def needs_tracking(device: Device, state: ResourceState) -> bool:
    """Whether a resync or verify of a device runs, or was left unfinished."""
    if any(
        peer.is_sync_source or peer.is_verifying or "user" in peer.resync_suspended
        for peer in state.peers
    ):
        return True
    return (
        _is_resync_left_open(device, is_in_sync=state.is_in_sync)
        or is_unsettled(device)
        or verify.needs_tracking(device, state)
    )


def is_left_open(device: Device, *, is_in_sync: bool) -> bool:
    """Whether a resync or a verify that DRBD does not show any more was not completed.

    The service does that. Each monitor starts it, where it has been killed.
    """
    return (
        _is_resync_left_open(device, is_in_sync=is_in_sync)
        or is_unsettled(device)
        or verify.is_left_open(device, is_connected=is_in_sync)
    )


def is_unsettled(device: Device) -> bool:
    """Whether what a resync has written may be lost with the power (resync_note.py)."""
    data = lost_writes.data_file(device.name)
    return data is not None and resync_note.is_open(data)


def _is_resync_left_open(device: Device, *, is_in_sync: bool) -> bool:
    latest = latest_resync(device)
    return latest is not None and (
        latest.stage == INVALIDATING or (latest.stage == RUNNING and is_in_sync)
    )


def latest_resync(device: Device) -> ResyncRecord | None:
    """Return the record of this replica's latest resync, None without one."""
    path = device_files.note_path(device, "sync")
    return None if path is None else ResyncRecord.parse(read_text_or(path, ""))


def save_resync(device: Device, latest: ResyncRecord) -> None:
    """Write the record beside the data; nothing is written when the data is not attached."""
    path = device_files.note_path(device, "sync")
    if path is not None:
        write_atomically(path, f"{latest}\n")
