# SPDX-License-Identifier: GPL-2.0-or-later
"""The cluster that runs against the inventory: what the rollout must not change under it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sanctl.errors import CommandError
from sanctl.model.vote_mode import VoteMode, Votes
from sanctl.parse.corosync import parse_quorumtool
from sanctl.parse.xml_output import parse_xml

_Member = tuple[str, str, str]
# Of those that the rollout writes, what Corosync takes with a reload.
_TIMEOUTS = ("token", "token_coefficient", "consensus")


def watchdog_rule(timeouts: Iterable[str], wait_s: int) -> str:
    """Return the rule for stonith-watchdog-timeout: `raise` until it may become shorter, then ``.

    Pacemaker ends on a node where twice the watchdog timeout that it was started with is longer
    than the property; and a wait below what a node's SBD needs is no proof that the node is gone.

    Args:
        timeouts: of every node, the longest that its SBD and Pacemaker run with, in seconds, as
            text; empty where it is not known.
        wait_s: the property that the inventory asks for.
    """
    is_known = all(text.strip().isdigit() and 2 * int(text) <= wait_s for text in timeouts)
    return "" if is_known else "raise"


def members_of(cmap: str, cluster: str) -> frozenset[str]:
    """Return the names in the running Corosync's list of nodes; none of another cluster's.

    Args:
        cmap: output of `corosync-cmapctl`, empty while Corosync does not run.
        cluster: the cluster's name.
    """
    return frozenset(_cmap_members(cmap, cluster))


def list_changes(
    conf: str,
    cmap: str,
    cluster: str,
    nodes: Sequence[Mapping[str, Any]],
    *,
    times: Mapping[str, int],
) -> list[str]:
    """Say in what a node's corosync.conf and its running Corosync differ from the inventory.

    In their lists of nodes, and in the times that all members have to have alike.

    Args:
        conf: the node's corosync.conf, empty if there is none.
        cmap: output of `corosync-cmapctl`, empty while Corosync does not run.
        cluster: the cluster's name; what belongs to another cluster says nothing.
        nodes: those of the inventory, with name, id, heartbeat and sync.
        times: in milliseconds, by their names in corosync.conf.
    """
    wanted = _inventory_members(nodes)
    found: set[str] = set()
    if members := _conf_members(conf, cluster):
        found |= {*_changes(members, wanted), *_time_changes(_conf_times(conf), times)}
    if members := _cmap_members(cmap, cluster):
        keys = _keys(cmap)
        running = {name: keys[f"totem.{name}"] for name in times if f"totem.{name}" in keys}
        # One that Corosync does not name was not in its file, which says so.
        known = {name: times[name] for name in running}
        found |= {*_changes(members, wanted), *_time_changes(running, known)}
    return sorted(found)


def readdressed(cmap: str, cluster: str, nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say which members of the running Corosync have another id or address in the inventory.

    Corosync does not take such a change while it runs, and the other cluster software takes it
    only when it is started.
    """
    wanted = _inventory_members(nodes)
    return [
        f"{name} runs with {_text(member)} and has {_text(wanted[name])} in the inventory"
        for name, member in sorted(_cmap_members(cmap, cluster).items())
        if name in wanted and wanted[name] != member
    ]


def not_loaded(conf: str, cmap: str, cluster: str) -> list[str]:
    """Say what of a corosync.conf the running Corosync has not loaded: its nodes and timeouts."""
    running = _keys(cmap)
    members = _cmap_members(cmap, cluster)
    if not members:
        return []
    found = _changes(members, _conf_members(conf, cluster))
    for name, wanted in _conf_times(conf).items():
        now = running.get(f"totem.{name}", "")
        if now and now != wanted:
            found.append(f"totem.{name} is {now} and not {wanted}")
    return found


