# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads the clones of agents that only watch, and what keeps Pacemaker from running them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence

from sanctl.model.watch_clone import WatchClone
from sanctl.parse.foreign_constraints import foreign_constraints
from sanctl.parse.meta_attributes import disabling, meta_sets, resource_defaults, unmanaging


def watch_clones(configuration: ET.Element, ids: Sequence[str]) -> Iterator[WatchClone]:
    """Return the clones of these ids that the configuration has."""
    defaults = resource_defaults(configuration)
    for clone in configuration.findall("resources/clone"):
        identifier, primitive = clone.get("id", ""), clone.find("primitive")
        if identifier not in ids or primitive is None:
            continue
        sets, name = meta_sets((primitive, clone), defaults), primitive.get("id", "")
        bans = foreign_constraints(configuration, {identifier: name, name: name})
        yield WatchClone(
            id=identifier,
            resource=name,
            disabled_by=disabling(*sets),
            unmanaged_by=unmanaging(*sets),
            bans=tuple(each for each in bans if each.is_ban),
        )
