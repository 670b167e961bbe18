# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.system import memory


def test_it_is_what_the_kernel_calls_the_total() -> None:
    total_kib = int(Path("/proc/meminfo").read_text(encoding="ascii").split()[1])
    assert memory.total_bytes() == pytest.approx(total_kib * 1024, rel=0.01)
