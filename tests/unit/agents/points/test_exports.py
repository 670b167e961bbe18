# SPDX-License-Identifier: GPL-2.0-or-later
"""An exported restore point, as the pool agent's monitor finds it after hosts have changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement

import pytest

from sanctl.agents import deleted_devices, pool
from sanctl.agents.points import exports
from sanctl.drivers import cib, configfs, host_secrets, lio, lio_acl, lio_export, loop
from sanctl.drivers.lio_acl import Chap
from sanctl.errors import CommandError, Problem
from sanctl.model.access import HostAccess
from sanctl.plan.device.export_access import ExportAccess, note_text
from sanctl.system import journal, state_files
from sanctl.system.runner import DeadlineRunner, LocalRunner

A, B = (f"iqn.2026-11.net.example:{each}" for each in "ab")
TARGET = "iqn.2026-11.net.example:lab.vm1.kept"


class Bed:
    """An export of vm1@kept in configfs's place, and the CIB's hosts."""

    def __init__(self, root: Path) -> None:
        self.root, self.tpg = root, root / "iscsi" / TARGET / "tpgt_2"
        self.properties: dict[str, str] = {}
        self.secrets: dict[str, str] = {}
        self.log: list[str] = []
        self.ended: list[str] = []
        self.cib_error: CommandError | None = None
        self.is_quorate = True
        self.has_node = self.has_pools = True
        self._mkdir = os.mkdir
        (self.tpg / "attrib").mkdir(parents=True)
        (self.tpg / "attrib/authentication").write_text("0\n")
        (self.tpg / "acls").mkdir()
        (self.tpg / "lun/lun_0").mkdir(parents=True)
        backstore = root / "core/sanctl-point.vm1.kept"
        backstore.mkdir(parents=True)
        (backstore / "alias").write_text(f"{TARGET}\n")

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._mkdir(path, mode)
        if os.path.dirname(path) == str(self.tpg / "acls"):
            for name, value in (
                ("attrib/authentication", "-1\n"),
                ("cmdsn_depth", "64\n"),
                ("auth/authenticate_target", "0\n"),
                *((f"auth/{each}{end}", "\n") for each in ("userid", "password")
                  for end in ("", "_mutual")),
            ):  # fmt: skip
                (Path(path) / name).parent.mkdir(exist_ok=True)
                (Path(path) / name).write_text(value)

    def query(self, _runner: object, xpath: str) -> Element | None:
        here = os.uname().nodename
        assert "sanctl.hosts" in xpath and f"node[@uname='{here}']" in xpath
        assert f"node_state[@uname='{here}']/transient_attributes" in xpath
        if self.cib_error is not None:
            raise self.cib_error
        found = Element("xpath-query")
        if self.has_node:
            SubElement(found, "node", uname=here)
        if self.has_pools:
            SubElement(found, "nvpair", name="sanctl-pool-main", value="total=1")
        for name, value in self.properties.items():
            SubElement(found, "nvpair", name=f"sanctl-host.{name}", value=value)
        return found if len(found) else None

    def login(self, host: HostAccess) -> Chap | str:
        secret = self.secrets.get(host.name)
        return "No such file or directory" if secret is None else Chap(host.chap_user, secret)

    def export(self, *access: str, note: ExportAccess | None = None) -> None:
        """Have the restore point exported to IQNs without CHAP."""
        for iqn in access:
            lio_acl.allow(str(self.tpg), iqn)
        if note is not None:
            lio_export.access_note("vm1", "kept").write(note_text(note))

    def follow(self) -> list[str]:
        """Run a monitor; return the access list then."""
        exports.follow_hosts(LocalRunner(), lambda: self.is_quorate)
        return sorted(lio_export.access(TARGET))


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    made = Bed(tmp_path / "target")

    def remove(acl: str) -> None:
        made.ended.append(os.path.basename(acl))
        shutil.rmtree(acl)

    def write(path: str, text: str) -> None:
        Path(path).write_text(text)

    for owner, name, value in (
        (lio_export, "_ROOT", str(made.root)),
        (lio_export, "_BACKSTORES", str(made.root / "core")),
        (lio, "_ROOT", str(made.root)),
        (state_files, "RUNTIME", str(tmp_path / "run")),
        (loop, "file_below", lambda _device: "/srv/main/points/x"),
        (os, "mkdir", made.mkdir),
        (configfs, "write", write),
        (lio_acl, "remove", remove),
        (cib, "query", made.query),
        (deleted_devices, "is_quorate", lambda: made.is_quorate),
        (host_secrets, "login", made.login),
        (journal, "write", lambda text, **_: made.log.append(text)),
    ):
        monkeypatch.setattr(owner, name, value)
    return made


def given_to(*iqns: str) -> ExportAccess:
    return ExportAccess((), (HostAccess("bk1", iqns),))


def test_a_host_that_has_chap_now_is_asked(bed: Bed) -> None:
    bed.properties["bk1"] = A
    bed.export(A, note=given_to(A))
    assert bed.follow() == [A] and bed.log == []
    bed.properties["bk1"], bed.secrets["bk1"] = f"{A}/chap=u", "abcdefghijkl"
    assert bed.follow() == [f"{A}+chap=u"]
    assert (bed.tpg / f"acls/{A}/auth/password").read_text() == "abcdefghijkl"
    assert bed.ended == [], "its session goes on, and logs in anew as is set then"
    bed.secrets["bk1"] = "mnopqrstuvwx"
    bed.follow()
    assert (bed.tpg / f"acls/{A}/auth/password").read_text() == "mnopqrstuvwx"
    said = len(bed.log)
    bed.follow()
    assert len(bed.log) == said


def test_a_host_whose_secret_is_missing_does_not_get_in(bed: Bed) -> None:
    bed.properties["bk1"] = f"{A}/chap=u"
    bed.export(A, note=given_to(A))
    assert bed.follow() == [f"{A}+chap=?"]
    assert [line for line in bed.log if "SAN-HOST-011" in line]
    said = len(bed.log)
    bed.follow()
    assert len(bed.log) == said, "once"


def test_a_host_that_is_gone_loses_the_export(bed: Bed) -> None:
    bed.properties["bk1"] = f"{A},{B}"
    bed.export(A, B, note=given_to(A, B))
    bed.follow()
    bed.properties["bk1"] = B
    assert bed.follow() == [B] and bed.ended == [A]
    del bed.properties["bk1"]
    assert bed.follow() == [] and bed.ended == [A, B]
    assert any("host bk1, to which it was exported, is gone" in line for line in bed.log)
    # Nor does one of the same name get in that is made later.
    bed.properties["bk1"] = B
    assert bed.follow() == []


def test_nothing_changes_while_the_cib_gives_no_answer(bed: Bed) -> None:
    bed.export(A, note=given_to(A))
    bed.cib_error = CommandError(Problem("SAN-CMD-002", "no answer"))
    with pytest.raises(CommandError):
        exports.follow_hosts(LocalRunner(), lambda: True)
    assert lio_export.access(TARGET) == {A}


@pytest.mark.parametrize("lost", ["is_quorate", "has_node", "has_pools", "all"])
def test_a_cib_that_has_lost_more_than_hosts_ends_no_export(bed: Bed, lost: str) -> None:
    """An IQN that was let in by itself does not get rid of the CHAP of its host, either."""
    bed.properties["bk1"], bed.secrets["bk1"] = f"{B}/chap=u", "abcdefghijkl"
    bed.export(A, B, note=ExportAccess((B,), (HostAccess("bk2", (A,)),)))
    bed.properties["bk2"] = A
    before = bed.follow()
    assert before == [A, f"{B}+chap=u"]
    bed.properties.clear()
    for name in ("has_node", "has_pools") if lost == "all" else (lost,):
        setattr(bed, name, False)
    assert bed.follow() == before and bed.ended == []
    bed.is_quorate = bed.has_node = bed.has_pools = True
    # Without its host B would not be asked any more.
    assert bed.follow() == [] and bed.ended == [A, B]


def test_an_entry_that_the_kernel_refuses_is_taken_away(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would get in without CHAP. Others stay."""
    bed.properties |= {"bk1": f"{A}/chap=u", "bk2": B}
    bed.secrets["bk1"] = "abcdefghijkl"
    hosts = (HostAccess("bk1", (A,)), HostAccess("bk2", (B,)))
    bed.export(A, B, note=ExportAccess((), hosts))
    allow = lio_acl.allow

    def refuse(tpg: str, initiator: str, chap: Chap | None = None) -> None:
        if chap is not None:
            raise CommandError(Problem("SAN-LIO-004", "this kernel cannot"))
        allow(tpg, initiator, chap)

    monkeypatch.setattr(lio_acl, "allow", refuse)
    assert bed.follow() == [B] and bed.ended == [A]
    assert any("SAN-LIO-004" in line or "this kernel cannot" in line for line in bed.log)


