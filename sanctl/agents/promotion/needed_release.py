# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps a node from serving a device that needs what its release of sanctl does not know.

By the parameter `needs` (docs/adr/0085). The replica is started, kept in sync, demoted and stopped
as ever, as its copy is a good one; it is not promoted, and has no promotion score. No host is let
in by a start. A replica that is up keeps its access list, and one that serves goes on.
"""

from __future__ import annotations

import contextlib

from sanctl.agents.replica.parts import Device
from sanctl.errors import CommandError, Problem
from sanctl.model.release_needs import LACKS_KEY, format_lacks
from sanctl.system import state_files

_NOTE = "lacks"


def at_start(device: Device) -> Device:
    """Return the device as a start makes it: with nobody on its access list, if it needs more.

    What a host may do at a standby is not known to this release either.
    """
    if not device.lacks:
        return device
    return device._replace(initiators=(), hosts=(), unreadable_hosts=())


def while_up(device: Device) -> Device:
    """Return the device as a replica that is up has it: its access list stays as it is."""
    return device._replace(leaves_list=True) if device.lacks else device


def refuse_promotion(device: Device) -> None:
    """Refuse to serve a device that needs what this release does not know.

    Raises:
        CommandError: it does.
    """
    if device.lacks:
        raise CommandError(
            Problem(
                "SAN-AGENT-020",
                f"device {device.name} needs what the release of sanctl on this node does not "
                f"know: {format_lacks(device.lacks)}; so it is not served here",
                "update sanctl on this node: run the playbook of the newest release that any node "
                "has; the replica stays a good copy meanwhile",
            )
        )


def found_lacking(device: Device) -> str:
    """Return what the release lacks for a device, as it is published; empty: nothing.

    The resync service publishes as well, and does not know what a device needs: it goes by what the
    latest start or monitor has noted.
    """
    note = state_files.of_device(device.name, _NOTE)
    noted = note.read()
    if not device.pool:
        return noted
    found = format_lacks(device.lacks)
    if found != noted:
        # Without room for it a promotion is refused all the same.
        with contextlib.suppress(OSError):
            if found:
                note.write(found)
            else:
                note.remove()
    return found


def published_field(lacks: str) -> str:
    """Return what is published of it with the replica's state; empty: the release lacks nothing."""
    return f" {LACKS_KEY}={lacks}" if lacks else ""
