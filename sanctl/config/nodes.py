# SPDX-License-Identifier: GPL-2.0-or-later
"""The [nodes] tables of cluster.toml: ids, roles, addresses and portals per node, site, rack."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import assert_never

from sanctl.config.document import Document
from sanctl.errors import UsageError
from sanctl.model.names import NodeName
from sanctl.model.topology import Address, Network, Node, NodeRole

MAX_NODES = 32
NETWORKS = ("iscsi", "sync", "heartbeat")
#: Optional failure domains of a node, the larger one first.
FAILURE_DOMAINS = ("site", "rack")
_DOMAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_PROTECTED, _PLAIN = "protected", "plain"


@dataclass(slots=True)
class Claims:
    """Ids, addresses and roles of the nodes read so far, with the node that has each.

    Separate from the finished nodes: a node with a mistake still takes part in the search for
    duplicates.
    """

    ids: dict[int, str] = field(default_factory=dict)
    addresses: dict[Address, str] = field(default_factory=dict)
    roles: dict[str, NodeRole] = field(default_factory=dict)


def read_address(
    document: Document,
    path: tuple[str, ...],
    text: str,
    networks: Mapping[str, Network],
    taken: Claims,
) -> Address | None:
    """Return the address at a path of the document, if it is valid and not used twice."""
    # The network an address belongs to has the name of its key: iscsi, sync or heartbeat.
    network = networks.get(path[2])
    try:
        address = ip_address(text)
    except ValueError:
        document.note("SAN-CONF-009", path, f"{text!r} is not an IP address")
        return None
    kind = _unusable_kind(address)
    if kind is not None:
        document.note(
            "SAN-CONF-010",
            path,
            f"{text} is {kind}: no other host reaches this node by it",
            "an address that is set on one interface of this node",
        )
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


def _unusable_kind(address: Address) -> str | None:
    """Return why an address cannot be that of one node on a network; None if it can."""
    if isinstance(address, IPv6Address):
        if address.scope_id is not None or address.is_link_local:
            return "a link-local address"
        if address.ipv4_mapped is not None:
            return "an IPv4 address in IPv6's form"
    for is_of_kind, kind in (
        # LIO would listen on every address of the node, Corosync and DRBD bind to none.
        (address.is_unspecified, "the address of all interfaces"),
        (address.is_loopback, "a loopback address"),
        (address.is_link_local, "a link-local address"),
        (address.is_multicast, "a multicast address"),
        (address.version == 4 and address.is_reserved, "a reserved address"),
    ):
        if is_of_kind:
            return kind
    return None


def read_node(
    document: Document, name: str, networks: Mapping[str, Network], taken: Claims
) -> Node | None:
    """Return a node, None where it has problems."""
    path = ("nodes", name)
    before = len(document.problems)
    if not document.table(path, known=("id", "role", *NETWORKS, *FAILURE_DOMAINS, "power")):
        return None
    try:
        parsed: NodeName | None = NodeName.parse(name)
    except UsageError as error:
        document.note_name(path, error)
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
        case NodeRole.STORAGE if portals == ():
            document.note("SAN-CONF-015", (*path, "iscsi"), "a storage node needs a portal")
        case NodeRole.WITNESS if portals:
            document.note("SAN-CONF-015", (*path, "iscsi"), "a witness serves nothing")
        case NodeRole.STORAGE | NodeRole.WITNESS | None:
            pass
        case _:
            assert_never(role)
    iscsi = [
        read_address(document, (*path, "iscsi"), text, networks, taken) for text in portals or ()
    ]
    single = {key: document.text((*path, key), code="SAN-CONF-030") for key in NETWORKS[1:]}
    sync, heartbeat = (
        read_address(document, (*path, key), text, networks, taken) if text else None
        for key, text in single.items()
    )
    domains = {key: _domain(document, (*path, key)) for key in FAILURE_DOMAINS}
    is_power_protected = _is_power_protected(document, path)
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
        **domains,
        is_power_protected=is_power_protected,
    )


def _is_power_protected(document: Document, path: tuple[str, ...]) -> bool:
    if not document.has((*path, "power")):
        return False
    text = document.text((*path, "power"))
    if text is not None and text not in {_PROTECTED, _PLAIN}:
        document.note_unknown(
            "SAN-CONF-047", (*path, "power"), f"{text!r} is neither {_PROTECTED} nor {_PLAIN}"
        )
    return text == _PROTECTED


def _domain(document: Document, path: tuple[str, ...]) -> str:
    if not document.has(path):
        return ""
    text = document.text(path) or ""
    if text and not _DOMAIN.fullmatch(text):
        document.note(
            "SAN-CONF-045",
            path,
            f"{text[:60]!r} is not valid",
            "use 1 to 32 of letters, digits, '.', '_' and '-'",
        )
        return ""
    return text


def check_failure_domains(document: Document, names: Sequence[str], taken: Claims) -> None:
    """Make sure that a site, or a rack, is given for all storage nodes or for none.

    A node without a site would count as separate from all others, and two replicas could end up in
    one building.
    """
    storage = [name for name in names if taken.roles.get(name) is NodeRole.STORAGE]
    for key in FAILURE_DOMAINS:
        given = [name for name in storage if document.has(("nodes", name, key))]
        for name in storage:
            if given and name not in given:
                document.note(
                    "SAN-CONF-046",
                    ("nodes", name, key),
                    f"is missing, and given for {', '.join(given)}",
                    "give it for every storage node, or for none",
                )


def _role(document: Document, path: tuple[str, ...]) -> NodeRole | None:
    text = document.text((*path, "role"))
    if text is None:
        return None
    try:
        return NodeRole(text)
    except ValueError:
        document.note(
            "SAN-CONF-014", (*path, "role"), f"{text!r} is neither {' nor '.join(NodeRole)}"
        )
        return None
