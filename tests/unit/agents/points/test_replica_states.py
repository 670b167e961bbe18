# SPDX-License-Identifier: GPL-2.0-or-later
"""With DRBD 9 all standbys in sync are copied; what is not known is no replica in sync."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from sanctl.agents.points import replica_states
from sanctl.drivers import drbd_kernel, drbd_netlink
from sanctl.drivers.drbd_netlink import OwnState
from sanctl.errors import CommandError
from sanctl.model.device import DeviceSpec
from sanctl.model.names import ByteSize, DeviceName, NodeName, PoolName
from sanctl.parse.drbd import ProcState

DEVICE = DeviceSpec(
    name=DeviceName.parse("web"), uuid="a" * 32, minor=7, size=ByteSize(bytes=1 << 20),
    pool=PoolName.parse("main"), nodes=tuple(NodeName.parse(each) for each in ("n1", "n2", "n3")),
    initiators=(), replicas=3,
)  # fmt: skip
GOOD = ProcState("Established", "Primary", "Secondary", "UpToDate", "UpToDate", False, 0)
BEHIND = GOOD._replace(connection="SyncSource", peer_disk="Inconsistent", out_of_sync_kib=4)
Say = Callable[[OwnState | None], None]


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Say:
    """Have DRBD 9 say something on n1."""
    monkeypatch.setattr(drbd_kernel, "generation", lambda: 9)
    monkeypatch.setattr(os, "uname", lambda: type("Uname", (), {"nodename": "n1"}))

    def set_state(state: OwnState | None) -> None:
        monkeypatch.setattr(drbd_netlink, "observe", lambda _: state)

    return set_state


def test_all_standbys_in_sync_are_copied(say: Say) -> None:
    say(OwnState("Primary", "UpToDate", False, {"n2": GOOD, "n3": GOOD}))
    assert replica_states.standbys(DEVICE) == ("n2", "n3")
    replica_states.check_active(DEVICE, ("n2", "n3"))
    say(OwnState("Primary", "UpToDate", False, {"n2": GOOD, "n3": BEHIND}))
    assert replica_states.standbys(DEVICE) == ("n2",)
    with pytest.raises(CommandError, match=r"SAN-SNAP-005.*n3 is not in sync"):
        replica_states.check_active(DEVICE, ("n2", "n3"))
    replica_states.check_active(DEVICE, ("n2",))


def test_a_standby_checks_its_connection_to_the_primary(say: Say) -> None:
    active = GOOD._replace(role="Secondary", peer_role="Primary")
    other = active._replace(connection="Off", peer_role="Unknown", peer_disk="DUnknown")
    say(OwnState("Secondary", "UpToDate", False, {"n2": active, "n3": other}))
    replica_states.check_standby("web", 7)
    behind = active._replace(connection="SyncTarget", disk="Inconsistent", out_of_sync_kib=4)
    say(OwnState("Secondary", "Inconsistent", False, {"n2": behind, "n3": other}))
    with pytest.raises(CommandError, match="SAN-SNAP-005"):
        replica_states.check_standby("web", 7)


def test_a_replica_without_a_connection_is_copied_alone(say: Say) -> None:
    lone = replace(DEVICE, nodes=DEVICE.nodes[:1], replicas=1)
    say(OwnState("Primary", "UpToDate", False, {}))
    assert replica_states.standbys(lone) == ()
    # Also where DRBD knows none of the other nodes; but then they hold nothing that is known.
    assert replica_states.standbys(DEVICE) == ()
    with pytest.raises(CommandError, match="SAN-SNAP-005"):
        replica_states.check_active(DEVICE, ("n2",))
    for state in (
        None,
        OwnState("Secondary", "UpToDate", False, {}),
        OwnState("Primary", "Diskless", False, {}),
        OwnState("Primary", "UpToDate", True, {}),
    ):
        say(state)
        with pytest.raises(CommandError, match="SAN-SNAP-005"):
            replica_states.standbys(lone)
