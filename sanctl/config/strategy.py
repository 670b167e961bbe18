# SPDX-License-Identifier: GPL-2.0-or-later
"""The failover strategy, accepted risks and quorum device of cluster.toml, against its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from sanctl.config.document import Document
from sanctl.config.nodes import MAX_NODES, Claims
from sanctl.model.topology import RISK_NO_FENCING, RISK_SOFTDOG, Address, NodeRole, Strategy

_RISKS = (RISK_NO_FENCING, RISK_SOFTDOG)


def read_strategy(document: Document) -> Strategy | None:
    """Return the strategy, None where it is missing or not known."""
    path = ("cluster", "strategy")
    text = document.text(path)
    if text is None:
        return None
    try:
        return Strategy(text)
    except ValueError:
        document.note(
            "SAN-CONF-019", path, f"{text!r} is not known", f"one of: {', '.join(Strategy)}"
        )
        return None


def read_risks(document: Document, strategy: Strategy | None) -> tuple[str, ...]:
    """Return the codes of the risks that the operator accepts."""
    path = ("cluster", "accept_risks")
    codes = document.texts(path) or ()
    for code in codes:
        if code not in _RISKS:
            document.note_unknown(
                "SAN-CONF-038",
                path,
                f"{code!r} is not the code of a risk that can be accepted",
                f"known: {', '.join(_RISKS)}",
            )
    if RISK_NO_FENCING in codes and strategy is Strategy.NODE_MAJORITY:
        document.note(
            "SAN-CONF-038",
            path,
            f"{RISK_NO_FENCING} is a risk of the strategy heartbeat only",
            "remove it: node-majority does not use it",
        )
    return tuple(sorted(set(codes) & set(_RISKS)))


def read_qdevice(document: Document, taken: Claims) -> Address | None:
    """Return the address of the host that runs corosync-qnetd, if there is one."""
    if not document.has(("qdevice",)):
        return None
    document.table(("qdevice",), known=("host",))
    path = ("qdevice", "host")
    text = document.text(path)
    if text is None:
        return None
    try:
        address = ip_address(text)
    except ValueError:
        document.note("SAN-CONF-009", path, f"{text!r} is not an IP address")
        return None
    if address in taken.addresses:
        document.note(
            "SAN-CONF-011",
            path,
            f"{address} is also that of {taken.addresses[address]}",
            "a quorum device on a node is lost together with that node's own vote",
        )
    return address


def check_nodes(
    document: Document, names: Sequence[str], taken: Claims, strategy: Strategy | None
) -> None:
    """Add the problems of nodes that do not go with the strategy."""
    roles = [taken.roles.get(name) for name in names]
    witnesses = roles.count(NodeRole.WITNESS)
    has_qdevice = document.has(("qdevice",))
    if all(role is NodeRole.WITNESS for role in roles):
        document.note("SAN-CONF-022", ("nodes",), "there is no storage node")
    if len(names) > MAX_NODES:
        document.note("SAN-CONF-022", ("nodes",), f"{len(names)} nodes; at most {MAX_NODES}")
    if strategy is Strategy.NODE_MAJORITY and len(names) == 2 and not has_qdevice:
        document.note(
            "SAN-CONF-020",
            ("nodes",),
            "two nodes have no majority once one of them is lost",
            "add a third server with the role witness, or a quorum device; or choose heartbeat",
        )
    if strategy is Strategy.HEARTBEAT and (len(names) != 2 or witnesses):
        document.note(
            "SAN-CONF-036",
            ("nodes",),
            f"heartbeat is for two storage nodes, here are {len(names) - witnesses}"
            + (f" and {witnesses} witness" if witnesses else ""),
            "with more votes than two, choose node-majority",
        )
    if has_qdevice and (witnesses or len(names) % 2):
        document.note(
            "SAN-CONF-037",
            ("qdevice",),
            f"its vote would make the {len(names)} votes of the nodes an even number",
            "a quorum device goes with an even number of storage nodes and no witness",
        )
