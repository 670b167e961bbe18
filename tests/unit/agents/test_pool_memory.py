# SPDX-License-Identifier: GPL-2.0-or-later
"""A storage node publishes its memory, and how many bitmaps its DRBD keeps of each replica."""

from __future__ import annotations

import pytest

from sanctl.agents import deleted_devices, pool_attributes, pool_space
from sanctl.agents import pool as agent
from sanctl.agents.node import members, votes
from sanctl.drivers import drbd_kernel, drbdsetup, pool_files
from sanctl.model.device import PoolUsage
from sanctl.parse.published_state import parse_pool_usage
from sanctl.system import memory
from tests.fakes.node import FakeNode

#: As it is where no test stands in for it.
GENERATION = drbd_kernel.generation


@pytest.fixture
def published(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the pool agent publishes, one `POOL=VALUE` for each pool."""
    found: list[str] = []
    pools = list(fake_node.topology.pools)
    # The topology's own, and one more.
    monkeypatch.setattr(agent, "_pools_here", lambda: [*pools, *pools])
    monkeypatch.setattr(pool_attributes, "read", lambda _runner: {})
    monkeypatch.setattr(
        pool_attributes, "publish_pools", lambda _, lines, **__: found.extend(lines)
    )
    monkeypatch.setattr(pool_files, "check_marker", lambda *_: None)
    monkeypatch.setattr(pool_files, "space_bytes", lambda _: (1 << 40, 1 << 39))
    monkeypatch.setattr(drbdsetup, "is_installed", lambda: True)
    monkeypatch.setattr(pool_space, "own_bytes", lambda *_: 0)
    monkeypatch.setattr(pool_space, "daily_growth", lambda *_, **__: None)
    monkeypatch.setattr(deleted_devices, "delete_files", lambda *_: None)
    monkeypatch.setattr(members, "drop_or_log", lambda *_: None)
    monkeypatch.setattr(votes, "apply_or_log", lambda *_: None)
    return found


def look(published: list[str]) -> list[PoolUsage]:
    published.clear()
    agent._check_pools(may_mount=False)
    return [parse_pool_usage(line.partition("=")[2]) for line in published]


@pytest.mark.parametrize(
    ("version", "bitmaps"),
    [("8.4.11\n", 1), ("9.3.3\n", 3), ("", None), ("10.0.1\n", None), ("odd", None)],
)
def test_memory_is_published_with_each_pool_and_read_once(
    published: list[str], monkeypatch: pytest.MonkeyPatch, version: str, bitmaps: int | None
) -> None:
    asked: list[str] = []

    def read(path: str, _otherwise: str) -> str:
        asked.append(path)
        return version

    monkeypatch.setattr(drbd_kernel, "generation", GENERATION)
    monkeypatch.setattr(drbd_kernel, "read_text_or", read)
    monkeypatch.setattr(memory, "total_bytes", lambda: 2 << 30)
    usages = look(published)
    assert len(usages) == 2
    for usage in usages:
        assert (usage.error, usage.free_bytes, usage.makes_clones) == (None, 1 << 39, True)
        assert usage.follows_guests
        assert usage.bitmaps == bitmaps
        assert usage.memory_bytes == (None if bitmaps is None else 2 << 30)
    assert asked == ["/sys/module/drbd/version"]


def test_what_is_published_does_not_change_by_itself(published: list[str]) -> None:
    """A change of the CIB by every monitor would cost each node its part."""
    assert look(published) == look(published)
    assert look(published)[0].memory_bytes == memory.total_bytes()


def test_what_is_written_is_asked_of_the_replicas_that_are_to_be_here(
    published: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of one that was dropped, or deleted: its files only take room."""
    asked: list[object] = []
    one, two = "1" * 32, "2" * 32
    held = {f"uuid {one}": one, f"uuid {two}": two, "sanctl-delete-vm2": f"{two} main"}
    monkeypatch.setattr(pool_attributes, "read", lambda _runner: held)

    def own_bytes(_pool: str, _path: str, uuids: object) -> int:
        asked.append(uuids)
        return 1 << 35

    monkeypatch.setattr(pool_space, "own_bytes", own_bytes)
    assert {usage.allocated_bytes for usage in look(published)} == {1 << 35}
    assert asked == [{one}] * 2
