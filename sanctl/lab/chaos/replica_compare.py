# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares the replicas of all devices after the last fault: what DRBD calls in sync may differ.

Ledgers read from the node that serves. A block that another replica lacks, and that no bitmap has,
is found by the next failover alone, or by this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sanctl.lab.harness.lab_session import LabSession

_VERIFY_S = 900.0


def differences(
    bed: LabSession, devices: Iterable[str], print_line: Callable[[str], None]
) -> list[str]:
    """Verify each device while hosts write; return what was found, or kept from being verified."""
    found = []
    node = bed.storage[0].name
    for device in devices:
        answer = bed.sh(
            node,
            f"sanctl device verify {device} --timeout {_VERIFY_S:g} 2>&1",
            ok=range(256),
            timeout_s=_VERIFY_S + 60,
        )
        lines = answer.stdout.strip().splitlines() or ["nothing said"]
        print_line(f"   {device}: replicas compared: {lines[-1]}")
        if answer.status:
            found.append(f"{device}: its replicas were compared: {'; '.join(lines[-3:])}")
    return found
