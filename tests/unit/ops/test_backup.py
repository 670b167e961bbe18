# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl backup` with a repository in memory: what is made, what is left, and what is said."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

import sanctl.cli.environment
from sanctl.cli import backup_options
from sanctl.cli.commands import snapshot
from sanctl.cli.main import main
from sanctl.config import backups as backup_toml
from sanctl.drivers import background, backup_notes, block_stream
from sanctl.drivers.borg import LOCK_S, Borg
from sanctl.errors import CommandError, Problem
from sanctl.model.backup import OWN_POINT, WRITING, BackupName, Repository
from sanctl.model.cib_change import SetParameter
from sanctl.model.device_restore import OLDER_KEY, REPORT_PREFIX, RestoreReport
from sanctl.model.restore_point import RestorePoint
from sanctl.ops import backup_point, backup_store, noted_state
from sanctl.ops.session import Session
from sanctl.parse.borg import Writer, comment_of
from sanctl.plan.device import backups as plan
from sanctl.system import state_files
from tests.fakes.pacemaker import FakeReporter
from tests.support.json_contract import breaches
from tests.unit.cli.test_commands import I1, FakeEnvironment

DATA = b"what the device held" * 1000
DIGEST = "d" * 64


class FakeBorg(Borg):
    """A repository in memory."""

    def __init__(self) -> None:
        super().__init__(None, Repository(name="nas", location="/nas"))  # type: ignore[arg-type]
        self.kept: dict[str, str] = {"somebody-elses": ""}
        self.pruned: list[tuple[str, ...]] = []
        self.while_storing: Callable[[], object] = lambda: None
        self.noted = DIGEST

    def init(self) -> None:
        self.kept = {}

    def archives(self) -> dict[str, str]:
        return dict(self.kept)

    def store(
        self,
        name: BackupName,
        path: str,
        size_bytes: int,
        progress: Callable[[int], None],
        *,
        uuid: str,
        writer: Writer,
    ) -> tuple[str, int | None]:
        assert f"{name}{WRITING}" not in self.kept, "borg takes no name twice"
        self.kept[f"{name}{WRITING}"] = comment_of(size_bytes, uuid, writer)
        progress(size_bytes)
        self.while_storing()
        assert path == "the file"
        return DIGEST, 4096

    def keep(self, name: BackupName) -> None:
        self.kept[str(name)] = self.kept.pop(f"{name}{WRITING}")

    def delete(self, archives: tuple[str, ...]) -> None:
        for each in archives:
            del self.kept[each]

    def compact(self) -> None:
        self.pruned.append(("compact",))

    def recorded_digest(self, name: BackupName) -> str:
        assert str(name) in self.kept
        return self.noted

    @contextmanager
    def reading(self, name: BackupName, member: str) -> Iterator[int]:
        assert str(name) in self.kept and member == name.image
        read_end, write_end = os.pipe()
        os.write(write_end, DATA)
        os.close(write_end)
        try:
            yield read_end
        finally:
            os.close(read_end)


class Bed:
    """A device that n1 serves, and the node n2, on which commands run."""

    def __init__(self, env: FakeEnvironment, run: Callable[[str], tuple[int, Any]]) -> None:
        self.env, self.run, self.borg = env, run, FakeBorg()
        self.here = "n2"
        self.is_away = False

    def repository(self, _env: object, _name: str | None, *, lock_s: int = LOCK_S) -> FakeBorg:
        self.borg.lock_s = lock_s
        return self.borg

    def points(self) -> tuple[RestorePoint, ...]:
        return self.session().observe().cib.points_of("web")

    def session(self) -> Session:
        return Session(self.env.pacemaker, self.env.clock, FakeReporter())

    def backups(self) -> list[str]:
        return [str(each.name) for each in self.borg.backups()]


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Bed:
    env = FakeEnvironment()

    def run(line: str) -> tuple[int, Any]:
        monkeypatch.setattr(sys, "argv", ["sanctl", *line.split(), "--output", "json"])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr().out
        found = json.loads(printed)
        words = " ".join(line.split()[:2])
        assert found["problems"] or breaches(words, printed) == []
        return int(stop.value.code or 0), found["problems"] or found["data"]

    made = Bed(env, run)
    env.host = SimpleNamespace(node_name=lambda: made.here)  # type: ignore[attr-defined]
    env.runner = None  # type: ignore[attr-defined]
    for owner, name, value in (
        (sanctl.cli.environment, "Environment", lambda: env),
        (backup_options, "borg_of", made.repository),
        (background, "yield_to_others", lambda _runner: None),
        (state_files, "RUNTIME", str(tmp_path / "run")),
        (backup_notes, "_FOLDER", str(tmp_path / "notes")),
        (backup_store, "_file_of", lambda _topology, _point: "the file"),
    ):
        monkeypatch.setattr(owner, name, value)
    for pair in env.pacemaker.root.findall("status//nvpair[@name='sanctl-pool-main']"):
        pair.set("value", f"{pair.get('value')} clones=1")
    assert run(f"device create web --size 64M --prefer n1 --initiator {I1}")[0] == 0
    return made


