# SPDX-License-Identifier: GPL-2.0-or-later
"""The room of a pool counts once for each block that a host may write, and has none of its own."""

from __future__ import annotations

from sanctl.model.pool_space import extent_map_bytes, reserve_bytes
from sanctl.plan.device.point_room import DataFile, needed_bytes

GIB = 1 << 30
POOL = 100 * GIB
FIXED = reserve_bytes(POOL) + extent_map_bytes(8 * GIB)


def test_all_that_is_written_needs_a_new_block() -> None:
    assert needed_bytes(POOL, DataFile(8 * GIB, 8 * GIB, 0), ()) == FIXED + 8 * GIB
    # Holes do, too; reserved blocks do not.
    assert needed_bytes(POOL, DataFile(8 * GIB, GIB, 0), ()) == FIXED + 8 * GIB
    assert needed_bytes(POOL, DataFile(8 * GIB, GIB, 7 * GIB), ()) == FIXED + GIB
    # A second restore point does not need more than the first.
    assert needed_bytes(POOL, DataFile(8 * GIB, 0, 0), ()) == FIXED + 8 * GIB


def test_other_devices_need_what_is_not_their_own() -> None:
    wanted = DataFile(8 * GIB, 0, 8 * GIB)
    whole, sparse, shared = (
        DataFile(4 * GIB, 3 * GIB, GIB),
        DataFile(4 * GIB, GIB, 0),
        DataFile(4 * GIB, 0, GIB),
    )
    assert needed_bytes(POOL, wanted, (whole, sparse, shared)) == FIXED + 6 * GIB
    # A file that grows just now.
    assert needed_bytes(POOL, wanted, (DataFile(GIB, 2 * GIB, 0),)) == FIXED
