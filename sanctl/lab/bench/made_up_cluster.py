# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes up what Pacemaker 3.0.0 would print of three storage nodes with many devices.

The devices' configuration is what this release writes. The history of actions, the node states and
crm_mon's elements are shaped as in tests/golden/pacemaker/3.0.0/live-degraded. What differs there
from one action to the next (digests, times, numbers of transitions) differs here, too, so that the
text does not compress better than a real one.
"""

from __future__ import annotations

import hashlib
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sanctl.model.cib_names import POOL_RESOURCE, POOLS_CLONE
from sanctl.model.device import MINORS, DeviceSpec, access_digest
from sanctl.model.names import ByteSize, DeviceName, Iqn, NodeName, PoolName
from sanctl.model.outdated_mark import mark_attributes
from sanctl.model.packed_states import pack
from sanctl.render.device_elements import constraint_elements, device_element

# Those with storage.
_STORAGE = ("n1", "n2", "n3")
#: When all of it happened, in seconds since 1970.
NOW_S = 1_795_228_000
PACEMAKER_VERSION = "3.0.0-3+deb13u1-3.0.0"
_FEATURE_SET = "3.20.0"
_SIZE = ByteSize(bytes=10 << 30)
_POOL = PoolName(value="main")
_CLUSTER_TOML = """
schema = 1
[cluster]
name = "made-up"
iqn_prefix = "iqn.2026-11.net.example:made-up"
strategy = "node-majority"
[networks.iscsi]
cidr = "10.77.1.0/24"
[networks.sync]
cidr = "10.77.2.0/24"
[networks.heartbeat]
cidr = "10.77.3.0/24"
[pools.main]
path = "/srv/sanctl/main"
uuid = "5d4c3b2a-1f0e-4d3c-8b2a-1f0e4d3c8b2a"
nodes = ["n1", "n2", "n3"]
"""
_NODE_TOML = """
[nodes.n{0}]
id = {0}
role = "storage"
iscsi = ["10.77.1.{0}"]
sync = "10.77.2.{0}"
heartbeat = "10.77.3.{0}"
"""


class Situation(StrEnum):
    """What is the matter with it."""

    HEALTHY = "healthy"
    N3_LOST = "n3 lost"
    """n3 was fenced, and the others serve what it served."""
    N3_RETURNED = "n3 returned"
    """n3 is back, and its replicas wait for their turn to connect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUpCluster:
    """What a node of it would be told.

    Attributes:
        cib: what cibadmin would print.
        monitor: what crm_mon would print.
        states: what the nodes have published of their replicas, by node.
    """

    cib: str
    monitor: str
    states: Mapping[str, str]


def cluster_toml() -> str:
    """Return its cluster.toml."""
    return _CLUSTER_TOML + "".join(_NODE_TOML.format(number) for number in (1, 2, 3))


def made_up_cluster(
    devices: int, situation: Situation = Situation.HEALTHY, *, nodes: int = len(_STORAGE)
) -> MadeUpCluster:
    """Return a cluster with so many devices of two replicas each, evenly on n1 to n3.

    Where it has more `nodes`, the others have probed each device, and have no replica.

    Raises:
        ValueError: there are not so many minor numbers.
    """
    if devices > len(MINORS):
        raise ValueError(f"{devices} devices, and {len(MINORS)} minor numbers")
    specs = [_device(number, MINORS[number]) for number in range(devices)]
    view = _View(specs, situation, [f"n{number}" for number in range(1, nodes + 1)])
    return MadeUpCluster(
        cib=_text(_cib(view)),
        monitor=_text(_monitor(view)),
        states={
            node: pack({each.name.value: _published(view, each, node) for each in view.on(node)})
            for node in view.members
        },
    )


