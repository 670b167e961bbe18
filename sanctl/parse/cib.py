# SPDX-License-Identifier: GPL-2.0-or-later
"""The CIB's XML and sanctl's node attributes, read into model.cib.Cib.

Lenient where operators and other tools write (unknown elements are ignored), strict about sanctl's
own resources: a resource that cannot be read as a device is reported by id, never skipped silently.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from sanctl.errors import CommandError, Problem, SanctlError, Unreachable
from sanctl.model.backup_failure import BackupFailure
from sanctl.model.cache_policy import parse_cache_policy
from sanctl.model.cib import Cib, CibNode, MoveConstraint
from sanctl.model.cib_names import (
    DRAINED_ATTRIBUTE,
    GROUP_PREFIX,
    GROUPS_OF_DEVICE,
    HOST_PREFIX,
    POOLS_CLONE,
    REACH_ATTRIBUTE,
    REACH_CLONE,
    STANDBY_ATTRIBUTE,
)
from sanctl.model.clone_origin import CloneOrigin
from sanctl.model.device import (
    DeviceSpec,
    OutdatedMark,
    PoolUsage,
    ReplicaState,
    Tombstone,
    deletion_id,
)
from sanctl.model.device_restore import REPORT_PREFIX, RestoreOrder, RestoreReport, closes
from sanctl.model.host import Host, parse_hosts
from sanctl.model.host_group import HostGroup, parse_group_names
from sanctl.model.names import ByteSize, DeviceName, Iqn, NodeName, PoolName
from sanctl.model.outdated_mark import PREFIX as OUTDATED_PREFIX
from sanctl.model.outdated_mark import parse_mark_id
from sanctl.model.point_schedule import SCHEDULE_PREFIX, PointSchedule
from sanctl.model.published_reservations import CLEAR_PARAMETER, PARAMETER, are_on
from sanctl.model.release_needs import PARAMETER as NEEDS_PARAMETER
from sanctl.model.release_needs import parse_needs
from sanctl.model.restore_point import (
    FAILED_PREFIX,
    POINTS_ID,
    SIZES_ATTRIBUTE,
    PointFailure,
    PointOrder,
    RestorePoint,
    parse_extents,
    parse_lost,
    parse_sizes,
)
from sanctl.model.site import CopyRecord, CopySchedule, Site
from sanctl.model.site_group import GroupRecord
from sanctl.model.site_restore import RestoreRecord
from sanctl.model.site_takeover import Takeover
from sanctl.model.sync_policy import SyncPolicy
from sanctl.model.verify_result import VerifyRecord, VerifyResult, parse_published
from sanctl.model.vote_mode import VOTES_ATTRIBUTE, NodeVotes
from sanctl.parse.fencing_resources import fencing_resources
from sanctl.parse.foreign_constraints import foreign_constraints
from sanctl.parse.guest_constraints import follows, foreign_ties, guests
from sanctl.parse.meta_attributes import resource_defaults, unmanaging, unpromoting
from sanctl.parse.published_state import (
    parse_pool_usage,
    parse_replica_state,
    parse_replicas,
)
from sanctl.parse.watched_resources import watch_clones
from sanctl.parse.xml_output import parse_xml

TOMBSTONE_PREFIX = "sanctl-delete-"
DISCARD_PREFIX = "sanctl-discard-"
REVIVE_PREFIX = "sanctl-revive-"
POOL_PREFIX = "sanctl-pool-"
REPLICA_PREFIX = "sanctl-"
#: Not `sanctl-…`: those are replicas' attributes, by the device's name.
VERIFY_PREFIX = "sanctl.verify."
VERIFIED_PREFIX = "sanctl.verified."
_UUID = re.compile(r"[0-9a-f]{32}")
_NO_STATES: Mapping[str, str] = MappingProxyType({})
_TRUE = frozenset({"true", "yes", "on", "1", "y"})


def parse_document(text: str) -> ET.Element:
    """Return the root of a CIB.

    Raises:
        Unreachable: the text is not a CIB.
    """
    try:
        root = parse_xml(text, "cibadmin")
    except CommandError as error:
        raise Unreachable(Problem("SAN-CIB-001", error.problems[0].text)) from error
    if root.tag != "cib" or root.find("configuration") is None:
        raise Unreachable(
            Problem("SAN-CIB-001", f"what cibadmin printed is not a CIB: <{root.tag}>")
        )
    return root


def parse_cib(root: ET.Element, states: Mapping[str, str] = _NO_STATES) -> Cib:
    """Read the parsed text of a CIB.

    Args:
        root: the CIB.
        states: what each node has published of its replicas (model/packed_states.py), which is not
            in the CIB; by node. What is missing there is not known.
    """
    configuration = root.find("configuration")
    assert configuration is not None
    nodes = tuple(_nodes(configuration))
    devices: list[DeviceSpec] = []
    unreadable: list[tuple[str, str]] = []
    origins: list[tuple[str, str]] = []
    names: dict[str, str] = {}
    preferred = {
        location.get("rsc", ""): location.get("node", "")
        for location in configuration.findall("constraints/rsc_location")
        if location.get("id") == f"{location.get('rsc')}-prefer"
    }
    defaults = resource_defaults(configuration)
    for clone, primitive in _device_elements(configuration):
        name = primitive.get("id", "")
        names |= {clone.get("id", ""): name, name: name}
        try:
            devices.append(_device(clone, primitive, preferred.get(clone.get("id", "")), defaults))
        except (SanctlError, ValueError) as error:
            unreadable.append((primitive.get("id", "?"), str(error)))
            if origin := _pairs_of(primitive, "instance_attributes").get("origin"):
                origins.append((primitive.get("id", "?"), origin))
    hosts, unreadable_hosts = _hosts(_properties(configuration))
    host_groups, unreadable_groups = _host_groups(_properties(configuration))
    replicas = parse_replicas(states)
    pools: dict[tuple[str, str], PoolUsage] = {}
    reach: dict[str, int] = {}
    ballots: dict[str, NodeVotes] = {}
    drained: set[str] = set()
    standby_until_reboot: set[str] = set()
    verifications: dict[tuple[str, str], VerifyResult] = {}
    verified: dict[tuple[str, str], VerifyRecord] = {}
    point_bytes: dict[tuple[str, str], int] = {}
    lost_points: set[tuple[str, str]] = set()
    data_extents: dict[tuple[str, str], int] = {}
    failures: dict[tuple[str, str], PointFailure] = {}
    reports: dict[tuple[str, str], RestoreReport] = {}
    for node, name, value in _transient_attributes(root):
        if name == VOTES_ATTRIBUTE:
            ballots[node] = NodeVotes.parse(value)
        elif name == DRAINED_ATTRIBUTE and value == "true":
            drained.add(node)
        elif name == STANDBY_ATTRIBUTE and value.lower() in _TRUE:
            standby_until_reboot.add(node)
        elif name.startswith(VERIFY_PREFIX) and (result := parse_published(value)) is not None:
            verifications[name.removeprefix(VERIFY_PREFIX), node] = result
        elif name.startswith(VERIFIED_PREFIX) and (known := VerifyRecord.parse(value)) is not None:
            verified[name.removeprefix(VERIFIED_PREFIX), node] = known
        elif name == SIZES_ATTRIBUTE:
            point_bytes |= {(token, node): size for token, size in parse_sizes(value).items()}
            lost_points |= {(token, node) for token in parse_lost(value)}
            data_extents |= {(key, node): count for key, count in parse_extents(value).items()}
        elif name.startswith(FAILED_PREFIX) and (failed := PointFailure.parse(value)) is not None:
            failures[name.removeprefix(FAILED_PREFIX), node] = failed
        elif name.startswith(REPORT_PREFIX) and (report := RestoreReport.parse(value)) is not None:
            reports[name.removeprefix(REPORT_PREFIX), node] = report
        elif name.startswith(POOL_PREFIX):
            pools[name.removeprefix(POOL_PREFIX), node] = parse_pool_usage(value)
        elif name.startswith(REPLICA_PREFIX):
            # By an earlier release. Which of two values is the older one nothing says.
            key, state = (name.removeprefix(REPLICA_PREFIX), node), parse_replica_state(value)
            replicas[key] = state if replicas.get(key, state) == state else ReplicaState()
        elif name == REACH_ATTRIBUTE and value.isdecimal():
            reach[node] = int(value)
    return Cib(
        properties=_properties(configuration),
        nodes=nodes,
        devices=tuple(sorted(devices, key=lambda device: device.name)),
        unreadable=tuple(sorted(unreadable)),
        unreadable_origins=tuple(sorted(origins)),
        has_pools_clone=configuration.find(f"resources//clone[@id='{POOLS_CLONE}']") is not None,
        fencing=tuple(fencing_resources(configuration)),
        moves=tuple(_moves(configuration)),
        tombstones=tuple(sorted(_tombstones(nodes))),
        outdated=tuple(sorted(_outdated(configuration, nodes))),
        drained=frozenset(drained),
        standby_until_reboot=frozenset(standby_until_reboot),
        replicas=replicas,
        pools=pools,
        reach=reach,
        verifications=verifications,
        verify_records=verified,
        node_votes=ballots,
        ids=frozenset(
            identifier
            for element in configuration.iter()
            if (identifier := element.get("id")) is not None
        ),
        hosts=hosts,
        unreadable_hosts=unreadable_hosts,
        host_groups=host_groups,
        unreadable_groups=unreadable_groups,
        points=tuple(
            sorted(_points(configuration), key=lambda each: (each.device, each.made_s, each.name))
        ),
        schedules=dict(_schedules(_properties(configuration))),
        point_bytes=point_bytes,
        lost_points=frozenset(lost_points),
        data_extents=data_extents,
        point_failures=failures,
        restore_reports=reports,
        sites=tuple(sorted(_sites(_properties(configuration)))),
        copies=tuple(sorted(_copies(_properties(configuration)), key=lambda each: each[:2])),
        copy_schedules=tuple(sorted(_copy_schedules(_properties(configuration)))),
        copy_groups=tuple(
            sorted(_copy_groups(_properties(configuration)), key=lambda each: each.id)
        ),
        takeovers=tuple(sorted(_takeovers(_properties(configuration)))),
        restored=tuple(sorted(_restored(_properties(configuration)))),
        backup_failures=tuple(sorted(_backup_failures(_properties(configuration)))),
        foreign_constraints=tuple(foreign_constraints(configuration, names)),
        follows=tuple(follows(configuration, names)),
        guests=dict(guests(configuration)),
        foreign_ties=tuple(foreign_ties(configuration, names)),
        watch_clones=tuple(watch_clones(configuration, (POOLS_CLONE, REACH_CLONE))),
        operation_timeouts={
            operation.get("id", ""): operation.get("timeout", "")
            for operation in configuration.iterfind(
                "resources/clone/primitive[@provider='sanctl']/operations/op"
            )
        },
    )


def _pairs_of(element: ET.Element, *sets: str) -> dict[str, str]:
    """Return the nvpairs in an element's attribute sets by name; rules are ignored."""
    return {
        pair.get("name", ""): pair.get("value", "")
        for tag in sets
        for group in element.findall(tag)
        for pair in group.findall("nvpair")
    }


