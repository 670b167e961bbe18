# SPDX-License-Identifier: GPL-2.0-or-later
"""What the cluster knows of a prune that failed: it is told until one succeeds."""

from __future__ import annotations

import pytest

from sanctl.cli import backup_options
from sanctl.errors import CommandError, ConfigError, Problem
from sanctl.model.findings import Finding, Severity
from sanctl.plan.health.backup_health import backup_findings
from tests.unit.ops.test_backup import Bed, bed

__all__ = ["bed"]

PRUNE = "backup prune web --keep-last 1 --yes"


def findings(bed: Bed) -> list[Finding]:
    return list(backup_findings(bed.session().observe(), now_s=bed.env.clock.wall_s()))


def full() -> None:
    raise CommandError(Problem("SAN-BKP-013", "no space left on device"))


def test_a_prune_that_fails_is_told_until_one_succeeds(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(bed.borg, "compact", full)
        assert bed.run(PRUNE)[1][0]["code"] == "SAN-BKP-013"
        (first,) = findings(bed)
        assert (first.code, first.severity) == ("SAN-HLT-172", Severity.WARNING)
        for part in ("repository nas", "on n2", "(SAN-BKP-013)"):
            assert part in first.what
        assert "none has succeeded" not in first.what and "no room" in first.why
        bed.env.clock.sleep(86400)
        assert bed.run(PRUNE)[0] == 5
        (second,) = findings(bed)
        assert "none has succeeded since" in second.what
        assert "SAN-HLT-172" in {each["code"] for each in bed.run("status")[1]["findings"]}
    # Whichever node's it is.
    bed.here = "n1"
    assert bed.run(PRUNE)[0] == 0 and findings(bed) == []
    assert "sanctl-backup-prune" not in bed.env.pacemaker.query()


def test_the_prune_after_a_success_is_told_too(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "backup run web --skip-elsewhere --keep-last 1"
    with monkeypatch.context() as patch:
        patch.setattr(bed.borg, "compact", full)
        assert bed.run(line)[0] == 8
        assert [each.code for each in findings(bed)] == ["SAN-HLT-172"]
    bed.env.clock.sleep(86400)
    assert bed.run(line)[0] == 0 and findings(bed) == []


def test_a_prune_that_cannot_be_noted_fails_as_it_does(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_without_quorum() -> None:
        bed.env.pacemaker.has_quorum = False
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(bed.borg, "compact", fails_without_quorum)
        assert bed.run(PRUNE)[0] != 0 and findings(bed) == []
        bed.env.pacemaker.has_quorum = True
        patch.setattr(bed.borg, "compact", fail_of_disk)
        assert bed.run(PRUNE)[0] != 0
    (found,) = findings(bed)
    assert "(SAN-BKP-015)" in found.what and "beyond those to keep" in found.why


def fail_of_disk() -> None:
    raise OSError(5, "Input/output error")


def test_what_nobody_prunes_any_more_is_forgotten(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bed.borg, "compact", full)
    assert bed.run(PRUNE)[0] == 5
    line = "backup forget web --repository nas"
    assert f"'sanctl {line}'" in findings(bed)[0].do
    assert bed.run(line)[1]["was_prune_noted"] and findings(bed) == []
    assert not bed.run(line)[1]["was_prune_noted"]
    # A question changes nothing, and is no prune that failed.
    assert bed.run("backup prune web --keep-last 1 --dry-run")[0] == 0
    # With the device its note goes; of one that is not there none is made.
    assert bed.run(PRUNE)[0] == 5
    assert bed.run("device delete web --yes")[0] == 0
    assert "sanctl-backup-prune" not in bed.env.pacemaker.query()
    assert bed.run(PRUNE)[0] == 5 and bed.session().observe().cib.prune_failures == ()


def test_a_timers_prune_that_does_not_find_its_repository_has_failed(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: object, **__: object) -> None:
        raise ConfigError(Problem("SAN-CLI-003", "backup.toml cannot be read"))

    assert bed.run("backup run web")[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(backup_options, "borg_of", wrong)
        for options in (
            "--yes --dry-run",
            "",
            "--yes --repository nsa",
            "--yes --repository Not/One",
        ):
            found = bed.run(f"backup prune web --keep-last 1 {options}")
            assert found[1][0]["code"] == "SAN-CLI-003" and findings(bed) == []
        assert bed.run(f"{PRUNE} --repository nas")[1][0]["code"] == "SAN-CLI-003"
        (told,) = findings(bed)
        assert (told.code, "(SAN-CLI-003)" in told.what) == ("SAN-HLT-172", True)
    assert bed.run(PRUNE)[0] == 0 and findings(bed) == []
