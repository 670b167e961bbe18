# SPDX-License-Identifier: GPL-2.0-or-later
"""What a monitor imports: it is started every ten seconds for each device."""

from __future__ import annotations

import subprocess
import sys

from tests.support.doc_samples import ROOT

_LISTS = """
import sys
sys.path.insert(0, sys.argv[1])
import sanctl.agents.device
print(*sys.modules)
"""


def test_a_devices_monitor_imports_no_dataclasses() -> None:
    """With `inspect`, which they bring along, they cost a third of what all the rest does."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", _LISTS, str(ROOT)], check=True, capture_output=True, text=True
    )
    assert "sanctl.agents.device" in done.stdout.split()
    assert not {"dataclasses", "inspect"} & set(done.stdout.split())
