# SPDX-License-Identifier: GPL-2.0-or-later
"""A ledger on a new device for a laboratory test, and the check that no write was lost."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.scenario import Scenario

#: A takeover may be under way when a test begins to wait for writes.
_WRITES_S = 180.0


def start(
    scenario: Scenario,
    device: str,
    target: str,
    path: str,
    *,
    rate: float,
    region_bytes: int,
    synced: bool = True,
) -> LedgerLoad:
    """Start a ledger on a device of the host; its progress goes to the test's output."""
    return scenario.start_load(
        device,
        target,
        path,
        rate=rate,
        region_bytes=region_bytes,
        print_line=lambda text: print(f"  {text}"),
        show_ledger=lambda _state: None,
        synced=synced,
    )


def start_on_new_device(
    scenario: Scenario,
    device: str,
    size: str,
    *,
    rate: float,
    region_bytes: int,
    synced: bool = True,
) -> LedgerLoad:
    """Create a device that n1 serves, log the host in, and start a ledger on the device."""
    target = scenario.create(device, size, prefer="n1")
    path = scenario.host.login(target, scenario.portals())
    return start(
        scenario, device, target, path, rate=rate, region_bytes=region_bytes, synced=synced
    )


def assert_nothing_lost(load: LedgerLoad, *, more_than: int = 200, delete: bool = False) -> None:
    """End a ledger and check it: every acknowledged write is there, and no request failed.

    Args:
        load: the ledger.
        more_than: the number of acknowledged writes that the ledger must have exceeded. It goes on
            until it has: of the tests before, a run may have left out all that take long.
        delete: whether the device is deleted before the result is judged.
    """
    load.host.await_acknowledged(load.run, more_than, within_s=_WRITES_S)
    load.host.stop_ledger(load.run)
    check = load.host.check_ledger(load.run)
    if delete:
        Scenario(load.bed, load.host).delete(load.device)
    print(f"  ledger: {check['acknowledged']} acknowledged, {check['lost']} lost")
    assert (check["lost"], check["errors"]) == (0, 0), check["findings"]


def stop(load: LedgerLoad) -> None:
    """End a ledger that a test may have ended already; nothing is checked."""
    load.host.sh(f"systemctl stop {load.run.unit} 2>/dev/null || true", timeout_s=150)


@contextlib.contextmanager
def ledger_on_new_device(
    scenario: Scenario, device: str, size: str, *, rate: float, region_bytes: int
) -> Iterator[LedgerLoad]:
    """Run a ledger on a new device as long as the block lasts; nothing may be lost."""
    load = start_on_new_device(scenario, device, size, rate=rate, region_bytes=region_bytes)
    yield load
    assert_nothing_lost(load, delete=True)
