# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes of the CIB, as intents: what is to be, not yet how a patchset says it."""

from __future__ import annotations

from dataclasses import dataclass

from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName, NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class AddDevice:
    """Add the clone and the constraints of a device."""

    device: DeviceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDevice:
    """Remove a device's clone, its constraints, and what the fencing handler noted about it."""

    name: DeviceName


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteDevice:
    """Add what a device has from its creation today, and one of an older version may lack."""

    device: DeviceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStopped:
    """Ask Pacemaker to stop every instance of a device."""

    name: DeviceName


@dataclass(frozen=True, slots=True, kw_only=True)
class SetParameter:
    """Change one instance attribute of a device."""

    name: DeviceName
    parameter: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearParameter:
    """Take one instance attribute of a device away; one that is not there is fine."""

    name: DeviceName
    parameter: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNodes:
    """Change where a device's replicas are, and how many it is to have.

    Its parameters and the rule that keeps it from other nodes change together: what an agent is
    told is what Pacemaker runs.
    """

    name: DeviceName
    nodes: tuple[NodeName, ...]
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePreference:
    """Forget which node is preferred to serve a device."""

    name: DeviceName


@dataclass(frozen=True, slots=True, kw_only=True)
class AddMove:
    """Pull the active role of a device to a node until a moment (ISO 8601, UTC)."""

    name: DeviceName
    node: NodeName
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveMove:
    """Remove the pull of AddMove."""

    name: DeviceName


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNodeAttribute:
    """Set a permanent attribute of a node."""

    node: NodeName
    attribute: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveNodeAttribute:
    """Remove a permanent attribute of a node."""

    node: NodeName
    attribute: str


Change = (
    AddDevice
    | RemoveDevice
    | CompleteDevice
    | SetStopped
    | SetParameter
    | ClearParameter
    | SetNodes
    | RemovePreference
    | AddMove
    | RemoveMove
    | SetNodeAttribute
    | RemoveNodeAttribute
)
