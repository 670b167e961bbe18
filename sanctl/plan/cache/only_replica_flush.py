# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: when a node flushes a device file that hosts write to, and how often.

A device file is written past the page cache, its blocks are reserved and marked as unwritten. A
write to a new place is acknowledged when its data is on the disk; that the place is written is in
the filesystem's journal only with the journal's next commit, after 5 s in ext4 and 30 s in XFS.
With two replicas in sync the other one has the write. With one good replica its node's power cut
would lose it, so there the file is flushed soon after each write (docs/adr/0048).
"""

from __future__ import annotations

from typing import NamedTuple

from sanctl.model.cache_policy import CacheMode
from sanctl.model.drbd import ResourceState

#: How often files are looked at; a file that was written is flushed at once.
LOOK_EVERY_S = 0.05
# At most a fifth of the time is spent in flushes, however slow the disk is.
_PAUSE_PER_FLUSH = 4.0
# Longer than the filesystems' own commits take to come.
_SETTLED_AFTER_S = 35.0


class FileProgress(NamedTuple):
    """What is known of one device file; times in seconds of the monotonic clock.

    Attributes:
        written_ns: the time of its last write as of the latest look, as the filesystem has it.
        changed_s: when that was last seen to have changed.
        flushed_s: when the latest flush began; None before the first.
        took_s: how long that flush took.
    """

    written_ns: int
    changed_s: float
    flushed_s: float | None = None
    took_s: float = 0.0

    def looked_at(self, written_ns: int, now_s: float) -> FileProgress:
        """Return the progress after another look at the file."""
        if written_ns == self.written_ns:
            return self
        return self._replace(written_ns=written_ns, changed_s=now_s)

    def is_due(self, now_s: float) -> bool:
        """Whether the file is to be flushed now.

        Not only at once after a write was seen: a filesystem sets the time before the data goes to
        the disk, and marks the place as written after that, which a look does not see. A slow disk
        may take long for it, so flushes follow in growing distances.
        """
        if self.flushed_s is None:
            return True
        age_s = self.flushed_s - self.changed_s
        if age_s > _SETTLED_AFTER_S:
            return False
        # Half a look, so that one that comes a little early is not passed over.
        distance_s = max(LOOK_EVERY_S / 2, _PAUSE_PER_FLUSH * self.took_s, age_s / 2)
        return now_s - (self.flushed_s + self.took_s) >= distance_s


def is_only_good_replica(state: ResourceState) -> bool:
    """Whether writes are acknowledged that this node's replica alone is known to have.

    Also a standby's: a Primary whose disk has failed works on it.
    """
    if state.disk != "UpToDate":
        return False
    if any(peer.is_connected and peer.disk == "UpToDate" for peer in state.peers):
        return False
    return state.is_primary or any(
        peer.is_connected and peer.role == "Primary" for peer in state.peers
    )


def waits_for_journal(mode: CacheMode) -> bool:
    """Whether an acknowledged write may be on the disk, and not in the journal yet.

    In write-through each write is stable when it is acknowledged, and write-back with one good
    replica is write-through.
    """
    return mode is CacheMode.NONE


def must_flush(state: ResourceState, mode: CacheMode) -> bool:
    """Whether a replica is to be flushed soon after each write."""
    return waits_for_journal(mode) and is_only_good_replica(state)
