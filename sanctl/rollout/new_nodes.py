# SPDX-License-Identifier: GPL-2.0-or-later
"""Nodes that a running cluster is about to get: which they are, and what fences them.

A member that nothing can fence and that is lost stays unclean, and Pacemaker starts and promotes
nothing until it is fenced. So what fences a node is in the CIB before it can become a member.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sanctl.parse.xml_output import parse_xml
from sanctl.rollout.running_cluster import members_of

# What the names of a node's fencing devices end with (role sanctl_pacemaker).
_KINDS = ("", "_fallback")
_LEVELS = (1, 2, 3)
_SHARED = "fence-sbd"


def newcomers(
    cmaps: Iterable[str], cluster: str, nodes: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return the nodes of the inventory that a running Corosync does not list; none if none runs.

    Args:
        cmaps: of every node the output of `corosync-cmapctl`, empty while Corosync does not run.
        cluster: the cluster's name; a Corosync of another cluster says nothing.
        nodes: those of the inventory.
    """
    running = [members for text in cmaps if (members := members_of(text, cluster))]
    return tuple(
        name
        for name in (str(node["name"]) for node in nodes)
        if any(name not in members for members in running)
    )


def fencing_of(configuration: str, nodes: Collection[str]) -> dict[str, Any]:
    """Return the part of the role's configuration of the CIB by which these nodes are fenced.

    A device that several nodes share is none of it: `shared_fencing`.

    Returns:
        `configuration`, XML, empty where there is no such device; `owned`, the ids by which an
        earlier run's parts for these nodes are known.

    Raises:
        CommandError: the configuration is not XML.
    """
    devices = {f"fence-{node}{kind}" for node in nodes for kind in _KINDS}
    full = parse_xml(configuration, "the template cib.xml.j2")
    found = ET.Element("configuration")
    for tag, attribute, wanted in (
        ("resources", "id", devices),
        ("constraints", "rsc", devices),
        ("fencing-topology", "target", {*nodes}),
    ):
        section = ET.SubElement(found, tag)
        section.extend(part for part in full.iterfind(f"{tag}/*") if part.get(attribute) in wanted)
    has_device = found.find("resources/*") is not None
    return {
        "configuration": ET.tostring(found, encoding="unicode") if has_device else "",
        "owned": [
            *(
                f"{device}-{part}"
                for device in sorted(devices)
                for part in ("params", "elsewhere", "witness")
            ),
            *(f"fence-{node}_level{index}" for node in sorted(nodes) for index in _LEVELS),
        ],
    }


def shared_fencing(configuration: str) -> str:
    """Return the part of the role's configuration of the CIB by which SBD's disk fences all nodes.

    Only for a cluster that fences by it already, and once each new node has been asked what its SBD
    runs with: a message counts once it is on the disk, whether or not the node reads it.

    Raises:
        CommandError: the configuration is not XML.
    """
    full = parse_xml(configuration, "the template cib.xml.j2")
    found = ET.Element("configuration")
    shared = full.findall(f"resources/primitive[@id='{_SHARED}']")
    ET.SubElement(found, "resources").extend(shared)
    return ET.tostring(found, encoding="unicode")
