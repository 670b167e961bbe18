# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps the files of a dropped replica until another node serves its device from a good one.

A drop is planned while another replica is known to be good (plan/replicas/replica_safety.py), and
carried out later: seconds, or, on a node that was away, weeks. What was good may be lost by then,
and these files be the best there is. A device that is deleted is in the CIB no more, and none of
its files are kept.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from sanctl.drivers import cib
from sanctl.model.promotion_score import PRIMARY
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

#: One for each device whose files are kept: it has been logged.
_KIND = "dropped-kept"


def without_good_replica(runner: Runner, uuids: Mapping[str, str]) -> frozenset[str]:
    """Return those devices of which no node is known to serve a good replica; not deleted ones.

    Only a Primary with an UpToDate disk has its score (agents/connections/primary_node.py). Asked
    with quorum, or the CIB here may be out of date. One query where all are deleted, else two.

    `uuids`: the UUID of each device, by its name. A device of that name with another one is none of
    these.

    Raises:
        SanctlError: the cluster did not answer.
    """
    if not uuids:
        return frozenset()
    names = " or ".join(f"@id='{name}'" for name in uuids)
    found = cib.query(runner, f"//resources//primitive[{names}]")
    nodes: dict[str, set[str]] = {}
    for primitive in () if found is None else found.iter("primitive"):
        name = primitive.get("id", "")
        pairs = {pair.get("name"): pair.get("value", "") for pair in primitive.iter("nvpair")}
        if pairs.get("uuid") == uuids.get(name):
            nodes[name] = {*pairs.get("nodes", "").split()} - {os.uname().nodename}
    if not nodes:
        return frozenset()
    scores = " or ".join(f"@name='master-{name}'" for name in nodes)
    states = cib.query(runner, f"//node_state//nvpair[{scores}]/ancestor::node_state")
    served = {
        name
        for state in (() if states is None else states.iter("node_state"))
        for pair in state.iter("nvpair")
        if pair.get("value") == str(PRIMARY)
        and (name := pair.get("name", "").removeprefix("master-")) in nodes
        and state.get("uname") in nodes[name]
    }
    return frozenset(nodes.keys() - served)


def log_kept(device: str) -> None:
    """Log once that a dropped replica's files are kept."""
    note = _note(device)
    if note.exists():
        return
    # Without room for the note it is logged again.
    with contextlib.suppress(OSError):
        note.write()
    journal.write(
        f"{device}: this replica was dropped; its files stay until another node serves the device "
        "from a good replica",
        priority=journal.WARNING,
        device=device,
        action="delete-files",
        step="kept",
    )


def forget(device: str) -> None:
    """Remove the note that this has been logged."""
    _note(device).remove()


def _note(device: str) -> state_files.StateFile:
    return state_files.of_node(f"{_KIND}.{device}")
