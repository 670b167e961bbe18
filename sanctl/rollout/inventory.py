# SPDX-License-Identifier: GPL-2.0-or-later
"""The Ansible inventory's groups and variables: checked for the rollout, turned into cluster.toml.

The rollout's only validator: an inventory that passes gives a file that nodes accept, because both
are checked by `sanctl.config.cluster`. Messages name hosts and variables of the inventory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sanctl.config.cluster import SCHEMA, examine, render
from sanctl.config.document import Document, Path
from sanctl.config.nodes import FAILURE_DOMAINS, NETWORKS
from sanctl.model.pool_cache import mount_unit_name
from sanctl.model.topology import RISK_NO_FENCING, NodeRole, Strategy
from sanctl.rollout.backup_variables import check_backups
from sanctl.rollout.corosync_variables import check_corosync
from sanctl.rollout.fencing_variables import FENCE_VARIABLES, check_fencing
from sanctl.rollout.sbd_reach_variables import check_reach, check_sbd
from sanctl.rollout.site_variables import SITES, check_sites

NODES = "sanctl_nodes"
STORAGE = "sanctl_storage"
WITNESS = "sanctl_witness"
QNETD = "sanctl_qnetd"
HOSTS = "sanctl_hosts"
#: That storage nodes may be in `sanctl_hosts`, too.
NODES_ARE_HOSTS = "sanctl_nodes_are_hosts"

_CLUSTER_VARIABLES = {
    "name": "sanctl_cluster_name",
    "iqn_prefix": "sanctl_iqn_prefix",
    "strategy": "sanctl_strategy",
    "accept_risks": "sanctl_accept_risks",
}
_NODE_VARIABLES = {
    "id": "sanctl_node_id",
    "iscsi": "sanctl_iscsi",
    "sync": "sanctl_sync",
    "heartbeat": "sanctl_heartbeat",
    "site": "sanctl_site",
    "rack": "sanctl_rack",
    "power": "sanctl_power",
    **FENCE_VARIABLES,
}


def read_inventory(
    hostvars: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Check the whole inventory and return what the rollout needs of it.

    Returns:
        `problems`, one line each; if there are none also `cluster_toml`, the file's text,
        `nodes`, in the order of their ids, with name, id, role, sync and heartbeat, `pools`,
        with name, path, uuid and nodes, and with a flash cache the `unit` of its mount, `strategy`,
        `tally`, the vote mode of that strategy, `qnetd`, the quorum device's host if there is one,
        `sites`, as `check_sites` returns them, `has_fencing`, and `own_hosts`, the storage nodes
        that are hosts themselves.
    """
    names = [str(name) for name in groups.get(NODES, ())]
    document = Document(_tree(names, hostvars, groups), _place)
    _check_groups(document, groups)
    own_hosts = _own_hosts(document, hostvars, groups)
    if not names:
        document.note("SAN-CONF-022", ("groups", NODES), "has no hosts")
        return {"problems": [str(problem) for problem in document.problems]}
    _check_agreement(document, names, hostvars)
    topology = examine(document)
    has_sbd = check_sbd(document, names, hostvars)
    check_reach(document, names, hostvars)
    check_corosync(document, names, hostvars)
    is_risk_accepted = topology is not None and RISK_NO_FENCING in topology.accepted_risks
    has_fencing = check_fencing(
        document, names, hostvars, has_sbd=has_sbd, may_lack=is_risk_accepted
    )
    sites = check_sites(document, hostvars, groups)
    backups = check_backups(document, hostvars, [str(name) for name in groups.get(STORAGE, ())])
    if topology is None or document.problems:
        return {"problems": [str(problem) for problem in document.problems]}
    return {
        "problems": [],
        "cluster_toml": render(topology),
        "nodes": [
            {
                "name": str(node.name),
                "id": node.id,
                "role": str(node.role),
                "sync": str(node.sync),
                "heartbeat": str(node.heartbeat),
            }
            for node in topology.nodes
        ],
        "pools": [
            {
                "name": str(pool.name),
                "path": str(pool.path),
                "uuid": pool.uuid,
                "nodes": [str(node) for node in pool.nodes],
                **({"unit": mount_unit_name(str(pool.path))} if pool.cache is not None else {}),
            }
            for pool in topology.pools
        ],
        "strategy": topology.strategy.value,
        "tally": str(topology.vote_mode),
        "qnetd": next((str(name) for name in groups.get(QNETD, ())), ""),
        "sites": sites,
        "backups": backups,
        "has_fencing": has_fencing or has_sbd,
        "own_hosts": own_hosts,
    }


