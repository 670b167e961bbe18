# SPDX-License-Identifier: GPL-2.0-or-later
"""What device-mapper is asked (linux/dm-ioctl.h), and what a refusal leaves behind."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from pathlib import Path

import pytest

from sanctl.drivers import dm
from sanctl.errors import CommandError

CREATE, REMOVE, RESUME, LOAD, CLEAR = 0xC138FD03, 0xC138FD04, 0xC138FD06, 0xC138FD09, 0xC138FD0A
NAME = "sanctl-vol1-gate"
DM_7 = 252 << 8 | 7


class Kernel:
    """Answers ioctls on /dev/mapper/control; refuses those of `refused` with their errno."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[int, bytes]] = []
        self.refused: dict[int, list[int]] = {}

    def ioctl(self, _handle: int, command: int, request: bytes) -> bytes:
        self.asked.append((command, request))
        if self.refused.get(command):
            number = self.refused[command].pop(0)
            raise OSError(number, os.strerror(number))
        return request[:40] + struct.pack("=Q", DM_7) + request[48:]

    def mknod(self, path: str, mode: int, device: int) -> None:
        # udev makes its link at any moment: just before this call, too.
        link = self.folder / NAME
        if not link.is_symlink():
            link.symlink_to("../dm-7")
        with Path(path).open("x", encoding="ascii") as node:
            node.write(f"{mode} {device}")

    @property
    def nodes(self) -> dict[str, tuple[int, int]]:
        """The nodes that there are, by their names."""
        found = {}
        for path in self.folder.iterdir():
            if path.name != "control" and path.is_file() and not path.is_symlink():
                mode, device = path.read_text(encoding="ascii").split()
                found[path.name] = (int(mode), int(device))
        return found

    @property
    def commands(self) -> list[int]:
        return [command for command, _ in self.asked]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kernel:
    made = Kernel(tmp_path)
    (tmp_path / "control").touch()
    monkeypatch.setattr(dm, "_FOLDER", str(tmp_path))
    monkeypatch.setattr(fcntl, "ioctl", made.ioctl)
    monkeypatch.setattr(os, "mknod", made.mknod)
    monkeypatch.setattr(dm, "kernel_name", lambda _: "dm-7")
    return made


def fields(request: bytes) -> tuple[int, int, int, int, str]:
    """Return size, start of the data, number of targets, flags, and the device's name."""
    size, start, targets, _, flags = struct.unpack_from("=IIIiI", request, 12)
    return size, start, targets, flags, request[48:176].rstrip(b"\0").decode()


def test_a_device_is_created_with_its_table_and_node(kernel: Kernel) -> None:
    dm.create(NAME, "0 2048 linear /dev/loop3 0")
    assert kernel.commands == [CREATE, LOAD, RESUME]
    for _, request in kernel.asked:
        assert len(request) == 1024
        assert fields(request)[0] == 1024
        assert fields(request)[4] == NAME
        # Neither libdm's cookie nor flags for udev: it would start dmsetup for them.
        assert struct.unpack_from("=I", request, 32) == (0,)
    load = kernel.asked[1][1]
    assert fields(load)[1:4] == (312, 1, 0)
    assert struct.unpack_from("=QQiI16s", load, 312) == (
        0, 2048, 0, 0, b"linear".ljust(16, b"\0"),
    )  # fmt: skip
    assert load[352:].startswith(b"/dev/loop3 0\0")
    assert kernel.nodes == {NAME: (stat.S_IFBLK | 0o600, DM_7)}


def test_a_link_that_udev_makes_meanwhile_is_not_in_the_way(kernel: Kernel) -> None:
    """A start ended with "File exists" once: udev's link came between the removal and the node."""
    (kernel.folder / f"{NAME}.new").touch()  # of a process that was killed there
    (kernel.folder / NAME).symlink_to("../dm-6")
    dm.create(NAME, "0 8 error")
    assert kernel.nodes == {NAME: (stat.S_IFBLK | 0o600, DM_7)}


def test_a_table_without_parameters_is_loaded(kernel: Kernel) -> None:
    dm.swap_table(NAME, "0 2048 error")
    assert kernel.commands == [LOAD, RESUME]
    assert kernel.asked[0][1][336:353] == b"error".ljust(17, b"\0")


def test_a_device_whose_table_is_refused_is_removed(kernel: Kernel) -> None:
    kernel.refused[LOAD] = [errno.EINVAL]
    with pytest.raises(CommandError, match=rf"SAN-DM-002.*create {NAME}: Invalid argument"):
        dm.create(NAME, "0 2048 linear /dev/none 0")
    assert kernel.commands == [CREATE, LOAD, REMOVE]
    assert not kernel.nodes


def test_a_swap_that_is_refused_leaves_no_inactive_table(kernel: Kernel) -> None:
    """It would hold the device below open, and be in force after the next resume."""
    kernel.refused[RESUME] = [errno.EINTR]
    with pytest.raises(CommandError, match="SAN-DM-002"):
        dm.swap_table(NAME, "0 2048 error")
    assert kernel.commands == [LOAD, RESUME, CLEAR]


def test_a_device_that_is_held_for_a_moment_is_removed(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dm, "_BUSY_POLL_S", 0.0)
    kernel.refused[REMOVE] = [errno.EBUSY, errno.EBUSY]
    (kernel.folder / NAME).touch()
    dm.remove(NAME)
    assert kernel.commands == [REMOVE] * 3
    assert not (kernel.folder / NAME).exists()
    kernel.refused[REMOVE] = [errno.ENXIO]
    dm.remove(NAME)


def test_a_device_that_stays_in_use_is_an_error(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dm, "_BUSY_RETRY_S", 0.0)
    kernel.refused[REMOVE] = [errno.EBUSY] * 9
    with pytest.raises(CommandError, match=r"SAN-DM-002.*busy"):
        dm.remove(NAME)


def test_a_device_without_a_table_is_absent_and_removed(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed in `create` leaves one; sysfs does not show it."""
    monkeypatch.setattr(dm, "kernel_name", lambda _: None)
    assert dm.active_table(NAME) is None
    dm.remove(NAME)
    assert kernel.commands[-1] == REMOVE


def test_a_device_that_is_gone_is_removed_already(kernel: Kernel) -> None:
    kernel.refused[REMOVE] = [errno.ENXIO]
    dm.remove(NAME)
    assert kernel.commands == [REMOVE]


def test_a_request_that_is_too_long_is_not_sent(kernel: Kernel) -> None:
    with pytest.raises(ValueError, match="bytes"):
        dm.create(NAME, f"0 8 linear /dev/{'x' * 1000} 0")
    assert not kernel.commands
