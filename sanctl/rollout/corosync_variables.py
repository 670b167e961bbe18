# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks an inventory's times for Corosync: the consensus has to outlast the token.

Corosync takes any consensus. One that is shorter than 1.2 times the token ends while nodes still
wait for a token that is lost: healthy ones are left out of the membership, and fenced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sanctl.config.document import Document
from sanctl.rollout.sbd_reach_variables import check_same

CODE = "SAN-CONF-051"
TOKEN = "sanctl_corosync_token_ms"  # noqa: S105 - Corosync's, and no secret
COEFFICIENT = "sanctl_corosync_token_coefficient_ms"
CONSENSUS = "sanctl_corosync_consensus_ms"

#: What the role has where the inventory says nothing. Without a consensus it is the least one.
DEFAULTS = {TOKEN: 1500, COEFFICIENT: 0}
_LEAST = {TOKEN: 1, COEFFICIENT: 0, CONSENSUS: 1}


def least_consensus_ms(token_ms: int, coefficient_ms: int, nodes: int) -> int:
    """Return 1.2 times the token that Corosync has with so many nodes, in milliseconds.

    Source: corosync.conf(5), token_coefficient and consensus.
    """
    whole_ms = token_ms + coefficient_ms * max(0, nodes - 2)
    return (12 * whole_ms + 9) // 10


def check_corosync(
    document: Document, names: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]
) -> None:
    """Add the problems of Corosync's times."""
    check_same(document, names, hostvars, (TOKEN, COEFFICIENT, CONSENSUS))
    shared = hostvars[names[0]]
    times: dict[str, int] = {**DEFAULTS}
    for name, least in _LEAST.items():
        value = shared.get(name)
        if value is None:
            continue
        number = _number(value)
        if number is None or number < least:
            document.note(CODE, ("variable", name), f"{value!r} is no number of milliseconds")
            return
        times[name] = number
    needed_ms = least_consensus_ms(times[TOKEN], times[COEFFICIENT], len(names))
    consensus_ms = times.get(CONSENSUS, needed_ms)
    if consensus_ms < needed_ms:
        document.note(
            CODE,
            ("variable", CONSENSUS),
            f"{consensus_ms} ms is less than 1.2 times the token, which is {needed_ms} ms with "
            f"{len(names)} nodes",
            "leave it out: then it follows the token",
        )


def _number(value: object) -> int | None:
    """Return a number; as a text, too, which `--extra-vars token=5000` makes of it."""
    if isinstance(value, str) and value.strip().isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
