# SPDX-License-Identifier: GPL-2.0-or-later
"""A program that is talked to needs no room on /tmp, and what it said last is kept."""

from __future__ import annotations

import tempfile

import pytest

from sanctl.system.piped_process import PipedProcess


def test_errors_are_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What broke: on a node without room on /tmp no copy to a second site began."""

    def no_room(*_: object, **__: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", no_room)
    monkeypatch.setattr(tempfile, "mkstemp", no_room)
    with PipedProcess(["sh", "-c", "cat; echo why >&2; exit 3"]) as process:
        process.write(b"text", silence_s=5.0)
        assert process.end() == (3, "why")
