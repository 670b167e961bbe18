# SPDX-License-Identifier: GPL-2.0-or-later
"""For which peer a handler is called, as the two generations of DRBD say it."""

from __future__ import annotations

import os

import pytest

from sanctl.agents.handlers import drbd_environment


@pytest.mark.parametrize(
    ("told", "peer"),
    [
        ({"DRBD_PEER": "n2"}, "n2"),
        # Captured of 9.3.3 with drbd-utils 9.22: no DRBD_PEER.
        (
            {"DRBD_PEER_NODE_ID": "2", "DRBD_NODE_ID_1": "n2", "DRBD_NODE_ID_2": "n3"},
            "n3",
        ),
        ({"DRBD_PEER_NODE_ID": "2", "DRBD_NODE_ID_1": "n2"}, ""),
        ({}, ""),
    ],
)
def test_who_it_is_about(monkeypatch: pytest.MonkeyPatch, told: dict[str, str], peer: str) -> None:
    for name in [name for name in os.environ if name.startswith("DRBD_")]:
        monkeypatch.delenv(name)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert drbd_environment.peer() == peer
    assert drbd_environment.resource() == ""
    monkeypatch.setenv("DRBD_RESOURCE", "vol1")
    assert drbd_environment.resource() == "vol1"
