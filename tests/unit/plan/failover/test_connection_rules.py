# SPDX-License-Identifier: GPL-2.0-or-later
"""Which connections count, and what a replica may do that has none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.failover import connection_rules


def _state(role: str, connection: str) -> ResourceState:
    peer = PeerState("peer", connection, "Unknown", "Off", "DUnknown", None)
    return ResourceState("vol1", role, "no", "UpToDate", None, (peer,))


@pytest.mark.parametrize(
    ("is_told", "is_noted", "has_met", "expected"),
    [
        (True, False, True, False),
        (True, True, False, False),
        (True, False, False, True),
        (False, True, True, True),
    ],
)
def test_a_connection_counts_once_its_peer_has_joined(
    is_told: bool, is_noted: bool, has_met: bool, expected: bool
) -> None:
    def said(is_sole_survivor: bool) -> bool:
        return connection_rules.is_never_connected(
            is_told=is_told, is_noted=is_noted, has_met=has_met, is_sole_survivor=is_sole_survivor
        )

    assert said(False) is expected and said(True) is False


@pytest.mark.parametrize(
    ("own", "connection", "disks", "expected"),
    [
        ("UpToDate", "Connecting", ["Outdated"], True),
        ("UpToDate", "StandAlone", ["Inconsistent"], True),
        ("UpToDate", "Connecting", ["Outdated", "Outdated"], True),
        ("UpToDate", "Connecting", ["Outdated", "DUnknown"], False),
        ("UpToDate", "Connecting", ["DUnknown"], False),
        # A disk that has failed says nothing of what is on it.
        ("UpToDate", "Connecting", ["Diskless"], False),
        ("UpToDate", "Connected", ["Outdated"], False),
        ("UpToDate", "Connecting", [], False),
        ("Consistent", "Connecting", ["Outdated"], False),
        ("Outdated", "Connecting", ["Outdated"], False),
    ],
)
def test_a_sole_survivor_knows_that_its_peers_are_behind(
    own: str, connection: str, disks: Sequence[str], expected: bool
) -> None:
    (peer,) = _state("Secondary", connection).peers
    peers = tuple(peer._replace(disk=disk) for disk in disks)
    state = _state("Secondary", connection)._replace(disk=own, peers=peers)
    assert connection_rules.is_sole_survivor(state) is expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"peers": ()}, True),  # 8.4 forgets a peer that it has given up.
        ({"role": "Secondary"}, False),
        ({"disk": "Consistent"}, False),
        ({"suspended": "fencing"}, False),
        ({"peers": _state("Primary", "Connected").peers}, False),
        ({"peers": _state("Primary", "Connecting").peers * 2}, False),
    ],
    ids=str,
)
def test_a_primary_that_serves_alone_has_every_write(
    change: dict[str, Any], expected: bool
) -> None:
    state = _state("Primary", "Connecting")._replace(**change)
    assert connection_rules.serves_alone(state) is expected


@pytest.mark.parametrize("reason", ["primary", "connected", "intersect", "member", "off", ""])
def test_a_replica_is_tried_where_the_handler_need_not_refuse_it(reason: str) -> None:
    said = connection_rules.may_try_promotion(
        is_primary=reason == "primary",
        is_never_connected=lambda: reason != "connected",
        quorums_intersect=lambda: reason == "intersect",
        is_beside_member=lambda: reason == "member",
        is_fencing_off=lambda: reason == "off",
    )
    assert said is bool(reason)


@pytest.mark.parametrize("membership", ["member", "fenced", "unknown", "alone"])
@pytest.mark.parametrize(("is_never", "intersect", "is_off"), [*product([True, False], repeat=3)])
def test_a_fenced_peer_proves_nothing_of_a_replica_never_connected(
    membership: str, is_never: bool, intersect: bool, is_off: bool
) -> None:
    said = connection_rules.apply_quorum_overlap(
        membership,
        is_never_connected=lambda: is_never,
        quorums_intersect=intersect,
        is_fencing_off=lambda: is_off,
    )
    is_open = membership == "fenced" and is_never and not intersect and not is_off
    assert said == ("unknown" if is_open else membership)
