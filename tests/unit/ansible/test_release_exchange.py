# SPDX-License-Identifier: GPL-2.0-or-later
"""The task that exchanges the release, in a folder of its own and with programs of ours."""

from __future__ import annotations

import importlib
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
TASKS = ROOT / "ansible/roles/sanctl_software/tasks/main.yml"
NEW, OLD = "0.2.0-bbbbbbbbbbbb", "0.1.0-aaaaaaaaaaaa"
PAIR = '<nvpair id="vm1-params-{0}" name="{0}" value="{1}"/>'


def script() -> str:
    yaml: Any = importlib.import_module("yaml")
    tasks = yaml.safe_load(TASKS.read_text())
    (block,) = [task["block"] for task in tasks if task["name"] == "Install the release"]
    text: str = block[1]["ansible.builtin.shell"]["cmd"]
    return text.replace("{{ sanctl_preflight_release }}", NEW)


class Node:
    """A node's folder of releases, the release to be installed, and what the CIB has."""

    def __init__(self, folder: Path) -> None:
        self.root, self.programs = folder / "opt" / "sanctl", folder / "bin"
        self.root.mkdir(parents=True)
        self.programs.mkdir()
        self.cib = folder / "cib"
        for name, body in (("systemctl", ":"), ("sync", ":"), ("cibadmin", f'cat "{self.cib}"')):
            program = self.programs / name
            program.write_text(f"#!/bin/sh\n{body}\n")
            program.chmod(0o755)

    def install_before(self) -> None:
        (self.root / OLD / "sanctl" / "system").mkdir(parents=True)
        (self.root / OLD / "sanctl" / "system" / "state_files.py").touch()
        (self.root / "current").symlink_to(OLD)

    def pack(self, *, knows_needs: bool) -> None:
        with zipfile.ZipFile(f"{self.root}-{NEW}.whl", "w") as wheel:
            files = ["sanctl/__init__.py", "sanctl/model/__init__.py"]
            for name in files:
                wheel.writestr(name, "")
            if knows_needs:
                path = "sanctl/model/release_needs.py"
                wheel.writestr(path, (ROOT / path).read_text())

    def exchange(self) -> subprocess.CompletedProcess[str]:
        text = (
            script().replace("/opt/sanctl", str(self.root)).replace("/run/sanctl", "/nonexistent")
        )
        return subprocess.run(
            ["bash", "-c", text], check=False, capture_output=True, text=True, timeout=60,
            env={**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}"},
        )  # fmt: skip

    @property
    def current(self) -> str:
        link = self.root / "current"
        return os.readlink(link) if link.is_symlink() else ""


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize(
    ("cib", "knows_needs", "lacks"),
    [
        ("", False, ""),
        (PAIR.format("needs", "reservations awaits"), True, ""),
        (
            PAIR.format("needs", "awaits future") + PAIR.format("needs", "later"),
            True,
            "future, later",
        ),
        (PAIR.format("needs", "awaits"), False, "awaits"),
        # Of a device that was given them before there were needs.
        (PAIR.format("reservations", "on"), False, "reservations"),
        (PAIR.format("reservations", "on"), True, ""),
        (PAIR.format("reservations", "off"), False, ""),
    ],
)
def test_a_release_that_does_not_know_what_devices_need_is_not_made_current(
    node: Node, cib: str, knows_needs: bool, lacks: str
) -> None:
    node.install_before()
    node.pack(knows_needs=knows_needs)
    node.cib.write_text(f"<xpath-query>{cib}</xpath-query>")
    done = node.exchange()
    if lacks:
        assert done.returncode == 1
        assert f"need: {lacks}." in done.stderr
        assert node.current == OLD
    else:
        assert (done.returncode, done.stderr) == (0, "")
        assert node.current == NEW
        assert os.readlink(node.root / "previous") == OLD


def test_nothing_is_asked_of_a_node_without_a_release_or_a_cluster(node: Node) -> None:
    node.pack(knows_needs=False)
    node.cib.write_text(PAIR.format("needs", "future"))
    assert node.exchange().returncode == 0
    assert node.current == NEW


def test_a_node_whose_pacemaker_does_not_run_is_updated(node: Node) -> None:
    node.install_before()
    node.pack(knows_needs=False)
    assert node.exchange().returncode == 0  # no file: cibadmin fails
    assert node.current == NEW