def test_a_backup_makes_a_restore_point_and_removes_it(bed: Bed) -> None:
    seen: list[str] = []
    bed.borg.while_storing = lambda: seen.extend(
        [*(point.name for point in bed.points()), *backup_notes.noted()]
    )
    status, made = bed.run("backup run web")
    assert status == 0 and seen[0].startswith(OWN_POINT) and seen[1:] == ["web"]
    assert made["device"] == "web" and made["point"] is None and made["sha256"] == DIGEST
    assert made["size_bytes"] == 64 << 20 and made["stored_bytes"] == 4096 and made["left"] is None
    assert bed.backups() == [made["name"]]
    bed.env.clock.sleep(1)
    assert bed.points() == () and backup_notes.noted() == ()


def test_a_restore_point_that_is_named_stays_and_is_stored_once(bed: Bed) -> None:
    assert bed.run("snapshot create web --name good")[0] == 0
    status, made = bed.run("backup run web@good")
    assert status == 0 and made["point"] == "good" and made["name"].startswith("web@good.")
    assert [point.name for point in bed.points()] == ["good"]
    status, problems = bed.run("backup run web@good")
    assert status == 4 and problems[0]["code"] == "SAN-BKP-017"


@pytest.mark.parametrize(
    ("line", "status", "code"),
    [
        ("run none", 4, "SAN-DEV-002"),
        ("run web@none", 4, "SAN-SNAP-009"),
        ("run web@Not/One", 2, "SAN-NAME-008"),
        ("run Web", 2, "SAN-NAME-001"),
        ("verify nothing", 2, "SAN-BKP-001"),
        ("verify web@good.20200101-000000", 4, "SAN-BKP-016"),
        ("restore web@good.20200101-000000 --to new", 4, "SAN-BKP-016"),
        ("prune web", 2, "SAN-BKP-006"),
    ],
)
def test_what_is_refused(bed: Bed, line: str, status: int, code: str) -> None:
    found, problems = bed.run(f"backup {line}")
    assert (found, problems[0]["code"]) == (status, code)
    assert bed.points() == () and bed.backups() == [] and backup_notes.noted() == ()


def test_the_active_node_reads_only_if_it_is_told_to(bed: Bed) -> None:
    bed.here = "n1"
    assert bed.run("backup run web")[1][0]["code"] == "SAN-BKP-004"
    assert bed.run("backup run web --skip-elsewhere") == (0, {"skipped": True})
    assert bed.run("backup run web --on-active")[0] == 0 and len(bed.backups()) == 1


def test_one_that_fails_leaves_no_backup_and_no_restore_point(bed: Bed) -> None:
    def full() -> None:
        raise CommandError(Problem("SAN-BKP-013", "no space left on device"))

    bed.borg.while_storing = full
    status, problems = bed.run("backup run web")
    assert status == 5 and problems[0]["code"] == "SAN-BKP-013"
    bed.env.clock.sleep(1)
    assert bed.backups() == [] and bed.points() == () and backup_notes.noted() == ()
    # What it has stored was of use to the next one, which removes the rest.
    assert any(WRITING in each for each in bed.borg.kept)
    bed.borg.while_storing = lambda: None
    bed.env.clock.sleep(5)
    assert bed.run("backup run web")[0] == 0
    assert not any(WRITING in each for each in bed.borg.kept) and "somebody-elses" in bed.borg.kept


def test_a_file_that_cannot_be_read(bed: Bed) -> None:
    def unreadable() -> None:
        raise OSError(5, "Input/output error")

    bed.borg.while_storing = unreadable
    assert bed.run("backup run web")[1][0]["code"] == "SAN-BKP-009"
    assert bed.backups() == []


