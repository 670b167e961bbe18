# SPDX-License-Identifier: GPL-2.0-or-later
"""The CIB's XML and sanctl's node attributes, read into model.cib.Cib.

Lenient where operators and other tools write (unknown elements are ignored), strict about sanctl's
own resources: a resource that cannot be read as a device is reported by id, never skipped silently.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from sanctl.errors import CommandError, Problem, SanctlError, Unreachable
from sanctl.model.backup_failure import BackupFailure, BackupSuccess, ExpectedBackup, PruneFailure
from sanctl.model.cib import Cib, CibNode, MoveConstraint
from sanctl.model.cib_names import (
    DRAINED_ATTRIBUTE,
    MAINTENANCE_ATTRIBUTE,
    POOLS_CLONE,
    REACH_ATTRIBUTE,
    REACH_CLONE,
    STANDBY_ATTRIBUTE,
)
from sanctl.model.device import DeviceSpec, OutdatedMark, PoolUsage, ReplicaState, Tombstone
from sanctl.model.device_restore import REPORT_PREFIX, RestoreReport
from sanctl.model.names import NodeName
from sanctl.model.outdated_mark import PREFIX as OUTDATED_PREFIX
from sanctl.model.outdated_mark import parse_mark_id
from sanctl.model.pacemaker_boolean import is_true
from sanctl.model.restore_point import (
    FAILED_PREFIX,
    SIZES_ATTRIBUTE,
    PointFailure,
    parse_extents,
    parse_lost,
    parse_sizes,
)
from sanctl.model.site import CopyRecord, CopySchedule, Site
from sanctl.model.site_group import GroupRecord
from sanctl.model.site_restore import RestoreRecord
from sanctl.model.site_takeover import Takeover
from sanctl.model.verify_result import VerifyRecord, VerifyResult, parse_published
from sanctl.model.vote_mode import VOTES_ATTRIBUTE, NodeVotes
from sanctl.parse.cluster_properties import (
    cluster_properties,
    host_groups,
    hosts,
    point_schedules,
    records,
    restore_points,
)
from sanctl.parse.device_resource import device_elements, parse_device
from sanctl.parse.fencing_resources import fencing_resources
from sanctl.parse.foreign_constraints import foreign_constraints
from sanctl.parse.guest_constraints import follows, foreign_ties, guests
from sanctl.parse.meta_attributes import resource_defaults
from sanctl.parse.nvpairs import pairs_of
from sanctl.parse.published_state import parse_pool_usage, parse_replica_state, parse_replicas
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
_NO_STATES: Mapping[str, str] = MappingProxyType({})


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
        states: the states of its replicas that each node has published (model/packed_states.py),
            by node; they are not in the CIB. The state of a replica without one is unknown.
    """
    configuration = root.find("configuration")
    assert configuration is not None
    properties = cluster_properties(configuration)
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
    for clone, primitive in device_elements(configuration):
        name = primitive.get("id", "")
        names |= {clone.get("id", ""): name, name: name}
        try:
            devices.append(
                parse_device(clone, primitive, preferred.get(clone.get("id", "")), defaults)
            )
        except (SanctlError, ValueError) as error:
            unreadable.append((primitive.get("id", "?"), str(error)))
            if origin := pairs_of(primitive, "instance_attributes").get("origin"):
                origins.append((primitive.get("id", "?"), origin))
    known_hosts, unreadable_hosts = hosts(properties)
    known_groups, unreadable_groups = host_groups(properties)
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
        elif name == STANDBY_ATTRIBUTE and is_true(value):
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
        properties=properties,
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
        hosts=known_hosts,
        unreadable_hosts=unreadable_hosts,
        host_groups=known_groups,
        unreadable_groups=unreadable_groups,
        points=tuple(
            sorted(
                restore_points(configuration),
                key=lambda each: (each.device, each.made_s, each.name),
            )
        ),
        schedules=dict(point_schedules(properties)),
        point_bytes=point_bytes,
        lost_points=frozenset(lost_points),
        data_extents=data_extents,
        point_failures=failures,
        restore_reports=reports,
        sites=tuple(sorted(records(properties, Site.parse))),
        copies=tuple(sorted(_copies(properties), key=lambda each: each[:2])),
        copy_schedules=tuple(sorted(records(properties, CopySchedule.parse))),
        copy_groups=tuple(sorted(records(properties, GroupRecord.parse), key=lambda each: each.id)),
        takeovers=tuple(sorted(records(properties, Takeover.parse))),
        restored=tuple(sorted(records(properties, RestoreRecord.parse))),
        backup_failures=tuple(sorted(records(properties, BackupFailure.parse))),
        backup_successes=tuple(sorted(records(properties, BackupSuccess.parse))),
        expected_backups=tuple(sorted(records(properties, ExpectedBackup.parse))),
        prune_failures=tuple(sorted(records(properties, PruneFailure.parse))),
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


def _copies(properties: Mapping[str, str]) -> Iterator[CopyRecord]:
    for record in records(properties, CopyRecord.parse):
        yield record.with_read(properties.get(record.read_id, ""))


def _nodes(configuration: ET.Element) -> Iterator[CibNode]:
    for element in configuration.findall("nodes/node"):
        # Remote and ping nodes have a type; only full members count here.
        if element.get("type", "member") not in {"member", "normal"}:
            continue
        attributes = pairs_of(element, "instance_attributes")
        try:
            name = NodeName.parse(element.get("uname", ""))
        except SanctlError:
            continue
        yield CibNode(
            name=name,
            id=element.get("id", ""),
            wants_standby=is_true(attributes.get(STANDBY_ATTRIBUTE, "off")),
            wants_maintenance=is_true(attributes.get(MAINTENANCE_ATTRIBUTE, "")),
            attributes=attributes,
        )


def _transient_attributes(root: ET.Element) -> Iterator[tuple[str, str, str]]:
    for state in root.findall("status/node_state"):
        node = state.get("uname", "")
        for element in state.findall("transient_attributes"):
            for name, value in pairs_of(element, "instance_attributes").items():
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
