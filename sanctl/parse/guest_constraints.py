# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads which devices follow which guests, what they could follow, and others' ties of devices."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping

from sanctl.model.device_follow import DeviceFollow, ForeignTie
from sanctl.model.pacemaker_boolean import is_false

_OWN_PREFIX = "sanctl-"


def guests(configuration: ET.Element) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return the resources that a device can follow, with the primitives in each.

    Primitives and groups: a clone runs on several nodes.
    """
    for primitive in configuration.findall("resources/primitive"):
        if primitive.get("class") != "stonith":
            yield primitive.get("id", ""), (primitive.get("id", ""),)
    for group in configuration.findall("resources/group"):
        yield (
            group.get("id", ""),
            tuple(primitive.get("id", "") for primitive in group.findall("primitive")),
        )


def follows(configuration: ET.Element, devices: Mapping[str, str]) -> Iterator[DeviceFollow]:
    """Return which devices follow which resources.

    Args:
        configuration: the CIB's configuration.
        devices: the names of devices by the ids of their clones and of their primitives.
    """
    for colocation in configuration.findall("constraints/rsc_colocation"):
        clone = colocation.get("rsc", "")
        if clone in devices and colocation.get("id") == f"{clone}-follow":
            yield DeviceFollow(device=devices[clone], resource=colocation.get("with-rsc", ""))


def _dependents_in_sets(constraint: ET.Element) -> frozenset[str]:
    """Return the members of a constraint's resource sets that depend on another member.

    In an order each set depends on the one before it; in a colocation each on the one behind it
    (colocate_rsc_sets() of Pacemaker's scheduler). Within a set each member depends on the one
    before it, unless the set is not sequential. A colocation that keeps resources apart, or has
    the deprecated attribute `ordering`, is left out.
    """
    sets = constraint.findall("resource_set")
    if constraint.tag == "rsc_colocation":
        each_with_score = (constraint, *sets)
        if any(each.get("score", "").startswith("-") for each in each_with_score) or any(
            "ordering" in each.attrib for each in sets
        ):
            return frozenset()
        sets.reverse()
    steps: list[set[str]] = []
    for each in sets:
        members = [reference.get("id", "") for reference in each.findall("resource_ref")]
        if is_false(each.get("sequential", "true")):
            steps.append(set(members))
        else:
            steps += [{member} for member in members]
    return frozenset().union(*steps[1:])


def foreign_ties(configuration: ET.Element, devices: Mapping[str, str]) -> Iterator[ForeignTie]:
    """Return others' colocations and orders in which a device depends on another resource.

    What depends on a device is left out: it decides nothing for the device.
    """
    for tag, dependent, other in (
        ("rsc_colocation", "rsc", "with-rsc"),
        ("rsc_order", "then", "first"),
    ):
        for constraint in configuration.findall(f"constraints/{tag}"):
            identifier = constraint.get("id", "")
            if identifier.startswith(_OWN_PREFIX):
                continue
            named = {constraint.get(dependent, ""), *_dependents_in_sets(constraint)}
            for device in sorted({devices[each] for each in named if each in devices}):
                yield ForeignTie(
                    id=identifier, tag=tag, device=device, other=constraint.get(other, "")
                )
