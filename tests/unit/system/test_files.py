# SPDX-License-Identifier: GPL-2.0-or-later
"""Existence checks that raise on I/O errors, and bans that keep others out."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sanctl.system import files
from sanctl.system.files import exists, is_folder, is_link, is_mount_point, read_text_or
from tests.fakes.faults import Faults
from tests.support.doc_samples import ROOT

QUESTIONS: tuple[Callable[[str], bool], ...] = (exists, is_folder, is_link, is_mount_point)
UNKNOWN = (errno.EIO, errno.ENOMEM, errno.EACCES, errno.ENODEV, errno.ESHUTDOWN, errno.ELOOP)
#: Packages that nodes do not run.
NOT_ON_NODES = {"bench", "chaos", "demo", "lab"}
SOURCES = [
    path
    for path in (*(ROOT / "sanctl").rglob("*.py"), *(ROOT / "ansible/plugins/modules").glob("*.py"))
    if not NOT_ON_NODES & set(path.relative_to(ROOT).parts)
]
#: What answers False to any error, and what would hide it from the linter.
BANNED = re.compile(
    r"path\.(exists|lexists|isfile|isdir|islink|ismount|getsize)\("
    r"|from os(\.path)? import|import posixpath|import genericpath"
    r"|\.(is_mount|is_file|is_symlink)\(\)|noqa:[^#\n]*TID251"
)


@pytest.mark.parametrize("ask", QUESTIONS)
def test_only_what_is_not_there_is_absent(
    ask: Callable[[str], bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert ask(str(tmp_path / "gone")) is False
    assert ask(str(tmp_path / "file" / "below")) is False
    faults = Faults(monkeypatch)
    for number in UNKNOWN:
        faults.at(tmp_path, number)
        with pytest.raises(OSError) as caught:
            ask(str(tmp_path))
        assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path))


def test_existence_type_and_mount_point(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "dangling").symlink_to("nowhere")
    names = ("file", "link", "dangling", ".")
    told = {name: [ask(str(tmp_path / name)) for ask in QUESTIONS] for name in names}
    assert told == {
        "file": [True, False, False, False],
        "link": [True, True, True, False],
        "dangling": [False, False, True, False],
        ".": [True, True, False, False],
    }
    assert exists(tmp_path / "dangling", follow_symlinks=False)
    assert is_mount_point("/") and is_mount_point("/proc") and not is_mount_point("/proc/1")


def test_a_device_that_is_gone_is_an_absent_file_in_sysfs_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a pool's filesystem ENODEV says that its disk is gone, and not the file."""

    def gone(_path: str) -> str:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(files, "read_text", gone)
    assert read_text_or("/sys/block/loop3/loop/dio", "0") == "0"
    with pytest.raises(OSError, match="No such device"):
        read_text_or("/srv/sanctl/main/devices/vol.ram", "")


@pytest.mark.parametrize("name", ["exists", "lexists", "isfile", "isdir", "islink", "ismount"])
def test_the_linter_refuses_what_takes_an_error_for_absence(name: str) -> None:
    for module, where in (("agents", 1), ("ops", 1), ("lab", 0)):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--output-format",
             "concise", "--stdin-filename", f"sanctl/{module}/new.py", "-"],
            input=f'import os\n\nos.path.{name}("/")\n',
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == where, done.stdout + done.stderr
        assert ("sanctl.system.files." in done.stdout) == bool(where)


@pytest.mark.parametrize(
    ("code", "instead"),
    [
        ("import subprocess\n", "sanctl.system.runner"),
        ('import os\n\nos.execv("/bin/true", [])\n', "sanctl.system.runner"),
        ("import os\n\nos.fork()\n", "sanctl.system.isolated_call"),
        ("import datetime\n\ndatetime.datetime.now()\n", "Session.clock"),
    ],
)
def test_programs_forks_and_the_date_have_one_place_each(code: str, instead: str) -> None:
    for file, is_allowed in (("drivers/new.py", 0), ("agents/new.py", 0), ("system/runner.py", 1)):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--output-format",
             "concise", "--stdin-filename", f"sanctl/{file}", "-"],
            input=code, cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode == 0) == bool(is_allowed), done.stdout + done.stderr
        assert (instead in done.stdout) != bool(is_allowed)


def test_no_source_of_nodes_uses_another_existence_check() -> None:
    assert len(SOURCES) > 100
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in SOURCES
        for line in path.read_text(encoding="utf-8").splitlines()
        if BANNED.search(line)
    ]
    assert found == []
    assert os.path.exists("/")  # Tests may.


@pytest.mark.parametrize(
    "content", [b"", b"one\n", b"a\r\nb\rc\n", b"\xff\xfe", "ü".encode() * 100_000]
)
def test_a_files_text_is_what_python_reads(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert files.read_text(str(path)) == path.read_text(encoding="utf-8", errors="replace")


def test_a_text_that_the_kernel_gives_in_pieces_is_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_text("given in pieces\n")
    read = os.read
    monkeypatch.setattr(os, "read", lambda handle, _count: read(handle, 4))
    assert files.read_text(str(path)) == "given in pieces\n"


def test_a_folder_has_no_text_and_no_descriptor_stays_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    for path, error in ((tmp_path, IsADirectoryError), (tmp_path / "none", FileNotFoundError)):
        with pytest.raises(error) as caught:
            files.read_text(str(path))
        assert caught.value.filename == str(path)
    assert os.listdir("/proc/self/fd") == before
