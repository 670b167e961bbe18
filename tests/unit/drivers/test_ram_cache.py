# SPDX-License-Identifier: GPL-2.0-or-later
"""What dm-cache says of itself (device-mapper/cache.rst), read."""

from __future__ import annotations

import pytest

from sanctl.drivers import ram_cache
from sanctl.drivers.ram_cache import Usage

# `dmsetup status` of a cache of 256 blocks of 32 KiB, Linux 7.2.
SHOWN = (
    "0 262144 cache 8 27/1026 64 200/256 900 100 20 30 5 205 0 2 metadata2 writethrough "
    "2 migration_threshold 2048 smq 0 rw - \n"
)


def test_its_own_account_is_read() -> None:
    assert ram_cache.parse_status(SHOWN) == Usage(200 * 32768, reads=1000, hits=900)


@pytest.mark.parametrize("text", ["", "0 8 delay 0 0 0 0 0 0", "0 8 cache Fail", SHOWN[:30]])
def test_anything_else_is_nothing(text: str) -> None:
    assert ram_cache.parse_status(text) is None


def test_a_full_cache_takes_little_more_than_its_size() -> None:
    assert 64 << 20 < ram_cache.needed_bytes(64 << 20) < 70 << 20
