# SPDX-License-Identifier: GPL-2.0-or-later
"""Who takes a lock runs as those that may wait for it; nobody is put behind."""

from __future__ import annotations

import os

import pytest

from sanctl.system import lock_priority


@pytest.mark.parametrize(("nice", "set_to"), [(5, [0]), (0, []), (-5, [])])
def test_only_a_process_behind_actions_is_moved(
    nice: int, set_to: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    monkeypatch.setattr(os, "getpriority", lambda *_: nice)
    monkeypatch.setattr(os, "setpriority", lambda _which, _who, value: done.append(value))
    lock_priority.run_as_actions_do()
    assert done == set_to


def test_what_may_not_be_changed_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "getpriority", lambda *_: 5)
    monkeypatch.setattr(os, "setpriority", refuse)
    lock_priority.run_as_actions_do()
