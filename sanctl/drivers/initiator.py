# SPDX-License-Identifier: GPL-2.0-or-later
"""open-iscsi and dm-multipath on a storage node that is a host: sessions, and the maps over them.

Nothing here waits for a target: a login is ordered, and iscsid goes on with it.
"""

from __future__ import annotations

import glob
import os
import re

from sanctl.errors import CommandError
from sanctl.model.own_session import Record, Session
from sanctl.parse.iscsiadm import parse_records, parse_sessions
from sanctl.system.files import is_folder, read_text_or
from sanctl.system.runner import Runner

_TIMEOUT_S = 15.0
#: iscsiadm(8): no objects found; a session exists already.
_NONE, _EXISTS = 21, 15
_SESSIONS, _BLOCK = "/sys/class/iscsi_session", "/sys/block"
_MPATH = "mpath-"
_INITIATOR_FILE = "/etc/iscsi/initiatorname.iscsi"
_INITIATOR = re.compile(r"^\s*InitiatorName\s*=\s*(\S+)", re.MULTILINE)


def own_iqn() -> str:
    """Return this node's initiator name; empty: it is not known."""
    try:
        match = _INITIATOR.search(read_text_or(_INITIATOR_FILE, ""))
    except OSError:
        return ""
    return match[1].lower() if match else ""


def records(runner: Runner) -> tuple[Record, ...]:
    """Return the paths that discovery has noted.

    Raises:
        CommandError: iscsiadm does not say.
    """
    result = runner.run(["iscsiadm", "-m", "node"], timeout_s=_TIMEOUT_S, ok=(0, _NONE))
    return parse_records(result.stdout)


def sessions(runner: Runner) -> tuple[Session, ...]:
    """Return the sessions of this node, also those in recovery.

    Raises:
        CommandError: iscsiadm does not say.
    """
    result = runner.run(["iscsiadm", "-m", "session"], timeout_s=_TIMEOUT_S, ok=(0, _NONE))
    return parse_sessions(result.stdout)


def order_login(runner: Runner, record: Record) -> None:
    """Have iscsid log in to a path; whether it succeeds the sessions say later.

    Raises:
        CommandError: iscsid does not take the order.
    """
    runner.run(
        [
            "iscsiadm", "-m", "node", "-T", record.target, "-p", record.portal,
            "--login", "--no_wait",
        ],
        timeout_s=_TIMEOUT_S,
        ok=(0, _EXISTS),
    )  # fmt: skip


def logout(runner: Runner, session: Session) -> None:
    """Log out of a session. One whose target is gone ends without an answer from it.

    Raises:
        CommandError: it is not known to have ended.
    """
    try:
        runner.run(
            ["iscsiadm", "-m", "session", "-r", str(session.sid), "--logout"],
            timeout_s=_TIMEOUT_S,
            ok=(0, _NONE),
        )
    except CommandError:
        # Of a session that has ended meanwhile iscsiadm says that it cannot be read.
        if is_folder(f"{_SESSIONS}/session{session.sid}"):
            raise


def disks(session: Session) -> tuple[str, ...]:
    """Return the kernel's names of a session's disks, such as `sdb`."""
    found = glob.glob(f"{_SESSIONS}/session{session.sid}/device/target*/*/block/*")
    return tuple(sorted(os.path.basename(path) for path in found))


def maps_over(disk: str) -> tuple[str, ...]:
    """Return the names of the multipath maps that have a disk as a path."""
    folders = sorted(glob.glob(f"{_BLOCK}/{disk}/holders/*/dm"))
    names = (
        read_text_or(f"{folder}/name", "").strip()
        for folder in folders
        if read_text_or(f"{folder}/uuid", "").startswith(_MPATH)
    )
    return tuple(names)


def is_open(runner: Runner, dm_name: str) -> bool:
    """Whether anything has a map open: a guest, a mount, a volume group on it.

    Raises:
        CommandError: device-mapper does not say.
    """
    result = runner.run(
        ["dmsetup", "info", "--columns", "--noheadings", "-o", "open", dm_name],
        timeout_s=_TIMEOUT_S,
    )
    return result.stdout.strip() != "0"


def is_claimed(disk: str) -> bool:
    """Whether a disk that is no path of a map is mounted, or claimed otherwise.

    A program that has it open without a claim is not seen.
    """
    try:
        os.close(os.open(f"/dev/{disk}", os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK))
    except OSError:
        return True
    return False


def remove_map(runner: Runner, dm_name: str) -> None:
    """Remove a multipath map that nobody has open.

    Raises:
        CommandError: somebody has, or multipath does not do it.
    """
    runner.run(["multipath", "-f", dm_name], timeout_s=_TIMEOUT_S)
