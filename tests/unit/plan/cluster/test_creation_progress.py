# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest

from sanctl.model.device import DeviceSpec
from sanctl.model.names import ByteSize, DeviceName, NodeName, PoolName
from sanctl.parse.drbd import ProcState
from sanctl.parse.published_state import parse_replica_state
from sanctl.plan.cluster.convergence import kernel_has_created, seems_created

DEVICE = DeviceSpec(
    name=DeviceName.parse("vm1"),
    uuid="a" * 32,
    size=ByteSize.parse("1G"),
    pool=PoolName.parse("main"),
    replicas=2,
    nodes=(NodeName.parse("n1"), NodeName.parse("n2")),
    minor=1,
    initiators=(),
)
SERVES, STANDS_BY = "disk=UpToDate role=Primary", "disk=UpToDate role=Secondary"


@pytest.mark.parametrize(
    ("n1", "n2", "seems"),
    [
        (SERVES, STANDS_BY, True),
        (STANDS_BY, SERVES, True),
        (STANDS_BY, STANDS_BY, False),
        (SERVES, "disk=Inconsistent role=Secondary", False),
        (SERVES, None, False),
        (None, None, False),
        ("", SERVES, False),
    ],
)
def test_what_replicas_say_of_a_new_device(n1: str | None, n2: str | None, seems: bool) -> None:
    published = {
        node: parse_replica_state(text)
        for node, text in (("n1", n1), ("n2", n2))
        if text is not None
    }
    assert seems_created(DEVICE, published) == seems


@pytest.mark.parametrize(
    ("roles", "disks", "expected"),
    [
        (("Primary", "Secondary"), ("UpToDate", "UpToDate"), True),
        (("Secondary", "Primary"), ("UpToDate", "UpToDate"), True),
        (("Secondary", "Secondary"), ("UpToDate", "UpToDate"), False),
        (("Primary", "Secondary"), ("UpToDate", "Inconsistent"), False),
        (("Secondary", "Primary"), ("Inconsistent", "UpToDate"), False),
        (("Secondary", "Unknown"), ("Inconsistent", "DUnknown"), False),
    ],
)
def test_what_the_kernel_sees_of_a_new_device(
    roles: tuple[str, str], disks: tuple[str, str], expected: bool
) -> None:
    state = ProcState("Connected", *roles, *disks, is_suspended=False, out_of_sync_kib=0)
    assert kernel_has_created(state) == expected
