# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: what a monitor reports when drbdsetup could not be run: what the kernel shows without it.

A failed monitor stops and starts the device, on a node that serves it, too. A node without memory
or processes for a moment (fork: EAGAIN, ENOMEM), or one whose drbdsetup was killed, says nothing
about the device, and a restart would need the very programs that could not be started. The gate,
the ALUA state and the target are read from the kernel without a program:

* A gate that leads onto DRBD holds the DRBD device open, and DRBD lets no device that is open
  become Secondary or go down: the node is Primary.
* A closed gate, ALUA Standby and a DRBD device that exists are a standby, or a promotion that was
  killed before it opened the gate, which the next monitor sees.

A node from which drbdsetup is missing is broken for good, and its monitors do not fail either: the
stop that follows a failed monitor needs drbdsetup, fails, too, and the node is fenced, with every
device that it serves. The kernel serves and replicates without the program. So such a node is
reported by its pools, which its agent publishes as unusable (SAN-HLT-061), and its standbys are no
candidates: a promotion would fail, and the stop after it. A replica that serves keeps its score:
without one the cluster would demote it, which needs drbdsetup.

Where drbdsetup ran and had no answer within its time, DRBD itself does not answer, and the monitor
fails as for any part that is broken; but for requests that hang, by which the node is about to end
(sanctl/plan/failover/hung_io_reboot.py).
"""

from __future__ import annotations

from enum import StrEnum


class KernelRole(StrEnum):
    """What a device is on this node, as far as the kernel shows it without drbdsetup."""

    SERVES = "serves"
    STANDBY = "standby"
    ABSENT = "absent"
    UNKNOWN = "unknown"
    """The monitor fails."""


def kernel_role(
    *,
    gate: str,
    alua: str,
    is_exported: bool,
    is_suspended: bool,
    has_drbd_device: bool,
    is_probe: bool,
) -> KernelRole:
    """Return what a device is here, by all parts but DRBD's state.

    Args:
        gate: `absent`, `error`, or the name of the block device that the gate leads onto.
        alua: the ALUA state; `absent` without a target.
        is_exported: the target is enabled.
        is_suspended: a device-mapper device holds I/O back.
        has_drbd_device: the kernel has the device's DRBD minor.
        is_probe: the cluster asks what runs before it starts anything: it must not hear a guess.
    """
    if gate == "absent" and alua == "absent" and not has_drbd_device:
        return KernelRole.ABSENT
    if not is_exported or is_suspended or not has_drbd_device:
        return KernelRole.UNKNOWN
    if gate.startswith("drbd") and alua == "Active/Optimized":
        return KernelRole.SERVES
    if gate == "error" and alua == "Standby" and not is_probe:
        return KernelRole.STANDBY
    return KernelRole.UNKNOWN
