# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl report rpo`: as text, as JSON, and by its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sanctl.cli.commands import report
from sanctl.config import backups as backup_toml
from sanctl.drivers import reflink
from sanctl.drivers.borg import Borg
from sanctl.errors import CommandError, Problem
from sanctl.model.backup import Backup, BackupName
from tests.support.json_contract import breaches
from tests.unit.ops.test_replicate import Sites, extents_by_content, printed
from tests.unit.ops.test_snapshot import bed_with_device


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sites:
    monkeypatch.setattr(reflink, "extents_of", extents_by_content)
    monkeypatch.setattr(backup_toml, "BACKUP_TOML", str(tmp_path / "backup.toml"))
    made = Sites(bed_with_device(monkeypatch), tmp_path)
    made.add()
    return made


def test_reported(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert printed("report rpo", monkeypatch) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["web", "all", "yes", "nowhere"]
    assert printed("report rpo --within 1h", monkeypatch) == 1
    sites.run()
    assert printed("replicate schedule web --to far --every 15m", monkeypatch) == 0
    capsys.readouterr()
    assert printed("report rpo --within 1h", monkeypatch) == 0
    text = capsys.readouterr().out
    assert "the last 0:00:" in text and "copy far" in text and "to-far-1" in text
    sites.bed.env.clock.sleep(90061)
    assert printed("report rpo", monkeypatch) == 1
    assert "1d 1:01:" in (text := capsys.readouterr().out) and ", late" in text
    assert printed("report rpo --within soon", monkeypatch) == 2


def test_a_repository_that_cannot_be_read_counts_as_empty(
    sites: Sites,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    tables = "".join(f'[repositories.{n}]\nlocation = "/mnt/{n}"\n' for n in ("nas", "tape"))
    (tmp_path / "backup.toml").write_text(f"schema = 1\n{tables}")
    now_s = int(sites.bed.env.clock.wall_s())

    def backups(self: Borg) -> tuple[Backup, ...]:
        if self.repository.name == "tape":
            raise CommandError(Problem("SAN-BKP-010", "it is not mounted"))
        name = BackupName("web", now_s - 60, "p")
        return (Backup(name=name, repository="nas", size_bytes=None),)

    monkeypatch.setattr(Borg, "backups", backups)
    sites.bed.env.runner = None  # type: ignore[attr-defined]
    capsys.readouterr()
    assert printed("report rpo --within 15m", monkeypatch) == 0
    output = capsys.readouterr()
    assert "repository tape is not counted: SAN-BKP-010" in output.err
    assert "backup nas" in output.out
    assert printed("report rpo --within 15m --output json", monkeypatch) == 0
    out = capsys.readouterr().out
    assert breaches("report rpo", out) == []
    found = json.loads(out)
    assert found["data"]["unread"] == ["tape"] and found["problems"][0]["code"] == "SAN-BKP-010"
    assert printed("report rpo --within 15m --no-backups", monkeypatch) == 1
    assert report.age_text(86400) == "1d 0:00:00"
