# SPDX-License-Identifier: GPL-2.0-or-later
"""What the cluster knows of a device's last backup: a failure stays until a success."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sanctl.cli import backup_options
from sanctl.drivers import backup_notes
from sanctl.errors import CommandError, ConfigError, Problem
from sanctl.model.backup_failure import BackupFailure, BackupSuccess
from sanctl.model.cib_change import RemoveBackupFailure, SetBackupFailure, SetBackupSuccess
from sanctl.model.findings import Finding
from sanctl.ops import backup_point, backup_result, backup_store
from sanctl.plan.device import backups as plan
from sanctl.plan.device.backup_failures import plan_failure_note, plan_succeeded
from sanctl.plan.health.backup_health import backup_findings
from tests.unit.ops.test_backup import Bed, bed

__all__ = ["bed"]


def findings(bed: Bed) -> list[Finding]:
    return list(backup_findings(bed.session().observe(), now_s=bed.env.clock.wall_s()))


def fail() -> None:
    raise CommandError(Problem("SAN-BKP-013", "no space left on device"))


def config(bed: Bed) -> str:
    return bed.env.pacemaker.query().partition("<status")[0]


def test_a_failure_is_seen_in_the_morning_until_a_success(bed: Bed) -> None:
    bed.borg.while_storing = fail
    assert bed.run("backup run web")[0] == 5
    (first,) = findings(bed)
    assert (first.code, first.subject) == ("SAN-HLT-158", "device web")
    for part in ("repository nas", "on n2", "(SAN-BKP-013)"):
        assert part in first.what
    assert "none has succeeded" not in first.what
    bed.env.clock.sleep(86400)
    assert bed.run("backup run web --skip-elsewhere")[0] == 5
    (second,) = findings(bed)
    assert "none has succeeded since" in second.what and second.what != first.what
    assert "SAN-HLT-158" in {each["code"] for each in bed.run("status")[1]["findings"]}
    bed.borg.while_storing = lambda: None
    bed.env.clock.sleep(86400)
    assert bed.run("backup run web")[0] == 0
    assert findings(bed) == [] and backup_notes.noted() == ()


def test_a_success_is_noted_by_the_change_that_removes_its_restore_point(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    patches: list[str] = []
    apply = bed.env.pacemaker.patch

    def noting(patchset: str) -> None:
        patches.append(patchset)
        apply(patchset)

    monkeypatch.setattr(bed.env.pacemaker, "patch", noting)
    assert bed.run("backup run web")[0] == 0
    with_success = [each for each in patches if "sanctl-backed-up.web.nas" in each]
    assert with_success == patches[-1:] and "sanctl-point" in patches[-1]
    (success,) = bed.session().observe().cib.backup_successes
    assert success[:2] == ("web", "nas") and success.value in config(bed)
    assert backup_notes.noted() == ()


def test_a_success_that_cannot_be_noted_is_told_later(bed: Bed) -> None:
    bed.borg.while_storing = fail
    assert bed.run("backup run web")[0] == 5
    (before,) = findings(bed)

    def without_quorum() -> None:
        bed.env.pacemaker.has_quorum = False

    bed.borg.while_storing = without_quorum
    bed.env.clock.sleep(86400)
    assert bed.run("backup run web")[0] == 0
    assert findings(bed) == [before] and backup_notes.noted() == ("web",)
    bed.env.pacemaker.has_quorum = True
    backup_point.remove_abandoned(bed.session())
    assert findings(bed) == [] and backup_notes.noted() == ()
    assert bed.session().observe().cib.backup_failures == ()


def test_a_node_that_is_back_tells_no_failure_before_a_success(bed: Bed) -> None:
    """It died during its backup, and another node has made one since."""
    begun_s = int(bed.env.clock.wall_s())
    bed.env.clock.sleep(3600)
    assert bed.run("backup run web")[0] == 0
    backup_notes.begin("web", "nas", "n3", begun_s)
    bed.env.clock.sleep(86400)
    backup_point.remove_abandoned(bed.session())
    assert findings(bed) == [] and backup_notes.noted() == ()
    assert bed.session().observe().cib.backup_failures == ()


def test_a_failure_before_a_success_is_none_whoever_has_noted_it(bed: Bed) -> None:
    """A node of an earlier release notes it, and a success begins the count anew."""
    device = bed.session().observe().cib.devices[0]
    old = BackupFailure("web", "nas", device.uuid, "SAN-BKP-025", "n3", 5, 5)
    success = BackupSuccess("web", "nas", device.uuid, 9)
    bed.session().change(
        lambda _: (SetBackupFailure(failure=old), SetBackupSuccess(success=success))
    )
    assert findings(bed) == []
    seen = bed.session().observe()
    assert plan_succeeded(seen, success, now_s=99) == (RemoveBackupFailure(failure=old),)
    assert plan_succeeded(seen, success._replace(succeeded_s=4), now_s=99) == ()
    assert plan_succeeded(seen, success._replace(uuid="f" * 32), now_s=99) == ()
    assert plan_succeeded(seen, success._replace(device="other"), now_s=99) == ()
    (changed,) = plan_failure_note(
        seen, "web", "nas", code="SAN-BKP-013", node="n1", failed_s=20, now_s=99
    )
    assert isinstance(changed, SetBackupFailure) and changed.failure.since_s == 20


def test_a_success_of_a_device_that_had_the_name_is_none(bed: Bed) -> None:
    other = BackupSuccess("web", "nas", "f" * 32, 1 << 33)
    bed.session().change(lambda _: (SetBackupSuccess(success=other),))
    bed.borg.while_storing = fail
    assert bed.run("backup run web")[0] == 5
    assert len(findings(bed)) == 1


def test_a_failure_before_the_turn_is_told_later(bed: Bed) -> None:
    """The cluster took nothing: neither while it waited nor before it looked for its device."""
    bed.env.pacemaker.has_quorum = False
    with backup_notes.turn("nas", wait_s=0):
        assert bed.run("backup run web --wait 0")[0] == 9
    assert backup_notes.noted() == ("web",)
    bed.env.pacemaker.has_quorum = True
    backup_point.remove_abandoned(bed.session())
    assert len(findings(bed)) == 1 and backup_notes.noted() == ()


def test_a_timer_that_fails_while_the_cluster_takes_nothing_is_told_later(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.here = "n1"
    monkeypatch.setattr(plan, "readers", lambda *_: ("n1",))
    bed.env.pacemaker.has_quorum = False
    assert bed.run("backup run web --skip-elsewhere")[0] != 0
    assert backup_notes.noted() == ("web",)


def test_one_that_is_killed_while_it_waits_for_its_turn_is_noted(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(backup_notes, "turn", killed)
    assert bed.run("backup run web")[0] == 130
    assert (backup_notes.begun("web") or ())[:2] == ("nas", "n2")


def test_what_a_person_typed_wrongly_is_no_backup_that_failed(bed: Bed) -> None:
    bed.here = "n1"
    assert bed.run("backup run web")[0] == 4
    bed.here = "n2"
    assert bed.run("snapshot create web --name good")[0] == 0
    assert bed.run("backup run web@good")[0] == 0
    assert bed.run("backup run web@good")[1][0]["code"] == "SAN-BKP-017"
    backup_notes.begin("web", "nas", "n2", 1)
    with backup_notes.running("web"):
        assert bed.run("backup run web --skip-elsewhere")[0] == 9
    backup_notes.end("web")
    assert findings(bed) == [] and backup_notes.noted() == ()


def test_a_timer_that_finds_no_reader_has_failed(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.here = "n1"
    monkeypatch.setattr(plan, "readers", lambda *_: ("n1",))
    assert bed.run("backup run web --skip-elsewhere")[0] == 4
    (found,) = findings(bed)
    assert "on n1" in found.what and "(SAN-BKP-004)" in found.what


def test_one_that_gets_no_turn_has_failed(bed: Bed) -> None:
    with backup_notes.turn("nas", wait_s=0):
        assert bed.run("backup run web --wait 0")[0] == 9
    (found,) = findings(bed)
    assert "(SAN-BKP-012)" in found.what


def test_a_file_that_cannot_be_read_has_a_code(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object) -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(backup_store, "_file_of", unreadable)
    assert bed.run("backup run web")[0] != 0
    (found,) = findings(bed)
    assert "(SAN-BKP-009)" in found.what


def test_of_a_killed_one_the_pool_agent_tells(bed: Bed) -> None:
    def killed() -> None:
        raise KeyboardInterrupt

    bed.borg.while_storing = killed
    assert bed.run("backup run web")[0] == 130
    assert findings(bed) == [] and backup_notes.noted() == ("web",)
    with backup_notes.running("web"):
        backup_point.remove_abandoned(bed.session())
        assert findings(bed) == [], "one that runs has no result yet"
    assert backup_point.remove_abandoned(bed.session()) == ()
    (found,) = findings(bed)
    assert "on n2" in found.what and "(SAN-BKP-025)" in found.what
    assert backup_notes.noted() == ()


def test_one_that_broke_off_failed_when_it_began(bed: Bed) -> None:
    """Its node may be back days later, and others have made backups meanwhile."""
    backup_notes.begin("web", "nas", "n2", int(bed.env.clock.wall_s()))
    bed.env.clock.sleep(86400)
    backup_point.remove_abandoned(bed.session())
    (failure,) = bed.session().observe().cib.backup_failures
    assert failure.failed_s == int(bed.env.clock.wall_s()) - 86400
    assert failure.since_s == failure.failed_s
    (found,) = findings(bed)
    assert "'sanctl backup list web --repository nas' shows a newer one" in found.do


def test_one_that_broke_off_before_the_last_failure_changes_nothing(bed: Bed) -> None:
    backup_notes.begin("web", "nas", "n3", int(bed.env.clock.wall_s()))
    bed.env.clock.sleep(3600)
    later = int(bed.env.clock.wall_s())
    seen = bed.session().observe()
    changes = plan_failure_note(
        seen, "web", "nas", code="SAN-BKP-013", node="n1", failed_s=later, now_s=later
    )
    bed.session().change(lambda _: changes)
    backup_point.remove_abandoned(bed.session())
    (failure,) = bed.session().observe().cib.backup_failures
    assert (failure.code, failure.failed_s, failure.node) == ("SAN-BKP-013", later, "n1")
    assert backup_notes.noted() == ()


def test_of_one_whose_begin_an_earlier_release_has_noted_the_time_is_now(bed: Bed) -> None:
    backup_notes.begin("web", "nas", "n2", 1)
    path = backup_notes._path("web") + ".into"
    Path(path).write_text("nas n2")
    backup_point.remove_abandoned(bed.session())
    (failure,) = bed.session().observe().cib.backup_failures
    assert failure.failed_s == int(bed.env.clock.wall_s())


def test_a_failure_that_cannot_be_noted_is_told_later(bed: Bed) -> None:
    def fail_without_quorum() -> None:
        bed.env.pacemaker.has_quorum = False
        fail()

    bed.borg.while_storing = fail_without_quorum
    assert bed.run("backup run web")[1][0]["code"] == "SAN-BKP-013"
    assert (backup_notes.begun("web") or ())[:2] == ("nas", "n2")
    with pytest.raises(Exception, match="quorum"):
        backup_point.remove_abandoned(bed.session())
    bed.env.pacemaker.has_quorum = True
    backup_point.remove_abandoned(bed.session())
    (found,) = findings(bed)
    assert "(SAN-BKP-025)" in found.what


def test_an_operator_ends_the_warning_where_no_backup_is_to_follow(bed: Bed) -> None:
    bed.borg.while_storing = fail
    bed.run("backup run web")
    (found,) = findings(bed)
    assert "'sanctl backup forget web --repository nas'" in found.do
    line = "backup forget web --repository nas"
    told = {
        "device": "web",
        "repository": "nas",
        "was_noted": True,
        "was_awaited": False,
        "was_prune_noted": False,
    }
    assert bed.run(line) == (0, told)
    assert findings(bed) == []
    assert bed.run(line) == (0, {**told, "was_noted": False})
    assert bed.run("backup forget web --repository Not/One")[0] == 2


def test_a_device_that_is_made_anew_has_no_failure(bed: Bed) -> None:
    bed.borg.while_storing = fail
    bed.run("backup run web")
    (failure,) = bed.session().observe().cib.backup_failures
    bed.env.clock.sleep(60)
    assert bed.run("device delete web --yes")[0] == 0
    assert failure.id not in config(bed)
    assert (
        plan_failure_note(
            bed.session().observe(), "web", "nas", code="", node="", failed_s=1, now_s=1
        )
        == ()
    )
    # As a release leaves it that does not know the note.
    bed.session().change(lambda _: (SetBackupFailure(failure=failure),))
    assert findings(bed) == []
    bed.env.clock.sleep(60)
    assert bed.run("device create web --size 64M --prefer n1")[0] == 0
    assert findings(bed) == []
    bed.env.clock.sleep(60)
    assert bed.run("backup run web")[0] == 5
    (found,) = findings(bed)
    assert "none has succeeded" not in found.what


FAILURE = BackupFailure("web", "nas", "a" * 32, "SAN-BKP-013", "n1", 9, 5)


def test_a_note_is_read_as_it_was_written() -> None:
    assert FAILURE.value == f"{'a' * 32} SAN-BKP-013 n1 9 5"
    assert BackupFailure.parse(FAILURE.id, FAILURE.value) == FAILURE


SUCCESS = BackupSuccess("web", "nas", "a" * 32, 9)


def test_a_success_is_read_as_it_was_written() -> None:
    assert SUCCESS.value == f"{'a' * 32} 9"
    assert BackupSuccess.parse(SUCCESS.id, SUCCESS.value) == SUCCESS
    assert BackupSuccess.parse(SUCCESS.id, f"{SUCCESS.value} x") is None
    assert BackupSuccess.parse(SUCCESS.id, f"z{SUCCESS.value}") is None
    assert BackupSuccess.parse(FAILURE.id, SUCCESS.value) is None


@pytest.mark.parametrize(
    ("identifier", "value"),
    [
        ("sanctl-other.web.nas", FAILURE.value),
        ("sanctl-backup.web", FAILURE.value),
        ("sanctl-backup.Web.nas", FAILURE.value),
        (FAILURE.id, f"{FAILURE.value} 1"),
        (FAILURE.id, FAILURE.value.replace("a", "z")),
        (FAILURE.id, FAILURE.value.replace("BKP", "bkp")),
        (FAILURE.id, FAILURE.value.replace("n1", "")),
        (FAILURE.id, FAILURE.value.replace("9", "x")),
    ],
)
def test_what_is_no_note(identifier: str, value: str) -> None:
    assert BackupFailure.parse(identifier, value) is None


def test_backups_of_a_timer_that_stop_are_told_until_they_are_given_up(bed: Bed) -> None:
    assert bed.run("backup run web --skip-elsewhere --every 86400")[0] == 0
    (success,) = bed.session().observe().cib.backup_successes
    assert success.every_s == 86400
    bed.env.clock.sleep(2 * 86400 - 60)
    assert findings(bed) == []
    bed.env.clock.sleep(120)
    (found,) = findings(bed)
    assert found.code == "SAN-HLT-169"
    assert bed.run("backup run web")[0] == 0
    assert findings(bed) == []
    bed.env.clock.sleep(3 * 86400)
    assert [each.code for each in findings(bed)] == ["SAN-HLT-169"]
    told = bed.run("backup forget web --repository nas")[1]
    assert (told["was_noted"], told["was_awaited"]) == (False, True)
    assert findings(bed) == []
    told = bed.run("backup forget web --repository nas")[1]
    assert (told["was_noted"], told["was_awaited"]) == (False, False)


def test_a_timer_of_which_each_run_leaves_it_to_another_node_is_told(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its first night on: no success says that there are to be any."""
    line = "backup run web --skip-elsewhere --every 86400"
    with monkeypatch.context() as patch:
        patch.setattr(plan, "readers", lambda *_: ("n3",))
        assert bed.run(line) == (0, {"skipped": True})
        bed.env.clock.sleep(86400)
        assert bed.run(line) == (0, {"skipped": True})
        bed.env.clock.sleep(86400 + 60)
        (found,) = findings(bed)
        assert found.code == "SAN-HLT-171"
        assert "SAN-HLT-171" in {each["code"] for each in bed.run("status")[1]["findings"]}
    assert bed.run(line)[0] == 0
    assert findings(bed) == [] and "sanctl-backup-expected" not in config(bed)


