# SPDX-License-Identifier: GPL-2.0-or-later
"""Pacemaker's history of replicas that it found running when it probed them, in the CIB's status.

A probe expects that nothing runs. One that finds a replica counts as failed, and its result is
recorded twice: as the last action (`NAME_last_0`), with a digest of the parameters whose change
asks for a restart (`op-restart-digest`), and as the last failure (`NAME_last_failure_0`), without
one. At the next change of any parameter Pacemaker takes the second for an agent that cannot reload,
and restarts the replica (lib/pacemaker/pcmk_sched_actions.c: pcmk__create_history_xml,
pcmk__check_action_config; daemons/controld/controld_cib.c: append_restart_list, of the last entry
alone; the same in 2.1.5 and 3.0.0).
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterator
from typing import NamedTuple

from sanctl.model.cib_names import clone_id
from sanctl.model.names import DeviceName

#: The exit statuses of a monitor that finds a replica: standby, active.
_RUNNING = ("0", "8")
_DONE, _PENDING = "0", "-1"


class ProbeRecord(NamedTuple):
    """A record of a probe for which Pacemaker would restart a replica.

    Attributes:
        device: the device's name.
        node: the node's name.
        changed_s: when the probe ran, by that node's clock, in seconds since 1970.
    """

    device: DeviceName
    node: str
    changed_s: int


def probe_records(root: ET.Element, names: Collection[DeviceName]) -> tuple[ProbeRecord, ...]:
    """Return the records for which a change of these devices' parameters restarts replicas."""
    return tuple(
        ProbeRecord(name, state.get("uname", ""), _time(failure))
        for name in names
        for state in _members(root)
        for failure in _restarting(_operations(state, name), name.value)
    )


def is_being_probed(root: ET.Element, names: Collection[DeviceName]) -> bool:
    """Whether Pacemaker does not know yet what runs of one of these devices on a node of it."""
    members = {state.get("uname", ""): state for state in _members(root)}
    return any(
        node in members and _is_unknown(_operations(members[node], name), name.value)
        for name in names
        for node in _nodes(root, name)
    )


def has_own_meta(root: ET.Element, name: DeviceName) -> bool:
    """Whether a device's clone has meta attributes, as each has that sanctl has created."""
    path = f"configuration/resources/clone[@id='{clone_id(name)}']/meta_attributes"
    return root.find(path) is not None


def _restarting(operations: dict[str, ET.Element], name: str) -> Iterator[ET.Element]:
    last, failure = operations.get(f"{name}_last_0"), operations.get(f"{name}_last_failure_0")
    if (
        last is not None
        and failure is not None
        # Pacemaker does not look at one before a start, promotion or demotion
        # (lib/pengine/unpack.c: calculate_active_ops). To it a reload that succeeded is a start.
        and all(
            each.get("operation") == "monitor"
            and each.get("interval") == "0"
            and each.get("op-status") == _DONE
            and each.get("rc-code") in _RUNNING
            for each in (last, failure)
        )
        and last.get("op-restart-digest")
        and not failure.get("op-restart-digest")
    ):
        yield failure


def _is_unknown(operations: dict[str, ET.Element], name: str) -> bool:
    last = operations.get(f"{name}_last_0")
    if last is None:
        return f"{name}_last_failure_0" not in operations
    return last.get("operation") == "monitor" and last.get("op-status") == _PENDING


def _operations(state: ET.Element, name: DeviceName) -> dict[str, ET.Element]:
    found = state.findall(f"lrm/lrm_resources/lrm_resource[@id='{name}']/lrm_rsc_op")
    return {each.get("id", ""): each for each in found}


def _members(root: ET.Element) -> Iterator[ET.Element]:
    """Yield the states of the nodes that take part in the cluster."""
    for state in root.findall("status/node_state"):
        # Times since Pacemaker 2.1.7, and words before.
        if (
            state.get("join") == "member"
            and state.get("in_ccm") not in {None, "0", "false"}
            and state.get("crmd") not in {None, "0", "offline"}
        ):
            yield state


def _nodes(root: ET.Element, name: DeviceName) -> list[str]:
    pair = root.find(
        f"configuration/resources/clone[@id='{clone_id(name)}']"
        "/primitive/instance_attributes/nvpair[@name='nodes']"
    )
    return [] if pair is None else pair.get("value", "").split()


def _time(operation: ET.Element) -> int:
    text = operation.get("last-rc-change", "")
    return int(text) if text.isdecimal() else 0
