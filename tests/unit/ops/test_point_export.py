# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl snapshot export`, `unexport` and `exports`, with LIO in memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sanctl.cli.environment
from sanctl.cli.main import main
from sanctl.drivers import host_secrets, lio_export, pool_files
from sanctl.drivers.lio_export import Export, NewExport
from sanctl.errors import CommandError, Problem, Refused, SanctlError
from sanctl.plan.device.point_export import PORT_IDS
from sanctl.system import state_files
from tests.support.json_contract import breaches
from tests.unit.cli.test_commands import I1, FakeEnvironment

BACKUP = "iqn.2026-11.net.example:backup"


class Bed:
    """A device that n1 serves, with a restore point, and the node n2, on which commands run."""

    def __init__(self, run: Callable[[str], tuple[int, Any]]) -> None:
        self.run, self.here = run, "n2"
        self.made: dict[tuple[str, str], NewExport] = {}
        self.refusal: SanctlError | None = None
        self.port_ids: list[int] = []

    def create(self, wanted: NewExport, choose_port_id: Callable[[Collection[int]], int]) -> None:
        self.port_ids.append(choose_port_id({1, *self.port_ids}))
        self.made[wanted.device, wanted.point] = wanted
        if self.refusal is not None:
            raise self.refusal

    def remove(self, device: str, point: str) -> bool:
        return self.made.pop((device, point), None) is not None

    def listed(self) -> list[Export]:
        return [
            Export(each.device, each.point, each.iqn, each.portals, (*each.logins,), each.file)
            for each in self.made.values()
        ]


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Bed:
    env = FakeEnvironment()

    def run(line: str) -> tuple[int, Any]:
        monkeypatch.setattr(sys, "argv", ["sanctl", *line.split(), "--output", "json"])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr().out
        found = json.loads(printed)
        assert found["problems"] or breaches(" ".join(line.split()[:2]), printed) == []
        return int(stop.value.code or 0), found["problems"] or found["data"]

    made = Bed(run)
    env.host = SimpleNamespace(node_name=lambda: made.here)  # type: ignore[attr-defined]
    for owner, name, value in (
        (sanctl.cli.environment, "Environment", lambda: env),
        (state_files, "RUNTIME", str(tmp_path)),
        (host_secrets, "FOLDER", str(tmp_path / "hosts")),
        (pool_files, "size_bytes", lambda _path: 64 << 20),
        (lio_export, "create", made.create),
        (lio_export, "remove", made.remove),
        (lio_export, "listed", made.listed),
    ):
        monkeypatch.setattr(owner, name, value)
    assert run(f"device create web --size 64M --prefer n1 --initiator {I1}")[0] == 0
    assert run("snapshot create web --name good")[0] == 0
    return made


def test_a_restore_point_is_exported_listed_and_ended(bed: Bed) -> None:
    status, made = bed.run(f"snapshot export web@good --initiator {BACKUP}")
    assert status == 0 and made["node"] == "n2" and made["initiators"] == [BACKUP]
    assert made["target"].endswith(".web.good") and made["portals"]
    assert bed.run("snapshot exports") == (0, [made])
    (exported,) = bed.made.values()
    assert "/points/web." in exported.file and exported.node_id == 2
    assert bed.port_ids == [PORT_IDS[0]]
    assert bed.run("snapshot unexport web@good")[0] == 0
    assert bed.run("snapshot exports") == (0, [])
    status, problems = bed.run("snapshot unexport web@good")
    assert status == 4 and problems[0]["code"] == "SAN-EXP-005"


def test_given_again_it_lets_in_others(bed: Bed) -> None:
    bed.run(f"snapshot export web@good --initiator {BACKUP}")
    status, made = bed.run(f"snapshot export web@good --initiator {I1}")
    assert status == 0 and made["initiators"] == [I1] and len(bed.made) == 1


def test_what_was_begun_and_failed_is_removed_and_what_was_there_stays(bed: Bed) -> None:
    bed.refusal = CommandError(Problem("SAN-LIO-001", "the kernel refused"))
    assert bed.run(f"snapshot export web@good --initiator {BACKUP}")[0] != 0
    assert bed.made == {}
    bed.refusal = None
    bed.run(f"snapshot export web@good --initiator {BACKUP}")
    bed.refusal = CommandError(Problem("SAN-LIO-001", "the kernel refused"))
    assert lio_export.access_note("web", "good").read() == f"initiator {BACKUP}\n"
    assert bed.run(f"snapshot export web@good --initiator {I1}")[0] != 0
    assert len(bed.made) == 1
    assert not lio_export.access_note("web", "good").exists(), "who is let in is in the kernel"


def test_an_export_that_is_refused_stays_as_it_was(bed: Bed) -> None:
    bed.run(f"snapshot export web@good --initiator {BACKUP}")
    bed.refusal = Refused(Problem("SAN-EXP-008", "an earlier one of the name"))
    assert bed.run(f"snapshot export web@good --initiator {I1}")[0] == 4
    assert lio_export.access_note("web", "good").read() == f"initiator {BACKUP}\n"


def test_the_active_node_exports_only_if_it_is_told_to(bed: Bed) -> None:
    bed.here = "n1"
    status, problems = bed.run(f"snapshot export web@good --initiator {BACKUP}")
    assert status == 4 and problems[0]["code"] == "SAN-EXP-002" and not bed.made
    assert bed.run(f"snapshot export web@good --initiator {BACKUP} --on-active")[0] == 0


def test_a_host_with_chap_authenticates(bed: Bed, tmp_path: Path) -> None:
    assert bed.run(f"host create vault --iqn {BACKUP} --chap vault")[0] == 0
    status, problems = bed.run("snapshot export web@good --host vault")
    assert status == 4 and problems[0]["code"] == "SAN-HOST-011" and not bed.made
    assert "sanctl_host_secrets and run the playbook" in problems[0]["hint"]
    secret = tmp_path / "hosts/vault"
    secret.parent.mkdir(exist_ok=True)
    secret.write_text("secret = abcdefghijkl\n")
    secret.chmod(0o600)
    assert bed.run("snapshot export web@good --host vault")[0] == 0
    (exported,) = bed.made.values()
    login = exported.logins[BACKUP]
    assert login is not None and (login.user, login.secret) == ("vault", "abcdefghijkl")
    # By this the pool agent follows what becomes of the host; no secret is in it.
    assert lio_export.access_note("web", "good").read() == f"host vault={BACKUP}/chap=vault\n"


@pytest.mark.parametrize(
    ("line", "status", "code"),
    [
        (f"web@none --initiator {BACKUP}", 4, "SAN-SNAP-009"),
        ("web@good", 4, "SAN-EXP-003"),
        ("web@good --host nobody", 4, "SAN-HOST-001"),
        ("web@good --initiator backup", 2, "SAN-NAME-005"),
    ],
)
def test_bad_input_exports_nothing(bed: Bed, line: str, status: int, code: str) -> None:
    found, problems = bed.run(f"snapshot export {line}")
    assert (found, problems[0]["code"]) == (status, code)
    assert not bed.made


@pytest.mark.parametrize("found_bytes", [None, (64 << 20) - 4096])
def test_a_file_that_is_gone_or_has_lost_its_end_is_said(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, found_bytes: int | None
) -> None:
    monkeypatch.setattr(pool_files, "size_bytes", lambda _path: found_bytes)
    status, problems = bed.run(f"snapshot export web@good --initiator {BACKUP}")
    assert status != 0 and problems[0]["code"] == "SAN-EXP-006" and not bed.made
