# SPDX-License-Identifier: GPL-2.0-or-later
"""What a peer has published of its replica is asked with quorum, and is known or not."""

from __future__ import annotations

import pytest

from sanctl.agents.connections import published_state
from sanctl.drivers import corosync, node_attributes
from sanctl.model.packed_states import STATES_ATTRIBUTE, pack
from sanctl.parse.corosync import Membership
from tests.fakes.node import FakeNode


@pytest.mark.parametrize("is_quorate", [True, False])
def test_it_is_known_with_quorum_where_there_is_any(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch, is_quorate: bool
) -> None:
    membership = Membership(is_quorate, frozenset({"n1", "n2"}))
    monkeypatch.setattr(corosync, "membership", lambda _: membership)

    def query(_runner: object, attribute: str, node: str) -> str:
        assert (attribute, node) == (STATES_ATTRIBUTE, "n2")
        return pack({"vol1": "disk=UpToDate suspended=no", "vol2": "disk=Diskless"})

    monkeypatch.setattr(node_attributes, "query", query)
    found = published_state.of_peer(fake_node, "vol1", "n2")
    assert (found is not None) == is_quorate
    if found is not None:
        assert (found.disk, found.suspended) == ("UpToDate", "no")
    assert published_state.of_peer(fake_node, "vol3", "n2") is None
