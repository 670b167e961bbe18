# SPDX-License-Identifier: GPL-2.0-or-later
"""The order in which a promotion lets hosts write: what has to be so before is so before."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from sanctl.agents import device_role
from sanctl.agents.replica.parts import Device
from sanctl.model.drbd import PeerState, ResourceState
from tests.fakes.runner import FakeRunner

_VOL = Device("vol1", "a" * 32, 1 << 20, "main", ("n1", "n2"), 3, ())
_STANDBY = ResourceState(
    "vol1", "Secondary", "no", "UpToDate", 1024,
    (PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0),), minor=3,
)  # fmt: skip
#: All that a promotion calls; each is replaced by one that notes the call.
_ROOMS = (
    "admission", "compared_data", "drbdsetup", "first_activation", "fs_shutdown", "gate",
    "gate_size", "hooks", "isolation", "lio", "needed_release", "ocf", "parts", "replica_state",
    "restore_closure", "set_role", "shared_marks", "write_cache", "write_cache_steps",
)  # fmt: skip
_STEPS = (
    "set_role.promote",
    "begun.close",
    "replica_state.clear_marks_before_writes",
    "gate.open_gate",
    "gate.resume",
    "lio.set_alua_state",
    "replica_state.publish",
)


def _calls(monkeypatch: pytest.MonkeyPatch, *, table: str, role: str) -> list[str]:
    """Return the calls of a promotion that are named above, in their order."""
    noted = MagicMock()
    for room in _ROOMS:
        monkeypatch.setattr(device_role, room, getattr(noted, room))
    noted.ocf.remaining_s.return_value = 50.0
    noted.gate.gate_table.return_value = table
    noted.drbdsetup.observe.return_value = _STANDBY._replace(role=role)
    noted.admission.at_promotion.side_effect = lambda _, device: device
    noted.shared_marks.is_begun.return_value = False
    device_role._promote(FakeRunner(), _VOL, noted.begun)
    return [name for name, *_ in noted.mock_calls if name in _STEPS]


def test_marks_are_cleared_before_hosts_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """And after the promotion is one for which handlers of other devices do not wait."""
    assert _calls(monkeypatch, table="error", role="Secondary") == list(_STEPS)


def test_also_where_a_killed_promotion_left_drbd_primary(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _calls(monkeypatch, table="error", role="Primary") == list(_STEPS[1:])


def test_what_serves_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _calls(monkeypatch, table="drbd1", role="Primary")
    assert "replica_state.clear_marks_before_writes" not in found
    assert "gate.open_gate" not in found
