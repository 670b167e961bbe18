"""The filesystem that a pool lies on: whether it has shut itself down, and mounting it anew.

A filesystem whose journal could not be written takes no more writes, for as long as it is mounted,
whatever its disk does afterwards. ext4 and btrfs call themselves read-only then, under a mount that
is not (ext4(5), errors=; `emergency_ro` since Linux 6.15); XFS answers everything with EIO.
"""

from __future__ import annotations

import errno
import os
import re
from typing import NamedTuple

from sanctl.errors import SanctlError
from sanctl.system.files import read_text
from sanctl.system.runner import Runner

_MOUNTS = "/proc/self/mountinfo"
_ESCAPED = re.compile(r"\\([0-7]{3})")
_SHUT = frozenset({"ro", "emergency_ro", "shutdown"})
_TIMEOUT_S = 20.0
_READ_BYTES = 4096


class Mount(NamedTuple):
    """One line of proc_pid_mountinfo(5).

    Attributes:
        path: where it is mounted.
        source: what is.
        kind: the filesystem's type.
        options: of this mount.
        own: of the filesystem, which all its mounts share.
    """

    path: str
    source: str
    kind: str
    options: frozenset[str]
    own: frozenset[str]

    @property
    def is_shut_down(self) -> bool:
        """It takes no writes although it was mounted to take them."""
        return "ro" not in self.options and bool(self.own & _SHUT)


def parse(text: str) -> list[Mount]:
    """Read proc_pid_mountinfo(5); lines that do not read are left out."""
    found = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        head, tail = before.split(" "), after.split(" ")
        if len(head) >= 6 and len(tail) >= 3:
            found.append(
                Mount(
                    path=_unescape(head[4]),
                    source=_unescape(tail[1]),
                    kind=tail[0],
                    options=frozenset(head[5].split(",")),
                    own=frozenset(tail[2].split(",")),
                )
            )
    return found


def _unescape(word: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), word)


def over(path: str, mounts: list[Mount]) -> Mount | None:
    """Return the mount that a path lies on; of several on one place the last, which hides them."""
    holding = [
        one for one in mounts if path == one.path or path.startswith(one.path.rstrip("/") + "/")
    ]
    longest = max((len(one.path) for one in holding), default=0)
    return next((one for one in reversed(holding) if len(one.path) == longest), None)


def of(path: str) -> Mount | None:
    """Return the mount that a path lies on."""
    return over(os.path.realpath(path), parse(read_text(_MOUNTS)))


def is_shut_down(path: str) -> bool:
    """Whether the filesystem at a path takes no more writes until it is mounted anew."""
    try:
        os.stat(path)
    except OSError as error:
        # A path that is not there is something else: not mounted.
        return error.errno in {errno.EIO, errno.ESHUTDOWN}
    found = of(path)
    return found is not None and found.is_shut_down


def answers(device: str) -> bool:
    """Whether a block device can be read, past the page cache."""
    import mmap  # noqa: PLC0415 - aligned memory, which direct reads want

    try:
        handle = os.open(device, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with mmap.mmap(-1, _READ_BYTES) as buffer:
            return os.preadv(handle, [buffer], 0) == _READ_BYTES
    except OSError:
        return False
    finally:
        os.close(handle)


def unmount(runner: Runner, path: str) -> None:
    """Unmount what nothing uses, without a word to systemd: what depends on it is not stopped.

    Raises:
        CommandError: it is in use.
    """
    runner.run(["umount", path], timeout_s=_TIMEOUT_S)


def mount(runner: Runner, known: Mount) -> None:
    """Mount what was mounted: as its unit or fstab says, or by hand as it was.

    Raises:
        CommandError: it cannot be mounted.
    """
    escaped = runner.run(
        ["systemd-escape", "--path", "--suffix=mount", known.path], timeout_s=_TIMEOUT_S
    ).stdout.strip()
    try:
        runner.run(["systemctl", "start", escaped], timeout_s=_TIMEOUT_S)
    except SanctlError:
        if os.path.ismount(known.path):
            return
        options = ",".join(sorted(known.options))
        runner.run(
            ["mount", "-t", known.kind, "-o", options, known.source, known.path],
            timeout_s=_TIMEOUT_S,
        )
