# SPDX-License-Identifier: GPL-2.0-or-later
"""The copy of one replica's data file: what is checked before, the copy, and what makes it last.

A child process makes it, which is there before hosts' I/O is held, and is killed when that ends:
XFS lets no write to the file through while it copies, so a copy that went on would hold up hosts
for as long as it takes (docs/adr/0056). Of a file with many extents most is copied before
(copied_ahead.py, docs/adr/0088).
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import time
from collections.abc import Iterator

from sanctl.agents import cluster_toml
from sanctl.agents.points import room
from sanctl.agents.points.copied_ahead import AHEAD_S, FEW_EXTENTS, CopiedAhead
from sanctl.agents.points.room_claims import Claim
from sanctl.agents.replica import lost_writes
from sanctl.drivers import loop, point_files, pool_files, reflink, write_out
from sanctl.errors import CommandError, Problem
from sanctl.model.restore_point import MAX_EXTENTS, MAX_HELD_EXTENTS
from sanctl.plan.device.hold import HOLD_S
from sanctl.system.files import fsync_folder
from sanctl.system.forked_call import ForkedCall

#: How long the end of a copy that was killed is waited for: of one extent, and of the writes that
#: it waits for.
_END_S = 10.0


class LocalCopy:
    """A file that becomes part of a restore point, or goes.

    Use as a context manager: unless it is to be kept, the file is removed at the end.
    """

    def __init__(self, pool: str, device: str, uuid: str, token: str) -> None:
        found = cluster_toml.load_topology().pool(pool)
        if found is None or os.uname().nodename not in {str(node) for node in found.nodes}:
            raise CommandError(Problem("SAN-AGENT-004", f"cluster.toml has no pool {pool} here"))
        self._pool_path = str(found.path)
        pool_files.check_marker(self._pool_path, found.uuid)
        self._pool, self._device = pool, device
        self._data = pool_files.files_of(self._pool_path, device, uuid).data
        self.path = point_files.taking_path(self._pool_path, device, uuid, token)
        self._token = token
        self._claim: Claim | None = None
        self._call: ForkedCall | None = None
        #: None: the whole file is copied in the hold.
        self._ahead: CopiedAhead | None = None
        self._origin = self._copy = -1
        #: Set once the cluster may know of the restore point: then nobody here may remove it.
        self.may_be_known = False

    def __enter__(self) -> LocalCopy:
        return self

    def __exit__(self, *_error: object) -> None:
        is_over = self._end_call()
        if self._ahead is not None:
            self._ahead.close()
        for handle in (self._origin, self._copy):
            if handle >= 0:
                os.close(handle)
        # To remove a file that is being copied waits for the copy. The pool agent removes it later.
        if is_over and not self.may_be_known and self._copy >= 0:
            with contextlib.suppress(OSError):
                point_files.remove(self.path)
        # Last: what is shared by then is not free.
        self._end_claim()

    def prepare(self) -> int:
        """Check that a copy is possible, make its file, copy ahead, fork; return the extents.

        Raises:
            CommandError: the filesystem cannot share blocks, the file has too many extents, or the
                pool has no room for what hosts may write to shared blocks, nor for what others
                copy in it just now.
            OSError: a file cannot be opened or flushed, or there is no process to copy it.
        """
        point_files.make_folder(self._pool_path)
        try:
            is_supported = reflink.is_supported(point_files.folder(self._pool_path))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            is_supported = True  # Not known. That there is no room is said below.
        if not is_supported:
            raise CommandError(
                Problem(
                    "SAN-SNAP-001",
                    f"pool {self._pool} has no restore points: its filesystem shares no blocks",
                    "restore points need an XFS pool; an ext4 pool serves devices without them",
                )
            )
        if loop.find(self._data) is None:
            raise CommandError(Problem("SAN-AGENT-002", f"{self._data}: its loop device is gone"))
        extents = reflink.extent_count(self._data)
        if extents > MAX_EXTENTS:
            raise self._too_many(extents, MAX_EXTENTS)
        wanted = room.of_file(self._data)
        self._claim = room.claim(self._pool, self._pool_path, self._data, wanted, self._token)
        self._origin = os.open(self._data, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._copy = os.open(self.path, flags, 0o600)
        if extents > FEW_EXTENTS:
            self._ahead = CopiedAhead(self._origin, self._copy, self._write_range)
        self.catch_up()
        if self._ahead is None and extents > MAX_HELD_EXTENTS:
            raise self._too_many(extents, MAX_HELD_EXTENTS)
        return extents

    def _too_many(self, extents: int, most: int) -> CommandError:
        return CommandError(
            Problem(
                "SAN-SNAP-002",
                f"{self._data} has {extents} extents, and hosts would wait for their copy: "
                f"at most {most} are copied",
                "a replica that is dropped and filled anew has few: docs/howto/"
                "restore-points.md, A file of many extents",
            )
        )

    def catch_up(self, *, within_s: float = AHEAD_S) -> None:
        """Write the data file's dirty pages out and copy ahead what has changed; fork the child.

        So the copy in the hold has little to wait for. Again does so with what has changed since.

        Raises:
            CommandError: it takes too long.
            OSError: it could not be flushed or copied, or there is no process.
        """
        with self._noting_lost_writes():
            os.fdatasync(self._origin)
        if self._ahead is not None and not self._ahead.advance(within_s=within_s):
            self._ahead.close()
            self._ahead = None
            # What a whole copy leaves out is found by its size (`reflink.clone`).
            os.ftruncate(self._copy, 0)
        # The child has the memory of now, and does not look through it.
        gc.freeze()
        if not self._end_call():
            raise OSError(errno.ETIMEDOUT, "a child process that has copied nothing does not end")
        self._call = ForkedCall(self._clone, keep=(self._origin, self._copy))

    def _write_range(self, begin: int, end: int) -> None:
        with self._noting_lost_writes():
            write_out.write_range(self._origin, begin, end)

    def _end_call(self) -> bool:
        """End the child, where there is one; return whether it is gone."""
        call, self._call = self._call, None
        return call is None or call.end(within_s=_END_S)

    def _clone(self) -> None:
        """Copy, in the child."""
        # FICLONE would do it, too, but with the file locked, where no signal ends it.
        with self._noting_lost_writes():
            write_out.write_out(self._origin)
        if self._ahead is None:
            reflink.clone(self._origin, self._copy)
        else:
            self._ahead.complete()

    @contextlib.contextmanager
    def _noting_lost_writes(self) -> Iterator[None]:
        """Have a replica in write-back count as suspect where its dirty pages were not written.

        The kernel has told the error now, and tells it to no flush that opens the file later.
        """
        try:
            yield
        except OSError:
            if lost_writes.has_marker(self._data):
                lost_writes.record_failed_flush(self._device)
            raise

    def take(self, *, within_s: float = HOLD_S, unless_readable: int = -1) -> float:
        """Copy; return how long that took, in seconds.

        Args:
            within_s: how long it may take.
            unless_readable: a descriptor; data in it, or its end, ends the copy, too.

        Raises:
            CommandError: it has taken longer; the child was killed.
            OSError: the filesystem refused, or the child died.
        """
        assert self._call is not None
        begin = time.monotonic()
        try:
            self._call.begin(within_s=within_s)
            number = self._call.errno_of(within_s=within_s, unless_readable=unless_readable)
        finally:
            self.end_copying()
        took_s = time.monotonic() - begin
        # Late, and no error: it ended by its own timer, as this process did not get on.
        if number is None or (number and took_s > within_s):
            raise CommandError(
                Problem(
                    "SAN-SNAP-007",
                    f"{self._data} was not copied within {within_s:.1f} s, or was not waited for",
                    "a node or a disk may be very busy, or the file has many extents; try again",
                )
            )
        if number:
            raise OSError(number, os.strerror(number), self.path)
        return took_s

    def end_copying(self) -> None:
        """Kill a copy that has not ended, and do not wait for that; again does nothing."""
        if self._call is not None:
            self._call.kill()

    def make_stable(self) -> None:
        """Return when the copy is known to be whole, and outlives a crash of this node.

        Raises:
            CommandError: it is not what its origin was in the hold.
            OSError: it could not be flushed, or read.
        """
        if self._ahead is not None:
            self._ahead.check()
        os.fsync(self._copy)
        fsync_folder(os.path.dirname(self.path))
        # Others see by its blocks from now on what it shares.
        self._end_claim()

    def _end_claim(self) -> None:
        if self._claim is not None:
            self._claim.end()
        self._claim = None

    def keep(self) -> None:
        """Make the copy this node's part of a restore point that the cluster knows of."""
        point_files.keep(self.path)
