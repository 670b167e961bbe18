# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads location constraints of devices that sanctl has not made from the CIB."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping

from sanctl.model.foreign_constraint import CLI_PREFIX, ForeignConstraint

_OWN_PREFIX = "sanctl-"
#: Pacemaker's scores end there.
_INFINITY = 1_000_000


def foreign_constraints(
    configuration: ET.Element, devices: Mapping[str, str]
) -> Iterator[ForeignConstraint]:
    """Return the bans of devices, and what crm_resource left, that are not sanctl's own.

    Args:
        configuration: the CIB's configuration.
        devices: the names of devices by the ids of their clones and of their primitives.
    """
    for location in configuration.findall("constraints/rsc_location"):
        identifier, resource = location.get("id", ""), location.get("rsc", "")
        if identifier.startswith(_OWN_PREFIX) or resource not in devices:
            continue
        # Without a rule the constraint itself has the score and names the node.
        for rule in location.findall("rule") or [location]:
            is_ban = _is_ban(rule.get("score", ""))
            if not is_ban and not identifier.startswith(CLI_PREFIX):
                continue
            until = rule.find("date_expression")
            yield ForeignConstraint(
                id=identifier,
                device=devices[resource],
                resource=resource,
                node=location.get("node", "") if rule is location else _node_of(rule),
                is_ban=is_ban,
                until="" if until is None else until.get("end", ""),
                is_plain=rule is location or _is_plain(rule),
            )


def _node_of(rule: ET.Element) -> str:
    for each in rule.findall("expression[@attribute='#uname']"):
        if each.get("operation") == "eq":
            return each.get("value", "")
    return ""


def _is_plain(rule: ET.Element) -> bool:
    """Whether a rule asks for a node and for a time before its end, and for nothing else."""
    return rule.get("boolean-op", "and") == "and" and all(
        (each.tag, each.get("attribute"), each.get("operation")) == ("expression", "#uname", "eq")
        or (each.tag == "date_expression" and each.get("operation") == "lt")
        for each in rule
    )


def _is_ban(score: str) -> bool:
    if score.strip().lower() == "-infinity":
        return True
    try:
        return int(score) <= -_INFINITY
    except ValueError:
        return False
