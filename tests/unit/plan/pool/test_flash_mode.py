# SPDX-License-Identifier: GPL-2.0-or-later
"""Texts, attributes and findings of a pool's flash cache."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from sanctl.model.cache_policy import CacheMode
from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding
from sanctl.model.names import NodeName, PoolName
from sanctl.model.pool_cache import (
    CacheState,
    WantedMode,
    mount_unit_name,
    mount_units_at,
    parse_cache_state,
    parse_wanted_mode,
)
from sanctl.model.topology import Pool, PoolCache
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.health.flash_health import flash_findings
from sanctl.plan.pool.flash_mode import flash_text, has_settled
from tests.fakes.pacemaker import FakePacemaker

NODE = NodeName.parse("n1")
POOL = Pool(
    name=PoolName.parse("main"),
    path=PurePosixPath("/srv/sanctl/main"),
    uuid="5d4c1f6e-9d0b-4c39-8a54-0c6f6f0b7a11",
    nodes=(NODE,),
    cache=PoolCache(origin=PurePosixPath("/dev/slow"), flash=PurePosixPath("/dev/flash")),
)
THROUGH, BACK = CacheMode.WRITE_THROUGH, CacheMode.WRITE_BACK


@pytest.mark.parametrize(
    "state",
    [
        CacheState(mode=BACK, wanted=BACK, dirty_bytes=1 << 20, flush_s=3, hit_percent=95),
        CacheState(mode=CacheMode.NONE, wanted=THROUGH, reason="flash-lost", serial=12),
    ],
)
def test_a_published_flash_state_is_parsed_back(state: CacheState) -> None:
    words = dict(word.split("=", 1) for word in str(state).split())
    assert parse_cache_state(words) == state


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("write-back:3", WantedMode(BACK, 3)),
        ("write-back", WantedMode(BACK)),
        ("write-back:", WantedMode(BACK)),
        ("", WantedMode(THROUGH)),
        ("odd:3", WantedMode(THROUGH)),
    ],
)
def test_a_wanted_mode_is_parsed_back(text: str, wish: WantedMode) -> None:
    assert parse_wanted_mode(text, THROUGH) == wish
    assert parse_wanted_mode(str(wish), THROUGH) == wish


@pytest.mark.parametrize("text", ["", "cache=odd cache-wanted=none", "cache=none dirty=1"])
def test_a_malformed_flash_state_is_unknown(text: str) -> None:
    assert parse_cache_state(dict(word.split("=", 1) for word in text.split())) is None


def test_the_text_of_a_flash_state() -> None:
    state = CacheState(BACK, THROUGH, "flushing", 8 << 20, 4, 90)
    assert "8 MiB dirty, 4 s to flush, 90 % hits (data that is on flash alone is" in flash_text(
        state
    )


def codes(state: CacheState) -> list[str]:
    return [finding.code for finding in findings(state)]


def findings(state: CacheState) -> list[Finding]:
    fake = FakePacemaker()
    fake.set_permanent("n1", "pool-cache-main", state.wanted.value)
    fake.attribute("n1", "sanctl-pool-main", f"total=9000000 free=9000000 {state}")
    cluster = Cluster(
        cib=parse_cib(parse_document(fake.query())), mon=parse_crm_mon(fake.monitor())
    )
    return list(flash_findings(cluster, POOL, NODE))


def test_findings() -> None:
    assert codes(CacheState(BACK, BACK)) == []
    assert codes(CacheState(BACK, THROUGH, "flushing")) == ["SAN-HLT-090"]
    assert codes(CacheState(CacheMode.NONE, THROUGH, "flash-lost")) == ["SAN-HLT-091"]
    assert codes(CacheState(BACK, BACK, "", 1 << 40, 301)) == ["SAN-HLT-092"]


@pytest.mark.parametrize("mode", list(CacheMode))
def test_an_older_releases_word_for_no_flash_proves_nothing(mode: CacheMode) -> None:
    """It was also said where the slow disk was not there, and the flash had dirty data."""
    state = CacheState(CacheMode.NONE, mode, "not-prepared")
    assert not has_settled(state, mode)
    assert codes(state) == ["SAN-HLT-093"]


def test_a_pool_that_never_got_its_flash_is_no_failed_flash() -> None:
    (found,) = findings(CacheState(CacheMode.NONE, THROUGH, "no-bcache"))
    assert found.code == "SAN-HLT-091" and "A pool that is there already" in found.do


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
    assert mount_unit_name(path) == unit


def test_a_folder_may_lie_on_the_mount_of_any_folder_above_it() -> None:
    assert mount_units_at("/srv/sanctl/ma-in") == [
        "srv.mount",
        "srv-sanctl.mount",
        "srv-sanctl-ma\\x2din.mount",
    ]
    assert mount_units_at("/") == []
