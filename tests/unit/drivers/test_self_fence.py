# SPDX-License-Identifier: GPL-2.0-or-later
"""A node ends itself whatever its journal, and its memory, are like."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.drivers import self_fence
from sanctl.system import journal
from tests.fakes.runner import FakeRunner


class WithoutMemory(FakeRunner):
    """No process can be started."""

    def run(self, *_: object, **__: object) -> object:  # type: ignore[override]
        raise OSError(12, "Cannot allocate memory")


@pytest.mark.parametrize("runner", [FakeRunner(), WithoutMemory()], ids=["whole", "no memory"])
def test_the_reason_is_in_the_kernel_log_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: FakeRunner
) -> None:
    """What broke: a process that could not be started for the journal kept the node up."""
    log, trigger = tmp_path / "kmsg", tmp_path / "sysrq"
    log.touch()
    monkeypatch.setattr(journal, "_KERNEL_LOG", f"{log}")
    monkeypatch.setattr(self_fence, "_TRIGGER", f"{trigger}")
    seen: list[str] = []
    monkeypatch.setattr(journal, "write", lambda *_, **__: seen.append(log.read_text()))
    self_fence.reboot(runner, "a request hangs", device="vol1")
    assert seen == ["<2>sanctl: self-fence: a request hangs; rebooting\n"]
    assert trigger.read_text() == "b"
