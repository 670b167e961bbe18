# SPDX-License-Identifier: GPL-2.0-or-later
"""An entry for CHAP: never in force before it asks, not made without a secret, closed to others."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from sanctl.drivers import configfs, lio_acl
from sanctl.drivers.lio_acl import Chap
from sanctl.errors import CommandError, Problem

IQN = "iqn.2026-11.net.example:a"
KNOWN = Chap("user", "abcdefghijkl")


class Tpg:
    """A TPG that takes logins, in configfs's place; `asked` is its attribute as an ACL appears."""

    def __init__(self, folder: Path, *, is_old_kernel: bool = False) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self._is_old_kernel = is_old_kernel
        self._mkdir = os.mkdir
        (folder / "attrib").mkdir(parents=True)
        (folder / "attrib/authentication").write_text("0\n")
        (folder / "acls").mkdir()
        (folder / "lun/lun_0").mkdir(parents=True)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Tpg:
        monkeypatch.setattr(os, "mkdir", self.mkdir)
        # In configfs a write is the whole value.
        monkeypatch.setattr(configfs, "write", lambda path, text: Path(path).write_text(text))
        return self

    @property
    def acl(self) -> Path:
        return self.folder / "acls" / IQN

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._mkdir(path, mode)
        if path == str(self.acl) and not self._is_old_kernel:
            self.asked.append((self.folder / "attrib/authentication").read_text().strip())
            for name, value in (
                ("attrib/authentication", "-1\n"),
                ("auth/authenticate_target", "0\n"),
                *((f"auth/{each}{end}", "\n") for each in ("userid", "password")
                  for end in ("", "_mutual")),
            ):  # fmt: skip
                (self.acl / name).parent.mkdir(exist_ok=True)
                (self.acl / name).write_text(value)

    def attribute(self, name: str) -> str:
        return (self.folder / name).read_text().strip()


@pytest.fixture
def tpg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tpg:
    return Tpg(tmp_path / "tpgt_1").install(monkeypatch)


def test_an_entry_asks_from_its_first_moment(tpg: Tpg) -> None:
    """A login between the folder and its attribute would be asked for nothing."""
    lio_acl.allow(str(tpg.folder), IQN, KNOWN)
    assert tpg.asked == ["1"]
    assert tpg.attribute("attrib/authentication") == "0"  # Others log in without.
    assert lio_acl.read_word(str(tpg.acl)) == f"{IQN}+chap=user"
    assert lio_acl.has_credentials(str(tpg.acl), KNOWN)
    assert not lio_acl.has_credentials(str(tpg.acl), Chap("user", "another-one!"))
    assert stat.S_IMODE((tpg.acl / "auth").stat().st_mode) == 0o700
    assert (tpg.acl / "lun_0/lun_0").is_symlink()


