"""Between the text of cluster.toml and a Topology, naming everything that is wrong with it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from itertools import combinations
from pathlib import PurePosixPath
from typing import Any, assert_never

from sanctl.config.document import Document, Place, dotted
from sanctl.errors import ConfigError, Problem, UsageError
from sanctl.model.names import Iqn, NodeName, PoolName
from sanctl.model.topology import (
    Address,
    Network,
    Networks,
    Node,
    Pool,
    Role,
    Strategy,
    Topology,
)

CLUSTER_TOML = "/etc/sanctl/cluster.toml"

SCHEMA = 1
MAX_NODES = 32
NETWORKS = ("iscsi", "sync", "heartbeat")

_CLUSTER = re.compile(r"[a-z][a-z0-9-]{0,31}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# What needs no quoting anywhere a path ends up: shell, drbd.conf, a CIB attribute, a log line.
_PATH = re.compile(r"/[A-Za-z0-9._+/-]+")
# A target's name is prefix, dot and a device name of up to 31; RFC 3720 allows 223 bytes in all.
_IQN_PREFIX_MAX = 223 - 32


def parse(text: str, *, source: str = CLUSTER_TOML) -> Topology:
    """Return the topology a cluster.toml describes.

    Raises:
        ConfigError: with every problem found.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(Problem("SAN-CONF-001", f"{source}: {error}")) from error
    return read(tree, place=lambda path: f"{source}: {dotted(path)}" if path else source)


def read(tree: Mapping[str, Any], *, place: Place = dotted) -> Topology:
    """Return the topology a parsed cluster.toml describes.

    Raises:
        ConfigError: with every problem found.
    """
    document = Document(tree, place)
    topology = examine(document)
    if topology is None or document.problems:
        raise ConfigError(*document.problems)
    return topology


def examine(document: Document) -> Topology | None:
    """Note all problems of the document; return the topology if there are none."""
    document.table((), known=("schema", "cluster", "networks", "nodes", "pools"))
    schema = document.integer(("schema",))
    if schema is not None and schema != SCHEMA:
        document.note(
            "SAN-CONF-002",
            ("schema",),
            f"{schema} is not known to this version of sanctl",
            f"it reads schema {SCHEMA}",
        )
        # Whatever else looks wrong may be right in that schema.
        return None

    document.table(("cluster",), known=("name", "iqn_prefix", "strategy"))
    cluster = _cluster_name(document)
    iqn_prefix = _iqn_prefix(document)
    strategy = _strategy(document)
    networks = _networks(document)
    names = document.table(("nodes",))
    taken = _Taken()
    nodes = [_node(document, name, networks, taken) for name in names]
    _check_node_count(document, names, taken, strategy)
    pools = [_pool(document, name, names, taken) for name in document.table(("pools",))]
    _check_pools(document, [pool for pool in pools if pool is not None])

    if document.problems or not (cluster and iqn_prefix and strategy):
        return None
    return Topology(
        cluster=cluster,
        iqn_prefix=iqn_prefix,
        strategy=strategy,
        networks=Networks(**{name: networks[name] for name in NETWORKS}),
        nodes=tuple(sorted((node for node in nodes if node), key=lambda node: node.id)),
        pools=tuple(sorted((pool for pool in pools if pool), key=lambda pool: pool.name)),
    )


def render(topology: Topology) -> str:
    """Write a cluster.toml that reads back as the same topology."""
    lines = [
        f"schema = {SCHEMA}",
        "",
        "[cluster]",
        f"name = {_quote(topology.cluster)}",
        f"iqn_prefix = {_quote(topology.iqn_prefix)}",
        f"strategy = {_quote(topology.strategy)}",
    ]
    for name in NETWORKS:
        lines += ["", f"[networks.{name}]", f"cidr = {_quote(getattr(topology.networks, name))}"]
    for node in topology.nodes:
        lines += ["", f"[nodes.{_key(node.name)}]", f"id = {node.id}"]
        lines += [f"role = {_quote(node.role)}"]
        if node.iscsi:
            lines += [f"iscsi = [{', '.join(map(_quote, node.iscsi))}]"]
        lines += [f"sync = {_quote(node.sync)}", f"heartbeat = {_quote(node.heartbeat)}"]
    if not topology.pools:
        lines += ["", "[pools]"]
    for pool in topology.pools:
        lines += ["", f"[pools.{_key(pool.name)}]", f"path = {_quote(pool.path)}"]
        lines += [f"uuid = {_quote(pool.uuid)}"]
        lines += [f"nodes = [{', '.join(map(_quote, pool.nodes))}]"]
    return "\n".join(lines) + "\n"


def _quote(value: object) -> str:
    # All values are of validated, printable ASCII, for which JSON and TOML agree.
    return json.dumps(str(value))


def _key(name: object) -> str:
    # A node may be called `san1.example.net`; bare, that would be three nested tables.
    return _quote(name) if "." in str(name) else str(name)


