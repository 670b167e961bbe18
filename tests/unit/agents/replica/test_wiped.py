# SPDX-License-Identifier: GPL-2.0-or-later
"""Node attributes that the CIB has lost are written again, and only then."""

from __future__ import annotations

import os
import time

import pytest

from sanctl.agents import cib_check, pool_attributes
from sanctl.agents.publish import attrd_cache
from sanctl.drivers import node_attributes
from sanctl.system import journal
from sanctl.system.runner import LocalRunner
from tests.fakes.node import FakeNode

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
def test_only_published_attributes_that_the_cib_lacks(
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
    monkeypatch.setattr(attrd_cache, "have_published_again", done.append)
    monkeypatch.setattr(journal, "write", lambda *_, **__: None)
    pool_attributes.refresh_lost(LocalRunner(), noted)
    # The refresh; then what is given to the daemon again: the pools, and the reach.
    assert len(done) == 3 * writes


def test_where_attrd_has_lost_all_too_the_pools_are_given_to_it_at_once(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once they are in the CIB, scores that are not are lost: otherwise that took a minute more."""
    monkeypatch.setattr(attrd_cache, "attrd_pid", lambda: "7")
    pools, score = attrd_cache.of_pools(), attrd_cache.of_score("vol1")
    attrd_cache.record(score, "7", "9000")
    fake_node.age("vol1", "attrd-cache.score", 40.0)
    attrd_cache.record(pools, "7", "main=total=1")
    then = time.time() - 20
    os.utime(pools.path, (then, then))
    in_cib: dict[str, str] = {}
    pool_attributes.refresh_lost(LocalRunner(), in_cib)
    pool_attributes.publish_pools(LocalRunner(), ["main=total=1"])
    assert fake_node.commands("attrd_updater") == [
        "attrd_updater --refresh",
        "attrd_updater --name sanctl-pool-main --update=total=1",
    ]
    cib_check.have_done(in_cib, has_lost_all=not pool_attributes.has_own(in_cib))
    assert (score.age_s() or 0.0) < 100, "it may be on its way"
    in_cib |= {"sanctl-pool-main": "total=1"}
    cib_check.have_done(in_cib, has_lost_all=not pool_attributes.has_own(in_cib))
    assert (score.age_s() or 0.0) > 1e6


def test_what_a_pool_has_said_is_taken_back_where_it_has_left(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would speak for its node for good; of one that cannot be read now it stays."""
    monkeypatch.setattr(attrd_cache, "attrd_pid", lambda: "7")
    attrd_cache.record(attrd_cache.of_pools(), "7", "main=total=1\nold=total=2\nhung=total=3")
    pool_attributes.publish_pools(LocalRunner(), ["main=total=1"], unread=["hung"])
    assert fake_node.commands("attrd_updater") == [
        "attrd_updater --name sanctl-pool-old --delete",
        "attrd_updater --name sanctl-pool-main --update=total=1",
    ]


def test_what_an_unread_pool_has_said_is_taken_back_where_it_leaves(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = ["7"]
    monkeypatch.setattr(attrd_cache, "attrd_pid", lambda: pid[0])
    attrd_cache.record(attrd_cache.of_pools(), "7", "main=total=1\nhung=total=3")
    delete = "attrd_updater --name sanctl-pool-hung --delete"
    for free in (2, 3):
        pool_attributes.publish_pools(LocalRunner(), [f"main=total={free}"], unread=["hung"])
    count = len(fake_node.commands("attrd_updater"))
    pool_attributes.publish_pools(LocalRunner(), ["main=total=3"], unread=["hung"])
    said = fake_node.commands("attrd_updater")
    assert len(said) == count and delete not in said, "nothing has changed"
    pool_attributes.publish_pools(LocalRunner(), ["main=total=3"])
    assert fake_node.commands("attrd_updater")[count:] == [
        delete,
        "attrd_updater --name sanctl-pool-main --update=total=3",
    ]
    attrd_cache.record(attrd_cache.of_pools(), "7", "hung=total=3")
    pid[0] = "8"
    pool_attributes.publish_pools(LocalRunner(), [], unread=["hung"])
    assert attrd_cache.of_pools().read() == "8 ", "a new daemon has nothing of it"
