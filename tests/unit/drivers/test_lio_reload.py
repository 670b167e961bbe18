# SPDX-License-Identifier: GPL-2.0-or-later
"""A target is given other reservations while it is disabled; LIO is a tree of files here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sanctl.drivers import configfs, lio, lio_backstore, lio_reload, lio_reservations
from sanctl.errors import CommandError, Problem
from sanctl.model.reservation import Reservations

NAME, MINOR, IQN = "vol1", 1, "iqn.2026-11.net.example:san.vol1"
A, B = "iqn.x:a", "iqn.x:b"
HELD = Reservations(((A, 1), (B, 2)), B, 5)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (lio, lio_backstore):
        monkeypatch.setattr(module, "_ROOT", str(tmp_path))
    monkeypatch.setattr(lio, "_is_ours", lambda *_: True)
    monkeypatch.setattr(lio_reservations, "read", lambda _: HELD)
    backstore = Path(lio_backstore.folder(NAME, MINOR))
    for folder in ("pr", "attrib", "wwn", "alua/sanctl-2", "alua/default_tg_pt_gp"):
        (backstore / folder).mkdir(parents=True)
    (backstore / "pr/res_aptpl_metadata").touch()
    (backstore / "wwn/vpd_unit_serial").write_text(f"T10 VPD Unit Serial Number: {'a' * 32}\n")
    for name in ("emulate_pr", "force_pr_aptpl"):
        (backstore / "attrib" / name).write_text("0\n")
    (backstore / "attrib/enforce_pr_isids").write_text("1\n")
    tpg = tmp_path / f"iscsi/{IQN}/tpgt_2"
    for folder in ("lun/lun_0", f"acls/{A}/lun_0", f"acls/{B}/lun_0", "attrib"):
        (tpg / folder).mkdir(parents=True)
    (tpg / "enable").write_text("1\n")
    (tpg / "attrib/rtpi").write_text("0x22\n")
    (tpg / "lun/lun_0/alua_tg_pt_gp").write_text("TG Port Alias: sanctl-2\nTG Port Group ID: 2\n")
    (tpg / "lun/lun_0/sanctl-vol1").symlink_to(backstore)
    for initiator in (A, B):
        (tpg / f"acls/{initiator}/lun_0/lun_0").symlink_to(tpg / "lun/lun_0")
    write = configfs.write

    def refused_while_exported(path: str, value: str) -> None:
        """target_core_configfs.c, force_pr_aptpl_store and target_pr_res_aptpl_metadata_store."""
        is_exported = (tpg / "lun/lun_0/sanctl-vol1").is_symlink()
        if is_exported and path.endswith(("force_pr_aptpl", "res_aptpl_metadata")):
            raise CommandError(Problem("SAN-LIO-001", f"the kernel refused {value!r} for {path}"))
        write(path, value)

    monkeypatch.setattr(configfs, "write", refused_while_exported)
    return tpg


def note_writes(monkeypatch: pytest.MonkeyPatch, look: Callable[[str, str], None]) -> None:
    write = configfs.write

    def noted(path: str, value: str) -> None:
        look(path, value)
        write(path, value)

    monkeypatch.setattr(configfs, "write", noted)


def test_what_is_given_is_given_without_the_lun_and_disabled(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []

    def look(path: str, value: str) -> None:
        if path.endswith("res_aptpl_metadata"):
            assert (root / "enable").read_text().strip() == "0"
            assert not (root / "lun/lun_0/sanctl-vol1").is_symlink()
            assert not any((root / f"acls/{each}/lun_0").exists() for each in (A, B))
            given.append(value)

    note_writes(monkeypatch, look)
    assert lio_reload.is_whole(NAME, MINOR)
    lio_reload.reload(NAME, MINOR, HELD)
    assert lio_reload.is_whole(NAME, MINOR)
    assert len(given) == 2 and f"target_node={IQN},tpgt=2,port_rtpi=34" in given[1]
    assert (root / "lun/lun_0/sanctl-vol1").resolve() == Path(lio_backstore.folder(NAME, MINOR))


def test_what_the_kernel_makes_of_it_is_read_before_a_host_is_let_in(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: a host's command right after was taken for a kernel that had not taken it."""
    has: list[Reservations | None] = [Reservations(HELD.registrations), None, HELD, HELD]

    def read(_: str) -> Reservations | None:
        assert (root / "enable").read_text().strip() == "0"
        assert (root / f"acls/{B}/lun_0/lun_0").is_symlink()
        return has.pop(0)

    monkeypatch.setattr(lio_reservations, "read", read)
    with pytest.raises(CommandError, match="SAN-RES-005"):
        lio_reload.reload(NAME, MINOR, HELD)
    assert (root / "enable").read_text().strip() == "0", "nobody is served like that"
    for _ in range(2):
        lio_reload.reload(NAME, MINOR, HELD)
        assert lio_reload.is_whole(NAME, MINOR)
    lio_reload.reload(NAME, MINOR, HELD._replace(registrations=(*HELD.registrations, ("iqn.c", 3))))


