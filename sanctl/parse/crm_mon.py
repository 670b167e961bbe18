# SPDX-License-Identifier: GPL-2.0-or-later
"""The XML of `crm_mon` (Pacemaker 2.1, 3.0): nodes, roles, failures and fencing history."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

from sanctl.errors import CommandError, Problem, Unreachable
from sanctl.model.crm_mon import Failure, Fencing, Instance, Mon, MonNode, NodeState, Role
from sanctl.parse.xml_output import parse_xml

# Resource, operation, interval in ms. Greedy: a resource's name may hold underscores of others.
_OP_KEY = re.compile(r"(.+?)(?::\d+)?_([a-z][a-z-]*)_(\d+)")
_INSTANCE_NUMBER = re.compile(r":\d+$")
# Debian 12's Pacemaker can be built to say Master and Slave; 3.0 never does.
_ROLES = {"Master": Role.PROMOTED, "Slave": Role.UNPROMOTED}
_PENDING = {
    "Starting": Role.STARTING,
    "Stopping": Role.STOPPING,
    "Promoting": Role.PROMOTING,
    "Demoting": Role.DEMOTING,
}


def parse_crm_mon(text: str) -> Mon:
    """Read crm_mon's XML.

    Raises:
        Unreachable: the text is not what crm_mon prints.
    """
    try:
        root = parse_xml(text, "crm_mon")
    except CommandError as error:
        raise Unreachable(Problem("SAN-CIB-002", error.problems[0].text)) from error
    if root.find("nodes") is None:
        raise Unreachable(
            Problem("SAN-CIB-002", f"what crm_mon printed is not a cluster status: <{root.tag}>")
        )
    dc = root.find("summary/current_dc")
    return Mon(
        has_quorum=dc is not None and dc.get("with_quorum") == "true",
        has_dc=dc is not None and dc.get("present", "true") == "true",
        nodes=tuple(
            MonNode(
                name=node.get("name", ""),
                state=_node_state(node),
                is_shutting_down=node.get("shutdown") == "true",
                is_standby_on_fail=node.get("standby_onfail") == "true",
            )
            for node in root.findall("nodes/node")
            if node.get("type", "member") == "member"
        ),
        instances=tuple(_instances(root)),
        failures=tuple(_failures(root)),
        fencings=tuple(_fencings(root)),
    )


def _fencings(root: ET.Element) -> Iterator[Fencing]:
    for event in root.findall("fence_history/fence_event"):
        yield Fencing(
            target=event.get("target", ""),
            status=event.get("status", ""),
            completed=event.get("completed", ""),
            reason=event.get("exit-reason", ""),
        )


def _node_state(node: ET.Element) -> NodeState:
    def claims(attribute: str) -> bool:
        return node.get(attribute) == "true"

    # Unclean first: what such a node does is not known until the node is fenced.
    if claims("unclean"):
        return NodeState.UNCLEAN
    if claims("pending"):
        return NodeState.PENDING
    if node.get("online") == "false":
        return NodeState.OFFLINE
    if not claims("online"):
        return NodeState.UNKNOWN
    if claims("maintenance"):
        return NodeState.MAINTENANCE
    if claims("standby") or claims("standby_onfail") or claims("shutdown"):
        return NodeState.STANDBY
    return NodeState.ONLINE


def _instances(root: ET.Element) -> Iterator[Instance]:
    for resource in root.findall("resources//resource"):
        name = _INSTANCE_NUMBER.sub("", resource.get("id", ""))
        role = _role(resource)
        if role is Role.STOPPED:
            continue
        for node in resource.findall("node"):
            yield Instance(
                resource=name,
                node=node.get("name", ""),
                role=role,
                is_managed=resource.get("managed", "true") == "true",
                is_orphaned=resource.get("orphaned") == "true",
                is_failed=resource.get("failed") == "true",
            )


def _role(resource: ET.Element) -> Role:
    pending = resource.get("pending", "")
    if pending in _PENDING:
        return _PENDING[pending]
    text = resource.get("role", "")
    if text in _ROLES:
        return _ROLES[text]
    try:
        return Role(text)
    except ValueError:
        return Role.UNKNOWN


def _failures(root: ET.Element) -> Iterator[Failure]:
    for failure in root.findall("failures/failure"):
        match = _OP_KEY.fullmatch(failure.get("op_key", ""))
        if match is None:
            # An action that never ran has an id instead; the failure is kept all the same.
            resource, action = failure.get("id", "?"), failure.get("task", "?")
        else:
            resource, action = match.group(1), match.group(2)
        yield Failure(
            resource=resource,
            node=failure.get("node", "?"),
            action=action,
            status=failure.get("exitstatus", "?"),
            reason=failure.get("exitreason", ""),
            call=failure.get("call", ""),
        )
