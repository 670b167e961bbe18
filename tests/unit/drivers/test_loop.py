# SPDX-License-Identifier: GPL-2.0-or-later
"""Loop devices that appear and disappear during a read, attach and detach."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sanctl.agents.replica import lost_writes
from sanctl.drivers import dm, loop
from sanctl.errors import CommandError
from sanctl.system import files, timed_call

VOL, OTHER = "/pool/devices/vol.1.meta", "/pool/devices/other.1.meta"
CLEARED = [0x4C01]  # LOOP_CLR_FD


def test_a_loop_device_detached_during_a_read_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What broke: a stop that met another device's detach failed, and the node was fenced."""

    def read(path: str) -> str:
        if "loop0" in path:
            raise FileNotFoundError(path)
        if "loop1" in path:
            raise OSError(errno.ENODEV, "No such device")
        return "/pool/devices/vol.1.data\n"

    monkeypatch.setattr(os, "listdir", lambda _: ["loop0", "loop1", "loop2", "sda"])
    monkeypatch.setattr(files, "read_text", read)
    assert loop.backing_files() == ["/pool/devices/vol.1.data"]
    assert loop.find("/pool/devices/vol.1.data") == "/dev/loop2"


def test_loop_devices_are_looked_at_once_and_each_answer_is_as_of_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attached = {f"loop{i}": f"/pool/devices/vol{i}.1.data" for i in range(100)}
    reads: list[str] = []

    def read(path: str) -> str:
        reads.append(path)
        return attached[path.split("/")[3]] + "\n"

    monkeypatch.setattr(loop, "_seen", {})
    monkeypatch.setattr(os, "listdir", lambda _: list(attached))
    monkeypatch.setattr(files, "read_text", read)
    for _ in range(10):
        assert loop.find("/pool/devices/vol7.1.data") == "/dev/loop7"
        assert loop.find_file(lambda path: "/vol8." in path) == "/pool/devices/vol8.1.data"
    assert len(reads) < 130
    # The kernel gives a device that was detached to another file.
    attached["loop7"], attached["loop8"] = attached["loop8"], "/pool/devices/vol7.1.data (deleted)"
    assert loop.find("/pool/devices/vol7.1.data") is None
    assert loop.find("/pool/devices/vol8.1.data") == "/dev/loop7"
    assert loop.find_file(lambda path: "/vol8." in path) == "/pool/devices/vol8.1.data"
    attached["loop7"] = "/pool/devices/vol9.1.data"
    assert loop.find_file(lambda path: "/vol8." in path) is None


def test_a_dm_device_removed_during_a_read_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What broke: a reboot stopped three devices at once, and the node was fenced for it."""

    def read(path: str) -> str:
        if "dm-3" in path:
            raise OSError(errno.EINVAL, "Invalid argument")
        return "sanctl-vol1-gate\n"

    monkeypatch.setattr(os, "listdir", lambda _: ["dm-3", "dm-4", "sda"])
    monkeypatch.setattr(os, "stat", lambda _: (_ for _ in ()).throw(FileNotFoundError()))
    monkeypatch.setattr(files, "read_text", read)
    assert dm.kernel_name("sanctl-vol1-gate") == "dm-4"
    assert dm.kernel_name("sanctl-vol2-gate") is None
    with pytest.raises(OSError, match="Invalid"):
        files.read_text_or("/srv/dm-3", "")


def test_another_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: str) -> str:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "listdir", lambda _: ["loop0"])
    monkeypatch.setattr(files, "read_text", read)
    with pytest.raises(OSError, match="Input"):
        loop.backing_files()


def detach_vol(
    monkeypatch: pytest.MonkeyPatch, before: str, held: str, error: int = 0
) -> list[int]:
    """Detach `VOL`'s device, over `before` in the list and over `held` once it is open.

    Returns:
        What was asked of it; the kernel answers with `error`.
    """
    told, asked, open_file = iter([before, held]), [], os.open

    def ioctl(_handle: int, request: int) -> None:
        asked.append(request)
        if error:
            raise OSError(error, os.strerror(error))

    def error_of(call: Callable[[], None], *, within_s: float) -> int:
        try:
            call()
        except OSError as refusal:
            return refusal.errno or errno.EIO
        return 0

    monkeypatch.setattr(timed_call, "errno_of", error_of)
    monkeypatch.setattr(os, "listdir", lambda _: ["loop3"])
    monkeypatch.setattr(files, "read_text", lambda _: f"{next(told)}\n")
    monkeypatch.setattr(os, "open", lambda _, flags: open_file(os.devnull, flags))
    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    loop.detach(VOL)
    return asked


@pytest.mark.parametrize(
    ("before", "held", "asked"),
    [
        (VOL, VOL, CLEARED),
        (VOL, f"{VOL} (deleted)", CLEARED),
        (f"{VOL} (deleted)", f"{VOL} (deleted)", CLEARED),
        (VOL, OTHER, []),
        (VOL, "", []),
        (OTHER, OTHER, []),
    ],
)
def test_only_a_device_over_the_file_while_open_is_detached(
    monkeypatch: pytest.MonkeyPatch, before: str, held: str, asked: list[int]
) -> None:
    """A device that a probe held open goes late, and its number is another replica's by then."""
    assert detach_vol(monkeypatch, before, held) == asked