class Died(BaseException):
    """The process is killed."""


def die_after(run: Callable[..., None], times: int) -> Callable[..., None]:
    left = times

    def die(*words: str) -> None:
        nonlocal left
        if not left:
            raise Died
        left -= 1
        run(*words)

    return die


@pytest.mark.parametrize("step", ["link", "remove_links", "set_value", "write"])
@pytest.mark.parametrize("times", range(3))
def test_one_that_dies_on_the_way_is_not_whole_and_is_done_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, step: str, times: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(configfs, step, die_after(getattr(configfs, step), times))
        with contextlib.suppress(Died):
            lio_reload.reload(NAME, MINOR, HELD)
        # Killed before its first step, or not at all, it leaves a whole one.
        assert lio_reload.is_whole(NAME, MINOR) is ((root / "enable").read_text().strip() == "1")
    lio_reload.reload(NAME, MINOR, HELD)
    assert lio_reload.is_whole(NAME, MINOR)


def test_without_a_target_there_is_nothing_to_reload(root: Path) -> None:
    os.rename(root.parent, root.parent.with_name("iqn.2026-11.net.example:san.vol2"))
    with pytest.raises(CommandError, match="SAN-LIO-002"):
        lio_reload.reload(NAME, MINOR, HELD)


def test_an_exported_device_is_switched_on_by_a_reload(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: the kernel refused it, so no device was ever switched on that was there."""
    del root
    backstore = lio_backstore.folder(NAME, MINOR)
    monkeypatch.setattr(lio_reservations, "read", lambda _: Reservations())
    written: list[str] = []
    note_writes(monkeypatch, lambda path, _: written.append(os.path.basename(path)))
    assert not lio_reservations.is_on(backstore)
    lio_reload.reload(NAME, MINOR, Reservations())
    assert not lio_reservations.is_on(backstore)
    lio_reservations.set_mode(backstore, is_on=True)
    assert lio_reservations.is_on(backstore)
    # A command is taken when all of it holds.
    written = [each for each in written if each != "enable"]
    assert written == ["force_pr_aptpl", "enforce_pr_isids", "emulate_pr"]
    # One that is on is right: nothing more may fail while it is disabled.
    monkeypatch.setattr(lio_reservations, "prepare", lambda _: pytest.fail("done again"))
    lio_reload.reload(NAME, MINOR, Reservations())
    lio_reservations.set_mode(backstore, is_on=False)
    assert not lio_reservations.is_on(backstore)


def test_the_serial_numbers_of_devices(root: Path) -> None:
    other = root.parents[2] / "core/iblock_7/somebody-elses"
    other.mkdir(parents=True)
    assert lio_backstore.serials() == ["a" * 32]
