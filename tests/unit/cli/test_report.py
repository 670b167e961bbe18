# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl report rpo`: as text, as JSON, and by its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sanctl.cli.views.rpo import age_text, restore_text
from sanctl.config import backups as backup_toml
from sanctl.drivers import reflink
from sanctl.drivers.borg import Borg
from sanctl.errors import CommandError, Problem
from sanctl.model.backup import Backup, BackupName
from sanctl.model.cib_change import SetRestored
from tests.support.json_contract import breaches
from tests.unit.model.test_site_restore import RECORD
from tests.unit.ops.test_replicate import Sites, extents_by_content, printed
from tests.unit.ops.test_snapshot import bed_with_device


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sites:
    monkeypatch.setattr(reflink, "extents_of", extents_by_content)
    monkeypatch.setattr(backup_toml, "BACKUP_TOML", str(tmp_path / "backup.toml"))
    made = Sites(bed_with_device(monkeypatch), tmp_path)
    made.add()
    made.bed.env.site_link = made.connect  # type: ignore[attr-defined]
    return made


def test_reported(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert printed("report rpo", monkeypatch) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["web", "all", "-", "nowhere"]
    assert printed("report rpo --within 1h", monkeypatch) == 1
    sites.run()
    assert printed("replicate schedule web --to far --every 15m", monkeypatch) == 0
    capsys.readouterr()
    assert printed("report rpo --within 1h", monkeypatch) == 0
    text = capsys.readouterr().out
    assert "the last 0:00:" in text and "copy far" in text and "to-far-1" in text
    assert "never tested here" in text
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


def test_how_old_the_newest_kept_copy_was_and_how_long_a_restore_took(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        sites.run()
        sites.bed.env.clock.sleep(900)
    (device,) = sites.bed.seen().cib.devices
    own = RECORD._replace(uuid=device.uuid)
    for each in (own, RECORD._replace(device="db")):
        sites.bed.session.change(lambda _, each=each: (SetRestored(record=each),))  # type: ignore[misc]
    capsys.readouterr()
    assert printed("report rpo", monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[-2:] == ["WORST", "KEPT"] and " 0:15:0" in lines[1]
    assert lines[4].startswith(f"web.{device.uuid[:8]} ")
    assert "1970-01-01, 12 min for 10 GiB  to-far-1 of site far" in lines[4]
    assert lines[5].startswith("db.bbbbbbbb") and lines[5].endswith("as web-test")
    assert printed("report rpo --output json", monkeypatch) == 0
    out = capsys.readouterr().out
    assert breaches("report rpo", out) == []
    data = json.loads(out)["data"]
    (found,) = data["devices"][0]["elsewhere"]
    assert len(found["kept"]) == 3 and 900 <= found["worst_s"] < 1000
    assert data["devices"][0]["restored"]["duration_s"] == 720
    assert data["other_restores"][0]["device"] == "db"
    assert printed("report rpo --no-sites --output json", monkeypatch) == 0
    (found,) = json.loads(capsys.readouterr().out)["data"]["devices"][0]["elsewhere"]
    assert found["kept"] == [] and found["worst_s"] is None and found["name"] == "to-far-3"


def test_a_site_that_does_not_answer_is_named(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the cluster knows of its copies counts all the same."""
    sites.run()
    (sites.folder / "sanctl-site.json").unlink()
    capsys.readouterr()
    assert printed("report rpo --within 1h", monkeypatch) == 0
    output = capsys.readouterr()
    assert "site far does not say what it keeps: SAN-SITE-006" in output.err
    assert "to-far-1" in output.out
    assert printed("report rpo --output json", monkeypatch) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["data"]["silent"] == ["far"] and found["problems"][0]["code"] == "SAN-SITE-006"


def test_a_site_whose_storage_is_an_older_state_is_named(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sites.run()
    sites.run()
    for path in sites.folder.glob("*/to-far-2.*"):
        path.unlink()
    capsys.readouterr()
    assert printed("report rpo --within 1h", monkeypatch) == 1
    output = capsys.readouterr()
    assert "SAN-SITE-037: site far does not have web@to-far-2" in output.err
    assert "the newest that it has is to-far-1" in output.err and "to-far-1" in output.out
    assert printed("report rpo --output json", monkeypatch) == 1
    out = capsys.readouterr().out
    assert breaches("report rpo", out) == []
    found = json.loads(out)
    assert found["data"]["devices"][0]["elsewhere"][0]["missing"] == "to-far-2"
    assert [each["code"] for each in found["problems"]] == ["SAN-SITE-037"]
    (note,) = sites.folder.glob("*/to-far-1.*.json")
    note.write_text("damaged")
    assert printed("report rpo", monkeypatch) == 1
    output = capsys.readouterr()
    assert "it has none of the device" in output.err and "SAN-SITE-035" in output.err
    assert output.out.splitlines()[1].split()[:2] == ["web", "all"]


def test_durations() -> None:
    assert age_text(86400) == "1d 0:00:00" and age_text(None) == "-"
    for seconds, text in ((119, "119 s"), (121, "3 min"), (7260, "2 h 01 min"), (-1, "not known")):
        assert f"took {text}".removeprefix("took " if seconds > 0 else "") in restore_text(
            RECORD._replace(ended_s=1000 + seconds)
        )
