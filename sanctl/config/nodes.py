# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads the nodes of a cluster.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import assert_never

from sanctl.config.document import Document
from sanctl.errors import UsageError
from sanctl.model.names import NodeName
from sanctl.model.topology import Address, Network, Node, Role

MAX_NODES = 32
NETWORKS = ("iscsi", "sync", "heartbeat")
#: Where a node stands, the larger one first: optional.
DOMAINS = ("site", "rack")
_DOMAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_PROTECTED, _PLAIN = "protected", "plain"


@dataclass(slots=True)
class Taken:
    """What the nodes read so far have claimed, each claim with its owner.

    Kept apart from the finished nodes: a node with one mistake in it still takes part in the search
    for duplicates.
    """

    ids: dict[int, str] = field(default_factory=dict)
    addresses: dict[Address, str] = field(default_factory=dict)
    roles: dict[str, Role] = field(default_factory=dict)


def read_address(
    document: Document,
    path: tuple[str, ...],
    text: str,
    networks: Mapping[str, Network],
    taken: Taken,
) -> Address | None:
    """Return the address at a place of the document, if it is good and nobody else's."""
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


def read_node(
    document: Document, name: str, networks: Mapping[str, Network], taken: Taken
) -> Node | None:
    """Return a node, if nothing is wrong with it."""
    path = ("nodes", name)
    before = len(document.problems)
    if not document.table(path, known=("id", "role", *NETWORKS, *DOMAINS, "power")):
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
        case Role.STORAGE if portals == ():
            document.note("SAN-CONF-015", (*path, "iscsi"), "a storage node needs a portal")
        case Role.WITNESS if portals:
            document.note("SAN-CONF-015", (*path, "iscsi"), "a witness serves nothing")
        case Role.STORAGE | Role.WITNESS | None:
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
    domains = {key: _domain(document, (*path, key)) for key in DOMAINS}
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
        document.note(
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


def check_domains(document: Document, names: Sequence[str], taken: Taken) -> None:
    """Make sure that a site, or a rack, is told of all storage nodes or of none.

    Of a node whose place is not told nothing can be said: it would pass for one that stands apart
    from all others, and two copies would end up in one building.
    """
    storage = [name for name in names if taken.roles.get(name) is Role.STORAGE]
    for key in DOMAINS:
        told = [name for name in storage if document.has(("nodes", name, key))]
        for name in storage:
            if told and name not in told:
                document.note(
                    "SAN-CONF-046",
                    ("nodes", name, key),
                    f"is missing, and told of {', '.join(told)}",
                    "tell it of every storage node, or of none",
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
