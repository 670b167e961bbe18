# SPDX-License-Identifier: GPL-2.0-or-later
"""SBD's shared disks in the rollout: which are initialized, and which are refused."""

from __future__ import annotations

import base64
import errno
import importlib.util
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

import pytest

_PATH = Path(__file__).resolve().parents[3] / "ansible" / "plugins" / "modules" / "sbd_disks.py"
_SPEC = importlib.util.spec_from_file_location("sbd_disks_under_test", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
sbd_disks: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(sbd_disks)

UUID = "5d4c1f6e-9d0b-4c39-8a54-0c6f6f0b7a11"

NODES = ["n1", "n2", "n3"]
BLANK = bytes(1 << 20)
UUID_BYTES = bytes.fromhex(UUID.replace("-", ""))


# The first 64 bytes that `sbd -1 5 -4 10 create` of SBD 1.5.2 wrote in the laboratory.
WRITTEN = base64.b64decode(
    "U0JEX1NCRF8C/wAAAAACAAAAAAUAAAACAAAAAQAAAAoBFkJ4I0kDTPyXfu0l5B6RnwAAAAAAAAAAAAAAAAAAAA=="
)


def header(*, version: int = 2, sector_bytes: int = 512, watchdog_s: int = 5) -> bytes:
    """A disk with SBD's header."""
    numbers = (sector_bytes, watchdog_s, 2, 1, 2 * watchdog_s)
    return (
        b"SBD_SBD_" + bytes([version, 255, 0, 0])
        + b"".join(number.to_bytes(4, "big") for number in numbers)
        + b"\x01" + UUID_BYTES
    ).ljust(1 << 20, b"\0")  # fmt: skip


@pytest.fixture
def as_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have files pass for block devices with sectors of 512 bytes."""
    monkeypatch.setattr(sbd_disks.stat, "S_ISBLK", stat.S_ISREG)
    monkeypatch.setattr(
        sbd_disks.fcntl, "ioctl", lambda _handle, _request, _room: (512).to_bytes(4, "little")
    )
    # tmpfs refuses O_DIRECT before Linux 6.6; block devices never do (tests/lab/test_sbd_disks.py).
    monkeypatch.setattr(sbd_disks, "READ_FLAGS", sbd_disks.READ_FLAGS & ~os.O_DIRECT)


def looked_at(tmp_path: Path, content: bytes) -> tuple[list[dict[str, Any]], str]:
    """Return what the module makes of a disk, known by a link, and what it says."""
    disk = tmp_path / "disk"
    disk.write_bytes(content)
    link = tmp_path / "by-id"
    if not link.is_symlink():
        link.symlink_to(disk)
    disks, said = sbd_disks.look_at_all([str(link)])
    assert disk.read_bytes() == content
    assert all(str(link) in text and text.endswith("Nothing was written to it") for text in said)
    return disks, "\n".join(said)


def test_disks_are_read_past_the_page_cache() -> None:
    assert sbd_disks.READ_FLAGS & os.O_DIRECT


def test_a_header_that_sbd_wrote_is_read() -> None:
    assert sbd_disks.classify(WRITTEN, 512) == {
        "state": "sbd",
        "uuid": "16427823-4903-4cfc-977e-ed25e41e919f",
        "watchdog_s": 5,
        "msgwait_s": 10,
    }


@pytest.mark.usefixtures("as_disks")
def test_a_disk_is_known_by_its_header(tmp_path: Path) -> None:
    (disk,), said = looked_at(tmp_path, header())
    assert said == ""
    assert disk == {
        "device": str(tmp_path / "by-id"), "path": str(tmp_path / "disk"), "state": "sbd",
        "uuid": UUID, "watchdog_s": 5, "msgwait_s": 10,
    }  # fmt: skip
    # 255 slots need 256 KiB: one that SBD runs on is not refused for being small.
    assert looked_at(tmp_path, header()[: 256 << 10])[0][0]["state"] == "sbd"


@pytest.mark.usefixtures("as_disks")
def test_only_a_disk_that_was_read_and_is_zero_is_blank(tmp_path: Path) -> None:
    (disk,), said = looked_at(tmp_path, BLANK)
    assert (disk["state"], said) == ("blank", "")
    last = bytearray(BLANK)
    last[-1] = 1
    superblock = bytearray(BLANK)
    superblock[0x438:0x43A] = b"\x53\xef"  # ext4's
    for content, text in (
        (bytes(last), "neither SBD's nor blank"),
        (bytes(superblock), "neither SBD's nor blank"),
        (b"SBD_SBD-" + BLANK[8:], "neither SBD's nor blank"),
        (bytes(512) + header()[:-512], "neither SBD's nor blank"),
        (header(version=3), "version 3"),
        (header(sector_bytes=4096), "sectors of 4096 bytes"),
        (BLANK[:-512], "ends after 1048064 bytes"),
        (b"", "ends after 0 bytes"),
    ):
        disks, said = looked_at(tmp_path, content)
        assert disks == []
        assert text in said


def test_sectors_of_4_kib_need_more_to_be_blank() -> None:
    """`sbd create` writes 511 sectors: with such sectors more than the first MiB."""
    whole = bytes(511 * 4096)
    assert sbd_disks.classify(whole, 4096) == {"state": "blank"}
    for start in (whole[:-4096], whole[:-1] + b"x"):
        with pytest.raises(sbd_disks.UnfitError):
            sbd_disks.classify(start, 4096)


@pytest.mark.usefixtures("as_disks")
@pytest.mark.parametrize("call", ["open", "preadv"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOMEM, errno.ENODATA, errno.ENXIO])
def test_what_cannot_be_read_is_not_blank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    def fail(*_arguments: object) -> int:
        raise OSError(code, os.strerror(code))

    disk = tmp_path / "disk"
    disk.write_bytes(BLANK)
    monkeypatch.setattr(sbd_disks.os, call, fail)
    disks, (said,) = sbd_disks.look_at_all([str(disk)])
    monkeypatch.undo()
    assert disks == []
    assert f"cannot be read ({os.strerror(code)})" in said
    assert disk.read_bytes() == BLANK


@pytest.mark.usefixtures("as_disks")
def test_an_error_behind_a_good_beginning_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(handle: int, buffers: list[memoryview], offset: int) -> int:
        if offset:
            raise OSError(errno.EIO, "Input/output error")
        return len(os.pread(handle, 4096, offset))

    monkeypatch.setattr(sbd_disks.os, "preadv", read)
    for content in (BLANK, header()):
        disks, said = looked_at(tmp_path, content)
        assert disks == []
        assert "cannot be read" in said


@pytest.mark.usefixtures("as_disks")
def test_a_disk_that_the_kernel_holds_is_not_blank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def held(path: str, flags: int, *rest: int) -> int:
        if flags & os.O_EXCL and not flags & os.O_CREAT:
            raise OSError(errno.EBUSY, "Device or resource busy")
        return real(path, flags, *rest)

    monkeypatch.setattr(sbd_disks.os, "open", held)
    disks, said = looked_at(tmp_path, BLANK)
    assert disks == []
    assert "in use" in said
    # SBD itself does not claim its disk, and its header is enough.
    assert looked_at(tmp_path, header())[1] == ""


def test_what_is_no_disk_is_named_with_all_others(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(BLANK)
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    names = [str(tmp_path / name) for name in ("file", "dangling", "gone", "file/under")]
    disks, said = sbd_disks.look_at_all([*names, "/dev/null"])
    assert disks == []
    assert ["is no block device" in text for text in said] == [True, False, False, False, True]
    assert ["there is no such device" in text for text in said] == [False, True, True, True, False]


def seen(*states: str, running: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """What nodes said of one disk: its state, or the number of a header's uuid."""
    return {
        node: {
            "disks": [
                {"device": "/dev/a", "state": "blank"}
                if state == "blank"
                else {"device": "/dev/a", "state": "sbd", "uuid": UUID[:-1] + state}
            ],
            "running": [*running] if node == "n2" else [],
        }
        for node, state in zip(NODES, states, strict=False)
    }


def to_make(found: dict[str, dict[str, Any]], *devices: str) -> tuple[list[str], str]:
    blank, problems = sbd_disks.disks_to_make(devices or ("/dev/a",), NODES, found, 5)
    return blank, "\n".join(problems)


def test_a_disk_that_all_nodes_find_blank_is_initialized_and_then_left() -> None:
    assert to_make(seen("blank", "blank", "blank")) == (["/dev/a"], "")
    assert to_make(seen("1", "1", "1")) == ([], "")
    # One node at a time: nothing is to be written.
    assert to_make(seen("1")) == ([], "")
    assert to_make(seen("1", "1", "1", running=("corosync", "sbd"))) == ([], "")


def test_no_disk_is_initialized_while_corosync_runs_anywhere() -> None:
    for running in ("corosync", "sbd"):
        _, said = to_make(seen("blank", "blank", "blank", running=(running,)))
        assert f"{running} run on n2" in said
        assert "systemctl stop pacemaker corosync" in said
        assert "`sbd -d /dev/a -1 5 -4 10 create`" in said


def test_a_node_that_was_not_asked_may_run_corosync() -> None:
    _, said = to_make(seen("blank", "blank"))
    assert "n3 was not looked at" in said
    failed = seen("blank", "blank", "blank")
    failed["n3"] = {"failed": True, "msg": "no"}
    assert "n3 was not looked at" in to_make(failed)[1]


@pytest.mark.parametrize("states", [("blank", "1", "1"), ("1", "1", "2")])
def test_a_name_that_is_not_the_same_disk_everywhere_is_refused(states: tuple[str, ...]) -> None:
    assert "not the same on all nodes" in to_make(seen(*states))[1]


def test_all_disks_are_judged_before_any_is_written() -> None:
    found = seen("blank", "blank", "blank")
    for node, looked in found.items():
        looked["disks"].append(
            {"device": "/dev/b", "state": "sbd", "uuid": UUID}
            if node == "n3"
            else {"device": "/dev/b", "state": "blank"}
        )
    assert "disk /dev/b" in to_make(found, "/dev/a", "/dev/b")[1]
    assert "disk /dev/c" in to_make(found, "/dev/a", "/dev/c")[1]


def test_the_same_disk_twice_is_no_second_disk() -> None:
    found = seen("1", "1", "1")
    for looked in found.values():
        looked["disks"].append(looked["disks"][0] | {"device": "/dev/b"})
    assert "the same disk as /dev/a" in to_make(found, "/dev/a", "/dev/b")[1]


def test_timeouts_that_differ_are_told() -> None:
    disk = sbd_disks.classify(header(watchdog_s=15), 512) | {"device": "/dev/a"}
    (said,) = sbd_disks.other_timeouts([disk], 5)
    assert "watchdog 15 s and msgwait 30 s" in said
    assert sbd_disks.other_timeouts([disk], 15) == []


def test_corosync_is_seen_by_its_process(tmp_path: Path) -> None:
    for number, name in (("1", "systemd"), ("7", "corosync"), ("self", "sbd")):
        (tmp_path / number).mkdir()
        (tmp_path / number / "comm").write_text(name + "\n")
    (tmp_path / "8").mkdir()
    assert sbd_disks.programs(str(tmp_path)) == ["corosync"]
    with pytest.raises(OSError, match="No such file"):
        sbd_disks.programs(str(tmp_path / "none"))


class FakeModule:
    """Stands in for AnsibleModule where a disk is written."""

    def __init__(self, status: int = 0, writes: bytes = b"") -> None:
        self.params = {"watchdog_timeout_s": 5}
        self.status, self.writes = status, writes
        self.ran: list[list[str]] = []

    def run_command(self, argv: list[str]) -> tuple[int, str, str]:
        self.ran.append(argv)
        if self.writes:
            Path(argv[2]).write_bytes(self.writes)
        return self.status, "", "sbd's words"

    def fail_json(self, *, msg: str) -> NoReturn:
        raise RuntimeError(msg)


@pytest.mark.usefixtures("as_disks")
def test_the_disk_behind_a_link_is_initialized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sbd_disks, "programs", list)
    disk, link = tmp_path / "disk", tmp_path / "by-id"
    disk.write_bytes(BLANK)
    link.symlink_to(disk)
    module = FakeModule(writes=header())
    sbd_disks.make(module, str(link))
    assert module.ran == [["sbd", "-d", str(disk), "-1", "5", "-4", "10", "create"]]


@pytest.mark.usefixtures("as_disks")
@pytest.mark.parametrize(
    ("content", "running", "text"),
    [
        (header(), [], "is sbd now"),
        (BLANK[:-1] + b"x", [], "neither SBD's nor blank"),
        (BLANK, ["corosync"], "running here: corosync"),
    ],
)
def test_a_disk_is_looked_at_again_right_before_it_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    running: list[str],
    text: str,
) -> None:
    monkeypatch.setattr(sbd_disks, "programs", lambda: running)
    disk = tmp_path / "disk"
    disk.write_bytes(content)
    module = FakeModule()
    with pytest.raises(RuntimeError, match=text):
        sbd_disks.make(module, str(disk))
    assert module.ran == []


@pytest.mark.usefixtures("as_disks")
@pytest.mark.parametrize(("status", "writes"), [(1, b""), (1, header()), (0, b"")])
def test_a_header_that_was_not_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, writes: bytes
) -> None:
    monkeypatch.setattr(sbd_disks, "programs", list)
    disk = tmp_path / "disk"
    disk.write_bytes(BLANK)
    with pytest.raises(RuntimeError, match="sbd's words"):
        sbd_disks.make(FakeModule(status, writes), str(disk))
