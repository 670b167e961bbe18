# SPDX-License-Identifier: GPL-2.0-or-later
"""`replicate run --group`: copies of one moment, and what stays where a run dies or one fails.

The real receiver, on this machine; the restore points' files are made by the tests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sanctl.cli.environment
from sanctl.drivers import reflink
from sanctl.drivers.site_link import SiteLink
from sanctl.errors import CommandError, Refused
from sanctl.model.names import DeviceName
from sanctl.model.point_schedule import Rule
from sanctl.model.site import Site
from sanctl.model.site_copy import WantedCopy
from sanctl.model.site_group import GroupRecord
from sanctl.ops.copy_run import CopyMade, DeviceRun, SourceNode
from sanctl.ops.replicate_group import replicate_group
from sanctl.plan.device.point_group import group_orders
from sanctl.plan.site.group_record import sender_of_group
from sanctl.plan.site.grouping import moments_of
from tests.fakes.local_site import local_link
from tests.support.json_contract import breaches
from tests.unit.ops.test_replicate import Sites, extents_by_content, printed
from tests.unit.ops.test_snapshot import bed_with_device, two_devices

WEB, DB = DeviceName.parse("web"), DeviceName.parse("db")
_DIES = b"def write_all(handle, data, at):\n    os._exit(9)\n"


class Group(Sites):
    """The same with a device db, both served by n1; `dies_at` is the connection that breaks."""

    dies_at = 0
    more_always = b""

    def connect(self, site: Site) -> SiteLink:
        self.more = _DIES if self.connected + 1 == self.dies_at else self.more_always
        return super().connect(site)

    def run_both(
        self, *names: DeviceName, keep: int | None = None, without: tuple[str, ...] = ()
    ) -> dict[str, CopyMade]:
        self.number += 1
        self.change(0)
        self.connected = 0
        now_s = int(self.bed.env.clock.wall_s()) + self.number
        name, token = f"to-far-{self.number}", f"{self.number:012x}0000"
        return replicate_group(
            self.bed.session,
            group_orders(names or (WEB, DB), name, token, now_s),
            "far",
            SourceNode("n2", self.file_of, 128 << 10),
            connect=self.connect,
            without=[WantedCopy.parse(each) for each in without],
            keep=keep,
            from_active=False,
            timeout_s=30,
        )

    def complete(self) -> list[str]:
        """Return the names of the complete moments at the site, the newest first."""
        with local_link() as link:
            folders = link.folders(str(self.folder), next(iter(self.bed.seen().cib.sites)).mark)
        device = self.bed.seen().cib.device("web")
        assert device is not None
        return [each.name for each in moments_of(f"web.{device.uuid}", folders)]

    def at_site(self, name: str) -> list[str]:
        return sorted(path.name.partition(".")[0] for path in self.folder.glob(f"{name}.*/to-*")
                      if path.suffix not in {".json", ".chunks"})  # fmt: skip


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Group:
    monkeypatch.setattr(reflink, "extents_of", extents_by_content)
    made = Group(bed_with_device(monkeypatch), tmp_path)
    monkeypatch.setattr(sanctl.cli.environment, "Environment", lambda: made.bed.env)
    two_devices(made.bed, monkeypatch)
    made.add()
    return made


def test_both_are_of_one_moment(group: Group) -> None:
    made = group.run_both()
    assert list(made) == ["db", "web"] or list(made) == ["web", "db"]
    assert group.complete() == ["to-far-1"]
    again = group.run_both()
    assert {each.base.name for each in again.values() if each.base} == {"to-far-1"}
    assert group.complete() == ["to-far-2", "to-far-1"]
    assert sorted(group.points()) == ["to-far-2", "to-far-2"], "the base of each"
    assert group.run_both(keep=1)["web"].removed == ("to-far-1",)
    assert group.at_site("web") == ["to-far-2", "to-far-3"], "2 was complete when db was not there"
    assert group.run_both(keep=1)["web"].removed


def test_a_moment_of_which_a_copy_goes_meanwhile_is_not_called_complete(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.run_both()
    send, sent = DeviceRun.send, list[str]()

    def sending(run: DeviceRun, *given: Any) -> Any:
        if sent:
            # As a run for the first device alone, with few to keep, would remove it.
            for path in group.folder.glob(f"{sent[0]}.*/to-far-2.*"):
                path.unlink()
        sent.append(run.device.name.value)
        return send(run, *given)

    monkeypatch.setattr(DeviceRun, "send", sending)
    with pytest.raises(CommandError, match=r"SAN-SITE-030.*a copy of it has gone"):
        group.run_both()
    assert group.complete() == ["to-far-1"]


@pytest.mark.parametrize("device", [0, 1])
def test_one_that_fails_leaves_the_moment_before(group: Group, device: int) -> None:
    """Whatever --keep says, for as long as it fails; the other device's copies go on."""
    group.run_both()
    for _ in range(3):
        group.dies_at = 2 + device
        with pytest.raises(CommandError, match=r"SAN-SITE-030.*it lacks .*SAN-SITE-005"):
            group.run_both(keep=1)
        assert group.complete() == ["to-far-1"]
    both = group.at_site("web"), group.at_site("db")
    assert sorted(both) == [["to-far-1"], ["to-far-1", "to-far-4"]]
    assert sorted(group.points()) == ["to-far-1", "to-far-4"]
    group.dies_at = 0
    group.run_both(keep=1)
    assert group.complete()[0] == "to-far-5"
    group.run_both(keep=1)
    assert group.complete()[0] == "to-far-6" and len(group.at_site("web")) <= 2


