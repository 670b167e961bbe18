"""Loop devices come and go while others look."""

from __future__ import annotations

import errno
import os

import pytest

from sanctl.drivers import loop, mapper
from sanctl.system import files


def test_a_device_detached_while_it_is_read_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_dm_device_that_is_being_removed_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """What broke: a reboot stopped three devices at once, and the node was fenced for it."""

    def read(path: str) -> str:
        if "dm-3" in path:
            raise OSError(errno.EINVAL, "Invalid argument")
        return "sanctl-vol1-gate\n"

    monkeypatch.setattr(os, "listdir", lambda _: ["dm-3", "dm-4", "sda"])
    monkeypatch.setattr(os, "stat", lambda _: (_ for _ in ()).throw(FileNotFoundError()))
    monkeypatch.setattr(files, "read_text", read)
    assert mapper.kernel_name("sanctl-vol1-gate") == "dm-4"
    assert mapper.kernel_name("sanctl-vol2-gate") is None
    with pytest.raises(OSError, match="Invalid"):
        files.read_text_or("/srv/dm-3", "")


def test_another_error_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: str) -> str:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "listdir", lambda _: ["loop0"])
    monkeypatch.setattr(files, "read_text", read)
    with pytest.raises(OSError, match="Input"):
        loop.backing_files()