def test_a_device_that_is_gone_is_detached(monkeypatch: pytest.MonkeyPatch) -> None:
    assert detach_vol(monkeypatch, VOL, VOL, errno.ENXIO) == CLEARED
    with pytest.raises(CommandError, match=r"SAN-POOL-025.*/dev/loop3 stays over"):
        detach_vol(monkeypatch, VOL, VOL, errno.EINTR)


def test_a_detach_that_hangs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_all", lambda: iter([("/dev/loop3", VOL)]))
    monkeypatch.setattr(timed_call, "errno_of", lambda *_, **__: None)
    with pytest.raises(CommandError, match=r"SAN-POOL-025.*no answer"):
        loop.detach(VOL)


def test_direct_io_that_the_file_cannot_have_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would break: a replica that shares blocks never ends leaving write-back."""
    monkeypatch.setattr(timed_call, "errno_of", lambda *_, **__: errno.EINVAL)
    loop.set_direct_io("/dev/loop3", on=True, within_s=1.0)
    with pytest.raises(CommandError, match=r"SAN-POOL-025.*to buffered I/O: Invalid argument"):
        loop.set_direct_io("/dev/loop3", on=False, within_s=1.0)
    monkeypatch.setattr(timed_call, "errno_of", lambda *_, **__: errno.EIO)
    with pytest.raises(CommandError, match=r"SAN-POOL-025.*to direct I/O"):
        loop.set_direct_io("/dev/loop3", on=True, within_s=1.0)


@pytest.fixture
def attached(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A file, and the loop device of this machine that is over it."""
    file = tmp_path / "vol.meta"
    file.write_bytes(bytes(1 << 20))
    try:
        device = loop.attach(str(file), direct_io=False)
    except CommandError as error:
        pytest.skip(f"no loop device to be had: {error}")
    yield file, device
    for path in loop.backing_files():
        if path.startswith(f"{tmp_path}/"):
            loop.detach(path)


def stays_attached(path: Path) -> bool:
    """Whether a loop device stays over the file; udev of this machine may have it open, too."""
    deadline = time.monotonic() + 5.0
    while str(path) in loop.backing_files() and time.monotonic() < deadline:
        time.sleep(0.05)
    return str(path) in loop.backing_files()


