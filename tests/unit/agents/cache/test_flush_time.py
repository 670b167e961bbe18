# SPDX-License-Identifier: GPL-2.0-or-later
"""The flush that ends write-back leaves an action the time that it needs for the rest."""

from __future__ import annotations

import pytest

from sanctl.agents import ocf
from sanctl.agents.cache import flush_time

TIMEOUT = "OCF_RESKEY_CRM_meta_timeout"


@pytest.fixture(autouse=True)
def begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocf._Begin, "at_s", None)
    monkeypatch.delenv(TIMEOUT, raising=False)


def test_a_handler_flushes_for_as_long_as_it_takes() -> None:
    assert flush_time.of_action() is flush_time.of_monitor() is flush_time.of_promotion() is None
    # A stop that is not Pacemaker's is the node's shutdown.
    assert flush_time.of_stop() == 65.0


@pytest.mark.parametrize(
    ("timeout_ms", "action", "monitor", "promotion"),
    [(120000, 87.0, 25.0, 102.0), (90000, 57.0, 25.0, 72.0), (40000, 7.0, 7.0, 22.0),
     (20000, 5.0, 5.0, 5.0)],
)  # fmt: skip
def test_an_action_ends_it_in_time(
    monkeypatch: pytest.MonkeyPatch,
    timeout_ms: int,
    action: float,
    monitor: float,
    promotion: float,
) -> None:
    monkeypatch.setenv(TIMEOUT, str(timeout_ms))
    assert flush_time.of_action() == flush_time.of_stop() == action
    assert flush_time.of_monitor() == monitor
    assert flush_time.of_promotion() == promotion