class _View:
    """The devices, and where they are served."""

    def __init__(
        self, specs: Sequence[DeviceSpec], situation: Situation, nodes: Sequence[str]
    ) -> None:
        self.specs = specs
        self.situation = situation
        self.nodes = nodes
        self.members = [node for node in nodes if self.is_member(node)]
        good = _STORAGE if situation is Situation.HEALTHY else _STORAGE[:2]
        self.serving = {
            spec.name: next(node.value for node in spec.nodes if node.value in good)
            for spec in specs
        }

    def is_member(self, node: str) -> bool:
        return self.situation is not Situation.N3_LOST or node != "n3"

    def is_apart(self, spec: DeviceSpec) -> bool:
        """Whether its replicas are not connected: one of them is on n3."""
        return self.situation is not Situation.HEALTHY and any(
            node.value == "n3" for node in spec.nodes
        )

    def on(self, node: str) -> list[DeviceSpec]:
        """Return the devices with a replica there."""
        return [spec for spec in self.specs if node in {each.value for each in spec.nodes}]


def _device(number: int, minor: int) -> DeviceSpec:
    name = f"disk{number + 1:04}"
    first, second = _STORAGE[number % 3], _STORAGE[(number + 1) % 3]
    return DeviceSpec(
        name=DeviceName(value=name),
        uuid=_digest(name, "uuid"),
        size=_SIZE,
        pool=_POOL,
        replicas=2,
        nodes=(NodeName(value=first), NodeName(value=second)),
        minor=minor,
        initiators=(Iqn(value=f"iqn.2026-11.net.example:host{number % 20 + 1}"),),
    )


def _published(view: _View, spec: DeviceSpec, node: str) -> str:
    """Return what agents publish of a replica (agents/publish)."""
    role = "Primary" if view.serving[spec.name] == node else "Secondary"
    disk, link = "UpToDate", "connection=Connected replication=Established peer-disk=UpToDate"
    apart = ""
    if view.is_apart(spec):
        link = "connection=Connecting replication=Off peer-disk=Outdated"
        apart = f" apart={NOW_S - 60} gi={_digest(spec.uuid, 'gi')[:16].upper()}"
        if node == "n3":
            disk, link = "Outdated", "connection=StandAlone replication=Off peer-disk=DUnknown"
            apart += f" connects-later={NOW_S - 60}"
    return (
        f"disk={disk} {link} out-of-sync=0 role={role} size={spec.size.bytes} "
        f"suspended=no acl={access_digest(spec.access)} policy=default cache=write-through{apart}"
    )


# The CIB ----------------------------------------------------------------------------------------


def _cib(view: _View) -> ET.Element:
    root = ET.Element(
        "cib",
        {
            "crm_feature_set": _FEATURE_SET,
            "validate-with": "pacemaker-4.0",
            "epoch": str(40 + len(view.specs)),
            "num_updates": "19",
            "admin_epoch": "0",
            "cib-last-written": "Sat Nov 21 02:32:53 2026",
            "update-origin": "n1",
            "update-client": "root",
            "update-user": "root",
            "have-quorum": "1",
            "dc-uuid": "2",
        },
    )
    configuration = ET.SubElement(root, "configuration")
    options = ET.SubElement(ET.SubElement(configuration, "crm_config"), "cluster_property_set",
                            id="cib-bootstrap-options")  # fmt: skip
    for name, value in (
        ("dc-version", PACEMAKER_VERSION),
        ("cluster-infrastructure", "corosync"),
        ("cluster-name", "made-up"),
        ("stonith-enabled", "true"),
        ("no-quorum-policy", "stop"),
    ):
        ET.SubElement(options, "nvpair", id=f"{options.get('id')}-{name}", name=name, value=value)
    nodes = ET.SubElement(configuration, "nodes")
    for number, node in enumerate(view.nodes, 1):
        ET.SubElement(nodes, "node", id=str(number), uname=node)
    resources = ET.SubElement(configuration, "resources")
    resources.extend(_fence_element(node) for node in view.nodes)
    resources.append(_pools_element())
    constraints = ET.SubElement(configuration, "constraints")
    for node in view.nodes:
        elsewhere = {"rsc": f"fence-{node}", "node": node, "score": "-INFINITY"}
        constraints.append(
            ET.Element("rsc_location", {"id": f"fence-{node}-elsewhere"} | elsewhere)
        )
    for spec in view.specs:
        resources.append(device_element(spec))
        constraints.extend(constraint_elements(spec))
        if view.is_apart(spec):
            constraints.append(
                ET.Element("rsc_location", mark_attributes(spec.name.value, "n3", spec.uuid))
            )
    status = ET.SubElement(root, "status")
    status.extend(_node_state(view, node) for node in view.members)
    return root


