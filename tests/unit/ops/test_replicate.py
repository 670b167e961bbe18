# SPDX-License-Identifier: GPL-2.0-or-later
"""Copies of a device at a second site: each is equal, and a run that fails leaves what there was.

The real receiver, on this machine; the restore points' files are made by the tests.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys
import zlib
from pathlib import Path

import pytest

import sanctl.cli.environment
from sanctl.agents.sites import program
from sanctl.cli.main import main
from sanctl.cli.views.site import lag_s
from sanctl.drivers import point_files, reflink
from sanctl.drivers.site_link import SiteLink
from sanctl.errors import CommandError, NotConverged, Refused
from sanctl.model.cib_change import SetCopy, SetGroupRecord, SetSite
from sanctl.model.copy_progress import (
    PROGRESS_PREFIX,
    SENDING,
    WAITING,
    CopyProgress,
    CopyStep,
)
from sanctl.model.extent import Extent
from sanctl.model.names import DeviceName
from sanctl.model.restore_point import RestorePoint
from sanctl.model.site import ProvenCopy, Site
from sanctl.model.site_group import CompleteMoment, GroupRecord
from sanctl.ops.copy_run import CopyMade, SourceNode
from sanctl.ops.replicate import replicate
from sanctl.ops.site import Place, add_site, limit_site, move_site, remove_site
from sanctl.plan.site.choosing import stuck_problem
from sanctl.plan.site.copying import base_problem, point_removal
from sanctl.plan.site.definition import plan_site_place
from tests.fakes.local_site import local_link
from tests.fakes.pacemaker import FakeClock, FakeReporter
from tests.support.json_contract import breaches
from tests.unit.model.test_site import COPY, KEY, SITE
from tests.unit.ops.test_snapshot import Bed, bed_with_device

NAME = DeviceName.parse("web")
BLOCK, SIZE = 4096, 3 << 20


def extents_by_content(handle: int) -> list[Extent]:
    """Return extents as if blocks of one content were at one place on the disk."""
    size = os.fstat(handle).st_size
    blocks = [(at, os.pread(handle, BLOCK, at)) for at in range(0, size, BLOCK)]
    return [
        Extent(at, at + BLOCK, (zlib.crc32(block) << 12) | 1 << 50, is_shared=True)
        for at, block in blocks
        if any(block)
    ]


class Sites:
    """A cluster with device web, the files of its restore points, and a site."""

    def __init__(self, bed: Bed, folder: Path) -> None:
        self.bed = bed
        bed.cluster.point_bytes = SIZE
        self.folder, self.pool = folder / "site", folder / "pool"
        self.folder.mkdir()
        self.pool.mkdir()
        self.content = bytearray(SIZE)
        self.number = 0
        self.more = b""
        self.connected = 0

    def connect(self, site: Site) -> SiteLink:
        self.connected += 1
        link = local_link(more=self.more)
        link.host_key = lambda: KEY  # type: ignore[method-assign]
        return link

    def file_of(self, point: RestorePoint) -> str:
        """Return a restore point's file, which has what the device had when it was first asked."""
        path = self.pool / point.token
        if not path.exists() and not (self.pool / f"{point.token}.taking").exists():
            path.write_bytes(self.content)
        return str(path)

    def add(self, fingerprint: str = "") -> Site:
        wanted = SITE._replace(path=str(self.folder), host_key="")
        return add_site(
            self.bed.session,
            wanted,
            self.connect,
            fingerprint=fingerprint,
            ipc_buffer_bytes=128 << 10,
        )

    def run(
        self,
        node: str = "n2",
        *,
        keep: int | None = None,
        site: str = "far",
        limit_bytes_s: int | None = None,
        is_whole: bool = False,
        accepted: tuple[str, ...] = (),
    ) -> CopyMade:
        self.number += 1
        return replicate(
            self.bed.session,
            NAME,
            site,
            self.bed.order(f"to-far-{self.number}", self.number),
            SourceNode(node, self.file_of, 128 << 10),
            connect=self.connect,
            keep=keep,
            from_active=False,
            timeout_s=30,
            limit_bytes_s=limit_bytes_s,
            is_whole=is_whole,
            accepted=accepted,
        )

    def change(self, at: int, length: int = BLOCK) -> None:
        self.content[at : at + length] = os.urandom(length)

    def copies(self) -> dict[str, bytes]:
        return {
            path.name: path.read_bytes()
            for path in self.folder.glob("*/*")
            if path.suffix not in {".json", ".partial", ".chunks"}
        }

    def points(self) -> list[str]:
        return [each.name for each in self.bed.seen().cib.points if not each.is_deleting]

    def proven(self) -> ProvenCopy | None:
        record = self.bed.seen().cib.copy("web", "far")
        assert record is not None and not record.attempt
        return record.proven


