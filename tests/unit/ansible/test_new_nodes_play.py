# SPDX-License-Identifier: GPL-2.0-or-later
"""The role that adds members: what fences a new node is in the CIB before it can be one."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ansible.test_cib_template import rendered
from tests.unit.ansible.test_modules import cib

ROOT = Path(__file__).resolve().parents[3]
PLAYBOOK = Path(sys.executable).parent / "ansible-playbook"
COROSYNC = ROOT / "ansible/roles/sanctl_corosync/tasks/main.yml"
SHARED = "Have SBD's disk fence new nodes before Pacemaker runs on them"
FENCES = "Have the cluster able to fence new nodes before they are members"
NODES = [
    {"name": f"n{id}", "id": id, "heartbeat": f"10.77.3.{id}", "sync": f"10.77.2.{id}"}
    for id in (1, 2, 3)
]


def load(path: Path) -> Any:
    yaml: Any = importlib.import_module("yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_fencing_comes_before_the_list_of_nodes_and_after_the_checks() -> None:
    """From the list on a new node may join; a list that is refused adds nothing."""
    tasks = load(COROSYNC)
    names = [task["name"] for task in tasks]
    includes = [task.get("ansible.builtin.include_tasks") for task in tasks]
    place = names.index(FENCES)
    assert tasks[place]["ansible.builtin.include_role"]["tasks_from"] == "newcomers.yml"
    assert includes.index("check.yml") < includes.index("leave.yml") < place
    assert place < names.index("Put configuration and keys in place")
    assert place < names.index("Load a changed configuration into the running cluster")
    assert place < names.index("Start Corosync")
    # SBD starts with Corosync, and no agent runs before Pacemaker does.
    shared = names.index(SHARED)
    assert tasks[shared]["ansible.builtin.include_role"]["tasks_from"] == "newcomers_sbd.yml"
    assert names.index("Start Corosync") < shared < names.index("Start Pacemaker now and at boot")


def test_packages_and_fencing_come_in_this_order_in_the_playbook() -> None:
    """The agents are installed, and the later play still writes the whole configuration."""
    plays = load(ROOT / "ansible/site.yml")
    order = [
        (play["name"], role["role"].rpartition(".")[2])
        for play in plays
        for role in play.get("roles", [])
    ]
    corosync = order.index(("Cluster nodes", "sanctl_corosync"))
    assert order.index(("Cluster nodes", "sanctl_packages")) < corosync
    assert order.index(("Cluster nodes", "sanctl_sbd")) < corosync
    assert corosync < order.index(("Cluster configuration", "sanctl_pacemaker"))


def cmap(*names: str) -> str:
    """As corosync-cmapctl prints it, of the cluster `lab`."""
    lines = [f"nodelist.node.{place}.name (str) = {name}" for place, name in enumerate(names)]
    return "\n".join([*lines, "totem.cluster_name (str) = lab"]) + "\n"


#: In place of the module `cib` and of `systemctl`: what is asked of them.
STUBS = """
- name: Stub
  hosts: sanctl_nodes
  gather_facts: false
  tasks:
    - name: As check.yml has found it
      ansible.builtin.set_fact:
        sanctl_corosync_cmap: {{stdout: "{{{{ cmap_text }}}}"}}
        sanctl_corosync_votes: {{stdout: "{{{{ votes_text }}}}"}}
    - name: {name}
      ansible.builtin.include_role:
        name: sanctl.san.sanctl_corosync
        tasks_from: stub.yml
