# SPDX-License-Identifier: GPL-2.0-or-later
"""The process that puts a device back: what it writes, and what it leaves when something is wrong.

The device and the restore point's file are files here, the cluster is in memory.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sanctl.agents.restore import closure, filling, order_begin, order_report, program, unit
from sanctl.drivers import gate, node_attributes, own_disk
from sanctl.drivers.range_copy import CHUNK_BYTES, RangeCopy
from sanctl.drivers.site_link import SiteLink
from sanctl.errors import CommandError, NotConverged, Problem
from sanctl.model.cib_change import RemoveSite, SetPoint, SetSite
from sanctl.model.cluster import Cluster
from sanctl.model.device_restore import COPYING, DONE, GIVEN_UP, ORDERED, RestoreOrder
from sanctl.model.names import ByteSize
from sanctl.model.site_copy import SiteCopy
from sanctl.ops.device_restore import cancel_restore
from sanctl.ops.session import Session
from sanctl.plan.device import restore_changes
from sanctl.render.cib import render_patchset
from sanctl.system import state_files
from tests.fakes.local_site import local_link
from tests.fakes.pacemaker import FakeReporter
from tests.unit.drivers.test_site_receiver import DEVICE, MARK, ONE, digest, make
from tests.unit.model.test_site import SITE
from tests.unit.ops.test_device_restore import NAME, Bed, bed

__all__ = ["bed"]

WANTED, PRESENT = b"good" * (2 * CHUNK_BYTES // 4), b"late" * (2 * CHUNK_BYTES // 4)


class Node:
    """The node n1, on which an order is open and nothing has been done for it."""

    def __init__(self, made: Bed, folder: Path) -> None:
        self.bed = made
        self.file, self.device = folder / "point", folder / "device"
        self.file.write_bytes(WANTED)
        self.device.write_bytes(PRESENT)
        self.is_closed = True
        self.gate = "drbd1"
        self.on_poll: Callable[[], object] = lambda: None

    def run(self) -> None:
        assert program.main() == 0

    @property
    def state(self) -> str:
        return self.bed.order().state

    def report(self) -> str:
        return str(self.bed.seen().cib.restore_reports.get(("web", "n1"), ""))


@pytest.fixture
def node(bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(bed, tmp_path)
    bed.good = bed.good._replace(size_bytes=len(WANTED))
    bed.cluster.patch(render_patchset(bed.cluster.root, (SetPoint(point=bed.good),)))
    bed.cluster.ignores_restores = True
    with pytest.raises(NotConverged):
        bed.restore(bed.request(), timeout_s=5)

    def read_order(_runner: object, _name: str) -> str:
        return str(bed.device().restore or "")

    def poll(_seconds: float) -> None:
        made.on_poll()

    session = Session(bed.cluster, bed.env.clock, FakeReporter())
    for owner, name, value in (
        (state_files, "RUNTIME", str(tmp_path / "run")),
        (sys, "argv", ["restore-device", "web"]),
        (os, "uname", lambda: SimpleNamespace(nodename="n1")),
        (os, "O_DIRECT", 0),
        (program, "Session", lambda *_: session),
        (order_report, "log", lambda *_: None),
        (filling, "_LOOK_S", -1.0),
        (time, "time", lambda: float(bed.order().given_s + 5)),
        (time, "sleep", poll),
        (filling, "_file_of", lambda _point: str(made.file)),
        (gate, "target_device", lambda _name: str(made.device)),
        (gate, "gate_table", lambda _name: made.gate),
        (closure, "is_closed", lambda _name: made.is_closed),
        (closure, "read_order", read_order),
        (own_disk, "live_cib_version", lambda _runner: (0, 7)),
        (own_disk, "written_cib_version", lambda: (0, 7)),
        (node_attributes, "publish", lambda _runner, *pair: bed.cluster.attribute("n1", *pair)),
        (node_attributes, "delete", lambda _runner, key: bed.cluster.attribute("n1", key, None)),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, value)
    return made


def test_the_device_becomes_what_it_was(node: Node) -> None:
    node.run()
    assert node.device.read_bytes() == WANTED
    assert node.state == DONE and node.report() == ""
    node.run()  # nothing is left to do
    assert node.state == DONE


def test_what_was_kept_on_one_node_alone(node: Node) -> None:
    order = node.bed.order()
    kept = next(each for each in node.bed.seen().cib.points if each.token == order.kept_token)
    alone = SetPoint(point=kept._replace(nodes=("n1",)))
    node.bed.cluster.patch(render_patchset(node.bed.cluster.root, (alone,)))
    node.run()
    assert node.state == GIVEN_UP and "SAN-REST-012" in node.report()
    assert node.device.read_bytes() == PRESENT
    node.bed.set_restore(str(order._replace(may_keep_on_few=True)))
    node.run()
    assert node.device.read_bytes() == WANTED and node.state == DONE
    assert not node.bed.order().may_keep_on_few


def test_begun_by_another_process_it_goes_on(node: Node) -> None:
    node.bed.set_restore(str(node.bed.order()._replace(state=COPYING)))
    node.device.write_bytes(WANTED[:CHUNK_BYTES] + PRESENT[CHUNK_BYTES:])
    node.run()
    assert node.device.read_bytes() == WANTED and node.state == DONE


def test_nothing_is_written_before_hosts_are_out(node: Node) -> None:
    node.is_closed = False
    polls: list[str] = []

    def close_at_third() -> None:
        assert node.device.read_bytes() == PRESENT and node.state == ORDERED
        polls.append(node.report())
        node.is_closed = len(polls) == 3

    node.on_poll = close_at_third
    node.run()
    assert len(polls) == 3 and "n1 still lets hosts in" in polls[0]
    assert node.state == DONE


def test_hosts_that_are_let_in_end_the_copy(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([True, True, False])
    monkeypatch.setattr(closure, "is_closed", lambda _name: next(answers))
    node.run()
    assert node.state == COPYING and "the access list is not empty" in node.report()
    assert node.device.read_bytes() == PRESENT


def test_hosts_that_are_let_in_at_the_end(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "_LOOK_S", 60.0)
    answers = iter([True, True, False])
    monkeypatch.setattr(closure, "is_closed", lambda _name: next(answers))
    node.run()
    assert node.state == COPYING and "SAN-REST-008" in node.report()


def test_an_order_that_was_replaced_ends_the_copy(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closure, "read_order", lambda *_: "another")
    node.run()
    assert node.state == COPYING and "SAN-REST-006" in node.report()
    assert node.device.read_bytes() == PRESENT


def test_the_end_is_of_the_order_that_was_carried_out(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filling, "_LOOK_S", 60.0)
    flush = RangeCopy.flush

    def replaced_meanwhile(copy: Any) -> None:
        flush(copy)
        node.bed.set_restore(str(node.bed.order()._replace(token="e" * 16)))

    monkeypatch.setattr(RangeCopy, "flush", replaced_meanwhile)
    node.run()
    assert node.state == COPYING, "another order is open, and hosts stay out"


def test_a_file_that_is_gone_has_the_order_given_up(node: Node) -> None:
    """It stayed in the CIB as a copy that had begun: hosts were kept out for good."""
    node.file.unlink()
    node.run()
    assert node.state == GIVEN_UP and node.device.read_bytes() == PRESENT
    report = node.report()
    assert "SAN-REST-002" in report and "n1 serves device web and does not have" in report


def busy(*_: object, **__: object) -> None:
    raise CommandError(Problem("SAN-CLU-004", "the CIB was changed by others"))


def test_a_busy_cib_does_not_give_the_order_up(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is wrong with the source: the next monitor goes on."""
    with monkeypatch.context() as patched:
        patched.setattr(restore_changes, "plan_begun", busy)
        node.run()
    assert node.state == ORDERED and node.device.read_bytes() == PRESENT
    assert "SAN-CLU-004" not in node.report()
    node.run()
    assert node.state == DONE and node.device.read_bytes() == WANTED


