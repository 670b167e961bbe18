# SPDX-License-Identifier: GPL-2.0-or-later
"""Who is certain, who may mark, and whose mark has to outrank."""

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
    ("peer", "is_certain", "outranks"),
    [
        ("member", True, False),
        ("fenced", True, True),
        ("unknown", False, False),
        ("alone", False, False),
    ],
)
def test_only_a_fenced_peer_may_have_a_cib_of_its_own(
    peer: str, is_certain: bool, outranks: bool
) -> None:
    assert fence_rules.is_certain(peer) == is_certain
    assert fence_rules.must_outrank_peer_cib(peer) == outranks