def test_a_target_that_a_killed_process_left_asking_asks_no_more(bed: Bed) -> None:
    """The list is the wanted one, and on older kernels nobody without CHAP could log in."""
    bed.properties |= {"bk1": f"{A}/chap=u", "bk2": B}
    bed.secrets["bk1"] = "abcdefghijkl"
    hosts = (HostAccess("bk1", (A,)), HostAccess("bk2", (B,)))
    bed.export(B, note=ExportAccess((), hosts))
    lio_acl.allow(str(bed.tpg), A, Chap("u", "abcdefghijkl"))
    before = bed.follow()
    asks = bed.tpg / "attrib/authentication"
    asks.write_text("1\n")
    assert bed.follow() == before and asks.read_text().strip() == "0"
    assert bed.ended == []


def test_an_export_of_an_earlier_release_asks_for_chap(bed: Bed) -> None:
    bed.export(A, B)
    bed.properties["bk1"], bed.secrets["bk1"] = f"{A}/chap=u", "abcdefghijkl"
    assert bed.follow() == [f"{A}+chap=u", B]


@pytest.mark.parametrize("is_noted", [False, True])
def test_an_export_of_an_earlier_release_asks_nobody_less(bed: Bed, is_noted: bool) -> None:
    """Its host was deleted: the entry that asked for CHAP became one that asks for nothing."""
    lio_acl.allow(str(bed.tpg), A, Chap("u", "abcdefghijkl"))
    bed.export(B)
    bed.properties["bk1"], bed.secrets["bk1"] = f"{A}/chap=u", "abcdefghijkl"
    before = sorted(lio_export.access(TARGET))
    if is_noted:
        assert bed.follow() == before and bed.ended == []
    del bed.properties["bk1"]
    assert bed.follow() == [B] and bed.ended == [A]
    assert any(f"host of {A}, to which it was exported, is gone" in line for line in bed.log)
    assert bed.follow() == [B]


