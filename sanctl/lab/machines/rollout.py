# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the Ansible playbook against a laboratory, with an inventory made from its specification.

The playbook is the one for real servers: only the inventory is the laboratory's.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sanctl.errors import CommandError, Problem, Refused
from sanctl.lab.machines import guest_files, process
from sanctl.lab.machines.lab_state import BMC_USER, Lab
from sanctl.lab.machines.progress import Progress
from sanctl.lab.machines.spec import LabSpec, Network, NodeSpec, Role, Witness
from sanctl.model.topology import Strategy
from sanctl.system.files import write_atomically

_IQN_PREFIX = "iqn.2026-11.net.example"
_DEADLINE_S = 900.0
_LAST_LINES = 25
_TASK = re.compile(r"^TASK \[(?:sanctl\.san\.)?(?:sanctl_)?(?P<what>.*?)\] \*", re.MULTILINE)
_RECAP = re.compile(
    r"^(?P<host>\S+)\s+: ok=\d+\s+changed=(?P<changed>\d+)\s+unreachable=(?P<unreachable>\d+)"
    r"\s+failed=(?P<failed>\d+)",
    re.MULTILINE,
)


def run(
    lab: Lab,
    *,
    progress: Progress | None = None,
    arguments: tuple[str, ...] = (),
    inventory: Mapping[str, Any] | None = None,
) -> int:
    """Roll out to every node of a lab; return how many tasks changed something.

    Args:
        lab: a lab that is up.
        progress: where to show what is being done.
        arguments: more arguments for ansible-playbook, such as `--check`.
        inventory: the inventory to use in place of `inventory_of(lab)`.

    Raises:
        Refused: there is no ansible-playbook, or no checkout to roll out from.
        CommandError: the playbook failed; its last lines are in the text.
    """
    progress = progress or Progress()
    source = _checkout()
    wanted = inventory_of(lab) if inventory is None else inventory
    hosts = lab.directory / "inventory.json"
    write_atomically(str(hosts), json.dumps(wanted, indent=2) + "\n", mode=0o600)
    log = lab.directory / "rollout.log"
    log.unlink(missing_ok=True)
    argv = lab.enter(
        "env",
        f"ANSIBLE_CONFIG={source}/ansible/ansible.cfg",
        # Its own connections: they live as long as the lab, and a lab's name is in the path.
        f"ANSIBLE_SSH_ARGS=-F {lab.ssh_config}",
        "ANSIBLE_NOCOLOR=1",
        f"HOME={os.environ.get('HOME', '/root')}",
        _ansible_playbook(),
        "--inventory",
        str(hosts),
        "--extra-vars",
        json.dumps({"sanctl_wheel_directory": str(lab.directory / "wheel")}),
        *arguments,
        str(source / "ansible" / "site.yml"),
    )
    with progress.step("rollout") as tick:
        try:
            process.run_logged(argv, log=log, timeout_s=_DEADLINE_S, tick=_follow(log, tick))
        except CommandError as error:
            raise CommandError(
                Problem(
                    "SAN-LAB-040",
                    f"the rollout to lab {lab.name} failed\n{_tail(log)}",
                    f"all of it: {log}; again: sanctl lab up --name {lab.name}",
                )
            ) from error
    return changes(log.read_text(errors="replace"))


def changes(output: str) -> int:
    """Return the number of changed tasks in a playbook's recap."""
    return sum(int(match["changed"]) for match in _RECAP.finditer(output))


def last_task(output: str) -> str:
    """Return the last task in a playbook's output."""
    tasks = _TASK.findall(output)
    return tasks[-1] if tasks else "starting"