def test_the_kernel_keeps_a_device_over_another_file(
    attached: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, device = attached
    other = file.rename(file.with_name("other.meta"))
    monkeypatch.setattr(loop, "_all", lambda: iter([(device, str(file))]))
    loop.detach(str(file))
    monkeypatch.undo()
    assert loop.find(str(other)) == device
    other.unlink()
    loop.detach(str(other))
    assert not stays_attached(other), "a deleted file's goes, too"


def test_the_kernel_detaches_an_open_device_when_it_is_closed(
    attached: tuple[Path, str],
) -> None:
    file, device = attached
    handle = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        loop.detach(str(file))
        loop.detach(str(file))
        assert loop.find(str(file)) == device
    finally:
        os.close(handle)
    assert not stays_attached(file)
    loop.detach(str(file))


def test_a_detaching_device_does_not_count_as_attached(
    attached: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be gone, or over another replica's file, by the time that DRBD opens it."""
    file, device = attached
    handle = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    loop.detach(str(file))
    with monkeypatch.context() as patched:
        patched.setattr(loop, "_AUTOCLEAR_S", 0.1)
        with pytest.raises(CommandError, match=r"SAN-POOL-025.*held open"):
            loop.attach(str(file), direct_io=False)
    closing = threading.Timer(0.2, os.close, [handle])
    closing.start()
    found = loop.attach(str(file), direct_io=False)
    closing.join()
    assert (loop.find(str(file)), loop._is_detaching(found)) == (found, False)


def test_a_device_has_the_blocks_that_it_was_given(attached: tuple[Path, str]) -> None:
    file, _ = attached
    other = file.with_name("blocks.meta")
    other.write_bytes(bytes(1 << 20))
    for given in (4096, 512):
        device = loop.attach(str(other), direct_io=False, block_bytes=given)
        limits = Path("/sys/block", device.removeprefix("/dev/"), "queue/logical_block_size")
        assert int(limits.read_text()) == given
        loop.detach(str(other))
        assert not stays_attached(other)


def test_a_device_open_with_o_excl_is_claimed(attached: tuple[Path, str]) -> None:
    _, device = attached
    assert not loop.is_claimed(device)
    handle = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    assert not loop.is_claimed(device), "open is not claimed"
    os.close(handle)
    handle = os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
    assert loop.is_claimed(device)
    os.close(handle)


def test_an_attachment_is_known_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "loop0/loop/backing_file": f"{VOL}\n",
        "loop0/diskseq": "41\n",
        "loop1/loop/backing_file": f"{OTHER} (deleted)\n",
        "loop1/diskseq": "42\n",
        "loop2/loop/backing_file": f"{OTHER}\n",  # a kernel without such numbers
    }

    def read(path: str) -> str:
        try:
            return texts[path.removeprefix("/sys/block/")]
        except KeyError:
            raise FileNotFoundError(path) from None

    monkeypatch.setattr(os, "listdir", lambda _: ["loop0", "loop1", "loop2"])
    monkeypatch.setattr(files, "read_text", read)
    assert loop.attachments() == {VOL: "41"}


@pytest.mark.parametrize("hides", [False, True])
def test_a_file_below_another_mount_is_not_the_one_that_is_attached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hides: bool
) -> None:
    file = tmp_path / "vol"
    file.touch()
    there = file.stat()
    major, minor = os.major(there.st_dev), os.minor(there.st_dev)
    number = (minor & 0xFF) | (major << 8) | ((minor & ~0xFF) << 12)
    status = struct.pack("=QQ216x", number, there.st_ino + hides)
    monkeypatch.setattr(loop, "find", lambda _path: "/dev/null")
    monkeypatch.setattr(fcntl, "ioctl", lambda *_: status)
    assert loop.is_over(str(file)) is not hides


def test_a_data_file_is_found_by_its_devices_whole_name(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [f"/pool/devices/{name}.{'a' * 32}.data" for name in ("vol", "vol8", "xvol8")]
    monkeypatch.setattr(loop, "_seen", {})
    monkeypatch.setattr(loop, "backing_files", lambda: paths)
    assert [lost_writes.data_file(name) for name in ("vol", "vol8", "xvol8")] == paths
    assert lost_writes.data_file("ol8") is None
