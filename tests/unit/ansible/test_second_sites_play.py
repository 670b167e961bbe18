# SPDX-License-Identifier: GPL-2.0-or-later
"""The playbook's plays for second sites: one that is down, or not mounted, stops nothing else."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PLAYBOOK = Path(sys.executable).parent / "ansible-playbook"
#: Of the playbook's plays those for sites, and in place of the nodes' one that says so.
SITES = {"Second sites", "Admission to second sites", "Second sites that were left out"}
NODES = {
    "name": "Cluster nodes",
    "hosts": "localhost",
    "gather_facts": False,
    "tags": ["always"],
    "tasks": [{"name": "Nodes", "ansible.builtin.debug": {"msg": "nodes are rolled out"}}],
}


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run these plays for a site that is down and one whose directory is not there."""
    yaml: Any = importlib.import_module("yaml")
    plays = yaml.safe_load((ROOT / "ansible/site.yml").read_text())
    kept = [
        NODES if play["name"] in {"Cluster nodes", "Cluster configuration"} else play
        for play in plays
        if play["name"] in {*SITES, "Cluster nodes", "Cluster configuration"}
    ]
    assert len(kept) == len(SITES) + 2
    (tmp_path / "plays.yml").write_text(yaml.safe_dump(kept, sort_keys=False))
    hosts = {
        "down": {"ansible_host": "127.0.0.1", "ansible_port": 1},
        "unmounted": {"ansible_connection": "local", "ansible_become": False,
                      "ansible_python_interpreter": sys.executable},
    }  # fmt: skip
    children = {
        "sanctl_sites": {"hosts": hosts},
        "sanctl_nodes": {"children": {"sanctl_storage": {}}},
    }
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": children}}))
    sites = [
        {"name": host, "host": host, "user": "no-such-user", "path": f"{tmp_path}/none/site"}
        for host in hosts
    ]
    known = {"sanctl_preflight_survey": {"sites": sites, "qnetd": ""}, "sanctl_preflight_wheel": ""}
    return subprocess.run(
        [PLAYBOOK, "-i", tmp_path / "hosts.json", "-e", json.dumps(known), *arguments,
         tmp_path / "plays.yml"],
        check=False, capture_output=True, text=True, timeout=300,
        env={
            **os.environ,
            "ANSIBLE_HOME": str(tmp_path),
            "ANSIBLE_CONFIG": str(ROOT / "ansible/ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
        },
    )  # fmt: skip


def test_the_nodes_are_rolled_out_and_the_run_is_red(tmp_path: Path) -> None:
    done = run(tmp_path, "--tags", "site")
    assert done.stdout.count("nodes are rolled out") == 2, done.stdout
    assert done.returncode == 2
    # Nothing is read of the tasks that are left out for them.
    assert "is undefined" not in done.stdout + done.stderr, done.stdout
    last = done.stdout.partition("PLAY [Second sites that were left out]")[2]
    assert "[down]" in last and "Connection refused" in last, last
    assert "[unmounted]" in last and "is to be on a mounted XFS or btrfs filesystem" in last
    assert not (tmp_path / "none").exists()


def test_a_run_for_other_tags_asks_no_site(tmp_path: Path) -> None:
    done = run(tmp_path, "--tags", "pools")
    assert done.returncode == 0 and done.stdout.count("nodes are rolled out") == 2, done.stdout
    assert "Connection refused" not in done.stdout + done.stderr
