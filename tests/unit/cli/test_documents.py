# SPDX-License-Identifier: GPL-2.0-or-later
"""Every command keeps the promise of docs/reference/json.md."""

from __future__ import annotations

import json
import shlex
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import sanctl.cli.environment
from sanctl.cli.main import cli, main
from sanctl.lab.documents.by_command import ALL_DOCUMENTS
from tests.fakes.remote_services import FakeRemoteServices
from tests.support.json_contract import breaches
from tests.unit.cli.test_commands import I1, FakeEnvironment
from tests.unit.ops.test_doctor import FakeHost

_LIFE = (
    f"device create vm1 --size 1G --initiator {I1}",
    "device create vm2 --size 64M",
    "device list",
    "device show vm1",
    "device find 1",
    "device resize vm1 2G",
    "device resize vm1 2G",
    "device sync vm1",
    "device sync vm1 --full-above 30 --csums on --rate-max 100M --resync-window 22-06",
    "device sync vm1 --full-above never --csums off --rate-max network --resync-window always",
    "device verify vm1",
    "device verify vm1 --schedule sun@03",
    "sync status",
    "device move vm1 --to n2",
    "device move vm1 --to n2",
    "device follow vm1 --none",
    "snapshot create vm1 --name one --hook freeze --or-crash",
    "snapshot list vm1",
    "snapshot show vm1@one",
    "device restore vm1 --to one --yes --accept SAN-REST-001",
    "snapshot schedule vm1",
    "snapshot schedule vm1 '1h keep 24' --hook freeze --hook-limit 20",
    "snapshot list",
    "device show vm1",
    "snapshot prune vm1",
    "snapshot schedule vm1 off",
    "snapshot delete vm1@one --yes",
    "device move vm2 --to n2",
    "snapshot create vm1 vm2 --group --name both",
    "snapshot delete vm1@both --yes",
    "snapshot delete vm2@both --yes",
    "snapshot schedule vm1 vm2 '1h keep 24' --group",
    "snapshot schedule vm1",
    "snapshot schedule vm1 vm2 off --group",
    "target reservations vm2",
    "device set vm2 --reservations on",
    "device set vm2 --reservations on",
    "target reservations vm2",
    "target reservations vm2 clear --yes",
    "device set vm2 --reservations off",
    "device place --size 1G --explain",
    "device replicas vm2 1",
    "device replicas vm2 2",
    "node replace n3 n2",
    "target show",
    "target show vm1",
    f"target deny vm1 {I1}",
    f"target allow vm1 {I1}",
    f"target deny vm1 {I1}",
    f"host create web1 --iqn {I1} --chap web",
    "host set web1 --mutual",
    "target allow vm1 --host web1",
    "host rename web1 web2",
    "host list",
    "host show web2",
    "target deny vm1 --host web2",
    "host group create both --host web2",
    "target allow vm1 --host-group both",
    "host group rename both all",
    "host group list",
    "host group show all",
    "target show vm1",
    "device show vm1",
    "host group remove all --host web2",
    "host group add all --host web2",
    "target deny vm1 --host-group all",
    "host group remove all --host web2",
    "host group delete all",
    "host delete web2",
    "node list",
    "status",
    "doctor",
    "node standby n2",
    "status",
    "node online n2",
    "node drain n2",
    "node undrain n2",
    "node fence n2 --test",
    "node fence n2 --yes",
    "cluster strategy show",
    "device complete",
    "device heal vm1",
    "device cache vm1 write-back --dirty-limit 32M",
    "device cache vm1",
    "device show vm1",
    "device cache vm1 write-through",
    "device cache vm1 write-through",
    "pool list",
    "explain SAN-DEV-002",
    "device delete vm2 --yes",
)
#: These need a laboratory: tests/lab/test_docs.py and test_pool_cache.py have them.
_IN_THE_LAB = {
    "bench cache",
    "bench cost",
    "bench failover",
    "bench levels",
    "bench offload",
    "bench partner",
    "bench path",
    "bench peers",
    "bench replicate",
    "bench site",
    "bench snapshot",
    "cluster show",
    "cluster strategy set",
    "lab list",
    "lab power",
    "lab status",
    "lab up",
    "node remove",
    "pool cache",
    "pool prepare",
}
#: These need a repository: tests/unit/ops/test_backup.py and test_backup_result.py have them.
_WITH_A_REPOSITORY = {
    f"backup {word}"
    for word in ("expect", "forget", "init", "list", "prune", "restore", "run", "verify")
}

