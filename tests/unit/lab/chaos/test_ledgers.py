# SPDX-License-Identifier: GPL-2.0-or-later
"""Pauses of a device's ledger during a fault: ended ones, and one that has not ended."""

from __future__ import annotations

from typing import cast

import click
import pytest

from sanctl.lab.chaos.ledgers import DeviceLedger, replica_nodes
from sanctl.lab.harness.initiator import Initiator, LedgerRun
from sanctl.lab.measure.ledger_writer import Record, RecordKind


def ledger(*acknowledged_s: float) -> DeviceLedger:
    """Return a ledger whose writes were acknowledged at these times."""
    records = [
        Record(kind, 0, 0, 0, number, round(at_s * 1e9), round(at_s * 1e9))
        for number, at_s in enumerate(acknowledged_s)
        for kind in (RecordKind.INTENT, RecordKind.ACK)
    ]
    return DeviceLedger(
        device="vol",
        host=cast(Initiator, None),
        run=cast(LedgerRun, None),
        target="iqn.x:vol",
        records=records,
    )


def test_a_pause_that_ended_counts_as_it_was() -> None:
    pause = ledger(1.0, 1.1, 7.1, 7.2, 8.3).pause_since(0.5, 8.0)
    assert pause is not None
    assert pause.seconds == pytest.approx(6.0)


def test_a_pause_that_has_not_ended_counts_with_its_time_so_far() -> None:
    pause = ledger(1.0, 1.1, 2.0).pause_since(0.5, 302.0)
    assert pause is not None
    assert pause.seconds == pytest.approx(300.0)
    assert pause.gap_began_wall_s == pytest.approx(2.0)


def test_no_write_at_all_is_no_pause() -> None:
    assert ledger(1.0, 1.1).pause_since(50, 60) is None


@pytest.mark.parametrize("count", [2, 3, 4])
def test_devices_have_a_replica_on_each_node_that_holds_data(count: int) -> None:
    nodes = [f"n{number}" for number in range(1, count + 1)]
    assert replica_nodes(nodes) == tuple(nodes)


@pytest.mark.parametrize("count", [1, 5])
def test_a_laboratory_with_fewer_or_more_storage_nodes_is_refused(count: int) -> None:
    with pytest.raises(click.UsageError, match=f"which has {count} of them: it takes 2 to 4"):
        replica_nodes(["n"] * count)
