# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads the fencing devices from the CIB: whom they fence, who may use them, whether any does."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping

from sanctl.model.cib import FencingResource
from sanctl.parse.meta_attributes import disabling, meta_sets, resource_defaults

_COLLECTIVES = frozenset({"group", "clone", "master"})


def fencing_resources(configuration: ET.Element) -> Iterator[FencingResource]:
    """Return the fencing devices of a configuration, also those in groups and clones."""
    banned: dict[str, set[str]] = {}
    for location in configuration.findall("constraints/rsc_location[@node]"):
        if location.get("score") == "-INFINITY":
            banned.setdefault(location.get("rsc", ""), set()).add(location.get("node", ""))
    defaults = resource_defaults(configuration)
    for top in configuration.findall("resources/*"):
        for chain in _chains(top, ()):
            if chain[0].get("class") == "stonith":
                yield _resource(chain, banned, defaults)


def _resource(
    chain: tuple[ET.Element, ...], banned: dict[str, set[str]], defaults: Mapping[str, str]
) -> FencingResource:
    element = chain[0]
    parameters = {
        pair.get("name", ""): pair.get("value", "")
        for pair in element.findall("instance_attributes/nvpair")
    }
    listed = parameters.get("pcmk_host_list", "").replace(",", " ").split()
    mapped = [
        entry.partition(":")[0]
        for entry in parameters.get("pcmk_host_map", "").replace(";", " ").split()
    ]
    name = element.get("id", "")
    return FencingResource(
        id=name,
        targets=tuple(sorted({*listed, *mapped})),
        banned=tuple(sorted(banned.get(name, ()))),
        agent=element.get("type", ""),
        disabled_by=disabling(*meta_sets(chain, defaults)),
    )


def _chains(
    element: ET.Element, around: tuple[ET.Element, ...]
) -> Iterator[tuple[ET.Element, ...]]:
    """Return each primitive in an element, followed by what it lies in."""
    if element.tag == "primitive":
        yield element, *around
    elif element.tag in _COLLECTIVES:
        for child in element:
            yield from _chains(child, (element, *around))
