# SPDX-License-Identifier: GPL-2.0-or-later
"""The programs of /usr/lib/sanctl: each is installed, and runs its module, of either release."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sanctl.agents.handlers import drbd_environment, programs, unfence_peer
from sanctl.system import journal
from tests.support.doc_samples import ROOT

HANDLERS = ROOT / "resource-agents/handlers"
STUB = (ROOT / "resource-agents/direct/program").read_text()
CLIENT = (ROOT / "resource-agents/client").read_text()
BY_SERVICE = {"before-resync-source", "clear-marks", "fence-peer"}
SHELL = {"resync-target", "unfence-peer"}


def installed() -> set[str]:
    return {path.name for path in HANDLERS.iterdir()}


def test_the_stub_is_installed_under_each_name() -> None:
    assert installed() == set(programs.MODULES) | SHELL
    for name in programs.MODULES:
        assert (HANDLERS / name).read_text() == (CLIENT if name in BY_SERVICE else STUB)
        assert os.access(HANDLERS / name, os.X_OK)
    for name in SHELL:
        assert (HANDLERS / name).read_text().startswith("#!/bin/sh\n")


def test_what_drbd_and_systemd_start_is_installed() -> None:
    started = set()
    for path in (*ROOT.glob("ansible/roles/*/templates/*"), *HANDLERS.iterdir()):
        started |= set(re.findall(r"/usr/lib/sanctl/([\w-]+)", path.read_text()))
    drbd = (ROOT / "sanctl/render/drbd.py").read_text()
    started |= set(re.findall(r"\{handlers\}/([\w-]+)", drbd))
    assert (
        {"fence-peer", "resync", "stop-remaining", "clear-marks"}
        <= started
        <= installed() | {"program"}
    )


@pytest.mark.parametrize("name", programs.MODULES)
def test_each_name_has_a_main(name: str) -> None:
    module = __import__(programs.MODULES[name], fromlist=["main"])
    assert callable(module.main)


def run(tmp_path: Path, name: str, release: dict[str, str]) -> subprocess.CompletedProcess[str]:
    for path, text in release.items():
        file = tmp_path / "release" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    stub = tmp_path / name
    stub.write_text(STUB.replace("/opt/sanctl/current", str(tmp_path / "release")))
    return subprocess.run(
        [sys.executable, "-I", stub, "start", "main"], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "name",
    sorted(
        programs.MODULES.keys()
        - {
            "actions",
            "copy-to-site",
            "look-at-sites",
            "flush-only-replicas",
            "own-host",
            "point-hook",
            "point-peer",
            "reservations",
            "restore-device",
            "take-point",
        }
    ),
)
def test_a_release_before_the_stub_is_run_by_its_own_names(tmp_path: Path, name: str) -> None:
    """The update puts the programs in place first, and the way back puts the release first."""
    told = "import sys\ndef {}(*words):\n    print(__name__, *map(len, words))\n    return 7\n"
    done = run(
        tmp_path,
        name,
        {
            "sanctl/agents/resync.py": told.format("before_resync_source"),
            "sanctl/agents/fencing.py": told.format("fence_peer") + told.format("unfence_peer"),
            "sanctl/agents/pool_cache.py": told.format("main"),
            "sanctl/agents/leaving.py": told.format("put_down"),
            "sanctl/agents/escort.py": told.format("main"),
        },
    )
    assert done.returncode == 7, done.stderr
    words = " 3" if name == "pool-cache" else ""
    before = {
        "before-resync-source": "resync",
        "clear-marks": "fencing",
        "fence-peer": "fencing",
        "pool-cache": "pool_cache",
        "put-down": "leaving",
        "resync": "escort",
        "stop-remaining": "leaving",
    }
    assert done.stdout == f"sanctl.agents.{before[name]}{words}\n"


def test_this_release_is_run_by_the_programs_name(tmp_path: Path) -> None:
    program = "def main(argv):\n    print(argv[1:])\n    return 4\n"
    done = run(tmp_path, "fence-peer", {"sanctl/agents/handlers/programs.py": program})
    assert (done.returncode, done.stdout) == (4, "['start', 'main']\n")


def test_fence_peer_imports_no_other_program() -> None:
    """fence-peer runs while I/O is frozen."""
    listing = (
        "import sys; sys.path.insert(0, sys.argv[1]); import sanctl.agents.handlers.fence_peer"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"{listing}; print(*sys.modules)", ROOT],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert "sanctl.agents.handlers.fence_peer" in loaded
    assert not {each for each in loaded if each.startswith("sanctl.agents.sync")}
    assert not loaded & (set(programs.MODULES.values()) - {programs.MODULES["fence-peer"]})


def test_a_program_that_crashes_says_so_in_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[tuple[str, object]] = []
    monkeypatch.setattr(drbd_environment, "resource", lambda: "vol1")
    monkeypatch.setattr(
        journal, "write", lambda text, **fields: lines.append((text, fields["action"]))
    )

    def crash() -> int:
        raise KeyError("standing")

    monkeypatch.setattr(unfence_peer, "main", crash)
    with pytest.raises(KeyError):
        programs.main(["/usr/lib/sanctl/clear-marks"])
    ((text, action),) = lines
    assert action == "clear-marks"
    assert text.startswith("vol1: clear-marks ended by an error of its own")
    assert "KeyError: 'standing'" in text


@pytest.mark.parametrize(
    ("program", "is_spared"),
    [("fence-peer", True), ("before-resync-source", True), ("resync", False)],
)
def test_what_drbd_waits_for_is_spared_by_the_oom_killer(
    program: str, is_spared: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    score = tmp_path / "oom_score_adj"
    monkeypatch.setattr(programs, "_OOM_SCORE", str(score))
    monkeypatch.setattr(f"{programs.MODULES[program]}.main", lambda: 4)
    assert programs.main([f"/usr/lib/sanctl/{program}"]) == 4
    assert score.exists() == is_spared
    monkeypatch.setattr(programs, "_OOM_SCORE", str(tmp_path / "none" / "there"))
    assert programs.main([f"/usr/lib/sanctl/{program}"]) == 4