def _cluster_name(document: Document) -> str | None:
    name = document.text(("cluster", "name"))
    if name is not None and not _CLUSTER.fullmatch(name):
        document.note(
            "SAN-CONF-006",
            ("cluster", "name"),
            f"{name!r} is not valid",
            "use 1 to 32 of a-z, 0-9 and '-', the first one a letter",
        )
        return None
    return name


def _iqn_prefix(document: Document) -> Iqn | None:
    path = ("cluster", "iqn_prefix")
    text = document.text(path)
    if text is None:
        return None
    try:
        iqn = Iqn.parse(text)
    except UsageError as error:
        _note_name(document, path, error)
        return None
    if not iqn.value.startswith("iqn.") or iqn.value != text or len(text) > _IQN_PREFIX_MAX:
        document.note(
            "SAN-CONF-006",
            path,
            f"{text[:60]!r} cannot have a device's name put behind it",
            f"an iqn. name in lower case, of at most {_IQN_PREFIX_MAX} characters",
        )
        return None
    return iqn


def _note_name(document: Document, path: tuple[str, ...], error: UsageError) -> None:
    for problem in error.problems:
        document.note("SAN-CONF-006", path, problem.text, problem.hint)


def _strategy(document: Document) -> Strategy | None:
    text = document.text(("cluster", "strategy"))
    if text is None:
        return None
    try:
        return Strategy(text)
    except ValueError:
        document.note(
            "SAN-CONF-019",
            ("cluster", "strategy"),
            f"{text!r} is not known",
            f"one of: {', '.join(Strategy)}",
        )
        return None


def _networks(document: Document) -> dict[str, Network]:
    found: dict[str, Network] = {}
    document.table(("networks",), known=NETWORKS)
    for name in NETWORKS:
        path = ("networks", name)
        if not document.table(path, known=("cidr",)):
            continue
        text = document.text((*path, "cidr"))
        if text is None:
            continue
        try:
            found[name] = ip_network(text)
        except ValueError as error:
            document.note("SAN-CONF-007", (*path, "cidr"), str(error), "write it like 192.0.2.0/24")
    for (one, left), (other, right) in combinations(found.items(), 2):
        if left.overlaps(right):
            document.note("SAN-CONF-008", ("networks", other), f"{right} overlaps {one} ({left})")
    return found


@dataclass(slots=True)
class _Taken:
    """What the nodes read so far have claimed, each claim with its owner.

    Kept apart from the finished nodes: a node with one mistake in it still takes part in the search
    for duplicates.
    """

    ids: dict[int, str] = field(default_factory=dict)
    addresses: dict[Address, str] = field(default_factory=dict)
    roles: dict[str, Role] = field(default_factory=dict)


def _address(
    document: Document,
    path: tuple[str, ...],
    text: str,
    networks: Mapping[str, Network],
    taken: _Taken,
) -> Address | None:
    # The network an address belongs to has the name of its key: iscsi, sync or heartbeat.
    network = networks.get(path[2])
    try:
        address = ip_address(text)
    except ValueError:
        document.note("SAN-CONF-009", path, f"{text!r} is not an IP address")
        return None
    if address in taken.addresses:
        document.note("SAN-CONF-011", path, f"{address} is also that of {taken.addresses[address]}")
    taken.addresses.setdefault(address, f"{path[1]} ({path[2]})")
    if network is None:
        return address
    # A point-to-point /31 or /32 has neither a network nor a broadcast address.
    unusable = (
        {network.network_address, network.broadcast_address}
        if network.num_addresses > 2 and network.version == 4
        else set()
    )
    if address not in network or address in unusable:
        document.note(
            "SAN-CONF-010",
            path,
            f"{address} is not a host address of network {path[2]} ({network})",
        )
        return None
    return address


def _node(
    document: Document, name: str, networks: Mapping[str, Network], taken: _Taken
) -> Node | None:
    path = ("nodes", name)
    before = len(document.problems)
    if not document.table(path, known=("id", "role", *NETWORKS)):
        return None
    try:
        parsed: NodeName | None = NodeName.parse(name)
    except UsageError as error:
        _note_name(document, path, error)
        parsed = None
    number = document.integer((*path, "id"))
    if number is not None and not 1 <= number <= MAX_NODES:
        document.note("SAN-CONF-012", (*path, "id"), f"{number} is not 1 to {MAX_NODES}")
    if number in taken.ids:
        document.note(
            "SAN-CONF-013", (*path, "id"), f"{number} is also that of {taken.ids[number]}"
        )
    if number is not None:
        taken.ids.setdefault(number, name)
    role = _role(document, path)
    if role is not None:
        taken.roles[name] = role
    portals = document.texts((*path, "iscsi"))
    match role:
        case Role.STORAGE if portals == ():
            document.note("SAN-CONF-015", (*path, "iscsi"), "a storage node needs a portal")
        case Role.WITNESS if portals:
            document.note("SAN-CONF-015", (*path, "iscsi"), "a witness serves nothing")
        case Role.STORAGE | Role.WITNESS | None:
            pass
        case _:
            assert_never(role)
    iscsi = [_address(document, (*path, "iscsi"), text, networks, taken) for text in portals or ()]
    single = {key: document.text((*path, key), code="SAN-CONF-030") for key in NETWORKS[1:]}
    sync, heartbeat = (
        _address(document, (*path, key), text, networks, taken) if text else None
        for key, text in single.items()
    )
    if not (parsed and number and role and sync and heartbeat):
        return None
    if len(document.problems) > before:
        return None
    return Node(
        name=parsed,
        id=number,
        role=role,
        iscsi=tuple(address for address in iscsi if address),
        sync=sync,
        heartbeat=heartbeat,
    )