@pytest.mark.parametrize("what", ["note", "kernel"])
def test_an_agent_that_dies_lets_nobody_in_unasked(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    lio_acl.allow(str(bed.tpg), A, Chap("u", "abcdefghijkl"))
    bed.properties["bk1"], bed.secrets["bk1"] = f"{A}/chap=u", "abcdefghijkl"
    bed.follow()
    del bed.properties["bk1"]

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    owner = {"note": state_files.StateFile, "kernel": lio_acl}[what]
    name = {"note": "write", "kernel": "remove"}[what]
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, die)
        with pytest.raises(KeyboardInterrupt):
            bed.follow()
    assert A not in lio_export.access(TARGET)
    assert bed.follow() == []


def test_what_another_command_does_is_left_alone(bed: Bed) -> None:
    bed.export(A, note=given_to(A))
    with state_files.locked(state_files.node_lock("exports")):
        assert bed.follow() == [A]
    assert bed.follow() == []


def test_an_error_of_one_export_holds_up_no_other_and_notes_of_ended_ones_go(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_acl: str) -> None:
        raise OSError("busy")

    lio_export.access_note("vm1", "old").write("x")
    bed.export(A, note=given_to(A))
    monkeypatch.setattr(lio_acl, "remove", refuse)
    assert bed.follow() == [A]
    assert "busy" in bed.log[-1]
    assert not lio_export.access_note("vm1", "old").exists()
    assert lio_export.access_note("vm1", "kept").exists()


def test_the_monitor_follows_where_something_is_exported(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner: Any = DeadlineRunner(LocalRunner(), 0.0)
    monkeypatch.setattr(pool, "_EXPORTS", str(bed.root / "none"))
    bed.export(A, note=given_to(A))
    pool._keep_exports_up(runner)
    assert lio_export.access(TARGET) == {A}
    monkeypatch.setattr(pool, "_EXPORTS", str(bed.root / "core"))
    pool._keep_exports_up(runner)
    assert lio_export.access(TARGET) == frozenset()
    bed.cib_error = CommandError(Problem("SAN-CMD-002", "no answer"))
    pool._keep_exports_up(runner)
    assert "no answer" in bed.log[-1]