def looked_at(tpg: Tpg, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return, after each step, whether the host can log in: no login may find no LUN."""
    found: list[str] = []

    def look(made: str) -> None:
        if not (tpg.acl / "auth/password_mutual").exists():
            return
        own = tpg.attribute(f"acls/{IQN}/attrib/authentication")
        asks = own == "1" or (own == "-1" and tpg.attribute("attrib/authentication") == "1")
        may = not asks or bool(tpg.attribute(f"acls/{IQN}/auth/userid"))
        has_lun = (tpg.acl / "lun_0/lun_0").is_symlink()
        found.append("out" if not may else "in" if has_lun else f"{made}: in without a LUN")

    def write(path: str, text: str) -> None:
        Path(path).write_text(text)
        look(path)

    mkdir, link = os.mkdir, configfs.link

    def made(path: str, mode: int = 0o777) -> None:
        mkdir(path, mode)
        look(path)

    def linked(target: str, path: str) -> None:
        link(target, path)
        look(path)

    monkeypatch.setattr(configfs, "write", write)
    monkeypatch.setattr(configfs, "link", linked)
    monkeypatch.setattr(os, "mkdir", made)
    return found


@pytest.mark.parametrize("chap", [KNOWN, None])
def test_nobody_logs_in_before_its_lun_is_mapped(
    tpg: Tpg, monkeypatch: pytest.MonkeyPatch, chap: Chap | None
) -> None:
    """It would have LIO's dummy for a disk, with whatever the node's memory held."""
    (tpg.folder / "enable").write_text("1\n")
    found = looked_at(tpg, monkeypatch)
    lio_acl.allow(str(tpg.folder), IQN, chap)
    assert set(found) == {"out", "in"} and found[-1] == "in", found
    assert tpg.attribute("attrib/authentication") == "0"


@pytest.mark.parametrize(("left", "asked"), [("-1", "0"), (None, "0"), ("0", "1"), ("1", "1")])
def test_nobody_else_is_refused_meanwhile(tpg: Tpg, left: str | None, asked: str) -> None:
    """Hosts without CHAP whose entry has no word of its own: the TPG's is theirs."""
    (tpg.folder / "enable").write_text("1\n")
    other = tpg.folder / "acls/iqn.x:other"
    (other / "attrib").mkdir(parents=True)
    if left is not None:
        (other / "attrib/authentication").write_text(f"{left}\n")
    lio_acl.allow(str(tpg.folder), IQN)
    assert tpg.asked == [asked] and tpg.attribute("attrib/authentication") == "0"


def test_an_entry_without_chap_that_gets_no_lun_goes(
    tpg: Tpg, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tpg.folder / "enable").write_text("1\n")

    def refuse(*_: object) -> None:
        raise OSError("no memory")

    def remove(acl: str) -> None:
        assert tpg.attribute("attrib/authentication") == "1"
        shutil.rmtree(acl)

    monkeypatch.setattr(configfs, "link", refuse)
    monkeypatch.setattr(lio_acl, "remove", remove)
    with pytest.raises(OSError, match="no memory"):
        lio_acl.allow(str(tpg.folder), IQN)
    assert not tpg.acl.exists() and tpg.attribute("attrib/authentication") == "0"


def test_without_a_secret_there_is_no_entry(tpg: Tpg) -> None:
    lio_acl.allow(str(tpg.folder), IQN, Chap("user"))
    assert not tpg.acl.exists()


def test_an_entry_that_is_there_asks_though_its_secret_is_missing(tpg: Tpg) -> None:
    """Its sessions stay, and without a secret no new one comes."""
    lio_acl.allow(str(tpg.folder), IQN)
    assert lio_acl.read_word(str(tpg.acl)) == IQN
    lio_acl.allow(str(tpg.folder), IQN, Chap("user"))
    assert tpg.attribute(f"acls/{IQN}/attrib/authentication") == "1"
    # Not taken for one that lets in without CHAP, nor for the wanted one.
    assert lio_acl.read_word(str(tpg.acl)) == f"{IQN}+chap=?"


def test_an_older_kernel_lets_nobody_in_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Tpg(tmp_path / "tpgt_1", is_old_kernel=True).install(monkeypatch)
    with pytest.raises(CommandError) as raised:
        lio_acl.allow(str(old.folder), IQN, KNOWN)
    assert raised.value.problems[0].code == "SAN-LIO-004"
    assert not old.acl.exists()
    assert old.attribute("attrib/authentication") == "0"


def test_sessions_from_before_go_on_where_the_kernel_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Tpg(tmp_path / "tpgt_1", is_old_kernel=True).install(monkeypatch)
    lio_acl.allow(str(old.folder), IQN)
    with pytest.raises(CommandError):
        lio_acl.allow(str(old.folder), IQN, KNOWN)
    assert (old.acl / "lun_0/lun_0").is_symlink()


def test_an_entry_that_cannot_ask_is_taken_away_before_others_are_let_in(
    tpg: Tpg, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the host would be in unasked, and given the LUN by the next monitor."""

    def write(path: str, text: str) -> None:
        if path.startswith(str(tpg.acl)):
            raise CommandError(Problem("SAN-LIO-001", "no memory"))
        if path == f"{tpg.folder}/attrib/authentication" and text == "0":
            assert not tpg.acl.exists()
        Path(path).write_text(text)

    monkeypatch.setattr(configfs, "write", write)
    monkeypatch.setattr(lio_acl, "remove", shutil.rmtree)
    with pytest.raises(CommandError):
        lio_acl.allow(str(tpg.folder), IQN, KNOWN)
    assert not tpg.acl.exists()
    assert tpg.attribute("attrib/authentication") == "0"


def test_a_target_that_a_killed_process_left_asking_lets_others_in_again(tpg: Tpg) -> None:
    (tpg.folder / "attrib/authentication").write_text("1\n")
    os.mkdir(str(tpg.acl))
    lio_acl.let_others_in(str(tpg.folder), {IQN})
    assert tpg.attribute("attrib/authentication") == "1"  # The entry asks for nothing yet.
    lio_acl.allow(str(tpg.folder), IQN, KNOWN)
    lio_acl.let_others_in(str(tpg.folder), {IQN})
    assert tpg.attribute("attrib/authentication") == "0"


def test_an_entry_that_a_killed_process_left_without_lun_is_completed(tpg: Tpg) -> None:
    """Taken for a whole one, it would stay so: its host would have LIO's dummy for a disk."""
    os.mkdir(str(tpg.acl))
    assert lio_acl.read_word(str(tpg.acl)) != IQN
    lio_acl.allow(str(tpg.folder), IQN)
    assert lio_acl.read_word(str(tpg.acl)) == IQN


def test_sessions_end_each_time(tpg: Tpg) -> None:
    """The kernel ends them where the value changes."""
    os.mkdir(str(tpg.acl))
    window = tpg.acl / "cmdsn_depth"
    window.write_text("64\n")
    seen = []
    for _ in range(3):
        lio_acl.end_sessions(str(tpg.acl))
        seen.append(window.read_text())
    assert seen == ["63", "64", "63"]


def test_null_within_a_name_is_part_of_it(tpg: Tpg) -> None:
    odd = Chap("aNULLb", "abcNULLdefghij")
    lio_acl.allow(str(tpg.folder), IQN, odd)
    assert lio_acl.has_credentials(str(tpg.acl), odd)


def test_no_text_has_a_secret() -> None:
    assert KNOWN.secret not in f"{KNOWN} {KNOWN!r} {[KNOWN]}"


def test_a_host_without_chap_does_not_depend_on_what_the_tpg_asks(tpg: Tpg) -> None:
    """It may log in while an entry with CHAP is added beside it, where the kernel can."""
    lio_acl.allow(str(tpg.folder), IQN)
    assert tpg.attribute(f"acls/{IQN}/attrib/authentication") == "0"
    assert lio_acl.read_word(str(tpg.acl)) == IQN
    # One that had CHAP before; and a target that an earlier release has made.
    for left in ("1", "-1"):
        (tpg.acl / "attrib/authentication").write_text(f"{left}\n")
        lio_acl.allow(str(tpg.folder), IQN)
        assert tpg.attribute(f"acls/{IQN}/attrib/authentication") == "0"
    assert lio_acl.without_chap_first(["a", "b", "c"], {"a"}) == ["b", "c", "a"]


def test_an_older_kernel_takes_a_host_without_chap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Tpg(tmp_path / "tpgt_1", is_old_kernel=True).install(monkeypatch)
    lio_acl.allow(str(old.folder), IQN)
    assert (old.acl / "lun_0/lun_0").is_symlink() and lio_acl.read_word(str(old.acl)) == IQN