def _properties(configuration: ET.Element) -> dict[str, str]:
    crm_config = configuration.find("crm_config")
    return {} if crm_config is None else _pairs_of(crm_config, "cluster_property_set")


def _hosts(properties: dict[str, str]) -> tuple[tuple[Host, ...], tuple[str, ...]]:
    """Return the hosts, and the names of those that cannot be read."""
    hosts, unreadable = [], []
    for key, value in properties.items():
        if key.startswith(HOST_PREFIX) and not key.startswith(GROUP_PREFIX):
            name = key.removeprefix(HOST_PREFIX)
            try:
                hosts.append(Host.parse(f"{name}={value}"))
            except SanctlError:
                unreadable.append(name)
    return tuple(sorted(hosts)), tuple(sorted(unreadable))


def _host_groups(properties: dict[str, str]) -> tuple[tuple[HostGroup, ...], tuple[str, ...]]:
    """Return the host groups, and the names of those that cannot be read."""
    groups, unreadable = [], []
    for key, value in properties.items():
        if key.startswith(GROUP_PREFIX):
            name = key.removeprefix(GROUP_PREFIX)
            try:
                groups.append(HostGroup.parse(name, value))
            except SanctlError:
                unreadable.append(name)
    return tuple(sorted(groups)), tuple(sorted(unreadable))


