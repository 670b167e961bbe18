# SPDX-License-Identifier: GPL-2.0-or-later
"""Which kernels a node may boot next, and what modules they have."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.drivers import node_facts
from tests.fakes.runner import FakeRunner


def test_kernels_that_can_be_booted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_facts, "_MODULES", f"{tmp_path}/modules")
    monkeypatch.setattr(node_facts, "_BOOT", f"{tmp_path}/boot")
    facts = node_facts.NodeFacts(FakeRunner())
    assert facts.kernel_modules() == {}
    for release in ("6.1", "6.2", "6.3", "removed"):
        (tmp_path / "modules" / release).mkdir(parents=True)
    (tmp_path / "boot").mkdir()
    for release in ("6.1", "6.2", "removed"):
        (tmp_path / "modules" / release / "modules.dep").write_text(f"{release}:")
    (tmp_path / "modules/6.1/modules.builtin").write_text("kernel/built-in.ko")
    for image in ("boot/vmlinuz-6.1", "modules/6.2/vmlinuz", "boot/vmlinuz-6.3"):
        (tmp_path / image).touch()
    assert facts.kernel_modules() == {"6.1": "6.1:\nkernel/built-in.ko", "6.2": "6.2:\n"}