def inventory_of(lab: Lab) -> dict[str, Any]:
    """Return the Ansible inventory of a laboratory, as an administrator would write it."""
    pools = {
        label.removeprefix("sanctl-"): {
            "path": path,
            "uuid": _pool_uuid(lab, label),
            "nodes": [node.name for node in lab.spec.cluster_nodes if node.role is Role.STORAGE],
            **(_cache(lab.spec) if number == 1 and lab.spec.has_flash else {}),
        }
        for number, (label, path) in enumerate(guest_files.data_mounts(lab.spec), start=1)
    }
    by_role = {
        role: {node.name: _host(lab, node) for node in lab.machines if node.role is role}
        for role in Role
    }
    own_hosts: dict[str, dict[str, Any]] = (
        {name: {} for name in by_role[Role.STORAGE]} if lab.spec.own_hosts else {}
    )
    return {
        "all": {
            "children": {
                "sanctl_nodes": {
                    "vars": {
                        "sanctl_cluster_name": lab.name,
                        "sanctl_iqn_prefix": f"{_IQN_PREFIX}:{lab.name}",
                        "sanctl_networks": {
                            "iscsi": f"{Network.ISCSI.subnet}.0/24",
                            "sync": f"{Network.SYNC.subnet}.0/24",
                            "heartbeat": f"{Network.HEARTBEAT.subnet}.0/24",
                        },
                        "sanctl_pools": pools,
                        "sanctl_pacemaker_reach_targets": [
                            host.address(Network.ISCSI) for host in lab.spec.hosts
                        ],
                        "sanctl_strategy": _strategy(lab.spec).value,
                        **({"sanctl_nodes_are_hosts": True} if lab.spec.own_hosts else {}),
                    },
                    "children": {
                        "sanctl_storage": {"hosts": by_role[Role.STORAGE]},
                        "sanctl_witness": {"hosts": by_role[Role.WITNESS]},
                    },
                },
                "sanctl_qnetd": {"hosts": by_role[Role.QNETD]},
                "sanctl_hosts": {"hosts": by_role[Role.INITIATOR] | own_hosts},
            }
        }
    }


def _cache(spec: LabSpec) -> dict[str, Any]:
    disk = f"/dev/mapper/{guest_files.DISK_PREFIX}"
    return {
        "cache": {
            "origin": f"{disk}1",
            "device": f"{disk}{spec.all_disks}",
            "filesystem": spec.filesystem,
        }
    }


def _strategy(spec: LabSpec) -> Strategy:
    """Return the strategy: two nodes without a third vote can only have `heartbeat`."""
    is_pair = spec.nodes == 2 and spec.witness_kind is Witness.NONE
    return Strategy.HEARTBEAT if is_pair else Strategy.NODE_MAJORITY


def _host(lab: Lab, node: NodeSpec) -> dict[str, Any]:
    variables: dict[str, Any] = {"ansible_user": "root"}
    if node.role is Role.INITIATOR:
        return variables
    if node.role is Role.QNETD:
        return variables | {"sanctl_qnetd_address": node.address(Network.HEARTBEAT)}
    variables |= {
        "sanctl_node_id": node.id,
        "sanctl_sync": node.address(Network.SYNC),
        "sanctl_heartbeat": node.address(Network.HEARTBEAT),
        "sanctl_fence_options": {"ip": node.bmc_address, "username": BMC_USER},
        "sanctl_fence_password": lab.bmc_password(),
    }
    if node.role is Role.STORAGE:
        variables["sanctl_iscsi"] = [node.address(Network.ISCSI)]
        if lab.spec.racks:
            variables["sanctl_rack"] = lab.spec.rack(node)
    return variables


def _pool_uuid(lab: Lab, label: str) -> str:
    # Derived from the lab's login key: the same for as long as the lab and its disks exist, another
    # one for the next lab of that name.
    key = (lab.directory / "id_ed25519.pub").read_text()
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{key} {label}"))


def _checkout() -> Path:
    source = Path(__file__).resolve().parents[3]
    if not (source / "ansible" / "site.yml").is_file():
        raise Refused(
            Problem(
                "SAN-LAB-041",
                "this sanctl is not a checkout, and the playbook is not part of the package",
                "run it from the source tree, or add --no-rollout",
            )
        )
    return source


def _ansible_playbook() -> str:
    program = Path(sys.executable).parent / "ansible-playbook"
    if not program.exists():
        raise Refused(
            Problem(
                "SAN-LAB-042",
                f"there is no {program}",
                "make setup installs it; --no-rollout does without",
            )
        )
    return str(program)


def _follow(log: Path, tick: Callable[[str], None]) -> Callable[[str], None]:
    """Return a progress callback that shows the playbook's current task."""
    begin = time.monotonic()
    shown = ""

    def at(_: str) -> None:
        nonlocal shown
        task = last_task(log.read_text(errors="replace")) if log.exists() else "starting"
        tick(task)
        # Without a terminal there is no spinner: one line for each role shows the progress.
        role = task.split(" : ")[0]
        if role != shown and not sys.stderr.isatty():
            sys.stderr.write(f"rollout: {role} at {time.monotonic() - begin:.0f} s\n")
        shown = role

    return at


def _tail(log: Path) -> str:
    """Return the log from its first failure on, or its end if there is no failure."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    failures = [
        number
        for number, line in enumerate(lines)
        if line.startswith(("fatal:", "[ERROR]", "ERROR!", "failed:"))
    ]
    start = max(0, failures[0] - 1) if failures else max(0, len(lines) - _LAST_LINES)
    return "\n".join(lines[start : start + _LAST_LINES])