def noted(made: CopyMade) -> ProvenCopy:
    """Return a copy as the CIB has it: the order of copies is the site's to say."""
    return made.copy._replace(number=0, after=-1)


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sites:
    monkeypatch.setattr(reflink, "extents_of", extents_by_content)
    made = Sites(bed_with_device(monkeypatch), tmp_path)
    made.add()
    return made


def test_only_what_has_changed_is_sent(sites: Sites) -> None:
    sites.change(0, 1 << 20)
    first = sites.run()
    assert first.base is None and first.is_by_extents and first.copy.changed_bytes == 1 << 20
    assert sites.copies() == {f"to-far-1.{1:016x}": bytes(sites.content)}
    assert sites.points() == ["to-far-1"] and sites.proven() == noted(first)
    before = sites.copies()
    sites.change(2 << 20)
    sites.content[:BLOCK] = bytes(BLOCK)
    second = sites.run()
    assert second.base == first.copy and second.copy.changed_bytes == 2 * BLOCK
    assert second.copy.sent_bytes < 1.1 * BLOCK + (20 << 10), "the receiver's program and a block"
    assert sites.copies() == {**before, f"to-far-2.{2:016x}": bytes(sites.content)}
    assert sites.points() == ["to-far-2"] and sites.proven() == noted(second)


def test_the_rate_of_a_site_is_limited(sites: Sites) -> None:
    """By a clock that only waits move: all that was sent was paid for, but for one burst."""
    clock, session = sites.bed.session.clock, sites.bed.session

    def took_s(limit_bytes_s: int | None = None) -> tuple[float, int]:
        sites.change(0, 1 << 20)
        began_s = clock.monotonic_s()
        sent = sites.run(limit_bytes_s=limit_bytes_s).copy.sent_bytes
        return clock.monotonic_s() - began_s, sent

    free_s, sent = took_s()
    assert sent >= 1 << 20
    site, changed = limit_site(session, "far", 64 << 10)
    assert changed and site.limit_bytes_s == 64 << 10 and not limit_site(session, "far", 65536)[1]
    limited_s, sent = took_s()
    assert sent / 65536 - 1 <= limited_s <= sent / 65536 + free_s + 1
    # This run alone.
    limited_s, sent = took_s(128 << 10)
    assert sent / 131072 - 1 <= limited_s <= sent / 131072 + free_s + 1
    assert took_s(0)[0] <= free_s + 1
    reporter = session.reporter
    assert isinstance(reporter, FakeReporter)
    assert "0:00:00 left at 64 KiB/s" in "".join(reporter.lines)
    with pytest.raises(Refused, match="SAN-SITE-002"):
        limit_site(session, "near", 0)


