# SPDX-License-Identifier: GPL-2.0-or-later
"""A cache policy reads as it is written, and nothing else reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.cache_policy import (
    MIN_DIRTY_BYTES,
    MIN_READ_BYTES,
    NO_CACHE,
    CacheMode,
    CachePolicy,
    parse_cache_policy,
)


@given(
    st.sampled_from(CacheMode),
    st.integers(MIN_DIRTY_BYTES, 1 << 50),
    st.just(0) | st.integers(MIN_READ_BYTES, 1 << 50),
)
def test_what_is_written_reads_the_same(mode: CacheMode, dirty_bytes: int, read_bytes: int) -> None:
    policy = CachePolicy(mode, read_bytes=read_bytes)
    if mode is CacheMode.WRITE_BACK:
        policy = policy._replace(dirty_bytes=dirty_bytes)
    assert parse_cache_policy(str(policy)) == policy


def test_nothing_is_no_cache() -> None:
    assert parse_cache_policy("") == NO_CACHE == CachePolicy(CacheMode.NONE)


@pytest.mark.parametrize(
    "text",
    [
        "writeback",
        "write-back,",
        "write-back,dirty=",
        "write-back,dirty=-1",
        "write-back,dirty=1024",
        "write-back,67108864",
        "write-through,dirty=67108864",
        " write-back",
        "none,read=",
        "none,read=1024",
        "read=67108864",
    ],
)
def test_nothing_else_reads(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_cache_policy(text)
