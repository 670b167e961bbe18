# SPDX-License-Identifier: GPL-2.0-or-later
"""How a pool's flash is changed, and what is said of it."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from sanctl.model.cache_policy import Mode
from sanctl.model.cluster import Cluster
from sanctl.model.names import NodeName, PoolName
from sanctl.model.pool_cache import CacheState, ModeWish, mount_unit, parse_state, parse_wish
from sanctl.model.topology import Pool, PoolCache
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.pool.flash_mode import cache_findings, cache_words
from tests.fakes.pacemaker import FakePacemaker

NODE = NodeName.parse("n1")
POOL = Pool(
    name=PoolName.parse("main"),
    path=PurePosixPath("/srv/sanctl/main"),
    uuid="5d4c1f6e-9d0b-4c39-8a54-0c6f6f0b7a11",
    nodes=(NODE,),
    cache=PoolCache(origin=PurePosixPath("/dev/slow"), flash=PurePosixPath("/dev/flash")),
)
THROUGH, BACK = Mode.WRITE_THROUGH, Mode.WRITE_BACK


@pytest.mark.parametrize(
    "state",
    [
        CacheState(mode=BACK, wanted=BACK, dirty_bytes=1 << 20, flush_s=3, hit_percent=95),
        CacheState(mode=Mode.NONE, wanted=THROUGH, reason="flash-lost", serial=12),
    ],
)
def test_what_an_agent_tells_reads_back(state: CacheState) -> None:
    words = dict(word.split("=", 1) for word in str(state).split())
    assert parse_state(words) == state


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("write-back:3", ModeWish(BACK, 3)),
        ("write-back", ModeWish(BACK)),
        ("write-back:", ModeWish(BACK)),
        ("", ModeWish(THROUGH)),
        ("odd:3", ModeWish(THROUGH)),
    ],
)
def test_a_wish_reads_back(text: str, wish: ModeWish) -> None:
    assert parse_wish(text, THROUGH) == wish
    assert parse_wish(str(wish), THROUGH) == wish


@pytest.mark.parametrize("text", ["", "cache=odd cache-wanted=none", "cache=none dirty=1"])
def test_what_does_not_read_is_unknown(text: str) -> None:
    assert parse_state(dict(word.split("=", 1) for word in text.split())) is None


def test_it_is_told_in_words() -> None:
    state = CacheState(BACK, THROUGH, "flushing", 8 << 20, 4, 90)
    assert "8 MiB dirty, 4 s to flush, 90 % hits (the slow disk is still getting" in cache_words(
        state
    )


def codes(state: CacheState) -> list[str]:
    fake = FakePacemaker()
    fake.set_permanent("n1", "pool-cache-main", state.wanted.value)
    fake.attribute("n1", "sanctl-pool-main", f"total=9000000 free=9000000 {state}")
    cluster = Cluster(
        cib=parse_cib(parse_document(fake.query())), mon=parse_crm_mon(fake.monitor())
    )
    return [finding.code for finding in cache_findings(cluster, POOL, NODE)]


def test_findings() -> None:
    assert codes(CacheState(BACK, BACK)) == []
    assert codes(CacheState(BACK, THROUGH, "flushing")) == ["SAN-HLT-090"]
    assert codes(CacheState(Mode.NONE, THROUGH, "flash-lost")) == ["SAN-HLT-091"]
    assert codes(CacheState(BACK, BACK, "", 1 << 40, 301)) == ["SAN-HLT-092"]


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/srv/sanctl/main", "srv-sanctl-main.mount"),
        ("/srv/a-b/c_d.e", r"srv-a\x2db-c_d.e.mount"),
        ("/.x+y", r"\x2ex\x2by.mount"),
        ("/", "-.mount"),
    ],
)
def test_units_are_named_as_systemd_does(path: str, unit: str) -> None:
    assert mount_unit(path) == unit
