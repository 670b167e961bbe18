# SPDX-License-Identifier: GPL-2.0-or-later
"""Which peers are certain, which node may mark, and which mark has to outrank the peer's CIB."""

from __future__ import annotations

import pytest

from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.failover import fence_rules


def _state(role: str, connection: str) -> ResourceState:
    peer = PeerState("peer", connection, "Unknown", "Off", "DUnknown", None)
    return ResourceState("vol1", role, "no", "UpToDate", None, (peer,))


@pytest.mark.parametrize(
    ("state", "may"),
    [
        (_state("Primary", "Connecting"), True),
        (_state("Primary", "Connected"), False),
        (_state("Secondary", "Connecting"), False),
        (None, False),
    ],
)
def test_only_a_primary_without_its_peer_marks_it(state: ResourceState | None, may: bool) -> None:
    assert fence_rules.may_mark(state, is_promoting=False) == may
    assert fence_rules.may_mark(state, is_promoting=True)


@pytest.mark.parametrize(
    ("peer", "is_certain", "outranks", "may_begin_resync"),
    [
        ("member", True, False, True),
        ("fenced", True, True, False),
        ("unknown", False, False, False),
        ("alone", False, False, False),
    ],
)
def test_only_a_fenced_peer_may_have_a_cib_of_its_own(
    peer: str, is_certain: bool, outranks: bool, may_begin_resync: bool
) -> None:
    assert fence_rules.is_certain(peer) == is_certain
    assert fence_rules.must_outrank_peer_cib(peer) == outranks
    assert fence_rules.may_begin_resync(peer) == may_begin_resync


@pytest.mark.parametrize(
    ("others", "marked", "peer"),
    [
        (("n2",), {"n1", "n2"}, "n2"),
        (("n3", "n2"), {"n1", "n2", "n3"}, "n2"),
        (("n2", "n3"), {"n1", "n2"}, None),
        (("n2",), {"n2"}, None),
        (("n2",), {"n1"}, None),
        ((), {"n1"}, None),
    ],
)
def test_a_mark_contradicts_nothing_only_where_every_replica_has_one(
    others: tuple[str, ...], marked: set[str], peer: str | None
) -> None:
    assert fence_rules.peer_to_unmark(here="n1", others=others, marked=marked) == peer
