# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD resource files as the agents write them, and what `drbdadm dump` must show of them."""

from __future__ import annotations

import re

from sanctl.model.sync_policy import SyncPolicy
from sanctl.render.drbd import BackingDevices, ReplicaAddress, render_resource

#: DRBD's generation and how many replicas.
COPIES = [(8, 2), (9, 1), (9, 2), (9, 3), (9, 4)]
#: As the rollout's global_common.conf has it: addresses are not looked for on this machine.
GLOBAL = "global { usage-count no; disable-ip-verification; }\n"


def resource_file(generation: int, copies: int) -> str:
    """Return the text for a device with so many replicas."""
    return render_resource(
        name="vol1",
        minor=3,
        size_bytes=1 << 30,
        secret="5" * 32,
        replicas=tuple(
            ReplicaAddress(f"n{number}", number, f"10.0.0.{number}")
            for number in range(1, copies + 1)
        ),
        backing=BackingDevices("/dev/loop4", "/dev/loop5"),
        handlers="/usr/lib/sanctl",
        generation=generation,
        sync=SyncPolicy(),
        link_bytes_s=None,
    )


def environment(generation: int) -> dict[str, str]:
    """Return what lets drbdadm believe in a kernel's DRBD and in being n1 (drbd-utils, tests)."""
    version = "9.3.3" if generation >= 9 else "8.4.11"
    return {"DRBD_DRIVER_VERSION_OVERRIDE": version, "__DRBD_NODE__": "n1"}


def is_read_as_meant(dump: str, generation: int, copies: int) -> None:
    """Assert what matters of `drbdadm dump`."""
    reported = {
        key: value.strip(' "') for key, value in re.findall(r"^\s*([\w-]+)\s+(.*);", dump, re.M)
    }
    assert len(re.findall(r"^\s*on n\d \{", dump, re.M)) == copies
    assert reported["protocol"] == "C"
    assert reported["rr-conflict"] == "disconnect"
    assert reported["on-no-data-accessible"] == "suspend-io"
    if generation < 9:
        assert reported["fencing"] == "resource-and-stonith"
        return
    assert reported["fencing"] == {1: "dont-care", 2: "resource-and-stonith"}.get(
        copies, "resource-only"
    )
    assert reported["quorum"] == ("majority" if copies > 2 else "off")
    assert (reported["on-no-quorum"], reported["auto-promote"]) == ("suspend-io", "no")
    mesh = re.findall(r"^\s*hosts (.*);", dump, re.M)
    assert mesh == [" ".join(f"n{n + 1}" for n in range(copies))] * (copies > 1)
