# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which names a new device may not have, as ids in the CIB and attributes are taken by them.

A device's clone, operations and constraints get ids made of its name, and the cluster has ids of
its own, most of them written by the playbook. Two elements with one id are one to the playbook,
which would put its own in the device's place. Asked when a device is created, and not of names that
the CIB holds: a device of an older release may have one.
"""

from __future__ import annotations

import re

from sanctl.errors import Problem
from sanctl.model.cib_names import (
    POOL_RESOURCE,
    POOLS_CLONE,
    REACH_CLONE,
    REACH_RESOURCE,
    clone_id,
)
from sanctl.model.device import DeviceSpec
from sanctl.model.names import ByteSize, DeviceName, Iqn, NodeName, PoolName
from sanctl.model.vote_mode import VOTES_ATTRIBUTE
from sanctl.render.device_elements import (
    constraint_elements,
    device_element,
    follow_elements,
    move_element,
)

#: What the ids and node attributes of the cluster itself are, or begin with before a `-`.
CLUSTER_IDS = (
    POOLS_CLONE,
    POOL_RESOURCE,
    REACH_CLONE,
    REACH_RESOURCE,
    VOTES_ATTRIBUTE,
    # Orders and marks for a device, and the id that holds its minor.
    "sanctl-delete",
    "sanctl-discard",
    "sanctl-minor",
    "sanctl-outdated",
    "sanctl-revive",
    # The playbook's: fence devices, the constraint of drained nodes.
    "fence",
    "drained-serves-nothing",
    # Pacemaker's own: cluster properties, attributes of nodes.
    "cib-bootstrap-options",
    "nodes",
    "status",
)


def reserved_name_problem(name: DeviceName) -> Problem | None:
    """Return why no new device may have this name, None if it may."""
    for own in (name.value, clone_id(name)):
        for other in CLUSTER_IDS:
            if own == other or own.startswith(f"{other}-") or other.startswith(f"{own}-"):
                return _problem(name, f"the cluster's own {other} has such an id")
    endings = "|".join(re.escape(each).replace(r"\*", ".+") for each in sorted(id_suffixes()))
    found = re.fullmatch(f"(?P<device>[a-z].*?)(?:{endings})", name.value)
    if found is not None:
        return _problem(name, f"device {found['device']} has such an id, or would")
    return None


def _problem(name: DeviceName, why: str) -> Problem:
    return Problem(
        "SAN-NAME-002", f"device name {str(name)!r} is reserved: {why}", "choose another name"
    )


def id_suffixes() -> frozenset[str]:
    """Return what follows a device's name, or its clone's, in the ids made of it; `*` is any text.

    Read off the elements of a device that has all there is.
    """
    name, node = DeviceName(value="x"), NodeName(value="n")
    device = DeviceSpec(
        name=name,
        uuid="0" * 32,
        size=ByteSize(bytes=4096),
        pool=PoolName(value="p"),
        replicas=1,
        nodes=(node,),
        minor=1,
        initiators=(Iqn(value="iqn.2026-11.net.example"),),
        prefer=node,
        is_stopping=True,
        is_deleting=True,
        is_new=True,
    )
    elements = (
        device_element(device),
        *constraint_elements(device),
        move_element(name, node, "2026-11-23 00:00:00Z"),
        *follow_elements(name, "y"),
    )
    ids = {part.get("id", "") for element in elements for part in element.iter()}
    stems = (f"{clone_id(name)}-", f"{name}-")
    found = {
        f"-{each.removeprefix(stem)}" for each in ids for stem in stems if each.startswith(stem)
    }
    # Groups that get more members later: parameters, meta attributes, nodes.
    return frozenset(
        re.sub(r"^(-(?:params|meta|replicas-not)-).*", r"\1*", suffix) for suffix in found
    )
