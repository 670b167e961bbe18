# SPDX-License-Identifier: GPL-2.0-or-later
"""A node's durable notes on a pool, kept outside it: made once, flash in use, shut down, its id."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from typing import TYPE_CHECKING

from sanctl.system import files, state_files
from sanctl.system.files import fsync_folder, is_folder, read_text_or, write_atomically

if TYPE_CHECKING:
    from collections.abc import Collection

    from sanctl.model.names import PoolName

_FOLDER = "/var/lib/sanctl/pools"

WRITE_BACK = "write-back"
"""The pool's flash holds valid data that may be nowhere else (plan/pool/flash_assembly.py)."""
STOPPED = "stopped"
"""The pool was unmounted in order, with this cache set."""
SHUT_DOWN = "shut-down"
"""The pool's filesystem has shut itself down: its replicas may lack acknowledged writes."""
MAKING = "making"
"""The pool's filesystem is being created, and holds nothing yet (plan/pool/preparation.py)."""
MADE = "made"
"""The pool's filesystem has been created here: only an operator's `--anew` formats it again."""
FILESYSTEM = "filesystem"
"""The id of the filesystem in which the pool began here; by the pool's UUID, not its name."""
POINTS_LOST = "points-lost"
"""Tokens of restore points that the pool agent took this node off, as their files were gone."""
POINTS_GIVEN_UP = "points-given-up"
"""Tokens of restore points that `pool prepare --anew` was about to take this node off."""
#: Kept on /run where the disk takes none: the node's own may fail with the pool's.
_ALSO_ON_RUN = frozenset({SHUT_DOWN})
_TAKEN_OFF = (POINTS_LOST, POINTS_GIVEN_UP)
#: Of restore points that are deleted so many are remembered: their files may be there again.
_MOST_TAKEN_OFF = 4096
#: A change of the CIB that was due with the note has been made by then, or never will be.
_CHANGE_IS_MADE_S = 600.0


def write(pool: PoolName | str, kind: str, text: str = "") -> None:
    """Write a note; the note is on the disk when this returns.

    Raises:
        OSError: it is not on the disk. Of SHUT_DOWN `exists` says whether it is in RAM at least.
    """
    in_ram = _in_ram(pool, kind)
    try:
        make_folder()
        write_atomically(path(pool, kind), text)
    except OSError:
        if in_ram is not None and not in_ram.exists():
            with contextlib.suppress(OSError):  # the error of the disk is told
                in_ram.write(text)
        raise
    if in_ram is not None:
        # Else it would outlive this one where a release before clears that.
        with contextlib.suppress(OSError):
            in_ram.remove()


def make_folder() -> None:
    """Make the folder of the notes, where it is not; it is on the disk when this returns."""
    if not is_folder(_FOLDER):
        os.makedirs(_FOLDER, mode=0o700)
        fsync_folder(os.path.dirname(_FOLDER))


def have_folder() -> bool:
    """Whether the folder of the notes is there: without it no note is known to be missing.

    Raises:
        OSError: not known.
    """
    return is_folder(_FOLDER)


def clear(pool: PoolName | str, kind: str) -> None:
    """Remove a note; one that is gone is fine."""
    # First: after a kill in between the note is as it was.
    if (in_ram := _in_ram(pool, kind)) is not None:
        in_ram.remove()
    # Asked for first: a disk that has become read-only refuses to remove also what is not there.
    if files.exists(path(pool, kind)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path(pool, kind))
            fsync_folder(_FOLDER)


def exists(pool: PoolName | str, kind: str) -> bool:
    """Whether there is such a note, on the disk or in RAM.

    Raises:
        OSError: not known; whatever the note forbids stays forbidden.
    """
    in_ram = _in_ram(pool, kind)
    return (in_ram is not None and in_ram.exists()) or is_on_disk(pool, kind)


def is_on_disk(pool: PoolName | str, kind: str) -> bool:
    """Whether there is such a note that outlives a loss of power.

    Raises:
        OSError: not known.
    """
    return files.exists(path(pool, kind))


def is_of(pool: PoolName | str, kind: str, uuid: str) -> bool:
    """Whether there is such a note about the pool with this uuid: a note may be an older pool's.

    Raises:
        OSError: not known.
    """
    return read(pool, kind).strip() == uuid


def read(pool: PoolName | str, kind: str) -> str:
    """Return the text of a note; empty without one."""
    if (in_ram := _in_ram(pool, kind)) is not None and in_ram.exists():
        return in_ram.read()
    return read_text_or(path(pool, kind), "")


def taken_off(pool: PoolName | str) -> frozenset[str]:
    """Return the tokens of the restore points that this node was taken off, also deleted ones.

    Raises:
        OSError: not known.
    """
    return frozenset(token for kind in _TAKEN_OFF for token in read(pool, kind).split())


def note_taken_off(pool: PoolName | str, kind: str, tokens: set[str], present: set[str]) -> None:
    """Note that this node is about to be taken off restore points.

    Args:
        pool: the pool.
        kind: POINTS_LOST or POINTS_GIVEN_UP.
        tokens: of these.
        present: the tokens of all restore points that there are.

    Raises:
        OSError: the note cannot be read, or written.
    """
    before = set(read(pool, kind).split())
    # Others stay: a file of a restore point that is deleted meanwhile has to go, too.
    now = (before if len(before) < _MOST_TAKEN_OFF else before & present) | tokens
    if tokens or now != before:
        # Also where it says so already: its age is that of the last change that is about to come.
        write(pool, kind, " ".join(sorted(now)))


def forget_taken_off(pool: PoolName | str, tokens: Collection[str]) -> None:
    """Forget that this node was taken off restore points: the CIB names it for them again.

    Not while the note is young: the CIB may name the node *yet*.

    Raises:
        OSError: a note cannot be read, or written.
    """
    for kind in _TAKEN_OFF:
        before = set(read(pool, kind).split())
        if not before.isdisjoint(tokens) and age_s(pool, kind) > _CHANGE_IS_MADE_S:
            write(pool, kind, " ".join(sorted(before.difference(tokens))))


def age_s(pool: PoolName | str, kind: str) -> float:
    """Return how old a note is; 0 without one.

    A note from the future was written before the clock was put back: its age is counted from now
    on, as the note may be a new one, and must not stay new until the clock has come so far again.
    """
    in_ram = _in_ram(pool, kind)
    # The disk that has the other one may not answer.
    return _age_s(path(pool, kind) if in_ram is None or not in_ram.exists() else in_ram.path)


def _age_s(where: str) -> float:
    try:
        age_s = time.time() - os.stat(where).st_mtime
        if age_s < 0.0:
            os.utime(where)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or error.errno == errno.EROFS:
            return 0.0
        raise
    return max(age_s, 0.0)


def path(pool: PoolName | str, kind: str) -> str:
    """Return where a note lies."""
    return f"{_FOLDER}/{pool}.{kind}"


def paths(pool: PoolName | str, kind: str) -> tuple[str, ...]:
    """Return all places of a note: there is one if there is a file at any of them."""
    in_ram = _in_ram(pool, kind)
    return (path(pool, kind), *(() if in_ram is None else (in_ram.path,)))


def _in_ram(pool: PoolName | str, kind: str) -> state_files.StateFile | None:
    if kind not in _ALSO_ON_RUN or not pool:
        return None
    return state_files.of_pool(str(pool), kind)
