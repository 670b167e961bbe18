# SPDX-License-Identifier: GPL-2.0-or-later
"""What the kernel refuses of an access list is logged, at a start as by a monitor, and once."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.replica import access_list, sync_policy
from sanctl.agents.replica.parts import Device
from sanctl.system import journal, state_files

DEVICE = Device("vm1", "a" * 32, 1, "main", ("n1", "n2"), 1, ())


def test_a_refused_entry_is_logged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(journal, "write", lambda text, **_: said.append(text))
    access_list.log_refused(DEVICE, [])
    assert said == []
    for _ in range(2):
        access_list.log_refused(DEVICE, ["iqn.a: no memory"])
    assert len(said) == 1 and "iqn.a: no memory" in said[0]
    access_list.log_refused(DEVICE, [])
    access_list.log_refused(DEVICE, ["iqn.a: no memory"])
    assert len(said) == 2


def test_the_resync_service_does_not_unsay_who_is_kept_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows the device by its record alone, without hosts, and publishes after each resync."""
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    outside: list[str] = ["app1", "web1"]
    monkeypatch.setattr(access_list, "hosts_without_secret", lambda _: tuple(outside))
    full = DEVICE._replace(cache="mode=write-through")
    assert access_list.published_field(full) == " no-secret=app1,web1"
    sync_policy.record(full)
    recorded = sync_policy.recorded_device("vm1")
    assert recorded is not None and not recorded.hosts
    assert recorded.cache == full.cache
    assert access_list.published_field(recorded) == " no-secret=app1,web1"
    outside.clear()
    assert access_list.published_field(full) == ""
    assert access_list.published_field(recorded) == ""