"""


def run(
    tmp_path: Path,
    *,
    running: dict[str, str],
    quorate: str = "Yes",
    sbd: str = "",
    has_shared: bool = False,
) -> dict[str, Any]:
    """Run the role's task, with Pacemaker where Corosync is; return what each node was asked."""
    roles = tmp_path / "ansible_collections/sanctl/san"
    roles.mkdir(parents=True)
    for name in ("plugins", "meta", "galaxy.yml"):
        (roles / name).symlink_to(ROOT / "ansible" / name)
    (roles / "roles").mkdir()
    for name in ("sanctl_corosync", "sanctl_pacemaker"):
        role = roles / "roles" / name
        role.mkdir()
        for part in (ROOT / "ansible/roles" / name).iterdir():
            if part.name != "tasks":
                (role / part.name).symlink_to(part)
        (role / "tasks").mkdir()
    yaml: Any = importlib.import_module("yaml")
    steps = [task for task in load(COROSYNC) if task["name"] in {FENCES, SHARED}]
    (roles / "roles/sanctl_corosync/tasks/stub.yml").write_text(yaml.safe_dump(steps))
    service, passwords, fences = load(ROOT / "ansible/roles/sanctl_pacemaker/tasks/newcomers.yml")
    service["ansible.builtin.command"] = {"argv": ["test", "-n", "{{ cmap_text }}"]}
    look, ask, shared = load(ROOT / "ansible/roles/sanctl_pacemaker/tasks/newcomers_sbd.yml")
    look["ansible.builtin.command"] = {"argv": [str(has_shared).lower()]}
    ask["ansible.builtin.copy"] = {
        "content": "{{ ask | to_json }}",
        "dest": f"{tmp_path}/sanctl.san.sbd-{{{{ inventory_hostname }}}}",
    }
    ask["vars"] = {"ask": ask.pop("ansible.builtin.include_tasks")}
    for asked, module, name in (
        (passwords, "sanctl.san.files", "sanctl.san.files"),
        (fences, "sanctl.san.cib", "sanctl.san.cib"),
        (shared, "sanctl.san.cib", "sanctl.san.shared"),
    ):
        arguments = asked.pop(module)
        asked.pop("no_log", None)
        asked["ansible.builtin.copy"] = {
            "content": "{{ asked | to_json }}",
            "dest": f"{tmp_path}/{name}-{{{{ inventory_hostname }}}}",
        }
        asked["vars"] = {"asked": arguments}
    (roles / "roles/sanctl_pacemaker/tasks/newcomers.yml").write_text(
        yaml.safe_dump([service, passwords, fences])
    )
    (roles / "roles/sanctl_pacemaker/tasks/newcomers_sbd.yml").write_text(
        yaml.safe_dump([look, ask, shared])
    )
    hosts = {
        node["name"]: {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "cmap_text": running.get(str(node["name"]), ""),
            "votes_text": f"Quorate:          {quorate}\n" if node["name"] in running else "",
            "sanctl_fence_options": {"ip": f"192.0.2.{node['id']}", "username": "u"},
            "sanctl_fence_password": "p",
        }
        for node in NODES
    }
    storage = {"children": {"sanctl_storage": {"hosts": hosts}}}
    (tmp_path / "hosts.json").write_text(
        json.dumps({"all": {"children": {"sanctl_nodes": storage}}})
    )
    (tmp_path / "play.yml").write_text(STUBS.format(name="Add"))
    pools = [{"name": "main", "nodes": ["n1", "n2", "n3"]}]
    survey = {"nodes": NODES, "pools": pools, "has_fencing": True}
    known = {
        "sanctl_preflight_survey": survey,
        "sanctl_cluster_name": "lab",
        "sanctl_sbd_mode": sbd,
        "sanctl_sbd_devices": ["/dev/disk/by-id/a"] if sbd == "disk" else [],
    }
    done = subprocess.run(
        [PLAYBOOK, "-i", tmp_path / "hosts.json", "-e", json.dumps(known), tmp_path / "play.yml"],
        check=False, capture_output=True, text=True, timeout=300,
        env={
            **os.environ,
            "ANSIBLE_HOME": str(tmp_path),
            "ANSIBLE_CONFIG": str(ROOT / "ansible/ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(tmp_path),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return {
        path.name.removeprefix("sanctl.san."): json.loads(path.read_text())
        for path in tmp_path.glob("sanctl.san.*")
    }


def test_the_running_cluster_gets_the_fencing_of_the_new_node_alone(tmp_path: Path) -> None:
    """n1's Pacemaker is down: n2 writes. Every node gets the passwords first."""
    asked = run(tmp_path, running={"n2": cmap("n1", "n2")})
    assert sorted(asked) == ["cib-n2", "files-n1", "files-n2", "files-n3"]
    wanted = ET.fromstring(asked["cib-n2"]["configuration"])
    assert [part.get("id") for part in wanted.iterfind("*/*")] == ["fence-n3", "fence-n3-elsewhere"]
    pairs = {pair.get("name"): pair.get("value") for pair in wanted.iter("nvpair")}
    assert pairs["pcmk_host_list"] == "n3"
    assert pairs["password_script"] == "cat /etc/sanctl/fence/n3"
    assert "/etc/sanctl/fence/n3" in [each["path"] for each in asked["files-n1"]["files"]]
    assert not [each for each in asked["cib-n2"]["owned"] if "n3" not in each]


def test_a_disk_of_sbd_fences_a_new_node_once_its_sbd_was_asked(tmp_path: Path) -> None:
    """What was said: without a BMC of its own it cannot be fenced until the end of the run."""
    asked = run(tmp_path, running={"n2": cmap("n1", "n2")}, sbd="disk", has_shared=True)
    assert asked["sbd-n3"] == "sbd.yml"
    assert sorted(name for name in asked if name.startswith(("sbd", "shared"))) == [
        "sbd-n3",
        "shared-n2",
    ]
    wanted = ET.fromstring(asked["shared-n2"]["configuration"])
    assert [part.get("id") for part in wanted.iterfind("*/*")] == ["fence-sbd"]
    pairs = {pair.get("name"): pair.get("value") for pair in wanted.iter("nvpair")}
    assert pairs["pcmk_host_list"] == "n1 n2 n3"
    assert pairs["devices"] == "/dev/disk/by-id/a"
    assert "owned" not in asked["shared-n2"], "nothing is removed"


@pytest.mark.parametrize(("sbd", "has_shared"), [("disk", False), ("diskless", True), ("", True)])
def test_a_cluster_comes_to_fence_by_a_disk_with_its_whole_configuration(
    tmp_path: Path, sbd: str, has_shared: bool
) -> None:
    """The SBD of its present nodes has not been asked yet."""
    asked = run(tmp_path, running={"n2": cmap("n1", "n2")}, sbd=sbd, has_shared=has_shared)
    assert not [name for name in asked if name.startswith(("sbd", "shared"))]


@pytest.mark.parametrize(
    ("running", "quorate"),
    [
        # A first installation, a cluster that has all nodes, one that has no quorum.
        ({}, "Yes"),
        ({"n1": cmap("n1", "n2", "n3")}, "Yes"),
        ({"n1": cmap("n1", "n2")}, "No"),
    ],
)
def test_otherwise_nothing_is_written_before(
    tmp_path: Path, running: dict[str, str], quorate: str
) -> None:
    assert run(tmp_path, running=running, quorate=quorate) == {}


def test_what_the_later_play_writes_is_the_same() -> None:
    """The device of the new node is not changed again, and those of the others are left alone."""
    new_nodes: Any = importlib.import_module("sanctl.rollout.new_nodes")
    full = rendered(sanctl_pacemaker_sbd_mode="")
    present = ET.fromstring(
        "<configuration><resources><primitive id='fence-n1' class='stonith' type='fence_ipmilan'>"
        "<instance_attributes id='fence-n1-params'/></primitive></resources></configuration>"
    )
    before = ET.tostring(present[0][0])
    part = new_nodes.fencing_of(ET.tostring(full, encoding="unicode"), ["n2"])
    changed = cib.apply(ET.fromstring(part["configuration"]), present, part["owned"])
    assert [name for name, _, _ in changed] == ["fence-n2", "fence-n2-elsewhere"]
    kept = present.find("resources/primitive[@id='fence-n1']")
    assert kept is not None
    assert ET.tostring(kept) == before
    later = [name for name, _, _ in cib.apply(full, present, [])]
    assert "fence-n2" not in later
    assert "fence-n2-elsewhere" not in later
    assert "fence-n1" in later
