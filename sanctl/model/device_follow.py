# SPDX-License-Identifier: GPL-2.0-or-later
"""A device that is served where a guest of Pacemaker runs; others' constraints that tie one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFollow:
    """That a device is served where a resource runs, if its replica there can serve."""

    device: str
    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTie:
    """A colocation or an order that is not sanctl's own, in which a device depends on another.

    Attributes:
        id: its id in the CIB.
        tag: `rsc_colocation` or `rsc_order`.
        device: the device's name.
        other: the resource that it depends on; empty: a set names several.
    """

    id: str
    tag: str
    device: str
    other: str

    @property
    def removal(self) -> str:
        """The command that removes it."""
        return f"cibadmin --delete --xpath \"//{self.tag}[@id='{self.id}']\""