def test_a_timer_that_is_set_up_is_expected_to_make_backups(bed: Bed) -> None:
    line = "backup expect web --every 86400"
    told = {"device": "web", "repository": "nas", "every_s": 86400, "changed": True}
    assert bed.run(line) == (0, told)
    assert bed.run(line) == (0, {**told, "changed": False})
    bed.env.clock.sleep(2 * 86400 + 60)
    assert [each.code for each in findings(bed)] == ["SAN-HLT-171"]
    forgotten = bed.run("backup forget web --repository nas")[1]
    assert (forgotten["was_noted"], forgotten["was_awaited"]) == (False, True)
    assert findings(bed) == []
    assert bed.run(line)[0] == 0 and bed.run("device delete web --yes")[0] == 0
    assert "sanctl-backup-expected" not in config(bed)
    assert bed.run("backup expect none --every 86400")[1][0]["code"] == "SAN-DEV-002"
    assert bed.run("backup expect web --every 5")[0] == 2


def test_a_first_run_that_cannot_be_noted_makes_its_backup(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_result, "plan_first_run", lambda *_, **__: fail())
    assert bed.run("backup run web --every 86400")[0] == 0


def test_one_into_another_repository_is_waited_for(bed: Bed) -> None:
    """A timer for each of two repositories: the second one was refused, and nobody was told."""
    backup_notes.begin("web", "far", "n2", 1)
    with backup_notes.running("web"):
        bed.here = "n1"
        line = "backup run web --skip-elsewhere --wait 0"
        assert bed.run(line) == (0, {"skipped": True})
        bed.here = "n2"
        assert bed.run(line)[1][0]["code"] == "SAN-BKP-008"
        (found,) = findings(bed)
        assert "(SAN-BKP-008)" in found.what and "repository nas" in found.what
        begun = backup_notes.begun("web")
        assert begun is not None and begun[0] == "far", "the note is the other one's"
    held = backup_notes.running("web")
    assert held.__enter__()
    ends = threading.Timer(0.3, held.__exit__, (None, None, None))
    ends.start()
    assert bed.run("backup run web --skip-elsewhere --wait 60")[0] == 0
    ends.join()
    assert bed.backups() and [each.code for each in findings(bed)] == []