def _fence_element(node: str) -> ET.Element:
    fence = ET.Element("primitive", {"id": f"fence-{node}", "class": "stonith",
                                     "type": "fence_ipmilan"})  # fmt: skip
    parameters = ET.SubElement(fence, "instance_attributes", id=f"fence-{node}-params")
    for name, value in (("ip", f"10.77.3.20{node[1:]}"), ("pcmk_host_list", node)):
        identifier = f"fence-{node}-params-{name}"
        ET.SubElement(parameters, "nvpair", id=identifier, name=name, value=value)
    operations = ET.SubElement(fence, "operations")
    ET.SubElement(operations, "op", id=f"fence-{node}-monitor", name="monitor", interval="120s")
    return fence


def _pools_element() -> ET.Element:
    clone = ET.Element("clone", id=POOLS_CLONE)
    pool = ET.SubElement(clone, "primitive", {"id": POOL_RESOURCE, "class": "ocf",
                                              "provider": "sanctl", "type": "pool"})  # fmt: skip
    operations = ET.SubElement(pool, "operations")
    ET.SubElement(operations, "op", id="sanctl-pool-monitor", name="monitor", interval="10s")
    return clone


def _node_state(view: _View, node: str) -> ET.Element:
    number = node[1:]
    state = ET.Element(
        "node_state",
        {
            "id": number,
            "uname": node,
            "in_ccm": str(NOW_S - 600),
            "crmd": str(NOW_S - 600),
            "crm-debug-origin": "controld_update_resource_history",
            "join": "member",
            "expected": "member",
        },
    )
    transient = ET.SubElement(state, "transient_attributes", id=number)
    attributes = ET.SubElement(transient, "instance_attributes", id=f"status-{number}")
    scores = {
        f"master-{spec.name}": "10000" if view.serving[spec.name] == node else "9000"
        for spec in view.on(node)
    }
    usage = "total=9000000000000 free=8000000000000 allocated=800000000000"
    for name, value in {"#feature-set": _FEATURE_SET, "sanctl-pool-main": usage, **scores}.items():
        identifier = f"status-{number}-{name.replace('#', '.')}"
        ET.SubElement(attributes, "nvpair", id=identifier, name=name, value=value)
    history = ET.SubElement(ET.SubElement(state, "lrm", id=number), "lrm_resources")
    _append_history(history, node, POOL_RESOURCE, "pool", (("start", 0, 0), ("monitor", 10, 0)))
    for spec in view.specs:
        if NodeName(value=node) not in spec.nodes:
            # What finds that nothing runs there, before Pacemaker starts anything anywhere.
            actions: tuple[tuple[str, int, int], ...] = (("monitor", 0, 7),)
        elif view.serving[spec.name] == node:
            actions = (("promote", 0, 0), ("monitor", 10, 8))
        else:
            actions = (("start", 0, 0), ("monitor", 11, 0))
        _append_history(history, node, spec.name.value, "device", actions)
    return state


