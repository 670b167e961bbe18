# SPDX-License-Identifier: GPL-2.0-or-later
"""What a monitor reports by the kernel alone, where drbdsetup could not be run."""

from __future__ import annotations

import itertools

import pytest

from sanctl.plan.failover.unasked_monitor import KernelRole, kernel_role


def _role(
    gate: str = "drbd3",
    alua: str = "Active/Optimized",
    *,
    is_exported: bool = True,
    is_suspended: bool = False,
    has_drbd_device: bool = True,
    is_probe: bool = False,
) -> KernelRole:
    return kernel_role(
        gate=gate,
        alua=alua,
        is_exported=is_exported,
        is_suspended=is_suspended,
        has_drbd_device=has_drbd_device,
        is_probe=is_probe,
    )


@pytest.mark.parametrize("is_probe", [True, False])
def test_an_open_gate_serves(*, is_probe: bool) -> None:
    assert _role(is_probe=is_probe) is KernelRole.SERVES


def test_a_closed_gate_is_a_standby_but_no_probe_hears_so() -> None:
    assert _role("error", "Standby") is KernelRole.STANDBY
    assert _role("error", "Standby", is_probe=True) is KernelRole.UNKNOWN


@pytest.mark.parametrize("is_probe", [True, False])
def test_nothing_of_it_is_here(*, is_probe: bool) -> None:
    absent = _role("absent", "absent", is_exported=False, has_drbd_device=False, is_probe=is_probe)
    assert absent is KernelRole.ABSENT


def test_parts_that_disagree_are_never_guessed() -> None:
    gates, states = ("absent", "error", "drbd3", "loop1"), ("absent", "Standby", "Active/Optimized")
    known = 0
    flags = list(itertools.product((True, False), repeat=4))
    for gate, alua, (is_exported, is_suspended, has_drbd_device, is_probe) in itertools.product(
        gates, states, flags
    ):
        role = _role(
            gate,
            alua,
            is_exported=is_exported,
            is_suspended=is_suspended,
            has_drbd_device=has_drbd_device,
            is_probe=is_probe,
        )
        known += role is not KernelRole.UNKNOWN
        if role is KernelRole.SERVES:
            assert (gate, alua) == ("drbd3", "Active/Optimized")
            assert is_exported
            assert not is_suspended
        if role is KernelRole.ABSENT:
            assert (gate, alua, has_drbd_device) == ("absent", "absent", False)
    # Serves: as a probe or not; standby: not as a probe; absent: whatever is asked of no part.
    assert known == 2 + 1 + 8
