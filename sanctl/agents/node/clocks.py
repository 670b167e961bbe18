# SPDX-License-Identifier: GPL-2.0-or-later
"""Field that the pool agent publishes of other nodes' clocks that are seconds off from this one.

`sanctl status` runs on one node and sees attributes of unknown age, so a node's time cannot be
published: both clocks have to be read at one moment. The nodes' kernels answer ICMP timestamp
requests, also on a witness, where no agent of sanctl's runs, and on a node of an earlier release;
sanctl's own connections (7798, 7799) are there for some devices only. Only an offset beyond a limit
is published, so nothing changes while clocks are right. The clock of a node that does not answer (a
firewall, addresses of IPv6) is not known to be wrong; offsets of whole days are not seen.
"""

from __future__ import annotations

import contextlib
import os

from sanctl.agents import cluster_toml
from sanctl.drivers import icmp_clock
from sanctl.errors import SanctlError
from sanctl.model.clock_offset import format_offsets, parse_offsets
from sanctl.plan.health.clock_offsets import beyond_limit, to_publish
from sanctl.system import journal, state_files

#: Between two looks. A clock that is off at two of them is published: one may be being set.
_EVERY_S = 60.0
_ANSWER_S = 0.5


def field() -> str:
    """Return the field to publish, after a blank; empty where no clock is known to be off.

    An error is logged, and the field is that of the last look then.
    """
    said = ""
    try:
        note = state_files.of_node("clock-offsets")
        age_s = note.age_s()
        text = note.read()
        before, _, said = text.partition(" ")
        if age_s is None or not 0.0 <= age_s < _EVERY_S:
            # First: where there can be no socket each monitor would log it.
            with contextlib.suppress(OSError):  # /run may be full: the one below says so
                note.write(text)
            offsets = _offsets()
            seen = beyond_limit(offsets)
            published = to_publish(
                seen, parse_offsets(before), parse_offsets(said), answered=offsets.keys()
            )
            said = format_offsets(published)
            note.write(f"{format_offsets(seen)} {said}")
    except (SanctlError, OSError) as error:
        journal.write(
            f"whether other nodes' clocks are off is not known: {error}",
            priority=journal.WARNING,
            action="clocks",
        )
    return f" clock-off={said}" if said else ""


def _offsets() -> dict[int, float]:
    here = os.uname().nodename
    peers = {}
    for node in cluster_toml.load_topology().nodes:
        addresses = [each for each in (node.sync, node.heartbeat) if each.version == 4]
        if str(node.name) != here and addresses:
            peers[str(addresses[0])] = node.id
    found = icmp_clock.offsets_s(peers, within_s=_ANSWER_S) if peers else {}
    return {peers[address]: offset for address, offset in found.items()}
