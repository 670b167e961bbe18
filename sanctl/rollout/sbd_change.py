# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether the inventory's SBD is one that the cluster's fencing still reaches.

A node obeys the SBD that it was started with; the cluster counts on what its CIB says. Where the
two differ, a fencing is confirmed of a node that goes on:

* Without a disk a node is reset by its watchdog once it has lost quorum, and the others wait for
  that (`stonith-watchdog-timeout`). With one, SBD feeds the watchdog for as long as it reads a
  majority of its disks, whatever quorum says.
* With disks the others write a message (`fence_sbd`), and it counts as obeyed once it is on a
  majority of the CIB's disks and the time is over. Only a node that reads one of those gets it.

So the file that SBD is started with may not be changed away from what the CIB relies on: a node
that is restarted, or that boots by itself, would go by the new one alone.

A disk may have several names. Two are of one disk where they lead to one device on each node; with
a node that was not asked, only where they are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

State = Mapping[str, Any]


def reaches(written: Iterable[object], watched: Iterable[object]) -> bool:
    """Tell whether a message that a majority of disks has is read by a node for certain.

    The node goes on with a majority of its own disks and may have lost the others, and so may the
    writer: each majority of the one has to have a disk of each majority of the other. Of two disks
    SBD needs both to write, and one to go on.
    """
    ours, theirs = {*written}, {*watched}
    return bool(ours and theirs) and all(
        {*one} & {*other}
        for one in combinations(ours, len(ours) // 2 + 1)
        for other in combinations(theirs, 1 if len(theirs) == 2 else len(theirs) // 2 + 1)
    )


def sbd_refusals(
    states: Mapping[str, State], unseen: Collection[str], mode: str, disks: Sequence[str]
) -> list[str]:
    """Say why SBD's settings of the inventory must not be written now; empty if they may.

    Args:
        states: by node, what the module `sbd_state` returned.
        unseen: nodes of the cluster that take no part in the run: Corosync may run there.
        mode: `diskless` or `disk`.
        disks: those of the inventory, with mode `disk`.
    """
    if not unseen and not any(state["corosync"] for state in states.values()):
        return []
    cibs = {node: state["cib"] for node, state in sorted(states.items())}
    live = [cib for cib in cibs.values() if cib["source"] == "live"]
    unknown = [node for node, cib in cibs.items() if cib["source"] == "unknown"]
    if unknown and not live:
        return [f"what fencing relies on cannot be read from the CIB of {', '.join(unknown)}"]
    # A node whose Pacemaker is stopped may have an old one on disk.
    known = live or [cib for cib in cibs.values() if cib["source"] == "file"]
    latest = max(known, key=lambda cib: list(cib["version"]), default=None)
    if latest is not None and (live or _is_time(str(latest["wait"])) or latest["disks"]):
        paths = [] if unseen else [state.get("paths", {}) for state in states.values()]
        return _unmet(latest, mode, disks, paths)
    if unseen:
        # Those that were not asked may have come to rely on SBD since.
        return [
            f"Pacemaker answers on none of {', '.join(cibs)}, so what fencing relies on is not"
            " known: run the playbook without --limit"
        ]
    return []


def unobeyed(
    watched: Collection[str],
    mode: str,
    disks: Sequence[str],
    paths: Mapping[str, str] | None = None,
) -> str:
    """Say why the cluster must not come to rely on a node's SBD as it runs; empty if it may.

    Args:
        watched: the disks that the node's SBD was started with or watches.
        mode: `diskless` or `disk`.
        disks: those of the inventory, with mode `disk`.
        paths: the block devices behind names of disks on this node.
    """
    if mode == "diskless" and watched:
        return f"runs with {_some(watched)}: it does not reset the node when quorum is lost"
    known = [paths or {}]
    if mode == "disk" and not reaches(_disks(disks, known), _disks(watched, known)):
        return f"runs with {_some(watched)}: a message on {_some(disks)} may not reach it"
    return ""


def names_of_disk(name: str, paths: Mapping[str, str]) -> list[str]:
    """Return the names of a disk on a node: this one, and others that lead to the same device."""
    return [
        name,
        *sorted({each for each, path in paths.items() if path == paths.get(name)} - {name}),
    ]


def _disks(names: Iterable[str], paths: Sequence[Mapping[str, str]]) -> set[tuple[str, ...]]:
    """Return disks by what is behind their names on each node, or by the name alone."""
    return {
        tuple(each[name] for each in paths)
        if paths and all(name in each for each in paths)
        else (name,)
        for name in names
    }


def _unmet(
    cib: State, mode: str, disks: Sequence[str], paths: Sequence[Mapping[str, str]]
) -> list[str]:
    found = []
    if _is_time(str(cib["wait"])) and mode != "diskless":
        found.append(
            f"the cluster takes a lost node for reset after {cib['wait']}"
            " (stonith-watchdog-timeout), and with a disk SBD does not reset it then"
        )
    for written in cib["disks"]:
        wanted = disks if mode == "disk" else ()
        if not reaches(_disks(written, paths), _disks(wanted, paths)):
            found.append(
                f"the cluster fences by messages on {_some(written)}, and by the inventory nodes"
                f" read {_some(wanted)}"
            )
    return found


def _is_time(text: str) -> bool:
    """Tell whether a time of Pacemaker's is set; one that is negative, or not known, is."""
    return text.strip().rstrip("smec") not in {"", "0"}


def _some(disks: Collection[str]) -> str:
    return " and ".join(sorted(disks)) or "no disk"