def _points(configuration: ET.Element) -> Iterator[RestorePoint]:
    for pair in configuration.findall(f"crm_config/cluster_property_set[@id='{POINTS_ID}']/nvpair"):
        # One of a later release is none here: its files stay, and its name is taken.
        point = RestorePoint.parse(pair.get("name", ""), pair.get("value", ""))
        if point is not None:
            yield point


def _schedules(properties: dict[str, str]) -> Iterator[tuple[str, PointSchedule]]:
    for name, value in properties.items():
        # One of a later release is carried out by nodes that have that.
        if name.startswith(SCHEDULE_PREFIX) and (found := PointSchedule.parse(value)) is not None:
            yield name.removeprefix(SCHEDULE_PREFIX), found


def _sites(properties: dict[str, str]) -> Iterator[Site]:
    for name, value in properties.items():
        # One of a later release is none here: it is carried out by nodes that have that.
        if (site := Site.parse(name, value)) is not None:
            yield site


def _copies(properties: dict[str, str]) -> Iterator[CopyRecord]:
    for name, value in properties.items():
        if (record := CopyRecord.parse(name, value)) is not None:
            yield record


def _copy_schedules(properties: dict[str, str]) -> Iterator[CopySchedule]:
    for name, value in properties.items():
        if (schedule := CopySchedule.parse(name, value)) is not None:
            yield schedule