#: It needs a node that cannot be fenced: tests/unit/cli/test_node_confirm.py has it.
_WITH_A_LOST_NODE = {"node confirm-off"}

#: These need LIO: tests/unit/ops/test_point_export.py has them.
_WITH_LIO = {f"snapshot {word}" for word in ("export", "exports", "unexport")}
#: These need a second site, or the files of one: tests/unit/ops/test_replicate.py has them.
_WITH_A_SITE = {
    "replicate failback",
    "replicate giveback",
    "replicate release",
    "replicate restore",
    "replicate run",
    "replicate schedule",
    "replicate set",
    "replicate status",
    "replicate takeover",
    "report rpo",
    "site add",
    "site copies",
    "site list",
    "site remove",
    "site set",
}


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Return every command with its words."""
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            if isinstance(command, click.Group):
                yield from leaves(command, (*path, name))
            else:
                yield " ".join((*path, name)), command


def words_of(line: str) -> str:
    """Return the words that name a command, without its arguments."""
    return max((words for words in ALL_DOCUMENTS if f"{line} ".startswith(f"{words} ")), key=len)


def test_every_command_with_json_is_documented_and_nothing_else() -> None:
    printing = {
        words
        for words, command in leaves(cli)
        if any("--output" in parameter.opts for parameter in command.params)
    }
    assert printing == set(ALL_DOCUMENTS), "sanctl/cli/documents/by_command.py"


def test_every_document_is_held_against_a_real_one() -> None:
    tried = {words_of(line) for line in _LIFE} | {"lab kernel-check", "bench status"}
    elsewhere = _IN_THE_LAB | _WITH_A_REPOSITORY | _WITH_LIO | _WITH_A_SITE | _WITH_A_LOST_NODE
    assert tried | elsewhere == set(ALL_DOCUMENTS)


def _printed(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["sanctl", *shlex.split(line), "--output", "json"])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0), capsys.readouterr().out


def test_every_command_keeps_the_promise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakeEnvironment()
    fake.host = FakeHost()  # type: ignore[attr-defined]
    fake.remote_services = FakeRemoteServices  # type: ignore[attr-defined]
    fake.pacemaker.keep_reservations()
    constraints = fake.pacemaker.root.find("configuration/constraints")
    assert constraints is not None
    ET.SubElement(constraints, "rsc_location", {"id": "drained-serves-nothing"})
    monkeypatch.setattr(sanctl.cli.environment, "Environment", lambda: fake)
    for line in _LIFE:
        status, out = _printed(line, monkeypatch, capsys)
        assert status in {0, 1}, f"{line}: {out}"
        assert breaches(words_of(line), out) == [], line
    fake.pacemaker.crash("n2")
    fake.has_topology = False
    for line in ("status", "doctor"):
        status, out = _printed(line, monkeypatch, capsys)
        assert (status, breaches(line, out)) == (1, [])


def test_what_a_kernel_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text("CONFIG_BLK_DEV_DRBD=m\n")
    line = f"lab kernel-check --config {config}"
    status, out = _printed(line, monkeypatch, capsys)
    assert (status, json.loads(out)["status"]) == (1, "degraded")
    assert json.loads(out)["data"]["missing"]
    assert breaches("lab kernel-check", out) == []


def test_what_the_status_of_devices_that_are_made_up_costs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is measured, by a process of its own; how long that takes is not tested."""
    status, out = _printed("bench status --devices 3 --repeat 1", monkeypatch, capsys)
    assert status in {0, 1}
    assert breaches("bench status", out) == []
    found = json.loads(out)["data"]
    assert [each["situation"] for each in found["costs"]] == ["healthy", "n3 lost", "n3 returned"]
    assert all(each["cpu_s"] > 0 for each in found["costs"])


def test_a_breach_is_seen() -> None:
    def said(data: object) -> list[str]:
        frame = {"schema": 1, "status": "ok", "data": data, "problems": []}
        return breaches("node online", json.dumps(frame))

    assert said({"name": "n1", "changed": True}) == []
    assert said({"name": "n1"}) == ["data.changed is missing"]
    assert sorted(said({"name": None, "changed": 1, "more": 0})) == [
        "data.changed is 1, not of type bool",
        "data.more is not documented",
        "data.name is None, not of type str",
    ]
    assert said([]) == ["data is no object"]
