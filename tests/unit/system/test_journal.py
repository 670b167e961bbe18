# SPDX-License-Identifier: GPL-2.0-or-later
"""Fields of a line in the journal: empty ones are left out, a renamed action has both names."""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest

from sanctl.system import journal


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What python-systemd's `journal.sendv` was called with."""
    made: list[tuple[str, ...]] = []
    systemd = ModuleType("systemd")
    systemd.__dict__["journal"] = SimpleNamespace(sendv=lambda *fields: made.append(fields))
    monkeypatch.setitem(sys.modules, "systemd", systemd)
    return made


def test_empty_fields_are_left_out(entries: list[tuple[str, ...]]) -> None:
    journal.write("two lines\nof text", device="vol1", action="promote", duration_ms=0)
    assert entries == [
        (
            "MESSAGE=two lines\nof text",
            "PRIORITY=6",
            "SYSLOG_IDENTIFIER=sanctl",
            "SANCTL_DEVICE=vol1",
            f"SANCTL_NODE={os.uname().nodename}",
            "SANCTL_ACTION=promote",
            "SANCTL_DURATION_MS=0",
        )
    ]


@pytest.mark.parametrize(("present", "former"), journal.FORMER_ACTIONS.items())
def test_a_renamed_action_is_found_by_both_names(
    entries: list[tuple[str, ...]], present: str, former: str
) -> None:
    journal.write("text", action=present)
    assert {f"SANCTL_ACTION={present}", f"SANCTL_ACTION={former}"} <= set(entries[0])


def test_no_present_name_is_a_former_one() -> None:
    assert not journal.FORMER_ACTIONS.keys() & set(journal.FORMER_ACTIONS.values())


def test_without_a_journal_the_message_goes_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "systemd", None)
    journal.write("text", action="promote")
    assert capsys.readouterr().err == "sanctl: text\n"
