# SPDX-License-Identifier: GPL-2.0-or-later
"""Names and ids in the CIB: of resources, attributes and properties that sanctl writes there."""

from __future__ import annotations

from sanctl.model.host import HostName
from sanctl.model.host_group import HostGroupName
from sanctl.model.names import DeviceName

POOLS_CLONE = "sanctl-pools"
POOL_RESOURCE = "sanctl-pool"
#: The attribute in which ocf:sanctl:reach or ethmonitor publishes how many addresses of the iscsi
#: network a node reaches. The playbook gives the agents this name. Not `sanctl-...`: those are
#: devices' attributes.
REACH_ATTRIBUTE = "iscsi-reach"
REACH_CLONE = "sanctl-reach"
REACH_RESOURCE = "sanctl-reached"


#: The transient node attribute of a drained node. The attribute ends with the node's membership, so
#: a node that has rebooted is in full service again. The playbook's constraint
#: `drained-serves-nothing` acts on it. Not `sanctl-…`: those are devices' attributes.
DRAINED_ATTRIBUTE = "sanctl.drained"


#: The node attribute of a standby. Transient, from `crm_standby --lifetime reboot`, it ends with
#: the node's membership.
STANDBY_ATTRIBUTE = "standby"
MAINTENANCE_ATTRIBUTE = "maintenance"


#: The id of the cluster_property_set that has the hosts, and the beginning of their properties'
#: names and ids. Pacemaker ignores properties that it does not know. Devices' ids have no dot.
HOSTS_ID = "sanctl.hosts"
HOST_PREFIX = "sanctl-host."
#: The beginning of host groups' properties' names. A release that knows no groups takes them for
#: hosts that it cannot read, and changes no host. No '@' is in a host's name, nor may be in an id.
GROUP_PREFIX = f"{HOST_PREFIX}@"
#: A meta attribute of a device's primitive: it changes without a reload of the agents.
GROUPS_OF_DEVICE = "sanctl-host-groups"


def host_id(name: HostName) -> str:
    """The id of a host's property."""
    return f"{HOST_PREFIX}{name}"


def host_group_id(name: HostGroupName) -> str:
    """The id of a host group's property."""
    return f"sanctl-host-group.{name}"


def clone_id(name: DeviceName | str) -> str:
    """The id of a device's promotable clone."""
    return f"sanctl-{name}"


def follow_id(name: DeviceName | str) -> str:
    """The id of the constraint by which a device follows a resource."""
    return f"{clone_id(name)}-follow"
