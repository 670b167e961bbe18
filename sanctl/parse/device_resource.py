# SPDX-License-Identifier: GPL-2.0-or-later
"""A device's resource in the CIB, a clone with one primitive, read into model.device.DeviceSpec."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping

from sanctl.model.cache_policy import parse_cache_policy
from sanctl.model.cib_names import GROUPS_OF_DEVICE
from sanctl.model.clone_origin import CloneOrigin
from sanctl.model.device import DeviceSpec, deletion_id
from sanctl.model.device_restore import RestoreOrder, closes
from sanctl.model.host import parse_hosts
from sanctl.model.host_group import parse_group_names
from sanctl.model.names import ByteSize, DeviceName, Iqn, NodeName, PoolName
from sanctl.model.pacemaker_boolean import is_true
from sanctl.model.published_reservations import CLEAR_PARAMETER, PARAMETER, are_on
from sanctl.model.release_needs import PARAMETER as NEEDS_PARAMETER
from sanctl.model.release_needs import parse_needs
from sanctl.model.restore_point import PointOrder
from sanctl.model.sync_policy import SyncPolicy
from sanctl.parse.meta_attributes import unmanaging, unpromoting
from sanctl.parse.nvpairs import pairs_of

_UUID = re.compile(r"[0-9a-f]{32}")


def device_elements(configuration: ET.Element) -> Iterator[tuple[ET.Element, ET.Element]]:
    """Return the clone and the primitive of each resource of the device agent."""
    # Directly below resources only, where sanctl puts them: a patchset needs the full path.
    for clone in configuration.findall("resources/clone"):
        primitive = clone.find("primitive")
        if (
            primitive is not None
            and primitive.get("provider") == "sanctl"
            and primitive.get("type") == "device"
        ):
            yield clone, primitive


def parse_device(
    clone: ET.Element, primitive: ET.Element, prefer: str | None, defaults: Mapping[str, str]
) -> DeviceSpec:
    """Read a device from its resource.

    Args:
        clone: the clone around the primitive.
        primitive: the resource of the device agent.
        prefer: the node of the device's constraint for a preferred one, if it has that constraint.
        defaults: the defaults of all resources' meta attributes.

    Raises:
        SanctlError: a name or a size is none.
        ValueError: a parameter is missing, or is not what sanctl writes.
    """
    parameters = pairs_of(primitive, "instance_attributes")
    clone_meta = pairs_of(clone, "meta_attributes")
    own_meta = pairs_of(primitive, "meta_attributes")
    meta = {**clone_meta, **own_meta}
    places = (
        ("", defaults),
        (clone.get("id", ""), clone_meta),
        (primitive.get("id", ""), own_meta),
    )
    for needed in ("uuid", "size", "pool", "nodes", "minor"):
        if needed not in parameters:
            raise ValueError(f"parameter {needed} is missing")
    uuid = parameters["uuid"]
    if not _UUID.fullmatch(uuid):
        raise ValueError(f"parameter uuid is {uuid!r}, not 32 hex digits")
    name = DeviceName.parse(primitive.get("id", ""))
    if clone.get("id") != f"sanctl-{name}":
        raise ValueError(f"its clone is called {clone.get('id')!r}, not 'sanctl-{name}'")
    nodes = tuple(NodeName.parse(word) for word in parameters["nodes"].split())
    is_stopping = meta.get("target-role", "Started").lower() == "stopped"
    origin = CloneOrigin.parse(parameters.get("origin", ""))
    if origin is None and parameters.get("origin"):
        raise ValueError(f"parameter origin is {parameters['origin']!r}, no restore point")
    return DeviceSpec(
        name=name,
        uuid=uuid,
        size=ByteSize(bytes=int(parameters["size"])),
        pool=PoolName.parse(parameters["pool"]),
        replicas=int(parameters.get("replicas", str(len(nodes)))),
        nodes=nodes,
        minor=int(parameters["minor"]),
        initiators=tuple(Iqn.parse(word) for word in parameters.get("initiators", "").split()),
        prefer=NodeName.parse(prefer) if prefer else None,
        sync=SyncPolicy.parse(parameters.get("sync", "")),
        is_stopping=is_stopping,
        is_deleting=is_stopping and _is_deleting(clone),
        unmanaged_by=unmanaging(*places),
        unpromoted_by=unpromoting(*places),
        is_new=is_true(meta.get("sanctl-new", "false")),
        cache=parse_cache_policy(parameters.get("cache", "")),
        hosts=parse_hosts(parameters.get("hosts", "")),
        host_groups=parse_group_names(meta.get(GROUPS_OF_DEVICE, "")),
        point_order=PointOrder.parse(parameters.get("point", "")),
        restore=RestoreOrder.parse(parameters.get("restore", "")),
        is_restoring=closes(parameters.get("restore", "")),
        origin=origin,
        awaits=tuple(sorted(set(parameters.get("awaits", "").split()))),
        released=tuple(sorted(set(parameters.get("released", "").split()))),
        reservations=are_on(parameters.get(PARAMETER, "")),
        clear_reservations=parameters.get(CLEAR_PARAMETER, ""),
        needs=parse_needs(parameters.get(NEEDS_PARAMETER, "")),
    )


def _is_deleting(clone: ET.Element) -> bool:
    wanted = deletion_id(clone.get("id", "").removeprefix("sanctl-"))
    return any(pair.get("id") == wanted for pair in clone.findall("meta_attributes/nvpair"))
