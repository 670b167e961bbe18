# SPDX-License-Identifier: GPL-2.0-or-later
"""cluster.toml as a whole: text to Topology and back; schema, name, IQN prefix, networks."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from ipaddress import ip_network
from itertools import combinations
from typing import Any

from sanctl.config import strategy as strategies
from sanctl.config.document import Document, PathName, dotted
from sanctl.config.nodes import FAILURE_DOMAINS, NETWORKS, Claims, check_failure_domains, read_node
from sanctl.config.pools import check_pools, read_pool
from sanctl.errors import ConfigError, Problem, UsageError
from sanctl.model.names import Iqn
from sanctl.model.topology import Network, Networks, PoolFilesystem, Topology

CLUSTER_TOML = "/etc/sanctl/cluster.toml"

SCHEMA = 1
_CLUSTER = re.compile(r"[a-z][a-z0-9-]{0,31}")
# A target's name is prefix, dot and a device name of up to 31; RFC 3720 allows 223 bytes in all.
_IQN_PREFIX_MAX = 223 - 32


def parse(
    text: str, *, source: str = CLUSTER_TOML, passed_over: list[Problem] | None = None
) -> Topology:
    """Return the topology a cluster.toml describes.

    Args:
        text: the file's text.
        source: what the file is called in problems.
        passed_over: takes keys and words that are not known here, which are problems without it. A
            release may write more of them under the same schema only if one that does not know them
            does no harm.

    Raises:
        ConfigError: with every problem found.
    """
    try:
        tree = tomllib.loads(text)
    except ValueError as error:
        # Also a number of more digits than Python converts, which is no TOMLDecodeError.
        raise ConfigError(Problem("SAN-CONF-001", f"{source}: {error}")) from error
    except RecursionError as error:
        raise ConfigError(Problem("SAN-CONF-001", f"{source}: is nested too deeply")) from error
    document = Document(
        tree,
        lambda path: f"{source}: {dotted(path)}" if path else source,
        passed_over,
        missing_hint="a release that does not know it may have written the file: run the playbook "
        "again",
    )
    return _read(document)


def read(tree: Mapping[str, Any], *, place: PathName = dotted) -> Topology:
    """Return the topology a parsed cluster.toml describes.

    Raises:
        ConfigError: with every problem found.
    """
    return _read(Document(tree, place))


def _read(document: Document) -> Topology:
    topology = examine(document)
    if topology is None or document.problems:
        raise ConfigError(*document.problems)
    return topology


def examine(document: Document) -> Topology | None:
    """Note all problems of the document; return the topology if there are none."""
    document.table((), known=("schema", "cluster", "qdevice", "networks", "nodes", "pools"))
    schema = document.integer(("schema",))
    if schema is not None and schema != SCHEMA:
        document.note(
            "SAN-CONF-002",
            ("schema",),
            f"{schema} is not known to this version of sanctl",
            f"it reads schema {SCHEMA}; run the playbook again, with the release that all nodes "
            "are to have",
        )
        # Other keys that look wrong may be right in that schema.
        return None

    document.table(("cluster",), known=("name", "iqn_prefix", "strategy", "accept_risks"))
    cluster = _cluster_name(document)
    iqn_prefix = _iqn_prefix(document)
    strategy = strategies.read_strategy(document)
    risks = strategies.read_risks(document, strategy)
    networks = _networks(document)
    names = document.table(("nodes",))
    taken = Claims()
    nodes = [read_node(document, name, networks, taken) for name in names]
    qdevice = strategies.read_qdevice(document, taken)
    strategies.check_nodes(document, names, taken, strategy)
    check_failure_domains(document, names, taken)
    pools = [read_pool(document, name, names, taken) for name in document.table(("pools",))]
    check_pools(document, [pool for pool in pools if pool is not None])

    if document.problems or not (cluster and iqn_prefix and strategy):
        return None
    return Topology(
        cluster=cluster,
        iqn_prefix=iqn_prefix,
        strategy=strategy,
        networks=Networks(**{name: networks[name] for name in NETWORKS}),
        nodes=tuple(sorted((node for node in nodes if node), key=lambda node: node.id)),
        pools=tuple(sorted((pool for pool in pools if pool), key=lambda pool: pool.name)),
        qdevice=qdevice,
        accepted_risks=risks,
    )


def render(topology: Topology) -> str:
    """Return the text of a cluster.toml that reads back as the same topology."""
    lines = [
        f"schema = {SCHEMA}",
        "",
        "[cluster]",
        f"name = {_quote(topology.cluster)}",
        f"iqn_prefix = {_quote(topology.iqn_prefix)}",
        f"strategy = {_quote(topology.strategy)}",
    ]
    if topology.accepted_risks:
        lines += [f"accept_risks = [{', '.join(map(_quote, topology.accepted_risks))}]"]
    if topology.qdevice:
        lines += ["", "[qdevice]", f"host = {_quote(topology.qdevice)}"]
    for name in NETWORKS:
        lines += ["", f"[networks.{name}]", f"cidr = {_quote(getattr(topology.networks, name))}"]
    for node in topology.nodes:
        lines += ["", f"[nodes.{_key(node.name)}]", f"id = {node.id}"]
        lines += [f"role = {_quote(node.role)}"]
        if node.iscsi:
            lines += [f"iscsi = [{', '.join(map(_quote, node.iscsi))}]"]
        lines += [f"sync = {_quote(node.sync)}", f"heartbeat = {_quote(node.heartbeat)}"]
        lines += [
            f"{key} = {_quote(text)}" for key in FAILURE_DOMAINS if (text := getattr(node, key))
        ]
        if node.is_power_protected:
            lines += ['power = "protected"']
    if not topology.pools:
        lines += ["", "[pools]"]
    for pool in topology.pools:
        lines += ["", f"[pools.{_key(pool.name)}]", f"path = {_quote(pool.path)}"]
        lines += [f"uuid = {_quote(pool.uuid)}"]
        lines += [f"nodes = [{', '.join(map(_quote, pool.nodes))}]"]
        if pool.cache is not None:
            keys = {"origin": pool.cache.origin, "device": pool.cache.flash}
            lines += ["", f"[pools.{_key(pool.name)}.cache]"]
            lines += [f"{key} = {_quote(value)}" for key, value in keys.items()]
            lines += [f"mode = {_quote(pool.cache.mode)}"]
            if pool.cache.filesystem is not PoolFilesystem.XFS:
                lines += [f"filesystem = {_quote(pool.cache.filesystem)}"]
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
        document.note_name(path, error)
        return None
    if not iqn.value.startswith("iqn.") or iqn.value != text or len(text) > _IQN_PREFIX_MAX:
        document.note(
            "SAN-CONF-006",
            path,
            f"{text[:60]!r} cannot be followed by a device's name",
            f"an iqn. name in lower case, of at most {_IQN_PREFIX_MAX} characters",
        )
        return None
    return iqn


def _networks(document: Document) -> dict[str, Network]:
    found: dict[str, Network] = {}
    document.table(("networks",), known=NETWORKS)
    for name in NETWORKS:
        path = ("networks", name)
        document.table(path, known=("cidr",))
        if document.problems and not document.has(path):
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