def test_blocks_that_were_written_anew_with_the_same_are_not_sent(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a resync does after a failover."""
    sites.change(0, 1 << 20)
    sites.run()
    sites.change(BLOCK)
    # All of it is elsewhere on the disk.
    places = iter((1 << 40, 1 << 41))
    monkeypatch.setattr(
        reflink, "extents_of", lambda _: [Extent(0, SIZE, next(places), is_shared=True)]
    )
    made = sites.run()
    assert made.is_by_extents and made.copy.changed_bytes == BLOCK
    assert sites.copies()[f"to-far-2.{2:016x}"] == sites.content


def test_the_content_is_compared_where_the_base_is_gone(sites: Sites) -> None:
    sites.change(0, 1 << 20)
    first = sites.run()
    sites.bed.session.change(lambda seen: point_removal(seen, "web", (first.copy.token,)))
    sites.change(2 << 20)
    made = sites.run()
    assert not made.is_by_extents and made.base == first.copy
    assert made.copy.changed_bytes == 1 << 20, "one chunk"
    assert sites.copies()[f"to-far-2.{2:016x}"] == sites.content


def test_the_content_is_compared_where_the_file_of_the_base_is_gone(sites: Sites) -> None:
    """As after `pool prepare --anew` here: each run waited half a minute for it, and failed."""
    sites.change(0, 1 << 20)
    first = sites.run()
    file = sites.pool / first.copy.token
    file.unlink()
    real = sites.file_of

    def file_of(point: RestorePoint) -> str:
        return str(file) if point.token == first.copy.token else real(point)

    sites.file_of = file_of  # type: ignore[method-assign]
    sites.change(2 << 20)
    began_s = sites.bed.session.clock.monotonic_s()
    made = sites.run()
    assert sites.bed.session.clock.monotonic_s() - began_s < 10
    assert not made.is_by_extents and made.base == first.copy
    assert made.copy.changed_bytes == 1 << 20, "one chunk"
    assert sites.copies()[f"to-far-2.{2:016x}"] == sites.content
    assert not made.base_error
    # What cannot be opened is not gone: that is said.
    file = sites.pool / made.copy.token
    first = made
    file.unlink()
    file.symlink_to("/etc/passwd")
    made = sites.run()
    assert made.base == first.copy and "symbolic links" in made.base_error


def test_a_file_of_the_base_that_was_cut_off_is_no_base(sites: Sites) -> None:
    """What is missing would read as zeros, and no extent would say that it differs."""
    sites.change(0, 1 << 20)
    first = sites.run()
    file = sites.pool / first.copy.token
    os.truncate(file, SIZE - 4096)
    sites.change(2 << 20)
    made = sites.run()
    assert made.base == first.copy and "its file ends at byte" in made.base_error
    assert not made.is_by_extents and sites.copies()[f"to-far-2.{2:016x}"] == sites.content


def test_a_copy_that_cannot_be_removed_keeps_no_other_one(sites: Sites) -> None:
    """The run failed with it each time, after the copy was proven, and the site filled."""
    sites.run()
    sites.change(0)
    sites.run()
    sites.more = b"""
_open = os.open
def _broken(path, *words):
    if str(path).endswith(".0000000000000001"):
        raise OSError(5, "Input/output error", path)
    return _open(path, *words)
os.open = _broken
"""
    made = sites.run(keep=1)
    assert made.removed == ("to-far-2",) and made.stuck == ("to-far-1: Input/output error",)
    text = str(stuck_problem("far", "web", made.stuck))
    assert "SAN-SITE-014" in text and "to-far-1: Input/output error" in text
    sites.more = b""
    assert sites.run(keep=1).removed == ("to-far-1", "to-far-3")


def test_a_file_that_has_lost_its_end_is_no_copy(sites: Sites) -> None:
    """The site took it for a whole, smaller restore point, and proved that: `--keep` counted it."""
    sites.change(0, 1 << 20)
    first = sites.run()
    (sites.pool / f"{2:016x}").write_bytes(sites.content[: 2 << 20])
    with pytest.raises(CommandError, match=f"SAN-SITE-014.*at byte {2 << 20}, .*{SIZE}"):
        sites.run()
    assert list(sites.copies()) == [f"to-far-1.{1:016x}"] and sites.points() == ["to-far-1"]
    # One that has more than hosts saw, as it was growing, is whole.
    (sites.pool / f"{3:016x}").write_bytes(bytes(sites.content) + bytes(BLOCK))
    assert sites.run().base == first.copy


def test_the_base_of_a_copy_may_have_lost_its_end(sites: Sites) -> None:
    """It only tells what has changed: the digests are those of the whole restore point."""
    sites.change(0, SIZE)
    first = sites.run()
    (sites.pool / first.copy.token).write_bytes(sites.content[: 1 << 20])
    sites.change(0)
    made = sites.run()
    assert made.base == first.copy
    assert sites.copies()[f"to-far-2.{2:016x}"] == sites.content


def test_extents_that_tell_wrong_are_found_out(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.change(0, 2 << 20)
    sites.run()
    sites.change(2 << 20)
    monkeypatch.setattr(reflink, "extents_of", lambda _handle: [])
    made = sites.run(is_whole=True)
    assert not made.is_by_extents and made.copy.changed_bytes == 1 << 20
    assert sites.copies()[f"to-far-2.{2:016x}"] == sites.content


@pytest.mark.parametrize(
    ("more", "code"),
    [
        pytest.param(
            b"def write_all(handle, data, at):\n    raise OSError(errno.ENOSPC, 'full')\n",
            "SAN-SITE-007",
            id="full",
        ),
        pytest.param(
            b"def write_all(handle, data, at):\n    os._exit(9)\n", "SAN-SITE-005", id="killed"
        ),
        pytest.param(
            b"def write_all(handle, data, at):\n    pass\n", "SAN-SITE-009", id="lost writes"
        ),
        pytest.param(
            b"def digest_of(chunks, size):\n    return 'f' * 64\n", "SAN-SITE-009", id="not equal"
        ),
        pytest.param(
            b"_digests = chunk_digests\n"
            b"def chunk_digests(*words):\n    return _digests(*words)[:-1]\n",
            "SAN-SITE-009",
            id="too few digests",
        ),
    ],
)
@pytest.mark.parametrize("is_whole", [False, True])
def test_a_run_that_fails_leaves_what_there_was(
    sites: Sites, more: bytes, code: str, *, is_whole: bool
) -> None:
    sites.change(0, 1 << 20)
    first = sites.run()
    whole = sites.copies()
    sites.change(0, 1 << 20)
    sites.more = more
    with pytest.raises(CommandError, match=code):
        sites.run(is_whole=is_whole)
    assert sites.copies() == whole
    assert sites.points() == ["to-far-1"] and sites.proven() == noted(first)
    sites.more = b""
    made = sites.run()
    assert made.base == first.copy and made.is_by_extents
    assert sites.copies()[f"to-far-3.{3:016x}"] == sites.content


def test_the_answer_was_lost(sites: Sites) -> None:
    sites.run()
    sites.change(0)
    # It has its name, and nobody was told.
    sites.more = b"import signal\n_rename = os.rename\ndef _gone(a, b):\n    _rename(a, b)\n"
    sites.more += b"    if a.endswith('.partial'): os._exit(9)\nos.rename = _gone\n"
    with pytest.raises(CommandError, match="SAN-SITE-005"):
        sites.run()
    sites.more = b""
    assert len(sites.copies()) == 2
    sites.change(BLOCK)
    made = sites.run()
    # The restore point of the second is gone with the run: the first is the newest base.
    assert made.base is not None and made.base.name == "to-far-1" and made.is_by_extents
    assert sites.copies()[f"to-far-3.{3:016x}"] == sites.content
    assert sites.points() == ["to-far-3"]


@pytest.mark.parametrize("broken", ["open", "extents", "block"])
def test_a_base_that_cannot_be_read_costs_no_copy(
    sites: Sites,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    broken: str,
) -> None:
    """What a review found: one damaged block ended each run, and the error named the new point."""
    sites.change(0, 1 << 20)
    first = sites.run()
    base = sites.pool / first.copy.token
    sites.change(2 << 20)
    real_open, real_pread = point_files.open_file, os.pread
    places = iter((1 << 40, 1 << 41))

    def is_base(handle: int) -> bool:
        return os.path.samestat(os.fstat(handle), base.stat())

    def open_file(path: str, *words: int) -> int:
        if broken == "open" and path == str(base):
            raise OSError(errno.EIO, "Input/output error")
        return real_open(path, *words)

    def extents(handle: int) -> list[Extent]:
        if broken == "extents" and is_base(handle):
            raise OSError(errno.EIO, "Input/output error")
        return [Extent(0, SIZE, next(places), is_shared=True)]

    def pread(handle: int, length: int, at: int) -> bytes:
        if broken == "block" and is_base(handle) and at <= 3 * BLOCK < at + length:
            raise OSError(errno.EIO, "Input/output error")
        return real_pread(handle, length, at)

    for owner, name, fake in (
        (point_files, "open_file", open_file),
        (reflink, "extents_of", extents),
        (os, "pread", pread),
    ):
        monkeypatch.setattr(owner, name, fake)
    made = sites.run()
    assert made.base == first.copy and "Input/output error" in made.base_error
    assert made.is_by_extents is (broken == "block")
    assert sites.copies()[f"to-far-2.{2:016x}"] == sites.content
    assert made.copy.changed_bytes < 2 << 20, "what the base did not say, and the block"
    text = str(base_problem(first.copy.name, made.base_error))
    assert text.startswith("SAN-SITE-014: restore point to-far-1,")
    monkeypatch.setattr(program, "_log", lambda _name, text, **_more: print(text))
    program._say_made("web", "far", made, 0)
    said = capsys.readouterr().out
    assert text in said and f"read as a whole: {made.why_whole}" in said and made.why_whole
    assert ("the content was compared" in said) is (broken != "block")


def test_the_age_of_a_moment_that_has_not_come_is_not_known(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A lag of 0:00:00 would be said for days, of a copy that is days old."""
    sites.run()
    (record,) = sites.bed.seen().cib.copies
    now_s = int(sites.bed.env.clock.wall_s())
    proven = COPY._replace(made_s=now_s + 86400)
    uuids = [("web", record.uuid), ("log", "1" * 32)]
    group = GroupRecord.of(uuids, "far")._replace(complete=CompleteMoment("g", now_s + 86400, 1))
    sites.bed.session.change(
        lambda _: (SetCopy(record=record._replace(proven=proven)), SetGroupRecord(record=group))
    )
    capsys.readouterr()
    assert printed("replicate status", monkeypatch) == 0
    text = capsys.readouterr().out
    assert text.count("not known") == 2 and "0:00:00" not in text
    assert printed("replicate status --output json", monkeypatch) == 0
    out = capsys.readouterr().out
    assert breaches("replicate status", out) == []
    (found,) = json.loads(out)["data"]
    assert found["lag_s"] is None and found["copy"] and found["group"]["lag_s"] is None
    assert lag_s(now_s + 50, now_s) == 0, "clocks differ by so much"


def test_a_run_that_was_killed_is_tidied_up_by_the_next(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.run()
    sites.change(0)
    # Nothing of the end of a run is done by one that is killed.
    monkeypatch.setattr("sanctl.ops.replicate.give_up", lambda *_: None)
    sites.more = b"def write_all(handle, data, at):\n    os._exit(9)\n"
    with pytest.raises(CommandError):
        sites.run()
    assert sites.points() == ["to-far-1", "to-far-2"]
    sites.more = b""
    made = sites.run()
    assert made.base is not None and made.base.name == "to-far-1"
    assert sites.points() == ["to-far-3"]


def test_the_newest_are_kept(sites: Sites) -> None:
    for _ in range(3):
        sites.change(0)
        sites.run()
    assert sites.run(keep=2).removed == ("to-far-1", "to-far-2")
    assert sorted(sites.copies()) == [f"to-far-{n}.{n:016x}" for n in (3, 4)]
    assert sites.run(keep=9).removed == ()


def test_a_copy_that_is_under_way_is_not_thrown_away_unasked(
    sites: Sites,
) -> None:
    sites.run()
    record = sites.bed.seen().cib.copies[0]._replace(attempt="7" * 16)
    sites.bed.session.change(lambda _: (SetCopy(record=record),))
    now_s = int(sites.bed.session.clock.wall_s())
    progress = CopyProgress("7" * 16, CopyStep(SENDING, 42, 100), now_s, now_s)
    sites.bed.cluster.private_attributes["n1", f"{PROGRESS_PREFIX}web.far"] = str(progress)
    with pytest.raises(Refused, match=r"SAN-SITE-040: node n1 .*sending, 42 %.*--accept"):
        sites.run()
    waiting = progress._replace(step=CopyStep(WAITING, 0, 100))
    sites.bed.cluster.private_attributes["n1", f"{PROGRESS_PREFIX}web.far"] = str(waiting)
    with pytest.raises(Refused, match=r"\(waiting\)"):
        sites.run()
    assert sites.bed.seen().cib.copies[0].attempt == "7" * 16
    assert sites.run(accepted=("SAN-SITE-040",)).copy.name == "to-far-4"


#: A site that has room for a copy only beside so many, and some time after others were removed.
FULL = b"""
import glob
_FREED_S = 2.0
_looked = []
class _Status:
    f_frsize, f_blocks = 1, 1 << 50
    def __init__(self, free):
        self.f_bavail = free
def _statvfs(path):
    count = sum(not each.endswith((".json", ".chunks")) for each in glob.glob(path + "/web.*/to-*"))
    _looked.append(count)
    return _Status((1 << 50) * (count <= %d and _looked.count(count) > 2))
os.statvfs = _statvfs
"""


def test_a_full_site_removes_what_is_not_kept_before_the_copy(sites: Sites) -> None:
    for _ in range(4):
        sites.change(0)
        sites.run()
    before = sites.copies()
    sites.more = FULL % 2
    for keep in (None, 4, 9):
        with pytest.raises(CommandError, match="SAN-SITE-007"):
            sites.run(keep=keep)
        assert sites.copies() == before, "so many are to be kept"
    sites.change(0)
    made = sites.run(keep=2)
    assert made.removed == ("to-far-1", "to-far-2", "to-far-3")
    assert made.base is not None and made.base.name == "to-far-4" and made.is_by_extents
    assert sites.points() == [made.copy.name]
    # What a copy begins as stays, also if the site stays full.
    sites.more = FULL % 0
    with pytest.raises(CommandError, match="SAN-SITE-007"):
        sites.run(keep=1)
    assert [name.partition(".")[0] for name in sites.copies()] == [made.copy.name]
    sites.more = b""
    assert sites.run().is_by_extents


def test_a_full_site_removes_no_copy_of_which_another_one_cannot_be_read(sites: Sites) -> None:
    for _ in range(3):
        sites.change(0)
        sites.run()
    (note,) = sites.folder.glob("*/to-far-3.*.json")
    note.write_text("{")
    before = sites.copies()
    sites.more = FULL % 0
    with pytest.raises(CommandError, match="SAN-SITE-007"):
        sites.run(keep=1)
    assert sites.copies() == before


def test_what_cannot_begin_changes_nothing(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match="SAN-SITE-002"):
        sites.run(site="near")
    with pytest.raises(Refused, match="SAN-SITE-010"):
        sites.run("n1")
    (sites.folder / "sanctl-site.json").rename(sites.folder / "gone")
    with pytest.raises(CommandError, match="SAN-SITE-006"):
        sites.run()
    (sites.folder / "gone").rename(sites.folder / "sanctl-site.json")
    seen = sites.bed.seen()
    assert seen.cib.points == () == seen.cib.copies
    sites.bed.cluster.ignores_points = True
    with pytest.raises(NotConverged):
        sites.run()
    assert sites.points() == [] and sites.proven() is None and sites.copies() == {}


def test_a_point_that_is_not_here(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sanctl.ops.replicate.create_point_patiently  # type: ignore[attr-defined]

    def elsewhere(*args: object, **words: object) -> object:
        return real(*args, **words)._replace(nodes=("n1",))

    monkeypatch.setattr("sanctl.ops.replicate.create_point_patiently", elsewhere)
    with pytest.raises(CommandError, match="SAN-SITE-011"):
        sites.run()
    assert sites.points() == [] and sites.copies() == {}


def test_a_busy_machine_costs_no_slot_of_the_schedule(sites: Sites) -> None:
    """The restore point is made by a second order, whose token is noted in the CIB before it."""
    cluster = sites.bed.cluster
    step = sites.bed.env.clock.on_sleep
    cluster.point_failure = ("SAN-SNAP-007", "not in time")

    def later() -> None:
        step()
        if sites.bed.seen().cib.point_failures:
            cluster.point_failure = None

    sites.bed.env.clock.on_sleep = later
    made = sites.run()
    assert made.copy.token != f"{1:016x}" and sites.proven() == noted(made)
    assert sites.points() == ["to-far-1"]


def test_a_file_that_has_its_first_name_or_is_gone(sites: Sites) -> None:
    (sites.pool / f"{1:016x}.taking").write_bytes(sites.content)
    assert sites.run().copy.size_bytes == SIZE
    (sites.pool / f"{2:016x}.taking").symlink_to("/etc/passwd")
    with pytest.raises(CommandError, match="SAN-SITE-014"):
        sites.run()
    (sites.pool / f"{3:016x}.taking").mkdir()
    sites.file_of = lambda point: str(sites.pool / "nowhere")  # type: ignore[method-assign]
    with pytest.raises(CommandError, match=r"SAN-SITE-014.*no such file"):
        sites.run()
    assert sites.points() == ["to-far-1"]


def test_another_key_is_refused_before_anything_is_written(sites: Sites) -> None:
    remove_site(sites.bed.session, "far")
    (sites.folder / "sanctl-site.json").unlink()
    with pytest.raises(Refused, match="SAN-SITE-015"):
        sites.add("SHA256:other")
    assert list(sites.folder.iterdir()) == [] and sites.bed.seen().cib.sites == ()
    site = sites.add(SITE.fingerprint)
    assert sites.bed.seen().cib.sites == (site,) and site.mark == SITE.mark
    with pytest.raises(Refused, match="SAN-SITE-003"):
        sites.add()


def move(sites: Sites, path: Path, fingerprint: str = "") -> tuple[Site, bool]:
    return move_site(
        sites.bed.session,
        "far",
        Place(("other", "near", 22), str(path)),
        sites.connect,
        fingerprint=fingerprint,
        ipc_buffer_bytes=128 << 10,
    )


def test_a_site_whose_disk_was_carried_goes_on_from_its_copies(sites: Sites) -> None:
    sites.change(0, 1 << 20)
    first = sites.run()
    there = sites.folder.rename(sites.folder.with_name("carried"))
    with pytest.raises(CommandError, match="SAN-SITE-006"):
        sites.run()
    site, changed = move(sites, there, SITE.fingerprint)
    assert changed and (site.address, site.path) == ("other@near:22", str(there))
    assert sites.bed.seen().cib.sites == (site,) and site.mark == SITE.mark
    assert site.host_key == KEY and move(sites, there) == (site, False)
    sites.folder = there
    sites.change(2 << 20)
    made = sites.run()
    assert made.base == first.copy and made.is_by_extents and made.copy.changed_bytes == BLOCK
    assert sites.copies()[f"to-far-3.{3:016x}"] == sites.content


def test_a_directory_that_is_not_the_sites_changes_nothing(sites: Sites, tmp_path: Path) -> None:
    sites.run()
    whole, before = sites.copies(), sites.bed.seen().cib
    other = tmp_path / "other"
    other.mkdir()
    for path in (tmp_path / "nowhere", other):
        with pytest.raises(CommandError, match="SAN-SITE-006"):
            move(sites, path)
    assert list(other.iterdir()) == [], "it is marked by nobody"
    mark = (sites.folder / "sanctl-site.json").read_text()
    (other / "sanctl-site.json").write_text(mark.replace(SITE.mark, "b" * 32))
    with pytest.raises(CommandError, match=r"SAN-SITE-006.*another site"):
        move(sites, other)
    with pytest.raises(Refused, match="SAN-SITE-015"):
        move(sites, sites.folder, "SHA256:other")
    sites.more = b"def clone(origin, copy):\n    raise OSError(errno.EOPNOTSUPP, 'no')\n"
    with pytest.raises(CommandError, match="SAN-SITE-006"):
        move(sites, sites.folder)
    after = sites.bed.seen().cib
    assert (after.sites, after.copies, after.points) == (before.sites, before.copies, before.points)
    assert sites.copies() == whole


def test_the_known_key_is_asked_for_at_the_same_server(sites: Sites) -> None:
    asked: list[str] = []

    def connect(site: Site) -> SiteLink:
        asked.append(site.host_key)
        return sites.connect(site)

    for place, fingerprint in (
        (Place(path=str(sites.folder)), ""),
        (Place(("other", SITE.host, SITE.port)), ""),
        (Place(("copies", SITE.host, 23)), ""),
        (Place(), SITE.fingerprint),
    ):
        move_site(
            sites.bed.session,
            "far",
            place,
            connect,
            fingerprint=fingerprint,
            ipc_buffer_bytes=128 << 10,
        )
    assert asked == [KEY, KEY, "", ""]


def test_a_site_that_was_added_anew_meanwhile_is_not_moved(sites: Sites) -> None:
    (site,) = sites.bed.seen().cib.sites
    with pytest.raises(Refused, match="SAN-SITE-006"):
        plan_site_place(sites.bed.seen(), site._replace(mark="b" * 32, path="/other"))
    limited = limit_site(sites.bed.session, "far", 64 << 10)[0]
    (change,) = plan_site_place(sites.bed.seen(), site._replace(path="/other"))
    assert change == SetSite(site=limited._replace(path="/other")), "the limit is that of now"


def test_removed_and_added_elsewhere_it_compares_the_content(sites: Sites) -> None:
    sites.change(0, 1 << 20)
    first = sites.run()
    remove_site(sites.bed.session, "far")
    sites.folder = sites.folder.rename(sites.folder.with_name("carried"))
    sites.add()
    sites.change(2 << 20)
    made = sites.run()
    assert made.base == first.copy and not made.is_by_extents
    assert made.copy.changed_bytes == 1 << 20, "one chunk"
    assert sites.copies()[f"to-far-2.{2:016x}"] == sites.content


def printed(line: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["sanctl", *line.split()])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_the_commands(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    remove_site(sites.bed.session, "far")
    env = sites.bed.env
    env.site_link = sites.connect  # type: ignore[attr-defined]

    class Host:
        def node_name(self) -> str:
            return "n2"

    env.host = Host()  # type: ignore[attr-defined]
    monkeypatch.setattr(
        "sanctl.cli.commands.replicate._file_of", lambda point, _: sites.file_of(point)
    )
    sites.change(0, 1 << 20)
    texts = {}
    for line in (
        "site list",
        "replicate status",
        f"site add far --ssh root@far --path {sites.folder} --limit-rate 10M",
        "site list",
        "site set far --limit-rate none",
        f"site set far --ssh root@far --path {sites.folder} --limit-rate none",
        "replicate run web --to far --keep 1",
        "replicate run web --to far --keep 1",
        "replicate schedule web --to far --every 15m --keep 3",
        "replicate schedule web --to far --every off",
        "replicate schedule web --to far",
        "replicate schedule web --to far --every 1h",
        "replicate status web",
        "site remove far --yes",
    ):
        capsys.readouterr()
        words = " ".join(line.split()[:2])
        # Twice, as text and as JSON, only what can be said twice.
        if words.endswith(("list", "status")):
            assert printed(line, monkeypatch) == 0
            texts[words] = capsys.readouterr().out
        assert printed(f"{line} --output json", monkeypatch) == 0
        assert breaches(words, capsys.readouterr().out) == [], line
    assert SITE.fingerprint in texts["site list"] and "10 MiB/s" in texts["site list"]
    assert "to-far-" in texts["replicate status"]
    assert "1h" in texts["replicate status"]
    for line, text in (
        (f"site add far --ssh root@far --path {sites.folder}", SITE.fingerprint),
        ("replicate run web --to far --limit-rate none", "had changed"),
        ("replicate run web --to far --whole", "read as a whole: as it was asked for"),
        ("replicate status", "READ WHOLE (UTC)"),
        ("replicate run web --to far --keep 1", "removed there"),
        ("replicate schedule web --to far --every 15m", "every 15m, the newest 7 are kept"),
        ("replicate status", "15m"),
        ("replicate schedule web --to far --every off", "schedule: none"),
        ("site set far --limit-rate 500K", "500 KiB/s"),
        (f"site set far --path {sites.folder}", f"site far is at root@far:22, {sites.folder}"),
        (f"site set far --host-key {SITE.fingerprint}", SITE.fingerprint),
        ("site remove far --yes", "stay"),
    ):
        if text == "removed there":
            sites.run()  # The commands' copies here have all the same token.
        capsys.readouterr()
        assert printed(line, monkeypatch) == 0
        assert text in capsys.readouterr().out
    again = f"site add far --ssh root@far --path {sites.folder}"
    assert printed(again, monkeypatch) == 0
    assert printed("replicate schedule web --to far --every 15m --keep 5", monkeypatch) == 0
    capsys.readouterr()
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert printed("site remove far", monkeypatch) == 2, "nobody to ask"
    given_again = "sanctl replicate schedule web --to far --every 15m --keep 5\n"
    assert given_again in capsys.readouterr().err
    assert [each.site for each in sites.bed.seen().cib.copy_schedules] == ["far"]
    for line in ("site remove far --yes", again):
        assert printed(line, monkeypatch) == 0
    for line in ("site set far", "replicate run web --to far", "site add b --ssh a@b --path /c"):
        assert printed(f"{line} --limit-rate 0", monkeypatch) == 2
        assert "SAN-SITE-001" in capsys.readouterr().err
    for more in ("", " --path copies", " --ssh far"):
        assert printed(f"site set far{more}", monkeypatch) == 2
        assert "SAN-SITE-001" in capsys.readouterr().err
    assert printed("replicate schedule web --to far --keep 3", monkeypatch) == 2
    assert printed("replicate schedule web --to far --every now", monkeypatch) == 2


def test_a_clock_that_was_ahead_has_no_newer_copy_removed(sites: Sites) -> None:
    """It is put back after the second copy: by their times the later ones are the oldest."""
    sites.run()
    clock = sites.bed.session.clock
    assert isinstance(clock, FakeClock)
    clock.now += 7 * 86400
    sites.change(0)
    sites.run(keep=2)
    clock.now -= 7 * 86400
    for _ in range(3):
        sites.change(4 * BLOCK)
        made = sites.run(keep=2)
    assert made.removed == ("to-far-3",)
    assert sorted(name.partition(".")[0] for name in sites.copies()) == ["to-far-4", "to-far-5"]
    assert made.copy.number == 5 and made.copy.after == 4