def test_what_was_begun_without_an_answer_is_gone_on_with(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = node.bed.cluster.patch

    def late(text: str) -> None:
        patch(text)
        raise CommandError(Problem("SAN-CMD-002", "no answer in 60 s"))

    with monkeypatch.context() as patched:
        patched.setattr(node.bed.cluster, "patch", late)
        node.run()
    assert node.state == COPYING and node.device.read_bytes() == PRESENT
    node.run()
    assert node.state == DONE


def test_a_file_that_cannot_be_opened_has_the_order_given_up(node: Node) -> None:
    node.file.unlink()
    node.file.symlink_to("/etc/passwd")
    node.run()
    assert node.state == GIVEN_UP and "SAN-REST-008" in node.report()
    assert node.device.read_bytes() == PRESENT


def test_a_file_that_has_lost_its_end_has_the_order_given_up(node: Node) -> None:
    """What broke: the device became zeros behind it, without a word."""
    node.file.write_bytes(WANTED[:CHUNK_BYTES])
    node.run()
    assert node.state == GIVEN_UP and node.device.read_bytes() == PRESENT
    assert "SAN-REST-008" in node.report() and "ends at byte" in node.report()


def test_a_file_that_has_lost_its_end_in_the_middle_keeps_hosts_out(node: Node) -> None:
    node.bed.set_restore(str(node.bed.order()._replace(state=COPYING)))
    node.file.write_bytes(WANTED[:CHUNK_BYTES])
    node.run()
    assert node.state == COPYING and node.device.read_bytes() == PRESENT
    assert "SAN-REST-008" in node.report()
    node.file.write_bytes(WANTED)
    node.run()
    assert node.state == DONE


def test_a_file_that_has_its_first_name(node: Node) -> None:
    node.file.rename(f"{node.file}.taking")
    node.run()
    assert node.device.read_bytes() == WANTED and node.state == DONE


def test_a_file_that_is_gone_in_the_middle_keeps_hosts_out(node: Node) -> None:
    node.bed.set_restore(str(node.bed.order()._replace(state=COPYING)))
    node.file.unlink()
    node.run()
    assert node.state == COPYING and "SAN-REST-002" in node.report()
    node.file.write_bytes(WANTED)
    node.run()
    assert node.state == DONE


def test_a_node_without_the_point(node: Node) -> None:
    alone = node.bed.good._replace(nodes=("n2",))
    node.bed.cluster.patch(render_patchset(node.bed.cluster.root, (SetPoint(point=alone),)))
    node.bed.set_restore(str(node.bed.order()._replace(state=COPYING)))
    node.run()
    assert node.state == COPYING and "SAN-REST-002" in node.report()
    node.bed.set_restore(str(node.bed.order()._replace(state=ORDERED)))
    node.run()
    assert node.state == GIVEN_UP and node.device.read_bytes() == PRESENT


def test_a_node_that_does_not_serve_does_nothing(node: Node) -> None:
    node.gate = "error"
    node.run()
    assert node.state == ORDERED and node.device.read_bytes() == PRESENT


def test_two_processes_do_not_copy_at_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_LOCK_S", 0.05)
    with state_files.locked(unit.lock_path("web"), wait_s=0.0):
        node.run()
    assert node.state == ORDERED


def test_a_cluster_that_does_not_answer(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise CommandError(Problem("SAN-CLU-002", "no answer"))

    monkeypatch.setattr(node_attributes, "publish", silent)
    node.run()
    assert node.state == DONE, "what is published is for people alone"
    node.bed.cluster.is_down = True
    node.run()


class FakeBackup:
    """A backup that a pipe hands over."""

    name = "web@good.20260101-000000"

    def __init__(self, data: bytes, noted: str) -> None:
        self.data, self.noted, self.is_read = data, noted, False

    @contextmanager
    def image(self, size_bytes: int) -> Iterator[FakeSource]:
        assert size_bytes == len(PRESENT)
        yield FakeSource(self.data)
        self.is_read = True

    def digest(self) -> str:
        assert not self.is_read, "asked for after hours of copying"
        return self.noted

    def check(self, device: str, size_bytes: int, wanted: str) -> str:
        found = hashlib.sha256(Path(device).read_bytes()[:size_bytes]).hexdigest()
        if found != wanted:
            raise CommandError(Problem("SAN-BKP-020", "another digest"))
        return found


class FakeSource:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def open(self) -> int:
        return len(PRESENT)

    def read(self, buffer: mmap.mmap, at: int, length: int) -> int:
        part = self.data[at : at + length]
        if len(part) < length:
            raise OSError(0, "the data ends")
        buffer[:length] = part
        return length

    def close(self) -> None:
        pass


@pytest.fixture
def from_backup(node: Node, monkeypatch: pytest.MonkeyPatch) -> FakeBackup:
    """The device is as long as its file, and is to be made what a backup is."""
    made = FakeBackup(WANTED, hashlib.sha256(WANTED).hexdigest())
    monkeypatch.setattr(program, "BackupSource", lambda *_: made)
    order = RestoreOrder.from_backup("7" * 16, "nas", made.name, 1000)
    node.bed.set_restore(str(order))
    device = node.bed.device()
    monkeypatch.setattr(
        program,
        "Session",
        lambda *_: SessionOfSize(node.bed.cluster, node.bed.env.clock, FakeReporter()),
    )
    assert device.restore == order
    return made


class SessionOfSize(Session):
    """Sees the device in the size of its file."""

    def observe(self) -> Cluster:
        seen = super().observe()
        devices = tuple(
            replace(each, size=ByteSize(bytes=len(PRESENT))) for each in seen.cib.devices
        )
        return replace(seen, cib=replace(seen.cib, devices=devices))


def test_a_device_becomes_what_a_backup_is(node: Node, from_backup: FakeBackup) -> None:
    node.run()
    assert node.device.read_bytes() == WANTED
    assert node.state == DONE and node.report() == ""


def test_no_host_gets_in_where_the_digest_is_another(node: Node, from_backup: FakeBackup) -> None:
    from_backup.noted = "0" * 64
    node.run()
    assert node.state == COPYING and "SAN-BKP-020" in node.report()


def test_no_host_gets_in_where_the_data_end_early(node: Node, from_backup: FakeBackup) -> None:
    from_backup.data = WANTED[:CHUNK_BYTES]
    node.run()
    assert node.state == COPYING and "SAN-REST-008" in node.report()
    from_backup.data = WANTED
    node.run()
    assert node.state == DONE


def test_nothing_is_written_of_a_backup_before_hosts_are_out(
    node: Node, from_backup: FakeBackup
) -> None:
    node.is_closed = False

    def close() -> None:
        assert node.device.read_bytes() == PRESENT
        node.is_closed = True

    node.on_poll = close
    node.run()
    assert node.state == DONE and node.device.read_bytes() == WANTED


@pytest.fixture
def site_folder(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The device is to be made what a copy at a site is, from its creation."""
    folder = tmp_path / "site"
    folder.mkdir()
    with local_link() as link:
        link.survey(str(folder), MARK)
    make(folder, ONE, WANTED)
    monkeypatch.setattr(SiteLink, "by_ssh", lambda _site: local_link())
    for each in (order_begin, program):
        monkeypatch.setattr(each, "AGAIN_S", 0.0)
    site = SITE._replace(path=str(folder), mark=MARK)
    node.bed.session.change(lambda _seen: (SetSite(site=site),))
    device, _, uuid = DEVICE.partition(".")
    copy = SiteCopy(site.name, device, uuid, "to-far", ONE, digest(WANTED))
    node.bed.set_restore(str(RestoreOrder.from_copy("7" * 16, copy, 1000)))
    return folder


def test_a_device_becomes_what_a_copy_at_a_site_is(node: Node, site_folder: Path) -> None:
    node.run()
    assert node.device.read_bytes() == WANTED
    assert node.state == DONE and node.report() == ""
    (noted,) = node.bed.seen().cib.restored
    assert (noted.folder, noted.into, noted.duration_s) == (DEVICE, "web", 5)
    node.run()
    assert node.bed.seen().cib.restored == (noted,), "it is noted once, at the end"


def test_of_an_order_that_was_begun_in_place_what_differs_comes(
    node: Node, site_folder: Path
) -> None:
    order = node.bed.order()
    node.bed.set_restore(str(order._replace(kept_token="9" * 16)))
    node.device.write_bytes(WANTED[:CHUNK_BYTES] + PRESENT[CHUNK_BYTES:])
    node.run()
    assert node.device.read_bytes() == WANTED and node.state == DONE


@pytest.mark.parametrize("case", ["gone", "damaged", "another site", "no site"])
def test_no_host_gets_in_where_the_copy_cannot_be_read(
    node: Node, site_folder: Path, case: str
) -> None:
    file = site_folder / DEVICE / f"to-far.{ONE}"
    aside = site_folder.parent / "aside"
    code = {
        "gone": "SAN-SITE-018",
        "damaged": "SAN-SITE-017",
        "another site": "SAN-SITE-006",
        "no site": "SAN-SITE-002",
    }[case]
    if case == "gone":
        file.rename(aside)
    elif case == "damaged":
        file.rename(aside)
        file.write_bytes(b"x" + WANTED[1:])
    elif case == "another site":
        site_folder.rename(aside)
    else:
        node.bed.session.change(lambda _seen: (RemoveSite(name=SITE.name),))
    node.run()
    assert node.state == COPYING and code in node.report()
    assert node.device.read_bytes() == PRESENT and node.bed.seen().cib.restored == ()
    if case in {"gone", "damaged"}:
        aside.rename(file)
    elif case == "another site":
        aside.rename(site_folder)
    else:
        site = SITE._replace(path=str(site_folder), mark=MARK)
        node.bed.session.change(lambda _seen: (SetSite(site=site),))
    node.run()
    assert node.state == DONE and node.device.read_bytes() == WANTED


@pytest.mark.parametrize("case", ["gone", "damaged", "another site"])
def test_in_place_it_is_given_up_before_the_copy_is_known_to_be_there(
    node: Node, site_folder: Path, case: str
) -> None:
    """Begun, it could not be given up, and hosts would wait for a site that may never answer."""
    order = node.bed.order()
    node.bed.set_restore(str(order._replace(state=ORDERED)))
    file = site_folder / DEVICE / f"to-far.{ONE}"
    if case == "another site":
        site_folder.rename(site_folder.parent / "aside")
    else:
        file.unlink()
    if case == "damaged":
        file.write_bytes(b"x" + WANTED[1:])
    node.run()
    assert node.state == GIVEN_UP and "SAN-SITE-" in node.report()
    assert node.device.read_bytes() == PRESENT


def test_in_place_a_busy_cib_does_not_give_it_up(
    node: Node, site_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.bed.set_restore(str(node.bed.order()._replace(state=ORDERED)))
    with monkeypatch.context() as patched:
        patched.setattr(restore_changes, "plan_begun", busy)
        node.run()
    assert node.state == ORDERED and node.device.read_bytes() == PRESENT
    node.run()
    assert node.state == DONE


def test_in_place_it_begins_once_the_copy_is_known_to_be_there(
    node: Node, site_folder: Path
) -> None:
    node.bed.set_restore(str(node.bed.order()._replace(state=ORDERED)))
    node.run()
    assert node.state == DONE and node.device.read_bytes() == WANTED


@pytest.mark.parametrize("again", [False, True])
def test_withdrawn_while_the_site_reads_nothing_is_written(
    node: Node, site_folder: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Hosts may write again by then."""
    node.bed.set_restore(str(node.bed.order()._replace(state=ORDERED)))
    read = SiteLink.read

    def withdrawn(link: SiteLink, *which: Any) -> object:
        found = read(link, *which)
        cancel_restore(node.bed.session, NAME, timeout_s=5)
        if again:
            order = node.bed.order()
            node.bed.set_restore(str(order._replace(token="9" * 16, state=ORDERED)))
        return found

    monkeypatch.setattr(SiteLink, "read", withdrawn)
    node.run()
    assert node.state == (ORDERED if again else GIVEN_UP)
    assert node.device.read_bytes() == PRESENT


def test_begun_it_is_never_given_up(
    node: Node, site_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.bed.set_restore(str(node.bed.order()._replace(state=ORDERED)))

    def broken(*_: object) -> None:
        node.device.write_bytes(WANTED[:4096] + PRESENT[4096:])
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(filling, "_fill", broken)
    node.run()
    assert node.state == COPYING


def test_no_host_gets_in_where_the_device_reads_otherwise(
    node: Node, site_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sanctl.drivers.site_source.digest_of_device", lambda *_: "0" * 64)
    node.run()
    assert node.state == COPYING and "SAN-SITE-017" in node.report()


def test_an_order_that_was_replaced_while_the_site_reads(
    node: Node, site_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Before anything is written, and not at the next look.
    monkeypatch.setattr(filling, "_LOOK_S", 60.0)
    monkeypatch.setattr(closure, "read_order", lambda *_: "another")
    node.run()
    assert node.device.read_bytes() == PRESENT and "SAN-REST-006" in node.report()


def test_how_long_it_has_waited_no_clock_says_that_is_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Over the death of the process, too."""
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(unit, "_seen", {})
    state_files.make_folder()
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert unit.waited_s("web", "1" * 16) == 0.0
    now[0] += 40.0
    unit._seen.clear()
    assert unit.waited_s("web", "1" * 16) == 40.0
    assert unit.waited_s("web", "2" * 16) == 0.0, "another order"

    def no_room(*_: object) -> None:
        raise OSError(28, "no room")

    monkeypatch.setattr(state_files.StateFile, "write", no_room)
    now[0] += 5.0
    assert unit.waited_s("web", "3" * 16) == 0.0
    now[0] += 7.0
    assert unit.waited_s("web", "3" * 16) == 7.0
