# SPDX-License-Identifier: GPL-2.0-or-later
"""Ansible filters: inventory survey, votes, release name, agent programs, second sites."""

from __future__ import annotations

import base64
import hashlib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

# In a checkout this file is ansible/plugins/filter/inventory.py, reached through a link or not.
_CHECKOUT = Path(__file__).resolve().parents[3]


def _import(module: str) -> Any:
    """Return a module of sanctl, from the checkout around this file or the controller's Python."""
    if sys.version_info < (3, 11):
        raise AnsibleFilterError("ansible-playbook must run with Python 3.11 or newer")
    # A checkout's playbook uses the checkout's sanctl, even if another one is installed.
    if (_CHECKOUT / "sanctl" / "config").is_dir() and str(_CHECKOUT) not in sys.path[:1]:
        sys.path.insert(0, str(_CHECKOUT))
    try:
        return importlib.import_module(module)
    except ImportError:
        raise AnsibleFilterError(
            f"the Python that runs ansible-playbook ({sys.executable}) has no sanctl:"
            " install its wheel there (pip install sanctl-*.whl), or run from a checkout"
        ) from None


def survey(
    hostvars: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return what is wrong with the inventory, or what the rollout needs to know of it.

    There is one validator, the one that also guards cluster.toml on the nodes.
    """
    return _import("sanctl.rollout.inventory").read_inventory(hostvars, groups)


def tally(contents: Sequence[str], cluster: str, target: str) -> str:
    """Return how a cluster counts votes already, or is to count them if there is none yet.

    Args:
        contents: every node's corosync.conf in base64, empty where there is none.
        cluster: the cluster's name.
        target: how votes are to be counted.
    """
    return str(_tally(contents, cluster, target))


def quorum_section(
    contents: Sequence[str],
    cluster: str,
    target: str,
    count: int,
    is_check: bool = False,
) -> str:
    """Return the section `quorum` for corosync.conf of a cluster of so many nodes.

    A running cluster is taken from one way to count to another by `sanctl cluster strategy set`,
    step by step; what the rollout writes into corosync.conf is how it counts now.

    Args:
        contents: every node's corosync.conf in base64, empty where there is none.
        cluster: the cluster's name.
        target: how votes are to be counted.
        count: how many nodes corosync.conf lists.
        is_check: whether nothing is changed, so that a cluster counts as one does that has given
            up the rule of two nodes where the run would have it do so first.

    Raises:
        AnsibleFilterError: the rule of two nodes for another number of nodes: any two of four
            would have quorum (votequorum counts one vote as enough while two are present).
    """
    now = _tally(contents, cluster, target)
    two = _import("sanctl.model.vote_mode").Votes.TWO_NODE
    if now.votes is two and count != 2 and is_check:
        now = _import("sanctl.model.vote_mode").VoteMode.parse(target)
    if now.votes is two and count != 2:
        raise AnsibleFilterError(
            f"corosync.conf counts by two_node, and the inventory has {count} nodes: parts of two"
            " nodes would each have quorum. Nothing was written. Have the cluster of two give it"
            " up first: `sanctl cluster strategy set node-majority` (docs/howto/strategies.md)"
        )
    section: str = _import("sanctl.render.corosync").quorum_section(now)
    return section


def _tally(contents: Sequence[str], cluster: str, target: str) -> Any:
    parse = _import("sanctl.parse.corosync").parse_conf_vote_mode
    found = [
        parse(text)
        for text in (base64.b64decode(content).decode() for content in contents)
        if f"cluster_name: {cluster}\n" in text
    ]
    present = [each for each in found if each is not None]
    if found and not present:
        raise AnsibleFilterError(
            "corosync.conf counts votes in a way that sanctl does not know: put the section"
            " `quorum` right by hand (docs/howto/strategies.md), or remove the file everywhere"
        )
    return present[0] if present else _import("sanctl.model.vote_mode").VoteMode.parse(target)


def release(wheel: str) -> str:
    """Return the folder name of a wheel: its version and the start of its digest."""
    path = Path(wheel)
    parts = path.name.split("-")
    if path.suffix != ".whl" or parts[0] != "sanctl" or len(parts) < 5:
        raise AnsibleFilterError(f"{wheel} is not a wheel of sanctl")
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise AnsibleFilterError(f"{wheel}: {error.strerror}") from error
    return f"{parts[1]}-{digest[:12]}"


def programs(source: str, target: str) -> list[dict[str, str]]:
    """Return the programs of a folder as the module `files` takes them, to be put into `target`."""
    files = sorted(path for path in Path(source).iterdir() if path.is_file())
    if not files:
        raise AnsibleFilterError(f"{source} is empty")
    return [
        {
            "path": f"{target}/{path.name}",
            "content": path.read_text(encoding="utf-8"),
            "mode": "0755",
        }
        for path in files
        if not path.name.startswith(".")
    ]


def mount_units(paths: Sequence[str]) -> list[str]:
    """Return the systemd units of the mounts that these paths may lie on, each once."""
    units_at = _import("sanctl.model.pool_cache").mount_units_at
    return sorted({unit for path in paths for unit in units_at(path)})


def list_changes(
    conf: str,
    cmap: str,
    cluster: str,
    nodes: Sequence[Mapping[str, Any]],
    times: Mapping[str, int],
) -> list[str]:
    """Say in what a node has another list of members, or other times, than the inventory."""
    wanted = {name: int(value) for name, value in times.items()}
    found: list[str] = _running().list_changes(conf, cmap, cluster, nodes, times=wanted)
    return found


def readdressed(cmap: str, cluster: str, nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say which running members have another id or address in the inventory."""
    found: list[str] = _running().readdressed(cmap, cluster, nodes)
    return found


def not_loaded(conf: str, cmap: str, cluster: str) -> list[str]:
    """Say what of a corosync.conf the running Corosync has not loaded."""
    found: list[str] = _running().not_loaded(conf, cmap, cluster)
    return found


def short_of_votes(  # noqa: PLR0917 - a filter's
    status: str,
    cmap: str,
    cluster: str,
    nodes: Sequence[Mapping[str, Any]],
    now: str,
    target: str,
    leaves: bool,
) -> str:
    """Say why the members that run would lose quorum by the inventory's list of nodes.

    Args:
        status: output of `corosync-quorumtool -s` on a node.
        cmap: output of `corosync-cmapctl` there.
        cluster: the cluster's name.
        nodes: the inventory's.
        now: how the cluster counts votes.
        target: how it is to.
        leaves: whether it is taken to that before the list is loaded, a quorum device's vote waited
            for.
    """
    mode = _import("sanctl.model.vote_mode").VoteMode.parse(target if leaves else now)
    found: str = _running().short_of_votes(status, cmap, cluster, nodes, mode, will_vote=leaves)
    return found


def newcomers(cmaps: Sequence[str], cluster: str, nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say which nodes of the inventory a running Corosync does not list; none if none runs."""
    return list(_import("sanctl.rollout.new_nodes").newcomers(cmaps, cluster, nodes))


def fencing_of(configuration: str, nodes: Sequence[str]) -> dict[str, Any]:
    """Return the part of the CIB's configuration, and its ids, by which these nodes are fenced."""
    found: dict[str, Any] = _import("sanctl.rollout.new_nodes").fencing_of(configuration, nodes)
    return found


def shared_fencing(configuration: str) -> str:
    """Return the part of the CIB's configuration by which a disk of SBD fences all nodes."""
    return str(_import("sanctl.rollout.new_nodes").shared_fencing(configuration))


def lost_pools(cib: str, pools: Sequence[str]) -> list[str]:
    """Say which pools the cluster's devices are in and the inventory does not have."""
    found: list[str] = _running().lost_pools(cib, pools)
    return found


def cut_off(listed: str, cluster: str, count: int) -> list[str]:
    """Say which clusters may need the vote that a restart of corosync-qnetd takes."""
    found: list[str] = _import("sanctl.rollout.quorum_device").cut_off(listed, cluster, count)
    return found


def may_restart_client(status: str, cmap: str, count: int) -> bool:
    """Tell whether a node can do without the device's vote for a moment."""
    may: bool = _import("sanctl.rollout.quorum_device").may_restart_client(status, cmap, count)
    return may


def receivers(present: str, wheel: str, digests: Sequence[str] = ()) -> str:
    """Return the list of what a second site runs, in base64 as it is, with a wheel's receiver.

    Args:
        present: the list as it is, in base64.
        wheel: the wheel.
        digests: of the receivers that nodes send.
    """
    access = _access()
    try:
        digest = access.receiver_digest(wheel)
    except (OSError, ValueError) as error:
        raise AnsibleFilterError(str(error)) from error
    text: str = access.receivers(base64.b64decode(present).decode(), [*digests, digest])
    return text


def receiver_command(folder: str) -> list[str]:
    """Return what prints the digest of the receiver that the release in a node's folder sends."""
    found: list[str] = _access().digest_command("python3", folder)
    return found


def sent_receivers(results: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Say what nodes that were asked so send, and which nodes did not say."""
    found: dict[str, list[str]] = _access().sent_receivers(results)
    return found


def unrestricted(present: str, cluster: str, nodes: Sequence[str]) -> list[str]:
    """Return the nodes without a line of their own in authorized_keys, in base64 as it is."""
    text = base64.b64decode(present).decode(errors="surrogateescape")
    found: list[str] = _access().unrestricted(text, cluster, nodes)
    return found


def authorized_keys(  # noqa: PLR0917 - a filter's
    present: str,
    cluster: str,
    keys: Mapping[str, str],
    nodes: Sequence[str],
    command: str,
    unlisted: Sequence[str] = (),
) -> str:
    """Return a second site's authorized_keys, in base64 as it is, with the keys of the nodes."""
    text = base64.b64decode(present).decode(errors="surrogateescape")
    found: str = _access().authorized_keys(text, cluster, keys, nodes, command, unlisted=unlisted)
    return base64.b64encode(found.encode(errors="surrogateescape")).decode()


def site_changes(listed: str, sites: Sequence[Mapping[str, str]]) -> list[dict[str, object]]:
    """Say what makes the cluster's second sites those of the inventory."""
    found: list[dict[str, object]] = _access().site_changes(listed, sites)
    return found


def _access() -> Any:
    return _import("sanctl.rollout.site_access")


def _running() -> Any:
    return _import("sanctl.rollout.running_cluster")


def watchdog_rule(timeouts: Sequence[str], wait_s: int) -> str:
    """Return the rule of the module `cib` by which stonith-watchdog-timeout may change."""
    rule: str = _running().watchdog_rule(timeouts, int(wait_s))
    return rule


def sbd_refusals(
    states: Mapping[str, Any], unseen: Sequence[str], mode: str, disks: Sequence[str]
) -> list[str]:
    """Say why SBD's settings of the inventory must not be written now."""
    found: list[str] = _import("sanctl.rollout.sbd_change").sbd_refusals(
        states, unseen, mode, disks
    )
    return found


def sbd_unobeyed(
    watched: Sequence[str], mode: str, disks: Sequence[str], paths: Mapping[str, str]
) -> str:
    """Say why the cluster must not come to rely on a node's SBD as it runs."""
    reason: str = _import("sanctl.rollout.sbd_change").unobeyed(watched, mode, disks, paths)
    return reason


def names_of_disk(name: str, paths: Mapping[str, str]) -> list[str]:
    """Return the names of a disk on a node: this one, and others that lead to the same device."""
    found: list[str] = _import("sanctl.rollout.sbd_change").names_of_disk(name, paths)
    return found


def fence_times(
    timeout_s: int,
    mode: str,
    watchdog_s: int,
    msgwaits: Sequence[int] = (),
    present_wait: str = "",
) -> dict[str, int]:
    """Return how long a fencing with SBD may take: fence-sbd's own time, and stonith-timeout."""
    times = _import("sanctl.rollout.fence_times").fence_times(
        mode,
        int(timeout_s),
        int(watchdog_s),
        msgwaits=[int(each) for each in msgwaits],
        present_wait=present_wait,
    )
    return {"message_s": times.message_s, "whole_s": times.whole_s}


def longest_gap_s(listed: str) -> int:
    """Return the longest time between two moments of a calendar event; 0: there are no two."""
    gap_s: int = _import("sanctl.rollout.calendar_gap").longest_gap_s(listed)
    return gap_s


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name the filters."""
        return {
            "survey": survey,
            "tally": tally,
            "quorum_section": quorum_section,
            "release": release,
            "programs": programs,
            "mount_units": mount_units,
            "watchdog_rule": watchdog_rule,
            "fence_times": fence_times,
            "sbd_refusals": sbd_refusals,
            "sbd_unobeyed": sbd_unobeyed,
            "names_of_disk": names_of_disk,
            "list_changes": list_changes,
            "readdressed": readdressed,
            "not_loaded": not_loaded,
            "short_of_votes": short_of_votes,
            "newcomers": newcomers,
            "fencing_of": fencing_of,
            "shared_fencing": shared_fencing,
            "lost_pools": lost_pools,
            "cut_off": cut_off,
            "may_restart_client": may_restart_client,
            "receivers": receivers,
            "receiver_command": receiver_command,
            "sent_receivers": sent_receivers,
            "unrestricted": unrestricted,
            "authorized_keys": authorized_keys,
            "site_changes": site_changes,
            "longest_gap_s": longest_gap_s,
        }
