# SPDX-License-Identifier: GPL-2.0-or-later
"""What a ledger is started with on a device of the host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.harness.scenario import Scenario


@pytest.mark.parametrize(
    ("more", "options"),
    [
        ({}, []),
        ({"start_bytes": 4096}, ["--start", "4096"]),
        ({"start_bytes": 4096, "synced": False}, ["--start", "4096", "--unsynced"]),
    ],
)
def test_a_ledger_has_a_region_of_its_own(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], options: list[str]
) -> None:
    given: list[tuple[str, ...]] = []
    host = SimpleNamespace(start_ledger=lambda *words: given.append(words))
    monkeypatch.setattr(collect, "active_node", lambda *_words: "n1")
    monkeypatch.setattr(collect, "drbd_minor", lambda *_words: 7)
    scenario = Scenario(cast(LabSession, SimpleNamespace()), cast(Initiator, host))
    load = scenario.start_load(
        "vm1", "iqn.lab.vm1", "/dev/mapper/x", rate=100.0, region_bytes=8192,
        print_line=lambda _text: None, show_ledger=lambda _state: None, **more,
    )  # fmt: skip
    assert given == [("vm1", "/dev/mapper/x", "--rate", "100", "--region", "8192", *options)]
    assert load.minor == 7
