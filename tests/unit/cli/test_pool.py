# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl pool ...` and what `sanctl status` says of flash, as typed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sanctl.model.cache_policy import CacheMode
from sanctl.model.pool_cache import CacheState
from tests.support.json_contract import breaches
from tests.unit.cli.test_commands import FakeEnvironment, Run, data_of, env, run
from tests.unit.ops.test_pool_cache import Bench, with_flash

__all__ = ["env", "run"]

Do = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def bench(env: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A cluster whose pool has flash, and agents that follow."""
    made = Bench()
    env.pacemaker, env.clock = made.cluster, made.clock
    monkeypatch.setattr(env, "topology", with_flash)
    return made


@pytest.fixture
def do(run: Run) -> Do:
    return lambda words: run(*words.split())


def test_without_a_mode_it_shows_what_there_is(do: Do, bench: Bench) -> None:
    status, out, err = do("pool cache main")
    assert (status, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["NODE", "FLASH", "WANTED"],
        ["n1", "write-through", "write-through"],
        ["n2", "write-through", "write-through"],
    ]
    status, out, _ = do("pool cache main --output json")
    assert breaches("pool cache", out) == []
    assert (data_of(out)["mode"], data_of(out)["changed"]) == ("write-through", False)
    bench.cluster.set_permanent("n2", "pool-cache-main", "none")
    status, out, _ = do("pool cache main --output json")
    assert breaches("pool cache", out) == []
    assert data_of(out)["mode"] is None


def test_leaving_with_a_node_in_standby_ends_with_7(do: Do, bench: Bench) -> None:
    assert do("pool cache main write-back")[0] == 0
    bench.standby("n2")
    status, _, err = do("pool cache main none")
    assert status == 7
    assert "SAN-POOL-024" in err and "'sanctl node online n2'" in err
    here, away = data_of(do("pool list --output json")[1])
    assert (here["cache"]["mode"], here["cache"]["wanted"]) == ("none", "none")
    assert {key: away["cache"][key] for key in ("mode", "wanted", "reason", "dirty")} == {
        "mode": None,
        "wanted": "none",
        "reason": "standby",
        "dirty": None,
    }
    assert "? (the node is in standby)" in do("pool list")[1]
    told = " ".join(do("status")[1].split())
    assert "SAN-HLT-093" in told
    assert "pool main n1 none pool main n2 ? (the node is in standby); wanted: none" in told


def test_going_up_says_who_follows_later(do: Do, bench: Bench) -> None:
    bench.standby("n2")
    status, out, _ = do("pool cache main write-back")
    assert status == 0
    assert "n2: ? (the node is in standby)" in out
    assert "\nn2 follows when it is online again\n" in out
    status, out, _ = do("pool cache main write-back --output json")
    assert breaches("pool cache", out) == []


def test_hits_are_told_with_the_mode(do: Do, bench: Bench) -> None:
    bench.asleep.add("n1")
    bench.tell("n1", CacheState(CacheMode.WRITE_THROUGH, CacheMode.WRITE_THROUGH, hit_percent=80))
    assert "write-through, 80 % hits" in do("pool cache main")[1]


@pytest.mark.usefixtures("bench")
def test_a_wrong_mode_is_told_in_one_line(do: Do) -> None:
    status, _, err = do("pool cache main writeback")
    assert status == 2
    assert "\t" not in err and err.count("\n") == 1
