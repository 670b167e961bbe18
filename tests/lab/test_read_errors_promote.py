# SPDX-License-Identifier: GPL-2.0-or-later
"""A standby is promoted over a disk that gives EIO, after the node that served lost its power.

EIO for blocks of its data file that a host reads then, or for all of DRBD's metadata. Nothing is
made anew or deleted, no acknowledged write is lost, and hosts are served once the other node is
back.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from sanctl.errors import NotConverged
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines.node_faults import DiskBehaviour
from tests.support import unreadable
from tests.support.drbd9_devices import power_is_back
from tests.support.unreadable import NODE, Written, break_disk

pytestmark = [pytest.mark.faults, pytest.mark.timeout(2400)]

PEER = "n1"
"""The node that serves until its power is cut."""
NAME = "eio2"
BLOCK = 4096
#: Where nothing but this test writes; in blocks of the device.
FIRST, COUNT = 64 * 256, 16
_READ, _UNIT = "/run/eio-read", "eio-read"
_DEADLINE_S = 480.0
_SECTORS_PER_BLOCK = 8


class Kept(NamedTuple):
    """A device in a pool without flash, and that pool on the disk of the standby."""

    written: Written
    pool: str
    number: int

    @property
    def bed(self) -> LabSession:
        return self.written.scene.bed

    def inodes(self) -> dict[str, str]:
        """The inode of each file that must not be made anew, by path."""
        folder = f"/srv/sanctl/{self.pool}"
        found = self.bed.sh(
            NODE,
            f"stat -c '%i %n' {folder}/.sanctl-pool {folder}/devices/{NAME}.*.data"
            f" {folder}/devices/{NAME}.*.meta",
        ).stdout
        return {path: inode for inode, path in map(str.split, found.splitlines())}

    def sectors(self, kind: str, first: int, count: int) -> tuple[int, ...]:
        """The first sector of each of a file's blocks that is on the disk."""
        (path,) = (path for path in self.inodes() if path.endswith(f".{kind}"))
        inode = self.inodes()[path]
        asked = "".join(f"bmap <{inode}> {block}\n" for block in range(first, first + count))
        out = self.bed.sh(
            NODE, f"sync; debugfs -f - /dev/mapper/lab-disk{self.number} 2>/dev/null", stdin=asked
        ).stdout
        found = [int(line) for line in out.splitlines() if re.fullmatch(r"\s*\d+\s*", line)]
        return tuple(block * _SECTORS_PER_BLOCK for block in found if block)

    def blocks(self, kind: str) -> int:
        """How many blocks a file has."""
        (path,) = (path for path in self.inodes() if path.endswith(f".{kind}"))
        return -(-int(self.bed.sh(NODE, f"stat -c %s {path}").stdout) // BLOCK)

    def mend(self) -> None:
        """Have the disk answer again; a node that was fenced has it answer since its boot."""

        def answers() -> bool:
            break_disk(self.bed, NODE, self.number, DiskBehaviour.OK)
            return True

        wait_for(f"the disk of {NODE} to answer", answers, within_s=_DEADLINE_S, every_s=3.0)


@pytest.fixture(scope="module")
def kept(bed: LabSession) -> Iterator[Kept]:
    pool, number = ("disk2", 2) if bed.lab.spec.has_flash else ("main", 1)
    made = Kept(Written(Scenario(bed, Initiator(bed, "i1")), NAME, pool), pool, number)
    yield made
    made.mend()
    made.written.check()
    made.written.delete()


def host_read(kept: Kept) -> str:
    """What a host reads where nothing but this test writes, as a digest."""
    return kept.written.scene.host.sh(f"{_dd(kept)} | sha256sum", timeout_s=120).split()[0]


def _dd(kept: Kept) -> str:
    path = kept.written.run.device
    return f"dd if={path} bs={BLOCK} skip={FIRST} count={COUNT} iflag=direct status=none"


def begin_host_read(kept: Kept) -> None:
    """The same in the background: it waits as long as nobody has the data."""
    kept.written.scene.host.sh(
        f"rm -f {_READ} {_READ}.new; systemd-run --quiet --collect --unit={_UNIT} sh -c"
        f" '{_dd(kept)} | sha256sum >{_READ}.new; mv {_READ}.new {_READ}'"
    )


def log_size(kept: Kept) -> int:
    run = kept.written.run
    return int(kept.written.scene.host.sh(f"stat -c %s {run.log}"))


def await_writes(kept: Kept, within_s: float) -> None:
    """Wait until more of the host's writes are answered; a record of the ledger has 32 bytes."""
    before = log_size(kept)
    wait_for("writes to be answered", lambda: log_size(kept) > before + 32 * 100, within_s=within_s)


def has_detached(kept: Kept, since_s: float) -> bool:
    seen = kept.bed.sh(
        NODE,
        f"drbdsetup events2 --now {NAME}; journalctl -k -q -o cat --since=@{since_s:.0f}"
        f" | grep 'drbd {NAME}'",
        ok=(0, 1),
        timeout_s=20,
    ).stdout
    return bool(re.search(r"\bdisk:(Failed|Diskless)|\bdisk\( UpToDate -> Failed", seen))


@pytest.fixture
def known(kept: Kept) -> Iterator[str]:
    """The digest of what is written to the place that is to give EIO; the peer serves."""
    host = kept.written.scene.host
    kept.written.await_in_sync()
    if not kept.written.serves(PEER):
        kept.written.move(PEER)
    host.sh(
        f"dd if=/dev/urandom of={kept.written.run.device} bs={BLOCK} seek={FIRST} count={COUNT}"
        " iflag=fullblock oflag=direct status=none",
        timeout_s=120,
    )
    yield host_read(kept)
    host.sh(f"systemctl stop {_UNIT}", ok=range(256), timeout_s=150)


@pytest.mark.parametrize("what", ["data", "meta"])
def test_a_standby_is_promoted_over_blocks_that_cannot_be_read(
    kept: Kept, known: str, what: str
) -> None:
    bed, written = kept.bed, kept.written
    before = kept.inodes()
    first, count = (FIRST, COUNT) if what == "data" else (0, min(64, kept.blocks("meta")))
    sectors = kept.sectors(what, first, count)
    assert sectors
    began_s = time.time()
    try:
        break_disk(bed, NODE, kept.number, DiskBehaviour.BAD, *sectors)
        bed.cut_power(PEER)
        # Nothing of either is read: DRBD has its bitmap in memory, and no host has read yet.
        wait_for(f"{NODE} to serve", lambda: written.serves(NODE), within_s=240)
        if what == "data":
            begin_host_read(kept)
            wait_for(
                "DRBD to detach", lambda: has_detached(kept, began_s), within_s=60, every_s=0.3
            )
        else:
            await_writes(kept, within_s=120)
            assert not has_detached(kept, began_s)
        power_is_back(bed, PEER)
        hosts_are_served(kept, what, known)
    finally:
        print(f"  {what}: {len(sectors)} sectors")
        with contextlib.suppress(Exception):
            for line in unreadable.journal(bed, NODE, began_s):
                print(f"    {line}")
        power_is_back(bed, PEER)
        kept.mend()
    written.await_in_sync()
    assert kept.inodes() == before
    # From the disk that gave EIO.
    written.move(NODE)
    assert host_read(kept) == known
    written.move(PEER)
    assert host_read(kept) == known


def hosts_are_served(kept: Kept, what: str, known: str) -> None:
    """Wait until writes and the read are answered: while the disk fails, or else once it is whole.

    The other node lacks what was acknowledged without it, and may not serve before it has that.
    """

    def is_read() -> bool:
        found = kept.written.scene.host.sh(f"cat {_READ}", ok=(0, 1)).split()
        assert found[:1] in ([], [known]), "the host has read something else"
        return bool(found)

    def served(within_s: float) -> None:
        await_writes(kept, within_s=within_s)
        if what == "data":
            wait_for("the host's read to be answered", is_read, within_s=within_s)

    try:
        served(_DEADLINE_S)
        print("    hosts are served, and the disk was left as it is")
    except NotConverged as error:
        print(f"    not while the disk gives EIO: {error}")
        kept.mend()
        served(_DEADLINE_S)