def short_of_votes(
    status: str,
    cmap: str,
    cluster: str,
    nodes: Sequence[Mapping[str, Any]],
    tally: VoteMode,
    *,
    will_vote: bool = False,
) -> str:
    """Say why the members that run would lose quorum once they load a longer list of nodes.

    A listed node counts among the expected votes from the reload on, before it has joined; and
    without quorum Pacemaker stops every device. Where there is no quorum now, nothing is lost.

    Args:
        status: output of `corosync-quorumtool -s`, empty while Corosync does not run.
        cmap: output of `corosync-cmapctl`, empty while Corosync does not run.
        cluster: the cluster's name; a Corosync of another cluster says nothing.
        nodes: those of the inventory, each with a vote.
        tally: how the list is counted when it is loaded.
        will_vote: the quorum device is waited for before the list is loaded.
    """
    listed = _cmap_members(cmap, cluster)
    if not listed or not {str(node["name"]) for node in nodes} - {*listed}:
        return ""
    if not re.search(r"^Quorate:", status, re.MULTILINE):
        return (
            f"Corosync runs, and does not say which votes it has, so that it is not known whether"
            f" a list of {len(nodes)} nodes leaves it with quorum: run the playbook again"
        )
    seen = parse_quorumtool(status)
    device = int(tally.votes is Votes.QDEVICE)
    has = len(seen.members) + (device if will_vote or seen.has_device_vote else 0)
    if not seen.is_quorate or _quorum(len(nodes) + device) <= has:
        return ""
    more = max(
        (count for count in range(len(nodes)) if _quorum(len(listed) + count + device) <= has),
        default=0,
    )
    return (
        f"a list of {len(nodes)} nodes needs {_quorum(len(nodes) + device)} votes, and {has} are"
        f" there until the new nodes have joined: the nodes that serve would lose quorum, and stop"
        " every device. "
        + (
            f"Add at most {more} in one run"
            if more
            else "Bring back the members that are away"
            + (", and the quorum device's vote" if device else "")
            + ", before nodes are added"
        )
    )


def _quorum(votes: int) -> int:
    """Return how many of so many expected votes are a quorum."""
    return votes // 2 + 1


def lost_pools(cib: str, pools: Iterable[str]) -> list[str]:
    """Say which pools the cluster's devices are in and the inventory does not have.

    Args:
        cib: `cibadmin --query` for the devices' parameters `pool`; empty while Pacemaker does not
            answer, or where there are no devices.
        pools: the names of the inventory's pools.
    """
    try:
        pairs = list(parse_xml(cib, "cibadmin").iter("nvpair")) if cib.strip() else []
    except CommandError:
        return ["what Pacemaker says of its devices cannot be read"]
    devices: dict[str, list[str]] = {}
    for pair in pairs:
        pool, name = pair.get("value", ""), pair.get("id", "").removesuffix("-params-pool")
        if pair.get("name") == "pool" and pool not in {*pools}:
            devices.setdefault(pool, []).append(name)
    return [f"pool {pool}, with {_some(sorted(names))}" for pool, names in sorted(devices.items())]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _text(member: _Member) -> str:
    return f"id {member[0]}, {member[1]} and {member[2]}"


def _changes(present: Mapping[str, _Member], wanted: Mapping[str, _Member]) -> list[str]:
    return [
        f"{name} is new"
        if name not in present
        else f"{name} is left out"
        if name not in wanted
        else f"{name} has another id or address"
        for name in sorted({*present} | {*wanted})
        if present.get(name) != wanted.get(name)
    ]


def _conf_times(conf: str) -> dict[str, str]:
    found = {name: re.search(rf"^\s*{name}: (\d+)\s*$", conf, re.MULTILINE) for name in _TIMEOUTS}
    return {name: match[1] for name, match in found.items() if match}


def _time_changes(present: Mapping[str, str], wanted: Mapping[str, int]) -> list[str]:
    return [
        f"{name} is {present.get(name, 'not set')} and becomes {value}"
        for name, value in wanted.items()
        if present.get(name) != str(value)
    ]


def _inventory_members(nodes: Sequence[Mapping[str, Any]]) -> dict[str, _Member]:
    return {
        str(node["name"]): (str(node["id"]), str(node["heartbeat"]), str(node["sync"]))
        for node in nodes
    }


def _conf_members(text: str, cluster: str) -> dict[str, _Member]:
    if not re.search(rf"^\s*cluster_name: {re.escape(cluster)}\s*$", text, re.MULTILINE):
        return {}
    blocks = re.findall(r"^\s*node \{([^}]*)\}", text, re.MULTILINE)
    pairs = [dict(re.findall(r"^\s*(\w+): (\S+)\s*$", block, re.MULTILINE)) for block in blocks]
    return {each["name"]: _member(each) for each in pairs if "name" in each}


def _cmap_members(text: str, cluster: str) -> dict[str, _Member]:
    keys = _keys(text)
    if keys.get("totem.cluster_name") != cluster:
        return {}
    nodes: dict[str, dict[str, str]] = {}
    for key, value in keys.items():
        if match := re.fullmatch(r"nodelist\.node\.(\d+)\.(\w+)", key):
            nodes.setdefault(match[1], {})[match[2]] = value
    return {each["name"]: _member(each) for each in nodes.values() if "name" in each}


def _member(pairs: Mapping[str, str]) -> _Member:
    return (
        pairs.get("nodeid", ""),
        pairs.get("ring0_addr", ""),
        pairs.get("ring1_addr", ""),
    )


def _keys(text: str) -> dict[str, str]:
    return dict(re.findall(r"^(\S+) \(\w+\) = (.*)$", text, re.MULTILINE))