def _role(document: Document, path: tuple[str, ...]) -> Role | None:
    text = document.text((*path, "role"))
    if text is None:
        return None
    try:
        return Role(text)
    except ValueError:
        document.note("SAN-CONF-014", (*path, "role"), f"{text!r} is neither {' nor '.join(Role)}")
        return None


def _check_node_count(
    document: Document, names: Sequence[str], taken: _Taken, strategy: Strategy | None
) -> None:
    roles = [taken.roles.get(name) for name in names]
    if all(role is Role.WITNESS for role in roles):
        document.note("SAN-CONF-022", ("nodes",), "there is no storage node")
    if len(names) > MAX_NODES:
        document.note("SAN-CONF-022", ("nodes",), f"{len(names)} nodes; at most {MAX_NODES}")
    if strategy is Strategy.NODE_MAJORITY and len(names) == 2:
        document.note(
            "SAN-CONF-020",
            ("nodes",),
            "two nodes have no majority once one of them is lost",
            "add a third server with the role witness",
        )


def _pool(document: Document, name: str, known: Sequence[str], taken: _Taken) -> Pool | None:
    path = ("pools", name)
    before = len(document.problems)
    if not document.table(path, known=("path", "uuid", "nodes")):
        return None
    try:
        parsed: PoolName | None = PoolName.parse(name)
    except UsageError as error:
        _note_name(document, path, error)
        parsed = None
    where = _pool_path(document, path)
    uuid = document.text((*path, "uuid"), code="SAN-CONF-017", hint="`uuidgen` makes one")
    if uuid is not None and not _UUID.fullmatch(uuid):
        document.note("SAN-CONF-017", (*path, "uuid"), f"{uuid!r} is not a uuid in lower case")
    members = _pool_nodes(document, (*path, "nodes"), known, taken)
    if not (parsed and where and uuid) or len(document.problems) > before:
        return None
    return Pool(name=parsed, path=where, uuid=uuid, nodes=members)


def _pool_path(document: Document, path: tuple[str, ...]) -> PurePosixPath | None:
    text = document.text(
        (*path, "path"), code="SAN-CONF-016", hint="a directory on a mounted filesystem"
    )
    if text is None:
        return None
    where = PurePosixPath(text)
    if not _PATH.fullmatch(text) or ".." in where.parts or str(where) != text:
        document.note(
            "SAN-CONF-016",
            (*path, "path"),
            f"{text!r} is not a plain absolute path",
            "letters, digits and . _ + - / only; no '..', no doubled or final '/'",
        )
        return None
    return where


def _pool_nodes(
    document: Document, path: tuple[str, ...], known: Sequence[str], taken: _Taken
) -> tuple[NodeName, ...]:
    names = document.texts(path)
    if names == ():
        document.note("SAN-CONF-018", path, "names no node")
    for index, name in enumerate(names or ()):
        if name not in known:
            document.note(
                "SAN-CONF-018", path, f"{name!r} is not a node", f"known: {', '.join(known)}"
            )
        elif taken.roles.get(name) is Role.WITNESS:
            document.note("SAN-CONF-018", path, f"{name} is a witness and holds no data")
        elif name in (names or ())[:index]:
            document.note("SAN-CONF-018", path, f"{name} is named twice")
    if document.problems:
        return ()
    return tuple(sorted(NodeName.parse(name) for name in names or ()))


def _check_pools(document: Document, pools: Sequence[Pool]) -> None:
    for one, other in combinations(pools, 2):
        path = ("pools", str(other.name))
        if one.uuid == other.uuid:
            document.note("SAN-CONF-017", (*path, "uuid"), f"is also that of pool {one.name}")
        shared = set(one.nodes) & set(other.nodes)
        if shared and (one.path.is_relative_to(other.path) or other.path.is_relative_to(one.path)):
            document.note(
                "SAN-CONF-021", (*path, "path"), f"{other.path} and {one.path} ({one.name}) overlap"
            )
