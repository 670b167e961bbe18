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


def test_a_devices_monitor_imports_nothing_that_it_seldom_needs() -> None:
    """Dataclasses (with `inspect`) cost a third of all other imports; uuid, json, XML a third."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", _LISTS, str(ROOT)], check=True, capture_output=True, text=True
    )
    assert "sanctl.agents.device" in done.stdout.split()
    assert not {"dataclasses", "hashlib", "hmac", "inspect", "json", "uuid", "xml"} & set(
        done.stdout.split()
    )