def _append_history(
    history: ET.Element, node: str, name: str, agent: str, actions: tuple[tuple[str, int, int], ...]
) -> None:
    resource = ET.SubElement(history, "lrm_resource", {"id": name, "type": agent, "class": "ocf",
                                                       "provider": "sanctl"})  # fmt: skip
    for action, interval_s, status in actions:
        interval_ms = interval_s * 1000
        word = f"monitor_{interval_ms}" if interval_ms else "last_0"
        varied = int(_digest(name, node, word)[:8], 16)
        key = f"{varied % 97 + 4}:{varied % 389}:{status}:9a040bee-60f6-4df9-b530-acca996eaff7"
        restart = {
            "op-force-restart": "  minor nodes replicas pool uuid  ",
            "op-restart-digest": _digest(name, "restart"),
        }
        ET.SubElement(
            resource,
            "lrm_rsc_op",
            {
                "id": f"{name}_{word}",
                "operation_key": f"{name}_{action}_{interval_ms}",
                "operation": action,
                "crm-debug-origin": "build_active_RAs",
                "crm_feature_set": _FEATURE_SET,
                "transition-key": key,
                "transition-magic": f"0:{status};{key}",
                "exit-reason": "",
                "on_node": node,
                "call-id": str(varied % 3989 + 10),
                "rc-code": str(status),
                "op-status": "0",
                "interval": str(interval_ms),
                "last-rc-change": str(NOW_S - varied % 8641),
                "exec-time": str(varied % 5077),
                "queue-time": str(varied % 7),
                "op-digest": _digest(name, action, str(interval_ms)),
                **(restart if agent == "device" and not interval_ms else {}),
            },
        )


# crm_mon ----------------------------------------------------------------------------------------


def _monitor(view: _View) -> ET.Element:
    root = ET.Element("pacemaker-result", {"api-version": "2.38", "request": "crm_mon"})
    summary = ET.SubElement(root, "summary")
    ET.SubElement(summary, "current_dc", present="true", name="n2", id="2", with_quorum="true")
    nodes = ET.SubElement(root, "nodes")
    for number, node in enumerate(view.nodes, 1):
        no = dict.fromkeys(("standby", "standby_onfail", "maintenance", "pending", "unclean",
                            "shutdown"), "false")  # fmt: skip
        online = str(view.is_member(node)).lower()
        identity = {"name": node, "id": str(number), "online": online, "type": "member"}
        ET.SubElement(nodes, "node", identity | no)
    resources = ET.SubElement(root, "resources")
    for node in view.nodes:
        watcher = next(each for each in view.nodes if each != node)
        _append_instance(resources, f"fence-{node}", "stonith:fence_ipmilan", "Started", watcher)
    pools = ET.SubElement(resources, "clone", id=POOLS_CLONE, multi_state="false")
    for node in view.members:
        _append_instance(pools, POOL_RESOURCE, "ocf:sanctl:pool", "Started", node)
    for spec in view.specs:
        clone = ET.SubElement(resources, "clone", id=f"sanctl-{spec.name}", multi_state="true")
        for each in spec.nodes:
            role = "Promoted" if view.serving[spec.name] == each.value else "Unpromoted"
            is_there = view.is_member(each.value)
            _append_instance(
                clone,
                spec.name.value,
                "ocf:sanctl:device",
                role if is_there else "Stopped",
                each.value if is_there else "",
            )
    return root


def _append_instance(parent: ET.Element, name: str, agent: str, role: str, node: str) -> None:
    no = dict.fromkeys(("orphaned", "blocked", "maintenance", "failed", "failure_ignored"), "false")
    identity = {"id": name, "resource_agent": agent, "role": role, "managed": "true"}
    active = {"active": str(bool(node)).lower(), "nodes_running_on": str(int(bool(node)))}
    resource = ET.SubElement(parent, "resource", identity | active | no)
    if node:
        ET.SubElement(resource, "node", name=node, id=node[1:], cached="true")


def _text(root: ET.Element) -> str:
    ET.indent(root)
    return ET.tostring(root, encoding="unicode")


def _digest(*words: str) -> str:
    return hashlib.md5(" ".join(words).encode(), usedforsecurity=False).hexdigest()