def test_what_a_killed_one_leaves_the_pool_agent_removes(bed: Bed) -> None:
    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    bed.borg.while_storing = die
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backup_point, "_forget_own", lambda *_: None)
        with pytest.raises(Killed):
            bed.run("backup run web")
    assert [point.name[:10] for point in bed.points()] == [OWN_POINT]
    with backup_notes.running("web") as is_running:
        assert is_running
        # One that runs keeps its restore point.
        assert (
            backup_point.remove_abandoned(bed.session()) == () and not bed.points()[0].is_deleting
        )
    assert backup_point.remove_abandoned(bed.session()) == ("web",)
    bed.env.clock.sleep(1)
    assert bed.points() == () and backup_point.remove_abandoned(bed.session()) == ()


def test_two_at_once_are_refused(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    backup_notes.begin("web", "nas", "n2", 1)
    with backup_notes.running("web"):
        status, problems = bed.run("backup run web")
    assert status == 9 and problems[0]["code"] == "SAN-BKP-008"
    backup_notes.end("web")
    # On another node: it may be running, as that node is there.
    monkeypatch.setattr(snapshot, "refuse_own_name", lambda _name: None)
    assert bed.run(f"snapshot create web --name {OWN_POINT}-0123abcd")[0] == 0
    status, problems = bed.run("backup run web")
    assert status == 9 and problems[0]["code"] == "SAN-BKP-008" and bed.backups() == []
    # Its node is gone.
    bed.env.pacemaker.crash("n1")
    for _ in range(3):
        bed.env.clock.sleep(1)
    assert bed.run("backup run web --on-active")[0] == 0
    assert len(bed.backups()) == 1


def test_one_backup_at_a_time_uses_a_repository(bed: Bed) -> None:
    """Before it makes its restore point: fifty that wait for hours have none meanwhile."""
    with backup_notes.turn("nas", wait_s=0) as is_mine:
        assert is_mine
        status, problems = bed.run("backup run web --wait 0")
        assert status == 9 and problems[0]["code"] == "SAN-BKP-012"
        assert bed.points() == () and bed.backups() == []
        # A timer on the other node does not wait to learn that it has nothing to do.
        bed.here = "n1"
        assert bed.run("backup run web --skip-elsewhere --wait 3600") == (0, {"skipped": True})
    bed.here = "n2"
    assert bed.run("backup run web --wait 0")[0] == 0
    bed.borg.while_storing = lambda: _assert_taken("nas")
    assert bed.run("backup run web")[0] == 0


def _assert_taken(repository: str) -> None:
    with backup_notes.turn(repository, wait_s=0) as is_mine:
        assert not is_mine, "another one may begin"


def test_a_device_that_moves_while_its_backup_waits_is_no_success(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node that has become the one to read has left it to this one, and ended, hours ago."""

    @contextmanager
    def turn(_repository: str, *, wait_s: float, device: str) -> Iterator[bool]:
        assert wait_s == 3600
        assert bed.run("device move web --to n2")[0] == 0
        yield True

    monkeypatch.setattr(backup_notes, "turn", turn)
    bed.here = "n1"
    assert bed.run("backup run web --skip-elsewhere --wait 3600") == (0, {"skipped": True})
    bed.here = "n2"
    status, problems = bed.run("backup run web --skip-elsewhere --wait 3600")
    assert status == 5 and problems[0]["code"] == "SAN-BKP-023"
    assert bed.points() == () and bed.backups() == []


def test_a_standby_that_is_in_sync_again_takes_no_backup_from_the_one_that_waits(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three replicas: the first standby's own command has left it to this one, hours ago."""
    able = ["n2", "n1"]

    @contextmanager
    def turn(_repository: str, *, wait_s: float, device: str) -> Iterator[bool]:
        able.insert(0, "n0")
        yield True

    monkeypatch.setattr(plan, "readers", lambda *_: tuple(able))
    monkeypatch.setattr(backup_notes, "turn", turn)
    assert bed.run("backup run web --skip-elsewhere --wait 3600")[0] == 0
    assert len(bed.backups()) == 1
    # One that looks only now leaves it to that one.
    assert bed.run("backup run web --skip-elsewhere") == (0, {"skipped": True})


def test_a_restore_point_of_an_operator_is_never_a_backups_own(bed: Bed) -> None:
    """What a review found: `for-backup-of-may` was deleted as if a backup had left it."""
    name = f"{OWN_POINT}-of-may"
    assert bed.run(f"snapshot create web --name {name}")[0] == 0
    bed.env.pacemaker.crash("n1")
    for _ in range(3):
        bed.env.clock.sleep(1)
    assert bed.run("backup run web --on-active")[0] == 0
    assert [point.name for point in bed.points() if not point.is_deleting] == [name]
    for refused in (OWN_POINT, f"{OWN_POINT}-0123abcd"):
        status, problems = bed.run(f"snapshot create web --name {refused}")
        assert status == 2 and problems[0]["code"] == "SAN-NAME-008"


def test_a_named_restore_point_is_stored_again_after_an_attempt_that_died(bed: Bed) -> None:
    assert bed.run("snapshot create web --name good")[0] == 0
    (point,) = bed.points()
    begun = f"{BackupName('web', point.made_s, 'good')}{WRITING}"
    bed.borg.kept[begun] = comment_of(64 << 20, point.uuid, Writer(bed.here, point.made_s))
    assert bed.run("backup run web@good")[0] == 0
    assert begun not in bed.borg.kept


def test_one_restore_point_that_stays_does_not_keep_those_of_other_devices(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def forget(_session: object, device: str) -> None:
        seen.append(device)
        if device == "a":
            raise CommandError(Problem("SAN-SNAP-001", "a clone is being made of it"))

    monkeypatch.setattr(backup_point, "_forget_own", forget)
    monkeypatch.setattr(backup_notes, "noted", lambda: ["a", "b"])
    monkeypatch.setattr(backup_notes, "read", lambda _device: "0" * 16)
    with pytest.raises(CommandError, match="a clone"):
        backup_point.remove_abandoned(bed.session())
    assert seen == ["a", "b"]


def test_a_restore_point_that_cannot_be_removed_is_said(bed: Bed) -> None:
    def lose_quorum() -> None:
        bed.env.pacemaker.has_quorum = False

    bed.borg.while_storing = lose_quorum
    status, made = bed.run("backup run web")
    assert status == 0 and "SAN-BKP-007" in made["left"] and bed.backups() == [made["name"]]
    assert backup_notes.noted() == ("web",)


def test_the_list_and_a_verify(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    name = bed.run("backup run web")[1]["name"]
    assert [each["name"] for each in bed.run("backup list")[1]] == [name]
    assert bed.run("backup list other")[1] == []
    # Another digest, then another length.
    assert bed.run(f"backup verify {name}")[1][0]["code"] == "SAN-BKP-020"
    silences: list[float] = []

    def digest(*_: object, silence_s: float) -> tuple[str, int]:
        silences.append(silence_s)
        return DIGEST, 5

    monkeypatch.setattr(block_stream, "digest_of_pipe", digest)
    for wait_s in (60, 4000):
        found = bed.run(f"backup verify {name} --wait {wait_s}")
        assert found[1][0]["code"] == "SAN-BKP-020"
    # A backup may have the repository in between, for as long as a command waits for it.
    assert silences[1] - silences[0] == 4000 - 60
    monkeypatch.setattr(block_stream, "digest_of_pipe", lambda *_, silence_s: (DIGEST, 64 << 20))
    assert bed.run(f"backup verify {name}")[1]["sha256"] == DIGEST
    # borg's own commands can have taken the comment away: the digest says whether it is whole.
    bed.borg.kept[name] = ""
    assert bed.run(f"backup verify {name}")[1]["sha256"] == DIGEST
    bed.borg.noted = "e" * 64
    assert bed.run(f"backup verify {name}")[1][0]["code"] == "SAN-BKP-020"


def test_pruning_begins_with_what_is_none(bed: Bed) -> None:
    for _ in range(3):
        assert bed.run("backup run web")[0] == 0
        bed.env.clock.sleep(5)
    before = bed.backups()
    bed.borg.kept[f"web@x.20200101-000000{WRITING}"] = ""
    status, found = bed.run("backup prune web --keep-last 1 --yes")
    assert status == 0 and found["deleted"] == before[:-1]
    assert bed.borg.pruned == [("compact",)]
    assert list(bed.borg.kept) == ["somebody-elses", before[-1]]


def test_a_success_is_followed_by_a_prune(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "backup run web --skip-elsewhere --keep-last 1"
    assert bed.run(line)[1]["deleted"] == []
    (first,) = bed.backups()
    bed.env.clock.sleep(5)
    status, made = bed.run(line)
    assert status == 0 and made["deleted"] == [first] and bed.backups() == [made["name"]]
    bed.here = "n1"
    pruned = len(bed.borg.pruned)
    assert bed.run(line) == (0, {"skipped": True}) and len(bed.borg.pruned) == pruned
    # A backup that was made is one, whatever the prune says: the command is done in part.
    bed.here = "n2"
    busy = other_nodes(bed, BackupName("web", 1, "good"))
    bed.env.clock.sleep(5)
    status, problems = bed.run(line)
    assert status == 8 and problems[0]["code"] == "SAN-BKP-008"
    assert len(bed.backups()) == 2 and busy in bed.borg.kept
    assert bed.session().observe().cib.backup_failures == ()
    # None that is not asked for; and none after a failure.
    assert bed.run("backup run web")[0] == 0 and len(bed.backups()) == 3


def test_what_a_device_is_being_filled_from_is_not_pruned(bed: Bed) -> None:
    names = []
    for _ in range(3):
        names.append(bed.run("backup run web")[1]["name"])
        bed.env.clock.sleep(5)
    bed.env.pacemaker.ignores_restores = True
    assert bed.run(f"backup restore {names[1]} --to new --initiator {I1} --timeout 60")[0] == 7
    status, found = bed.run("backup prune web --keep-last 1 --yes")
    assert status == 0 and [each["code"] for each in found] == ["SAN-BKP-024"]
    assert names[1] in found[0]["text"] and bed.backups() == names[1:]
    # What an order of a later release says is not known.
    (device,) = (each for each in bed.session().observe().cib.devices if each.name.value == "new")
    later = SetParameter(name=device.name, parameter="restore", value="of a later release")
    bed.session().change(lambda _: (later,))
    status, found = bed.run("backup prune web --keep-last 1 --yes")
    assert status == 4 and found[0]["code"] == "SAN-REST-010" and bed.backups() == names[1:]
    assert bed.run("device delete new --yes")[0] == 0
    assert bed.run("backup prune web --keep-last 1 --yes")[1]["deleted"] == [names[1]]


def test_nothing_is_made_or_pruned_of_what_is_not_known(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CIB is older than a hold that a node has noted: the device may be half of a copy."""
    names = []
    for _ in range(2):
        names.append(bed.run("backup run web")[1]["name"])
        bed.env.clock.sleep(5)
    cluster, prune = bed.env.pacemaker, "backup prune web --keep-last 1 --yes"
    cluster.in_contact["n2"] = f" {OLDER_KEY}=unreadable"
    cluster.tick()
    for line in (prune, "backup run web", "backup run web --skip-elsewhere --keep-last 1"):
        status, found = bed.run(line)
        assert status == 4 and found[0]["code"] == "SAN-REST-018", line
        assert "n2 has a note that cannot be read" in found[0]["text"]
    (failure,) = bed.session().observe().cib.backup_failures
    assert failure.device == "web", "of the timer's, which somebody is to hear of"
    # It waits until they say it, as with the next monitor after a restart of attrd.
    for node in ("n1", "n2"):
        cluster.attribute(node, "sanctl-web", None)
    status, found = bed.run(prune)
    assert status == 4 and found[0]["code"] == "SAN-REST-018" and bed.backups() == names
    del cluster.in_contact["n2"]
    cluster.tick()
    # Of a device that was not held, as far as is known, nothing older stays because of that.
    for node in ("n1", "n2"):
        cluster.attribute(node, "sanctl-web", None)
    with monkeypatch.context() as patched:
        patched.setattr(noted_state, "_SAID_S", 0.0)
        assert bed.run(prune)[1]["deleted"] == names[:1]


def test_what_goes_is_shown_before_and_no_other_backup_goes(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        assert bed.run("backup run web")[0] == 0
        bed.env.clock.sleep(5)
    first, second, last = bed.backups()
    status, found = bed.run("backup prune web --keep-last 1 --dry-run")
    assert status == 0 and found["deleted"] == [first, second] and found["dry_run"]
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    status, problems = bed.run("backup prune web --keep-last 1")
    assert status == 2 and problems[0]["code"] == "SAN-CLI-002"
    assert bed.backups() == [first, second, last] and bed.borg.pruned == []
    shown: list[str] = []
    taken_s = BackupName.parse(first).taken_s
    unseen = BackupName("web", taken_s - 9, OWN_POINT)

    def answers(text: str, **_: object) -> None:
        shown.append(text)
        bed.borg.kept[str(unseen)] = bed.borg.kept[first]

    monkeypatch.setattr(click, "confirm", answers)
    monkeypatch.setattr(click, "echo", lambda text, **_: shown.append(text))
    status, found = bed.run("backup prune web --keep-last 1")
    assert status == 0 and found["deleted"] == [first, second] and not found["dry_run"]
    assert [first in shown[0], second in shown[1], "these 2 backups" in shown[2]] == [True] * 3
    assert bed.backups() == [str(unseen), last], "what was not shown stays"
    assert bed.run("backup prune web --keep-last 1 --yes")[1]["deleted"] == [str(unseen)]


def other_nodes(bed: Bed, name: BackupName) -> str:
    """Put an archive there that n1 has written, and not yet given its name."""
    begun = f"{name}{WRITING}"
    writer = Writer("n1", int(bed.env.clock.wall_s()))
    (device,) = (each for each in bed.session().observe().cib.devices if each.name.value == "web")
    bed.borg.kept[begun] = comment_of(64 << 20, device.uuid, writer)
    return begun


def test_another_clusters_backups_of_the_name_stay(bed: Bed) -> None:
    """Its device has the name of this one, its node too, and it keeps more."""
    for _ in range(2):
        assert bed.run("backup run web")[0] == 0
        bed.env.clock.sleep(5)
    own = bed.backups()
    others = [str(BackupName("web", 1_600_000_000 + day, "for-backup")) for day in range(3)]
    for number, each in enumerate((*others, f"web@x.20270101-000000{WRITING}")):
        writer = Writer(bed.here, int(bed.env.clock.wall_s()), 1 + number)
        bed.borg.kept[each] = comment_of(64 << 20, "e" * 32, writer)
    status, found = bed.run("backup prune web --keep-last 1 --yes")
    assert status == 0 and [each["code"] for each in found] == ["SAN-BKP-031"]
    assert bed.backups() == [*others, own[-1]]
    # It has read for hours, and waits for the repository to give it its name.
    assert f"web@x.20270101-000000{WRITING}" in bed.borg.kept
    assert bed.run("backup run web")[0] == 0
    assert f"web@x.20270101-000000{WRITING}" in bed.borg.kept
    status, found = bed.run("backup prune web --keep-last 1 --yes --all-uuids")
    assert status == 9 and found[0]["code"] == "SAN-BKP-008"
    del bed.borg.kept[f"web@x.20270101-000000{WRITING}"]
    assert bed.run("backup prune web --keep-last 1 --yes --all-uuids")[0] == 0
    assert len(bed.backups()) == 2


def test_what_another_node_is_about_to_name_is_not_deleted(bed: Bed) -> None:
    bed.run("snapshot create web --name good")
    (point,) = bed.session().observe().cib.points
    begun = other_nodes(bed, BackupName("web", point.made_s, "good"))
    for command in ("backup prune web --keep-last 1 --yes", "backup run web@good"):
        status, problems = bed.run(command)
        assert status == 9 and problems[0]["code"] == "SAN-BKP-008"
        assert "on n1" in problems[0]["text"]
    assert begun in bed.borg.kept and bed.borg.pruned == []
    # Another backup of the device leaves it alone; what can be nobody's any more goes.
    assert bed.run("backup run web")[0] == 0 and begun in bed.borg.kept
    bed.env.clock.sleep(7 * 24 * 3600)
    assert bed.run("backup prune web --keep-last 9 --yes")[0] == 0 and begun not in bed.borg.kept


def test_pruning_waits_for_its_turn(bed: Bed) -> None:
    with backup_notes.turn("nas", wait_s=0) as is_mine:
        assert is_mine
        status, problems = bed.run("backup prune web --keep-last 1 --yes --wait 0")
    assert status == 9 and problems[0]["code"] == "SAN-BKP-012" and bed.borg.pruned == []


def test_a_device_is_made_from_a_backup(bed: Bed) -> None:
    name = bed.run("backup run web")[1]["name"]
    bed.env.clock.sleep(5)
    status, made = bed.run(f"backup restore {name} --to new --initiator {I1}")
    assert status == 0 and made["name"] == "new" and made["size"] == 64 << 20
    assert made["sha256"] == DIGEST and made["restore"] is None


def test_hosts_stay_out_of_a_device_that_is_not_filled(bed: Bed) -> None:
    name = bed.run("backup run web")[1]["name"]
    bed.env.clock.sleep(5)
    bed.env.pacemaker.ignores_restores = True
    status, problems = bed.run(f"backup restore {name} --to new --initiator {I1} --timeout 60")
    assert status == 7 and "lets no host in" in problems[0]["hint"]
    shown = bed.run("device show new")[1]
    assert shown["state"] == "restoring" and shown["restore"]["point"] == f"nas::{name}"
    device = bed.session().observe().cib.device("new")
    assert device is not None and device.restore is not None
    assert device.access == frozenset() and device.initiators
    # What the node says that serves it ends the wait.
    report = RestoreReport(device.restore.token, "SAN-BKP-020", "another digest")
    (active,) = bed.env.pacemaker.active("new")
    bed.env.pacemaker.attribute(active, f"{REPORT_PREFIX}new", str(report))
    assert bed.run("device delete new --yes")[0] == 0
    assert bed.run("device show new")[0] == 4


def test_a_node_of_an_older_release_would_let_hosts_in(bed: Bed) -> None:
    name = bed.run("backup run web")[1]["name"]
    bed.env.clock.sleep(5)
    published = bed.env.pacemaker.transient_attributes("sanctl-pool-main")["n1"]
    bed.env.pacemaker.attribute("n1", "sanctl-pool-main", published.removesuffix(" clones=1"))
    status, problems = bed.run(f"backup restore {name} --to new --initiator {I1}")
    assert status == 4 and problems[0]["code"] == "SAN-CLONE-008"
    assert bed.run("device show new")[0] == 4


def test_a_repository_is_made(bed: Bed) -> None:
    assert bed.run("backup init") == (0, {"repository": "nas", "location": "/nas"})


def test_no_repository_is_made_in_a_pool(bed: Bed) -> None:
    """It would be lost with the devices whose backups it has, and take their room."""
    path = str(bed.env.topology().pools[0].path)
    bed.borg.repository = Repository(name="nas", location=f"{path}/backups")
    status, problems = bed.run("backup init")
    assert status == 4 and problems[0]["code"] == "SAN-BKP-033"
    assert "pool main" in problems[0]["text"] and bed.borg.kept, "nothing was made"
    bed.borg.repository = Repository(name="nas", location=f"ssh://nas{path}/backups")
    assert bed.run("backup init")[0] == 0


def test_leftovers_that_cannot_be_looked_for_make_no_failure_of_a_backup(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(backup_store, "left_over", unreadable)
    assert bed.run("backup run web")[0] == 0 and len(bed.backups()) == 1


def test_without_a_file_there_is_no_repository(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(backup_toml, "BACKUP_TOML", str(tmp_path / "backup.toml"))
    with pytest.raises(Exception, match="SAN-BKP-002"):
        backup_options.borg_of(bed.env, None)  # type: ignore[arg-type]
    (tmp_path / "backup.toml").write_text("schema = 1\n[repositories.nas]\nlocation = '/nas'\n")
    assert backup_options.borg_of(bed.env, None).repository.location == "/nas"  # type: ignore[arg-type]


def test_pruning_goes_by_the_device_and_by_what_was_stored_last(bed: Bed) -> None:
    """A new device of the name pushes out no backup of the earlier one; nor does a wrong clock."""
    earlier = BackupName("web", 1_600_000_000, "for-backup")
    bed.borg.kept[str(earlier)] = comment_of(64 << 20, "e" * 32, Writer("n1", 1, 1))
    silent = BackupName("web", 1_600_000_100, "for-backup")
    bed.borg.kept[str(silent)] = "sanctl size=67108864"
    bed.env.clock.now += 7 * 86400
    assert bed.run("backup run web")[0] == 0
    bed.env.clock.now -= 7 * 86400
    ahead = bed.backups()[-1]
    assert [each.number for each in bed.borg.backups()] == [1, 0, 2]
    for _ in range(3):
        bed.env.clock.sleep(5)
        assert bed.run("backup run web")[0] == 0
    own = bed.backups()[2:-1]
    status, found = bed.run("backup prune web --keep-last 1 --yes")
    assert status == 0 and [each["code"] for each in found] == ["SAN-BKP-022"]
    assert ahead in found[0]["text"]
    assert bed.backups() == [str(earlier), str(silent), own[-1], ahead]