def _copy_groups(properties: dict[str, str]) -> Iterator[GroupRecord]:
    for name, value in properties.items():
        if (group := GroupRecord.parse(name, value)) is not None:
            yield group


def _takeovers(properties: dict[str, str]) -> Iterator[Takeover]:
    for name, value in properties.items():
        if (takeover := Takeover.parse(name, value)) is not None:
            yield takeover


def _restored(properties: dict[str, str]) -> Iterator[RestoreRecord]:
    for name, value in properties.items():
        if (record := RestoreRecord.parse(name, value)) is not None:
            yield record


def _backup_failures(properties: dict[str, str]) -> Iterator[BackupFailure]:
    for name, value in properties.items():
        if (failure := BackupFailure.parse(name, value)) is not None:
            yield failure


def _nodes(configuration: ET.Element) -> Iterator[CibNode]:
    for element in configuration.findall("nodes/node"):
        # Remote and ping nodes have a type; only full members count here.
        if element.get("type", "member") not in {"member", "normal"}:
            continue
        attributes = _pairs_of(element, "instance_attributes")
        try:
            name = NodeName.parse(element.get("uname", ""))
        except SanctlError:
            continue
        yield CibNode(
            name=name,
            id=element.get("id", ""),
            wants_standby=attributes.get(STANDBY_ATTRIBUTE, "off").lower() in _TRUE,
            attributes=attributes,
        )


def _device_elements(configuration: ET.Element) -> Iterator[tuple[ET.Element, ET.Element]]:
    # Directly below resources only, where sanctl puts them: a patchset needs the full path.
    for clone in configuration.findall("resources/clone"):
        primitive = clone.find("primitive")
        if (
            primitive is not None
            and primitive.get("provider") == "sanctl"
            and primitive.get("type") == "device"
        ):
            yield clone, primitive


def _device(
    clone: ET.Element, primitive: ET.Element, prefer: str | None, defaults: Mapping[str, str]
) -> DeviceSpec:
    parameters = _pairs_of(primitive, "instance_attributes")
    clone_meta = _pairs_of(clone, "meta_attributes")
    own_meta = _pairs_of(primitive, "meta_attributes")
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
        is_new=meta.get("sanctl-new", "false").lower() in _TRUE,
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


def _transient_attributes(root: ET.Element) -> Iterator[tuple[str, str, str]]:
    for state in root.findall("status/node_state"):
        node = state.get("uname", "")
        for element in state.findall("transient_attributes"):
            for name, value in _pairs_of(element, "instance_attributes").items():
                yield node, name, value


def _moves(configuration: ET.Element) -> Iterator[MoveConstraint]:
    for location in configuration.findall("constraints/rsc_location"):
        clone = location.get("rsc", "")
        if location.get("id") != f"{clone}-move" or not clone.startswith("sanctl-"):
            continue
        target = location.find("rule/expression[@attribute='#uname']")
        until = location.find("rule/date_expression")
        yield MoveConstraint(
            device=clone.removeprefix("sanctl-"),
            node="" if target is None else target.get("value", ""),
            until="" if until is None else until.get("end", ""),
        )


def _tombstones(nodes: tuple[CibNode, ...]) -> Iterator[Tombstone]:
    for node in nodes:
        for name, value in node.attributes.items():
            if name.startswith(TOMBSTONE_PREFIX):
                yield Tombstone(
                    device=name.removeprefix(TOMBSTONE_PREFIX), node=node.name, value=value
                )


def _outdated(configuration: ET.Element, nodes: tuple[CibNode, ...]) -> Iterator[OutdatedMark]:
    members = {node.name.value: node.name for node in nodes}
    for location in configuration.findall("constraints/rsc_location"):
        identifier, name = location.get("id", ""), location.get("node", "")
        mark = parse_mark_id(identifier, name)
        if mark is not None and name in members:
            yield OutdatedMark(
                device=mark[0], node=members[name], uuid=mark[1], constraint=identifier
            )
    # As a release before 0.1.0 has written them.
    for node in nodes:
        for name, value in node.attributes.items():
            if name.startswith(OUTDATED_PREFIX):
                yield OutdatedMark(
                    device=name.removeprefix(OUTDATED_PREFIX), node=node.name, uuid=value
                )
