# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads what the CIB's meta attributes have Pacemaker leave undone: disabled, unmanaged."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence

from sanctl.model.watch_clone import WatchClone
from sanctl.parse.foreign_constraints import foreign_constraints

_TRUE = frozenset({"true", "yes", "on", "1", "y"})


def disabled_by(chain: Sequence[ET.Element]) -> str:
    """Return the resource whose target-role keeps a primitive stopped; empty: none does.

    `chain` is the primitive, then what it lies in, the innermost first: the first that has the
    attribute counts.
    """
    found = _first(chain, "target-role")
    return found[0] if found is not None and found[1].lower() == "stopped" else ""


def watch_clones(configuration: ET.Element, ids: Sequence[str]) -> Iterator[WatchClone]:
    """Return the clones of these ids that the configuration has."""
    for clone in configuration.findall("resources/clone"):
        identifier, primitive = clone.get("id", ""), clone.find("primitive")
        if identifier not in ids or primitive is None:
            continue
        chain, name = (primitive, clone), primitive.get("id", "")
        bans = foreign_constraints(configuration, {identifier: name, name: name})
        yield WatchClone(
            id=identifier,
            resource=name,
            disabled_by=disabled_by(chain),
            unmanaged_by=_unmanaged_by(chain),
            bans=tuple(each for each in bans if each.is_ban),
        )


def _unmanaged_by(chain: Sequence[ET.Element]) -> tuple[str, str] | tuple[()]:
    managed, kept = _first(chain, "is-managed"), _first(chain, "maintenance")
    if managed is not None and managed[1].lower() not in _TRUE:
        return "is-managed", managed[0]
    if kept is not None and kept[1].lower() in _TRUE:
        return "maintenance", kept[0]
    return ()


def _first(chain: Sequence[ET.Element], name: str) -> tuple[str, str] | None:
    """Return the first resource that has a meta attribute, and its value."""
    for element in chain:
        for pair in element.findall("meta_attributes/nvpair"):
            if pair.get("name") == name:
                return element.get("id", ""), pair.get("value", "")
    return None
