# SPDX-License-Identifier: GPL-2.0-or-later
"""Forbidden log lines, as kernels and daemons write them."""

from __future__ import annotations

import pytest

from sanctl.lab.measure import log_patterns

STAMP = "Nov 21 05:30:37.123456 n1 "


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("kernel: BUG: unable to handle page fault", "kernel bug"),
        ("kernel: WARNING: CPU: 0 PID: 12 at drivers/block/drbd/drbd_main.c:1", "kernel bug"),
        ("kernel: Kernel panic - not syncing: Fatal", "kernel bug"),
        ("kernel: INFO: task drbd_w_vol:99 blocked for more than 120 seconds.", "hung task"),
        ("kernel: block drbd1: Split-Brain detected, dropping connection!", "split brain"),
        ("kernel: block drbd1: Unrelated data, aborting!", "unrelated data"),
        ("kernel: drbd vol: ASSERTION 0 FAILED in drbd", "DRBD assertion"),
        (
            "kernel: drbd vol/0 drbd3: ASSERT FAILED cstate = SyncTarget, expected:"
            " WFSyncUUID|WFBitMapT|Behind",
            "DRBD assertion",
        ),
        ("sanctl[12]: Traceback (most recent call last):", "agent's own error"),
    ],
)
def test_forbidden_on_every_node(line: str, name: str) -> None:
    assert log_patterns.find([STAMP + line], is_host=False) == [f"{name}: {STAMP}{line}"]


def handshake(of_self: str, of_peer: str, peer: str = "n4") -> list[str]:
    """Return what DRBD 9.3.3 logs of a handshake after which it sees a split brain."""
    told = f"{STAMP}kernel: drbd vol/0 drbd1 {peer}: "
    uuids = "E292E39AEBB86142:0000000000000000:DAC4DA7420CCB96A:95BD89150340511C bits:2 flags:"
    return [
        f"{told}drbd_sync_handshake:",
        f"{told}self {uuids}{of_self}",
        f"{told}peer {uuids}{of_peer}",
        f"{told}uuid_compare()=split-brain-disconnect by rule=history-both",
        f"{told}Split-Brain detected but unresolved, dropping connection!",
    ]


@pytest.mark.parametrize(
    ("of_self", "of_peer", "is_one"),
    [("120", "920", True), ("120", "904", False), ("124", "120", False)],
)
def test_a_replica_in_the_middle_of_a_resync_has_not_diverged(
    of_self: str, of_peer: str, is_one: bool
) -> None:
    lines = handshake(of_self, of_peer)
    expected = [f"split brain: {lines[-1]}"] if is_one else []
    assert log_patterns.find(lines, is_host=False) == expected


def test_only_the_handshake_of_that_connection_counts() -> None:
    other = handshake("124", "120", "n3")[:-1]
    lines = handshake("120", "120")
    for before in (other, handshake("124", "120")[:-1]):
        assert log_patterns.find(before + lines, is_host=False) == [f"split brain: {lines[-1]}"]


def test_only_hosts_must_see_no_io_error() -> None:
    line = STAMP + "kernel: Buffer I/O error on dev dm-0, logical block 0"
    assert log_patterns.find([line], is_host=True)
    assert not log_patterns.find([line], is_host=False)


@pytest.mark.parametrize(
    "line",
    [
        "kernel: block drbd1: State change failed: Multiple primaries not allowed by config",
        "kernel: Buffer I/O error on dev sda, logical block 0, async page read",
        "systemd[1]: debug: WARNING: CPU",
        "kernel: drbd vol/0 drbd3: ASSERT FAILED cstate = NetworkFailure, expected:"
        " WFSyncUUID|WFBitMapT|Behind",
    ],
)
def test_what_is_no_event(line: str) -> None:
    assert not log_patterns.find([STAMP + line], is_host=True)


@pytest.mark.parametrize(
    "line",
    [
        "pacemaker-schedulerd[16]: warning: Unexpected result (Error occurred: : Invalid argument)"
        " was recorded for stop of chaos3:1 on n2 at Nov 22 11:42:46 2026",
        "pacemaker-fenced[1615]: notice: Operation 'reboot' targeting n2 by n3 for x: OK (Done)",
    ],
)
def test_a_node_that_reboots_in_order_is_not_fenced(line: str) -> None:
    """Seen: each typed reboot of a node ended in a fencing, and the bench took that for right."""
    assert log_patterns.find([STAMP + line], is_host=False, is_orderly=True)
    assert not log_patterns.find([STAMP + line], is_host=False)
