# SPDX-License-Identifier: GPL-2.0-or-later
"""Arguments of `device create` as typed, and the request they are read into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from sanctl.errors import Problem, UsageError
from sanctl.model.cache_policy import NO_CACHE, CachePolicy
from sanctl.model.device import REPLICAS_RANGE
from sanctl.model.device_restore import RestoreOrder
from sanctl.model.host import HostName
from sanctl.model.host_group import HostGroupName
from sanctl.model.names import ByteSize, DeviceName, Iqn, NodeName, PoolName
from sanctl.model.published_reservations import NEW_DEVICES_HAVE_RESERVATIONS
from sanctl.model.sync_policy import DEFAULT_SYNC_POLICY, SyncPolicy
from sanctl.plan.cache.policy_request import read_cache_problems
from sanctl.plan.device.reserved_names import reserved_name_problem
from sanctl.plan.device.restore_points import split_point

_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceArguments:
    """The arguments of `device create` as typed; a clone has an origin, and its size from that.

    `restore` is the order by which a node makes the new device what a backup is, before any host is
    let in.
    """

    name: str
    size: str
    replicas: str
    origin: str | None = None
    pool: str | None = None
    nodes: tuple[str, ...] = ()
    prefer: str | None = None
    initiators: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    host_groups: tuple[str, ...] = ()
    sync: Mapping[str, str] = field(default_factory=dict)
    cache: CachePolicy = NO_CACHE
    restore: RestoreOrder | None = None
    reservations: bool = NEW_DEVICES_HAVE_RESERVATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """A parsed request; None where an argument was malformed or not given."""

    name: DeviceName | None
    size: ByteSize | None
    replicas: int | None
    pool: PoolName | None
    nodes: tuple[NodeName, ...]
    prefer: NodeName | None
    initiators: tuple[Iqn, ...]
    malformed: tuple[Problem, ...]
    sync: SyncPolicy = DEFAULT_SYNC_POLICY
    is_pool_given: bool = False
    are_nodes_given: bool = False
    cache: CachePolicy = NO_CACHE
    hosts: tuple[HostName, ...] = ()
    host_groups: tuple[HostGroupName, ...] = ()
    origin: tuple[DeviceName, str] | None = None
    """The restore point that it is made from: a device and the restore point's name."""
    restore: RestoreOrder | None = None
    reservations: bool = False


@dataclass(slots=True)
class _Reader:
    problems: list[Problem] = field(default_factory=list)

    def read(self, parse: Callable[[str], _Parsed], text: str) -> _Parsed | None:
        try:
            return parse(text)
        except UsageError as error:
            self.problems.extend(error.problems)
            return None


def parse_device_request(arguments: DeviceArguments) -> DeviceRequest:
    """Parse the arguments of `device create`; malformed ones are collected, not raised."""
    reader = _Reader()
    name = reader.read(DeviceName.parse, arguments.name)
    reserved = reserved_name_problem(name) if name is not None else None
    reader.problems += [reserved] if reserved is not None else []
    size = reader.read(ByteSize.parse, arguments.size) if arguments.origin is None else None
    origin = reader.read(split_point, arguments.origin) if arguments.origin is not None else None
    if arguments.origin is not None and arguments.size:
        reader.problems.append(
            Problem(
                "SAN-CLONE-001",
                "a device that is made from a restore point has the size of that",
                "leave --size away; 'sanctl device resize' makes it larger afterwards",
            )
        )
    replicas = reader.read(parse_replica_count, arguments.replicas)
    pool = reader.read(PoolName.parse, arguments.pool) if arguments.pool is not None else None
    nodes = [reader.read(NodeName.parse, text) for text in arguments.nodes]
    known = tuple(node for node in nodes if node is not None)
    reader.problems.extend(
        Problem("SAN-DEV-007", f"node {node} is given twice", "name each node once")
        for node in sorted({node for node in known if known.count(node) > 1})
    )
    if arguments.nodes and replicas is not None and len(arguments.nodes) != replicas:
        reader.problems.append(
            Problem(
                "SAN-DEV-006",
                f"{replicas} replicas are asked for, and {len(arguments.nodes)} named: "
                f"{', '.join(arguments.nodes)}",
                "name one node for each replica, or none and let sanctl choose",
            )
        )
    prefer = reader.read(NodeName.parse, arguments.prefer) if arguments.prefer is not None else None
    if prefer is not None and len(known) == len(arguments.nodes) > 0 and prefer not in known:
        reader.problems.append(
            Problem(
                "SAN-DEV-008",
                f"preferred node {prefer} is not among the nodes {', '.join(map(str, known))}",
                "prefer one of the nodes that hold a replica",
            )
        )
    initiators: list[Iqn] = []
    for text in arguments.initiators:
        iqn = reader.read(Iqn.parse, text)
        if iqn is not None and iqn not in initiators:
            initiators.append(iqn)
    hosts = {reader.read(HostName.parse, text) for text in arguments.hosts}
    groups = {reader.read(HostGroupName.parse, text) for text in arguments.host_groups}
    sync = DEFAULT_SYNC_POLICY
    try:
        sync = DEFAULT_SYNC_POLICY.changed(arguments.sync)
    except UsageError as error:
        reader.problems.extend(error.problems)
    if size is not None:
        subject = "the device" if name is None else f"device {name}"
        reader.problems.extend(read_cache_problems(subject, size, arguments.cache.read_bytes))
    return DeviceRequest(
        name=name,
        size=size,
        replicas=replicas,
        pool=pool,
        nodes=known,
        prefer=prefer,
        initiators=tuple(sorted(initiators)),
        sync=sync,
        malformed=tuple(reader.problems),
        is_pool_given=arguments.pool is not None,
        are_nodes_given=bool(arguments.nodes),
        cache=arguments.cache,
        hosts=tuple(sorted(each for each in hosts if each is not None)),
        host_groups=tuple(sorted(group for group in groups if group is not None)),
        origin=origin,
        restore=arguments.restore,
        reservations=arguments.reservations,
    )


def parse_replica_count(text: str) -> int:
    """Return a number of replicas.

    Raises:
        UsageError: it is no number, or no device can have so many.
    """
    # Compared as text: what has thousands of digits is no int (SAN-BUG-001).
    if text not in map(str, REPLICAS_RANGE):
        raise UsageError(
            Problem(
                "SAN-DEV-003",
                f"{text!r} is not a number of replicas",
                f"a device has {REPLICAS_RANGE[0]} to {REPLICAS_RANGE[-1]}",
            )
        )
    return int(text)
