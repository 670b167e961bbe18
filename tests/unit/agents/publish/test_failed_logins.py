# SPDX-License-Identifier: GPL-2.0-or-later
"""Who failed to authenticate is logged by name, not by each failure, and never by what it sends."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sanctl.agents.publish import failed_logins
from sanctl.drivers import lio_login_stats
from sanctl.system import journal, state_files

A = "iqn.2026-11.net.example:a"


class Bed:
    """Targets in a folder like configfs, a clock, and the journal."""

    def __init__(self, root: Path) -> None:
        self.root, self.now_s = root, 1000.0
        self.lines: list[str] = []

    def target(self, name: str, backstore: str) -> None:
        lun = self.root / name / "tpgt_1/lun/lun_0"
        lun.mkdir(parents=True)
        (lun / backstore).symlink_to("/")
        for folder in ("iscsi_login_stats", "iscsi_tgt_attr"):
            (self.root / name / "fabric_statistics" / folder).mkdir(parents=True)
        self.fail(name, 0)

    def fail(self, name: str, count: int, *, kind: int = 5, iqn: str = A) -> None:
        folder = self.root / name / "fabric_statistics"
        for path, value in (
            ("iscsi_login_stats/authenticate_fails", str(count)),
            ("iscsi_tgt_attr/last_fail_type", str(kind)),
            ("iscsi_tgt_attr/fail_intr_name", iqn),
            ("iscsi_tgt_attr/fail_intr_addr", "10.77.1.101"),
        ):
            (folder / path).write_text(f"{value}\n")

    def after(self, seconds: float) -> list[str]:
        """Run a monitor some seconds later; return what it logs."""
        self.now_s += seconds
        self.lines.clear()
        failed_logins.log()
        return [*self.lines]


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    made = Bed(tmp_path / "iscsi")
    made.root.mkdir()
    monkeypatch.setattr(lio_login_stats, "_ROOT", str(made.root))
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    monkeypatch.setattr(time, "monotonic", lambda: made.now_s)
    monkeypatch.setattr(journal, "write", lambda text, **_: made.lines.append(text))
    made.target("iqn.x.vm1", "sanctl-vm1")
    return made


def test_a_failure_is_logged_once_a_minute_with_name_and_address(bed: Bed) -> None:
    assert bed.after(10) == []
    bed.fail("iqn.x.vm1", 1)
    (line,) = bed.after(10)
    assert "device vm1: 1 login refused" in line and f"{A} from 10.77.1.101" in line
    assert "SAN-HOST-021" in line
    bed.fail("iqn.x.vm1", 900)
    assert [bed.after(10) for _ in range(5)] == [[]] * 5
    (line,) = bed.after(10)
    assert "899 logins" in line
    assert bed.after(100) == []


def test_targets_have_limits_of_their_own(bed: Bed) -> None:
    bed.target("iqn.x.vm1.kept", "sanctl-point.vm1.kept")
    bed.target("iqn.other", "theirs")
    bed.fail("iqn.x.vm1", 1)
    bed.fail("iqn.other", 7)
    assert len(bed.after(10)) == 1
    bed.fail("iqn.x.vm1.kept", 2)
    (line,) = bed.after(10)
    assert line.startswith("restore point vm1@kept: 2 logins")


def test_a_target_that_was_made_anew_counts_from_zero(bed: Bed) -> None:
    bed.fail("iqn.x.vm1", 50)
    bed.after(10)
    bed.fail("iqn.x.vm1", 3)
    (line,) = bed.after(100)
    assert "3 logins" in line


@pytest.mark.parametrize("kind", [2, 5])
def test_a_refused_login_is_named_though_it_failed_for_another_reason_as_well(
    bed: Bed, kind: int
) -> None:
    """On a busy node the kernel notes its end as a failure of another kind."""
    bed.fail("iqn.x.vm1", 1, kind=kind)
    (line,) = bed.after(10)
    assert f"{A} from 10.77.1.101" in line


def test_without_a_name_none_is_told(bed: Bed) -> None:
    bed.fail("iqn.x.vm1", 1, iqn="")
    (line,) = bed.after(10)
    assert "not known" in line


def test_what_came_from_the_network_stays_on_its_line(bed: Bed) -> None:
    bed.fail("iqn.x.vm1", 1, iqn="iqn.a\x1b[2Jb\rc" + "x" * 300)
    (line,) = bed.after(10)
    assert "\x1b" not in line and "\r" not in line and len(line) < 400


def test_a_note_that_is_none(bed: Bed, tmp_path: Path) -> None:
    bed.fail("iqn.x.vm1", 1)
    bed.after(10)
    (note,) = (tmp_path / "run").rglob("failed-logins")
    note.write_text("?\n")
    assert len(bed.after(10)) == 1
    assert bed.after(10) == []


def test_an_error_is_logged(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> list[lio_login_stats.FailedLogins]:
        raise OSError("no")

    monkeypatch.setattr(lio_login_stats, "failed_logins", refuse)
    (line,) = bed.after(10)
    assert "could not be read: no" in line
