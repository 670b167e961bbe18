# SPDX-License-Identifier: GPL-2.0-or-later
"""The record on tmpfs of the sync policy in force here, with the parameters of the device.

The policy is applied in sanctl/agents/converge.py. A monitor only compares two lines. The record
also gives handlers and services the parameters of a device, which only Pacemaker's agents get.
"""

from __future__ import annotations

from sanctl.agents.replica.parts import Device
from sanctl.errors import SanctlError
from sanctl.model.sync_policy import DEFAULT_SYNC_POLICY, SyncPolicy
from sanctl.system import journal, state_files

#: Raised when the same policy is rendered into another resource file: a replica that was started by
#: an older release gets the new file, too.
_RENDERING = "1"


def policy_of(device: Device) -> SyncPolicy:
    """Return the device's policy; one that cannot be parsed counts as the default.

    A key that only a newer sanctl knows must not keep a replica from being started.
    """
    try:
        return SyncPolicy.parse(device.sync)
    except SanctlError as error:
        journal.write(
            f"{device.name}: its sync policy cannot be parsed, the defaults hold: {error}",
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
    return _record(device.name).read().partition("\n")[0] == _policy_line(device)


def record(device: Device) -> None:
    """Record that the resource file in use has the wanted policy, with the device's parameters."""
    parameters = f"{device.uuid} {device.minor} {device.size_bytes} {' '.join(device.nodes)}"
    text = f"{_policy_line(device)}\n{parameters}\n{device.verify}\n"
    if _record(device.name).read() != text:
        _record(device.name).write(text)
    # In a file of its own: a release before reads the first one, of three lines.
    if _cache_record(device.name).read() != device.cache:
        _cache_record(device.name).write(device.cache)


def recorded_device(name: str) -> Device | None:
    """Return a device that is started here as last recorded; for handlers and services."""
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
        cache=_cache_record(name).read(),
    )


def recorded_cache(name: str) -> str:
    """Return the cache policy that the device's latest start or monitor here had; empty: none.

    Raises:
        OSError: it cannot be read.
    """
    return _cache_record(name).read()


def _policy_line(device: Device) -> str:
    return f"{_RENDERING} {device.sync}"


def _cache_record(name: str) -> state_files.StateFile:
    return state_files.of_device(name, "cache-policy")


def _record(name: str) -> state_files.StateFile:
    return state_files.of_device(name, "sync-policy")
