# SPDX-License-Identifier: GPL-2.0-or-later
"""Brings a changed sync policy into force under a running replica.

The policy is part of the DRBD resource file, which is written anew, and `drbdadm adjust` hands DRBD
what differs. DRBD 8.4 takes all of it while it is connected, Primary, and resyncing, and hosts
notice nothing. What is in force is kept on tmpfs, so that a monitor only compares two lines.
"""

from __future__ import annotations

from sanctl.agents.replica import resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.model.sync_policy import DEFAULT_SYNC_POLICY, SyncPolicy
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

#: Raised when the resource file of the same policy becomes another one: a replica that was started
#: by an older release gets it too.
_RENDERING = "1"


def policy_of(device: Device) -> SyncPolicy:
    """Return the device's policy; one that does not read counts as the default.

    A word that only a newer sanctl knows must not keep a replica from being started.
    """
    try:
        return SyncPolicy.parse(device.sync)
    except SanctlError as error:
        journal.write(
            f"{device.name}: its sync policy cannot be read, the defaults hold: {error}",
            priority=journal.WARNING,
            device=device.name,
            action="sync",
        )
        return DEFAULT_SYNC_POLICY


def in_force(name: str) -> SyncPolicy:
    """Return the policy that was last brought into force on this node."""
    device = recorded_device(name)
    return DEFAULT_SYNC_POLICY if device is None else policy_of(device)


def is_in_force(device: Device) -> bool:
    """Whether the wanted policy is the one in force."""
    return _record(device.name).read().partition("\n")[0] == _line(device)


def record(device: Device) -> None:
    """Remember that the resource file in use holds the wanted policy, and whose it is."""
    whose = f"{device.uuid} {device.minor} {device.size_bytes} {' '.join(device.nodes)}"
    text = f"{_line(device)}\n{whose}\n{device.verify}\n"
    if _record(device.name).read() != text:
        _record(device.name).write(text)


def recorded_device(name: str) -> Device | None:
    """Return a device that is started here as it was last noted, for who is no agent of it."""
    lines = _record(name).read().splitlines()
    if len(lines) != 3 or len(lines[1].split()) < 4:
        return None
    uuid, minor, size, *nodes = lines[1].split()
    return Device(
        name=name,
        uuid=uuid,
        size_bytes=int(size),
        pool="",
        nodes=tuple(nodes),
        minor=int(minor),
        initiators=(),
        sync=lines[0].partition(" ")[2],
        verify=lines[2],
    )


def apply(runner: Runner, device: Device, state: ResourceState) -> bool:
    """Bring the wanted policy into force; return whether another one was.

    Not for a replica that has refused its peer: to adjust it would connect it, and whether that is
    right is for others to say. It gets the policy when it is connected again.

    Raises:
        SanctlError: DRBD did not take it; the next monitor tries again.
    """
    if is_in_force(device) or any(peer.connection == "StandAlone" for peer in state.peers):
        return False
    if not state.peers and len(device.nodes) > 1:
        return False  # DRBD 8.4 forgets a connection that it has given up.
    if not resource_file.rewrite(runner, device):
        return False
    drbdadm.adjust(runner, device.name)
    record(device)
    return True


def _line(device: Device) -> str:
    return f"{_RENDERING} {device.sync}"


def _record(name: str) -> state_files.StateFile:
    return state_files.of_device(name, "sync-policy")
