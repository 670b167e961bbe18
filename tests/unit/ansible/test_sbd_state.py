# SPDX-License-Identifier: GPL-2.0-or-later
"""What the rollout reads of a node's SBD and of the CIB, and when it looks."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ansible.test_modules import ANSIBLE, load

sbd_state: Any = load("plugins/modules/sbd_state.py")
A, B = "/dev/disk/by-id/a", "/dev/disk/by-id/b"


def process(proc: Path, pid: int, program: str, title: bytes = b"", **environ: str) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "comm").write_text(program + "\n")
    (folder / "cmdline").write_bytes(title + b"\0")
    (folder / "environ").write_bytes(
        b"".join(f"{key}={value}\0".encode() for key, value in environ.items())
    )


def test_the_disks_are_those_of_the_processes(tmp_path: Path) -> None:
    assert sbd_state.processes(str(tmp_path)) == {"corosync": False, "disks": []}
    (tmp_path / "self").mkdir()
    (tmp_path / "9").mkdir()
    process(tmp_path, 1, "corosync")
    process(tmp_path, 2, "sbd", b"sbd: inquisitor")
    process(tmp_path, 3, "sbd", b"sbd: watcher: Pacemaker")
    process(tmp_path, 5, "bash", f"sbd: watcher: {B} - slot: 0".encode(), SBD_DEVICE=B)
    found = sbd_state.processes(str(tmp_path))
    assert found["corosync"] is True
    assert found["disks"] == []
    process(tmp_path, 4, "sbd", f"sbd: watcher: {A} - slot: 0 - uuid: 5".encode())
    assert sbd_state.processes(str(tmp_path))["disks"] == [A]
    # A watcher that has given up is started again in a moment.
    process(tmp_path, 6, "pacemakerd", SBD_WATCHDOG_TIMEOUT="5", SBD_DEVICE=f"{A}; {B};")
    assert sbd_state.processes(str(tmp_path))["disks"] == [A, B]


def test_what_cannot_be_read_of_a_process_is_an_error(tmp_path: Path) -> None:
    process(tmp_path, 2, "sbd")
    (tmp_path / "2" / "environ").unlink()
    (tmp_path / "2" / "environ").mkdir()
    with pytest.raises(OSError, match="directory"):
        sbd_state.processes(str(tmp_path))


def cib(*, wait: str = "", devices: str | None = None) -> str:
    pair = f'<nvpair id="w" name="stonith-watchdog-timeout" value="{wait}"/>' if wait else ""
    option = f'<nvpair id="d" name="devices" value="{devices}"/>' if devices else ""
    fence = (
        '<primitive id="fence-sbd" class="stonith" type="fence_sbd"><instance_attributes id="i">'
        f'{option}<nvpair id="h" name="pcmk_host_list" value="n1 n2"/></instance_attributes>'
        "</primitive>"
        if devices is not None
        else ""
    )
    return (
        '<cib admin_epoch="0" epoch="12" num_updates="3"><configuration><crm_config>'
        f'<cluster_property_set id="o">{pair}</cluster_property_set></crm_config><resources>{fence}'
        '<primitive id="fence-n1" class="stonith" type="fence_ipmilan"/></resources>'
        "</configuration></cib>"
    )


@pytest.mark.parametrize(
    ("text", "wait", "disks"),
    [
        (cib(), "", []),
        (cib(wait="10s"), "10s", []),
        (cib(devices=A), "", [[A]]),
        (cib(devices=f"{B}, {A}"), "", [[A, B]]),
        (cib(devices=""), "", [[]]),
    ],
)
def test_what_the_cib_relies_on(text: str, wait: str, disks: list[list[str]]) -> None:
    assert sbd_state.relied_on(text, "live") == {
        "source": "live", "version": [0, 12, 3], "wait": wait, "disks": disks
    }  # fmt: skip


class FakeModule:
    """Stands in for AnsibleModule where Pacemaker is asked."""

    def __init__(self, path: str | None, code: int = 0, out: str = "") -> None:
        self.path, self.answer = path, (code, out, "")

    def get_bin_path(self, _name: str) -> str | None:
        return self.path

    def run_command(self, _argv: list[str]) -> tuple[int, str, str]:
        return self.answer


def test_the_live_cib_goes_before_the_one_on_disk(tmp_path: Path) -> None:
    path, answers = tmp_path / "cib.xml", "/usr/sbin/cibadmin"
    for module in (FakeModule(None), FakeModule(answers, 102), FakeModule(answers, 0, "<cib")):
        assert sbd_state.query(module, str(path)) == {"source": "none"}
    path.write_text(cib(devices=A))
    live = sbd_state.query(FakeModule(answers, 0, cib(wait="10s")), str(path))
    assert (live["source"], live["wait"]) == ("live", "10s")
    for module in (FakeModule(None), FakeModule(answers, 124), FakeModule(answers, 0, "<cib")):
        found = sbd_state.query(module, str(path))
        assert (found["source"], found["disks"]) == ("file", [[A]])
    for content in (b"<cib", b"\xff", b'<cib epoch="x"/>'):
        path.write_bytes(content)
        assert sbd_state.query(FakeModule(answers, 102), str(path)) == {"source": "unknown"}
    path.unlink()
    path.mkdir()
    assert sbd_state.query(FakeModule(answers, 102), str(path)) == {"source": "unknown"}


def tasks(path: str) -> list[dict[str, Any]]:
    yaml: Any = importlib.import_module("yaml")
    found: list[dict[str, Any]] = yaml.safe_load((ANSIBLE / path).read_text())
    return found


def test_the_cluster_is_looked_at_before_the_file_is_written() -> None:
    (block,) = tasks("roles/sanctl_sbd/tasks/main.yml")
    first, second = block["block"][:2]
    assert first["ansible.builtin.import_tasks"] == "check.yml"
    assert "sanctl.san.files" in second
    (members,) = [play for play in tasks("site.yml") if play["name"] == "Members"]
    roles = [task["ansible.builtin.import_role"] for task in members["tasks"]]
    assert {"name": "sanctl.san.sanctl_sbd", "tasks_from": "check.yml"} in roles


def test_the_cib_relies_on_no_sbd_that_was_not_looked_at() -> None:
    steps = tasks("roles/sanctl_pacemaker/tasks/sbd.yml")
    look = max(at for at, task in enumerate(steps) if "sanctl.san.sbd_state" in task)
    check = steps[look + 1]["ansible.builtin.assert"]
    assert check["that"] == "sanctl_pacemaker_sbd_unobeyed | length == 0"
    for name, include in (("main", "import_tasks"), ("newcomers_sbd", "include_tasks")):
        steps = tasks(f"roles/sanctl_pacemaker/tasks/{name}.yml")
        asks = [task.get(f"ansible.builtin.{include}") for task in steps].index("sbd.yml")
        (relies,) = [at for at, task in enumerate(steps) if "sanctl.san.cib" in task]
        assert asks < relies


def test_names_of_one_disk_lead_to_one_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, file = tmp_path / "sdb", tmp_path / "file"
    disk.touch()
    file.touch()
    (tmp_path / "by-id").symlink_to(disk)
    monkeypatch.setattr(sbd_state.stat, "S_ISBLK", lambda _mode: True)
    names = {str(tmp_path / "by-id"), str(disk), f"{tmp_path}/gone"}
    assert sbd_state.behind(names) == {str(tmp_path / "by-id"): str(disk), str(disk): str(disk)}
    monkeypatch.setattr(sbd_state.stat, "S_ISBLK", lambda _mode: False)
    assert sbd_state.behind({str(file)}) == {}
