# SPDX-License-Identifier: GPL-2.0-or-later
"""Cluster properties in the CIB: hosts, restore points, sites, copies, failed backups, by kind."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from sanctl.errors import SanctlError
from sanctl.model.cib_names import GROUP_PREFIX, HOST_PREFIX
from sanctl.model.host import Host
from sanctl.model.host_group import HostGroup
from sanctl.model.point_schedule import SCHEDULE_PREFIX, PointSchedule
from sanctl.model.restore_point import POINTS_ID, RestorePoint
from sanctl.parse.nvpairs import pairs_of

_Record = TypeVar("_Record")


def cluster_properties(configuration: ET.Element) -> dict[str, str]:
    """Return the properties of all sets, sanctl's and the cluster's own, by name."""
    crm_config = configuration.find("crm_config")
    return {} if crm_config is None else pairs_of(crm_config, "cluster_property_set")


def hosts(properties: dict[str, str]) -> tuple[tuple[Host, ...], tuple[str, ...]]:
    """Return the hosts, and the names of those that cannot be read."""
    found, unreadable = [], []
    for key, value in properties.items():
        if key.startswith(HOST_PREFIX) and not key.startswith(GROUP_PREFIX):
            name = key.removeprefix(HOST_PREFIX)
            try:
                found.append(Host.parse(f"{name}={value}"))
            except SanctlError:
                unreadable.append(name)
    return tuple(sorted(found)), tuple(sorted(unreadable))


def host_groups(properties: dict[str, str]) -> tuple[tuple[HostGroup, ...], tuple[str, ...]]:
    """Return the host groups, and the names of those that cannot be read."""
    groups, unreadable = [], []
    for key, value in properties.items():
        if key.startswith(GROUP_PREFIX):
            name = key.removeprefix(GROUP_PREFIX)
            try:
                groups.append(HostGroup.parse(name, value))
            except SanctlError:
                unreadable.append(name)
    return tuple(sorted(groups)), tuple(sorted(unreadable))


def restore_points(configuration: ET.Element) -> Iterator[RestorePoint]:
    """Return the restore points that this release can read."""
    for pair in configuration.findall(f"crm_config/cluster_property_set[@id='{POINTS_ID}']/nvpair"):
        # One of a later release is none here: its files stay, and its name is taken.
        point = RestorePoint.parse(pair.get("name", ""), pair.get("value", ""))
        if point is not None:
            yield point


def point_schedules(properties: dict[str, str]) -> Iterator[tuple[str, PointSchedule]]:
    """Return the schedules of restore points that this release can read, by device."""
    for name, value in properties.items():
        # One of a later release is carried out by nodes that have that.
        if name.startswith(SCHEDULE_PREFIX) and (found := PointSchedule.parse(value)) is not None:
            yield name.removeprefix(SCHEDULE_PREFIX), found


def records(
    properties: Mapping[str, str], parse: Callable[[str, str], _Record | None]
) -> Iterator[_Record]:
    """Return the records of one kind.

    A record of a later release is left out: the nodes that have that release carry it out.

    Args:
        properties: the properties by name.
        parse: reads a record of that kind from a name and a value; None for anything else.
    """
    for name, value in properties.items():
        if (record := parse(name, value)) is not None:
            yield record