def _place(path: Path) -> str:
    """Name the inventory's group, host or variable that a path of the tree comes from."""
    match path:
        case ("groups", group):
            return f"group {group}"
        case ("qdevice", *_):
            return f"group {QNETD}: sanctl_qnetd_address"
        case ("nodes",):
            return f"group {NODES}"
        case ("nodes", host):
            return f"host {host}"
        case ("nodes", host, "role"):
            return f"host {host}"
        case ("nodes", host, key, *rest):
            return ".".join((f"host {host}: {_NODE_VARIABLES.get(key, key)}", *rest))
        case ("sites", host, key):
            return f"host {host}: sanctl_second_site_{key}"
        case ("variable", key):
            return key
        case ("cluster", key):
            return _CLUSTER_VARIABLES.get(key, key)
        case ("networks", name, "cidr"):
            return f"sanctl_networks.{name}"
    return ".".join((f"sanctl_{path[0]}", *path[1:]))


def _tree(
    names: Sequence[str],
    hostvars: Mapping[str, Mapping[str, Any]],
    groups: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Return the inventory's variables as the tree of a cluster.toml."""
    shared = hostvars[names[0]] if names else {}
    cluster = {key: shared.get(variable) for key, variable in _CLUSTER_VARIABLES.items()}
    cluster["strategy"] = cluster["strategy"] or Strategy.NODE_MAJORITY.value
    networks = shared.get("sanctl_networks")
    if isinstance(networks, Mapping):
        networks = {
            str(name): {"cidr": cidr} for name, cidr in networks.items() if cidr is not None
        }
    devices = [str(name) for name in groups.get(QNETD, ())]
    return {
        "schema": SCHEMA,
        "cluster": cluster,
        "qdevice": {"host": hostvars[devices[0]].get("sanctl_qnetd_address")} if devices else None,
        "networks": networks,
        "nodes": {name: _node(name, hostvars[name], groups) for name in names},
        "pools": shared.get("sanctl_pools"),
    }


def _node(
    name: str, variables: Mapping[str, Any], groups: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    role = None
    if name in groups.get(STORAGE, ()):
        role = NodeRole.STORAGE.value
    elif name in groups.get(WITNESS, ()):
        role = NodeRole.WITNESS.value
    keys = ("id", *NETWORKS, *FAILURE_DOMAINS, "power")
    return {"role": role, **{key: variables.get(_NODE_VARIABLES[key]) for key in keys}}


def _check_groups(document: Document, groups: Mapping[str, Sequence[str]]) -> None:
    for one, other in ((STORAGE, WITNESS), (WITNESS, HOSTS), (NODES, QNETD), (NODES, SITES)):
        for name in sorted({*groups.get(one, ())} & {*groups.get(other, ())}):
            document.note("SAN-CONF-034", ("nodes", name), f"is in {one} and in {other}")
    if len(groups.get(QNETD, ())) > 1:
        document.note("SAN-CONF-037", ("groups", QNETD), "a cluster has one quorum device")
    for group in (STORAGE, WITNESS):
        for name in sorted({*groups.get(group, ())} - {*groups.get(NODES, ())}):
            document.note(
                "SAN-CONF-034", ("nodes", name), f"is in {group} but not in its parent {NODES}"
            )


def _own_hosts(
    document: Document,
    hostvars: Mapping[str, Mapping[str, Any]],
    groups: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return the storage nodes that are hosts themselves; note those that are so by mistake."""
    storage = [str(name) for name in groups.get(STORAGE, ())]
    hosts = {*groups.get(HOSTS, ())}
    asked = set()
    for name in storage:
        value = hostvars[name].get(NODES_ARE_HOSTS, False)
        if not isinstance(value, bool):
            document.note(
                "SAN-CONF-052",
                ("nodes", name),
                f"{NODES_ARE_HOSTS} is {value!r}",
                "it is true or false",
            )
        elif value:
            asked.add(name)
        elif name in hosts:
            document.note(
                "SAN-CONF-034",
                ("nodes", name),
                f"is in {STORAGE} and in {HOSTS}",
                f"if it is to use the devices itself, set {NODES_ARE_HOSTS}: true for {NODES}, "
                "after docs/howto/hyperconverged.md",
            )
    if asked and not asked & hosts:
        document.note(
            "SAN-CONF-052",
            ("groups", HOSTS),
            f"has no storage node, and {NODES_ARE_HOSTS} is true",
            f"list the storage nodes that use the devices themselves in {HOSTS}, too",
        )
    return [name for name in storage if name in asked & hosts]


def _check_agreement(
    document: Document, names: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]
) -> None:
    for variable in (*_CLUSTER_VARIABLES.values(), "sanctl_networks", "sanctl_pools"):
        first = hostvars[names[0]].get(variable)
        for name in names[1:]:
            if hostvars[name].get(variable) != first:
                document.note(
                    "SAN-CONF-035",
                    ("nodes", name),
                    f"{variable} is not the same as on {names[0]}",
                    f"set it once, for the group {NODES}",
                )
