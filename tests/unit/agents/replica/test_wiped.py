# SPDX-License-Identifier: GPL-2.0-or-later
"""A node's attributes that the CIB has lost are written to it again, and only then."""

from __future__ import annotations

import pytest

from sanctl.agents import pool as agent
from sanctl.agents.publish import attrd_cache
from sanctl.drivers import node_attributes
from sanctl.system import journal

THERE = {"sanctl-pool-main": "total=1 free=1"}


@pytest.mark.parametrize(
    ("noted", "published", "is_settled", "writes"),
    [
        (THERE, "main=total=1", True, 0),
        ({}, "main=total=1", True, 1),
        ({"sanctl-delete-vol1": "x"}, "main=total=1", True, 1),
        ({}, "", True, 0),  # A node without pools.
        # Told a moment ago, or to a daemon that is gone: it is on its way.
        ({}, "main=total=1", False, 0),
    ],
)
def test_only_what_was_told_and_is_gone(
    monkeypatch: pytest.MonkeyPatch,
    noted: dict[str, str],
    published: str,
    is_settled: bool,
    writes: int,
) -> None:
    done: list[object] = []
    monkeypatch.setattr(attrd_cache, "attrd_pid", lambda: "7")
    monkeypatch.setattr(attrd_cache, "must_be_in_cib", lambda name, to: is_settled and to == "7")
    monkeypatch.setattr(attrd_cache, "published_fields", lambda _: ["7", *published.split()])
    monkeypatch.setattr(node_attributes, "refresh", done.append)
    monkeypatch.setattr(journal, "write", lambda *_, **__: None)
    agent._have_written_again(noted)
    assert len(done) == writes
