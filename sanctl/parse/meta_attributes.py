# SPDX-License-Identifier: GPL-2.0-or-later
"""By which meta attributes Pacemaker does not manage, start or promote a resource."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence

from sanctl.model.meta_attribute import MetaAttribute
from sanctl.model.pacemaker_boolean import is_true

#: Earlier names of roles stay valid in the CIB.
_NOT_PROMOTED = frozenset({"unpromoted", "slave"})


def unmanaging(*sets: tuple[str, Mapping[str, str]]) -> tuple[MetaAttribute, ...]:
    """Return by which attributes Pacemaker does not manage a resource; empty: it does.

    Args:
        sets: the attributes of each place, with its resource; a later place has precedence.
    """
    return (
        *_in_effect("is-managed", lambda value: not is_true(value), sets),
        *_in_effect("maintenance", is_true, sets),
    )


def disabling(*sets: tuple[str, Mapping[str, str]]) -> tuple[MetaAttribute, ...]:
    """Return by which attributes Pacemaker keeps it stopped; empty: it may run. As `unmanaging`."""
    return _in_effect("target-role", lambda value: value == "stopped", sets)


def unpromoting(*sets: tuple[str, Mapping[str, str]]) -> tuple[MetaAttribute, ...]:
    """Return by which attributes Pacemaker promotes no instance; empty: it may. As `unmanaging`."""
    return _in_effect("target-role", lambda value: value in _NOT_PROMOTED, sets)


def _in_effect(
    name: str, keeps: Callable[[str], bool], sets: tuple[tuple[str, Mapping[str, str]], ...]
) -> tuple[MetaAttribute, ...]:
    found = [(resource, pairs[name]) for resource, pairs in sets if name in pairs]
    if not found or not keeps(found[-1][1].lower()):
        return ()
    # Without the last one the one before it is in effect.
    return tuple(
        MetaAttribute(resource, name, value) for resource, value in found if keeps(value.lower())
    )


def meta_sets(
    chain: Sequence[ET.Element], defaults: Mapping[str, str]
) -> tuple[tuple[str, Mapping[str, str]], ...]:
    """Return the meta attributes of each place that a primitive has some from, itself the last.

    Args:
        chain: the primitive, then what it lies in, the innermost first.
        defaults: those of all resources.
    """
    return (
        ("", defaults),
        *((element.get("id", ""), _own_meta(element)) for element in reversed(chain)),
    )


def _own_meta(element: ET.Element) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in element.findall("meta_attributes/nvpair"):
        found.setdefault(pair.get("name", ""), pair.get("value", ""))
    return found


def resource_defaults(configuration: ET.Element) -> dict[str, str]:
    """Return the defaults of all resources' meta attributes.

    Without those of a set with a rule: whether it holds for a resource is Pacemaker's to say.
    """
    found: dict[str, str] = {}
    for group in configuration.findall("rsc_defaults/meta_attributes"):
        if group.find("rule") is None:
            for pair in group.findall("nvpair"):
                found.setdefault(pair.get("name", ""), pair.get("value", ""))
    return found
