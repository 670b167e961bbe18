# SPDX-License-Identifier: GPL-2.0-or-later
"""LIO targets: whose they are, their access lists, portals beside another device's stop."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from sanctl.drivers import lio, lio_acl
from sanctl.system import state_files


class Listener:
    """What listens on the node's portal, and takes no other until `free_at_s`; time goes by here.

    `refusal` is what the kernel says until then.
    """

    def __init__(self, free_at_s: float, refusal: int = errno.EADDRINUSE) -> None:
        self.now_s = 0.0
        self.free_at_s = free_at_s
        self.refusal = refusal
        self.made: list[str] = []

    def makedirs(self, path: str, *, exist_ok: bool) -> None:
        if self.now_s < self.free_at_s:
            raise OSError(self.refusal, os.strerror(self.refusal), path)
        self.made.append(path)

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s

    def takes_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "makedirs", self.makedirs)
        monkeypatch.setattr(time, "sleep", self.sleep)
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)


def test_a_portal_waits_for_another_devices_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a start that meets another device's stop fails for good."""
    listener = Listener(free_at_s=2.0)
    listener.takes_over(monkeypatch)
    lio.make_portal("np/10.0.0.1:3260")
    assert listener.made == ["np/10.0.0.1:3260"]
    assert listener.now_s == pytest.approx(2.0, abs=0.2)


@pytest.mark.parametrize(
    ("refusal", "waits_s"),
    [(errno.EADDRINUSE, 5.0), (errno.EADDRNOTAVAIL, 0.0)],
    ids=["somebody else's for good", "not of this node"],
)
def test_a_portal_whose_address_stays_taken_fails(
    monkeypatch: pytest.MonkeyPatch, refusal: int, waits_s: float
) -> None:
    listener = Listener(free_at_s=60.0, refusal=refusal)
    listener.takes_over(monkeypatch)
    with pytest.raises(OSError, match="np/10") as raised:
        lio.make_portal("np/10.0.0.1:3260")
    assert raised.value.errno == refusal
    assert listener.now_s == pytest.approx(waits_s, abs=0.2)


@pytest.fixture
def configfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in configfs's place, and one for what is noted."""
    monkeypatch.setattr(lio, "_ROOT", str(tmp_path / "target"))
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    return tmp_path / "target" / "iscsi"


OURS, FOREIGN = "iqn.2026-11.net.example:san.vm1", "iqn.2003-01.org.other:box.vm1"


def make_target(configfs: Path, iqn: str, *backstores: str) -> None:
    lun = configfs / iqn / "tpgt_1" / "lun" / "lun_0"
    lun.mkdir(parents=True)
    (configfs / iqn / "tpgt_1" / "enable").write_text("1\n")
    for each in backstores:
        (lun / each).symlink_to(f"../../{each}")


@pytest.mark.parametrize("backstores", [(), ("other",), ("sanctl-vm1", "other")])
def test_a_target_of_others_is_not_ours_by_its_name(
    configfs: Path, backstores: tuple[str, ...]
) -> None:
    """Taken for ours, it would be removed with the device's next stop."""
    make_target(configfs, FOREIGN, *backstores)
    assert lio.find_targets("vm1") == []
    assert not lio.exists_any("vm1", 1)
    assert not lio.is_exported("vm1")
    lio.remove("vm1", 1)
    assert (configfs / FOREIGN).exists()


def test_a_half_made_target_is_ours_by_its_note(configfs: Path) -> None:
    make_target(configfs, FOREIGN)
    make_target(configfs, OURS)
    state_files.of_device("vm1", "target").write(OURS)
    assert lio.find_targets("vm1") == [str(configfs / OURS)]


def test_a_whole_target_is_ours_without_a_note(configfs: Path) -> None:
    make_target(configfs, OURS, "sanctl-vm1")
    assert lio.find_targets("vm1") == [str(configfs / OURS)]
    assert lio.is_exported("vm1")
    assert lio.find_targets("vm2") == []


def test_a_tpg_of_another_node_is_not_this_nodes(
    configfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists that node's portals: its hosts are admitted nowhere here, and it exports nothing."""
    make_target(configfs, OURS, "sanctl-vm1")
    own, other = configfs / OURS / "tpgt_1", configfs / OURS / "tpgt_2"
    (other / "acls" / "iqn.listed").mkdir(parents=True)
    mapped = own / "acls" / "iqn.admitted" / "lun_0"
    mapped.mkdir(parents=True)
    (mapped / "lun_0").symlink_to("../../../lun/lun_0")
    (other / "enable").write_text("1\n")
    assert lio.access("vm1") == ("iqn.admitted",)
    (own / "enable").write_text("0\n")
    assert not lio.is_exported("vm1")
    ended = []

    def end_sessions(acl: str) -> None:
        # A session that outlives its LUN reads from LIO's dummy.
        assert Path(acl, "lun_0", "lun_0").is_symlink()
        ended.append(acl)

    monkeypatch.setattr(lio_acl, "end_sessions", end_sessions)
    lio.set_initiators("vm1", ["iqn.new"])
    assert ended == [str(own / "acls" / "iqn.admitted")]
    assert not (own / "acls" / "iqn.admitted").exists()
    assert (own / "acls" / "iqn.new" / "lun_0" / "lun_0").is_symlink()
    assert not (other / "acls" / "iqn.new").exists()


@pytest.mark.parametrize("value", ["0", "1", ""])
def test_a_tpg_that_asks_everyone_is_seen(configfs: Path, value: str) -> None:
    make_target(configfs, OURS, "sanctl-vm1")
    attribute = configfs / OURS / "tpgt_1/attrib/authentication"
    if value:
        attribute.parent.mkdir()
        attribute.write_text(f"{value}\n")
    assert lio.asks_everyone("vm1") is (value == "1")