def test_a_run_that_was_killed_is_tidied_up_by_the_next(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.run_both()
    with monkeypatch.context() as killed:
        killed.setattr("sanctl.ops.replicate_group.give_up", lambda *_: None)
        group.dies_at = 3
        with pytest.raises(CommandError):
            group.run_both()
    assert len(group.points()) == 3
    group.dies_at = 0
    group.run_both()
    assert sorted(group.points()) == ["to-far-3", "to-far-3"]
    assert group.complete() == ["to-far-3", "to-far-1"]


def test_what_ends_the_process_gives_all_up(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_args: object, **_words: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sanctl.ops.copy_run.site_transfer.send", interrupted)
    with pytest.raises(KeyboardInterrupt):
        group.run_both()
    assert group.points() == [] and group.complete() == []
    assert {each.attempt for each in group.bed.seen().cib.copies} == {""}


def test_a_copy_by_itself_removes_no_moment(group: Group) -> None:
    group.run_both()
    for _ in range(2):
        group.change(0)
        group.run(keep=1)
    assert group.complete() == ["to-far-1"]
    assert group.at_site("web") == ["to-far-1", "to-far-3"]


def test_a_device_that_leaves(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed("device create log --size 64M --prefer n1", monkeypatch) == 0
    three = (WEB, DB, DeviceName.parse("log"))
    group.run_both(*three)
    seen = group.bed.seen().cib.copies
    with pytest.raises(Refused, match=r"SAN-SITE-027.*--without log\."):
        group.run_both()
    assert group.bed.seen().cib.copies == seen, "nothing was begun"
    group.run_both(without=("log",), keep=1)
    group.run_both(keep=1)
    assert group.complete()[0] == "to-far-4" and "to-far-1" not in group.complete()
    group.run_both(*three)
    assert group.complete()[0] == "to-far-5"


def record(group: Group) -> GroupRecord:
    (found,) = group.bed.seen().cib.copy_groups
    return found


def test_what_is_complete_is_noted(
    group: Group, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group.dies_at = 3
    with pytest.raises(CommandError):
        group.run_both()
    before = record(group)
    assert before.devices == ("db", "web") and before.begun_s and before.complete is None
    capsys.readouterr()
    assert printed("replicate status", monkeypatch) == 0
    assert "no moment is complete yet; a run is under way, or has" in capsys.readouterr().out
    with pytest.raises(CommandError):
        group.run_both()
    assert record(group) == before
    group.dies_at = 0
    made = group.run_both()
    done = record(group)
    assert not done.begun_s and done.complete is not None and done.complete.name == "to-far-3"
    assert done.complete.proven_s == max(each.copy.proven_s for each in made.values())
    assert printed("replicate status web", monkeypatch) == 0
    assert "db, web together at site far: the newest complete moment is to-far-3, 0:00:" in (
        capsys.readouterr().out
    )
    assert printed("replicate status --output json", monkeypatch) == 0
    out = capsys.readouterr().out
    assert breaches("replicate status", out) == []
    assert {each["group"]["point"] for each in json.loads(out)["data"]} == {"to-far-3"}


def test_the_schedule(
    group: Group, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "replicate schedule web db --to far --group"
    for more, text in (
        ("", "schedule: none"),
        ("--every 15m", "every 15m, the newest 7 are kept"),
        ("", "of web, db to site far, at one moment by schedule: every 15m"),
    ):
        capsys.readouterr()
        assert printed(f"{line} {more}", monkeypatch) == 0
        assert text in capsys.readouterr().out
    assert record(group).rule == Rule(900, 7)
    assert printed(f"{line} --every 1h --keep 3 --output json", monkeypatch) == 0
    out = capsys.readouterr().out
    assert breaches("replicate schedule", out) == []
    assert [(e["device"], e["changed"]) for e in json.loads(out)["data"]] == [
        ("web", True),
        ("db", True),
    ]
    assert sender_of_group(group.bed.seen(), record(group)) == "n2"
    group.run_both()
    assert record(group).rule == Rule(3600, 3) and record(group).complete is not None
    # A device that is deleted leaves the schedule, and a finding, until somebody sees to it.
    assert printed("device delete db --yes --with-points", monkeypatch) == 0
    assert record(group).devices == ("db", "web")
    capsys.readouterr()
    printed("status", monkeypatch)
    assert "device db that was copied is there no more" in capsys.readouterr().out
    assert printed(f"{line} --every off", monkeypatch) == 0
    assert group.bed.seen().cib.copy_groups == ()
    assert printed("replicate schedule web db --to far", monkeypatch) == 2


def test_the_command(
    group: Group, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    env = group.bed.env
    env.site_link = group.connect  # type: ignore[attr-defined]

    class Host:
        def node_name(self) -> str:
            return "n2"

    env.host = Host()  # type: ignore[attr-defined]
    monkeypatch.setattr(
        "sanctl.cli.commands.replicate._file_of", lambda point, _: group.file_of(point)
    )
    capsys.readouterr()
    line = "replicate run web db --to far --group"
    assert printed(f"{line} --output json", monkeypatch) == 0
    out = capsys.readouterr().out
    assert breaches("replicate run", out) == []
    assert {each["device"] for each in json.loads(out)["data"]} == {"web", "db"}
    monkeypatch.setattr("sanctl.cli.commands.replicate.point_name", lambda *_: "to-far-again")
    monkeypatch.setattr(env, "new_uuid", lambda: "d" * 32)
    assert printed(f"{line} --without x --keep 3", monkeypatch) == 0
    assert "2 devices are at site far as they were at one moment" in capsys.readouterr().out
    for wrong in ("web db", "web web --group", "web --group"):
        assert printed(f"replicate run {wrong} --to far", monkeypatch) == 2
        assert "SAN-SNAP-016" in capsys.readouterr().err
    assert printed("replicate run web --without db --to far", monkeypatch) == 2


def test_a_site_that_stays_full_keeps_the_newest_complete_moment(group: Group) -> None:
    group.run_both()
    group.run_both()
    newest = group.complete()[0]
    full = b"_FREED_S = 0.1\nos.statvfs = lambda path: os.statvfs_result([1, 1] + [0] * 8)\n"
    group.more_always = full
    with pytest.raises(CommandError, match="SAN-SITE-007"):
        group.run_both(keep=1)
    assert group.complete() == [newest]
    assert group.at_site("web") == group.at_site("db") == [newest]
    group.more_always = b""
    group.run_both(keep=1)
    assert len(group.complete()) == 1 and group.complete() != [newest]
