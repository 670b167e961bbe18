# SPDX-License-Identifier: GPL-2.0-or-later
"""What benches share: the option that names the lab, the lab with its host, a ledger, a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.harness.scenario import Scenario, require
from sanctl.lab.machines.spec import DEFAULT_NAME

Command = Callable[..., Any]
_PACKAGES = (
    "pacemaker", "corosync", "resource-agents", "drbd-utils", "targetcli-fb", "python3-rtslib-fb",
)  # fmt: skip
_VERSIONS = (
    "echo kernel $(uname -r); echo drbd-module $(head -n1 /proc/drbd | cut -d' ' -f2);"
    f" dpkg-query -W -f '${{Package}} ${{Version}}\\n' {' '.join(_PACKAGES)}"
)


def lab_option(*, needs: str = "") -> Callable[[Command], Command]:
    """Return what adds `--name`; `needs` says what the lab must have for the bench."""
    return click.option(
        "--name", envvar="SANCTL_LAB", default=DEFAULT_NAME, show_default=True,
        help=f"The lab it runs in{f'; {needs}' if needs else ''}.",
    )  # fmt: skip


def scenario_without(name: str, device: str) -> Scenario:
    """Return a lab with its first host.

    Raises:
        CommandError: the lab has a device of that name, which the bench is to create.
    """
    bed = LabSession(name)
    scenario = Scenario(bed, Initiator(bed, "i1"))
    require(not scenario.exists(device), f"the lab has a device {device} already: delete it")
    return scenario


def versions(bed: LabSession) -> str:
    """Return the kernel, DRBD's module and the packages of a storage node, a line for each."""
    return bed.sh(bed.storage[0].name, _VERSIONS).stdout


def remove_device(scenario: Scenario, device: str) -> None:
    """End the ledger on a bench's device, and delete the device, as far as there are."""
    # First the ledger: a write that waits for a path would hang for ever.
    scenario.host.sh(f"systemctl stop ledger-{device} 2>/dev/null || true", timeout_s=150)
    if scenario.exists(device):
        scenario.delete(device)


def start_load(
    scenario: Scenario,
    device: str,
    target: str,
    path: str,
    *,
    rate: float,
    region_bytes: int,
    synced: bool = True,
    start_bytes: int = 0,
) -> LedgerLoad:
    """Start a ledger on a device of the host, which shows nothing but what goes wrong.

    Args:
        scenario: the lab.
        device: the device's name.
        target: its IQN.
        path: where the host has it.
        rate: writes a second.
        region_bytes: how much of the device it writes to.
        synced: False: it flushes nothing.
        start_bytes: where on the device that begins.
    """
    return scenario.start_load(
        device,
        target,
        path,
        rate=rate,
        region_bytes=region_bytes,
        print_line=lambda text: click.echo(f"  {text}", err=True),
        show_ledger=lambda _state: None,
        synced=synced,
        start_bytes=start_bytes,
    )
