# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/reference is current, every SAN- code is explained, `status` imports little."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from sanctl.cli.codes import all_codes
from sanctl.lab.reference import PAGES

ROOT = Path(__file__).parents[3]
_CODE = re.compile(r"SAN-[A-Z]+-\d{3}")


def test_every_code_is_explained_and_every_explanation_is_of_a_code() -> None:
    used = {
        code
        for path in [*(ROOT / "sanctl").rglob("*.py"), *(ROOT / "ansible").rglob("*.py")]
        if path.name not in {"codes.py", "reference.py"}
        for code in _CODE.findall(path.read_text(encoding="utf-8"))
    }
    assert used - set(all_codes()) == set(), "add these to sanctl/cli/codes.py"
    assert set(all_codes()) - used == set(), "no longer used: remove these"


def test_the_pages_are_current() -> None:
    for name, page in PAGES.items():
        path = ROOT / "docs" / "reference" / name
        assert path.read_text(encoding="utf-8") == page(), "run python -m sanctl.lab.reference"


def test_status_imports_nothing_it_does_not_need() -> None:
    program = (
        "import sys; import sanctl.cli.main as m; m.cli.get_command(None, 'status');"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"rich", "rich.table", "subprocess", "sanctl.config", "tomllib", "ssl"}
    assert not any(module.startswith(("sanctl.lab", "sanctl.agents")) for module in loaded)