def test_one_that_broke_off_is_told_before_the_next_takes_its_note(bed: Bed) -> None:
    """It was into another repository, of which the next one tells nothing."""
    backup_notes.begin("web", "far", "n2", int(bed.env.clock.wall_s()) - 9)
    assert bed.run("backup run web")[0] == 0
    (found,) = findings(bed)
    assert "repository far" in found.what and "(SAN-BKP-025)" in found.what


def wrong_configuration(*_: object, **__: object) -> None:
    raise ConfigError(Problem("SAN-CLI-003", "backup.toml cannot be read"))


TIMER = "backup run web --skip-elsewhere --every 86400"


@pytest.mark.parametrize("what", ["borg_of", "topology"])
def test_a_timer_that_does_not_come_as_far_as_its_device_has_failed(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The repository's configuration is wrong on the node that is to read, or cluster.toml is."""
    owner = backup_options if what == "borg_of" else bed.env
    assert bed.run(TIMER)[0] == 0
    bed.env.clock.sleep(86400)
    with monkeypatch.context() as patch:
        patch.setattr(owner, what, wrong_configuration)
        # Another node is the one to read: that one makes the backup.
        bed.here = "n1"
        assert bed.run(f"{TIMER} --repository nas")[1][0]["code"] == "SAN-CLI-003"
        assert findings(bed) == [] and backup_notes.noted() == ()
        bed.here = "n2"
        # By a person's command nothing has failed; nor has a backup into a repository that none
        # goes into, as one that was typed wrongly: no success would end that.
        for line in (
            "backup run web",
            f"{TIMER} --repository Not/One",
            f"{TIMER} --repository nsa",
        ):
            assert bed.run(line)[0] != 0
            assert findings(bed) == [] and backup_notes.noted() == ()
        assert bed.run(f"{TIMER} --repository nas")[1][0]["code"] == "SAN-CLI-003"
        (found,) = findings(bed)
        assert "on n2" in found.what and "(SAN-CLI-003)" in found.what
        assert backup_notes.noted() == ()
    assert bed.run(TIMER)[0] == 0 and findings(bed) == []
    # Without a name it is the one that the device's backups are known to go into.
    monkeypatch.setattr(owner, what, wrong_configuration)
    bed.env.clock.sleep(86400)
    assert bed.run(TIMER)[0] != 0
    assert [each.code for each in findings(bed)] == ["SAN-HLT-158"]


def test_a_wrong_configuration_is_told_later_where_the_cluster_takes_nothing(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bed.run(TIMER)[0] == 0
    bed.env.clock.sleep(86400)
    monkeypatch.setattr(backup_options, "borg_of", wrong_configuration)
    bed.env.pacemaker.has_quorum = False
    line = f"{TIMER} --repository nas"
    assert bed.run(line)[1][0]["code"] == "SAN-CLI-003"
    assert backup_notes.noted() == ("web",)
    bed.env.pacemaker.has_quorum = True
    backup_point.remove_abandoned(bed.session())
    (found,) = findings(bed)
    assert "(SAN-BKP-025)" in found.what
    # The note of one that runs is its own.
    backup_notes.begin("web", "far", "n2", 1)
    with backup_notes.running("web"):
        assert bed.run(line)[1][0]["code"] == "SAN-CLI-003"
    assert (backup_notes.begun("web") or ())[:2] == ("far", "n2")


def test_a_wrong_configuration_where_nobody_can_read_is_told(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bed.run(TIMER)[0] == 0
    bed.env.clock.sleep(86400)
    monkeypatch.setattr(backup_options, "borg_of", wrong_configuration)
    monkeypatch.setattr(plan, "readers", lambda *_: ())
    assert bed.run(f"{TIMER} --repository nas")[1][0]["code"] == "SAN-CLI-003"
    (found,) = findings(bed)
    assert "(SAN-CLI-003)" in found.what
    monkeypatch.setattr(bed.env, "session", wrong_configuration)
    assert bed.run(f"{TIMER} --repository nas")[1][0]["code"] == "SAN-CLI-003"


def test_on_each_node_a_timer_of_ones_own_fails_alone_where_another_is_to_read(bed: Bed) -> None:
    """The unit fails; the backup is the other node's, which may have made it before."""
    bed.here = "n1"
    assert bed.run("backup run web --every 86400")[0] == 4
    assert findings(bed) == []
