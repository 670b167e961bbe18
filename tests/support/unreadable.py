# SPDX-License-Identifier: GPL-2.0-or-later
"""What must be the same after a disk could not be read, told without a line of sanctl."""

from __future__ import annotations

import json
import re
import shlex

from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import node_faults
from sanctl.lab.machines.node_faults import DiskBehaviour
from sanctl.system.runner import LocalRunner

ORIGIN = 1
"""The pool's slow disk; its flash is the last disk of a node."""
BCACHE_SECTOR = 8
EXT4_SECTOR = 18
"""Under bcache: its data begins 8 KiB into the disk, ext4's superblock 1 KiB into that."""

NODE = "n2"
"""Whose disks cannot be read."""
SIZE_MIB = 128

_BACK_DEADLINE_S = 300.0
_MIB = 2**20
_SECTORS_PER_BLOCK = 8
# Below device-mapper, past every cache: bcache_ondisk.h; fs/ext4/ext4.h, struct ext4_super_block.
_IDENTITY = r"""
import json, mmap, os, sys

def page(path, at):
    handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
    with mmap.mmap(-1, 4096) as buffer:
        os.preadv(handle, [buffer], at)
        return bytes(buffer[:])

origin, flash = sys.argv[1:3]
below, before, made = page(origin, 4096), page(flash, 4096), page(origin, 8192)[1024:]
print(json.dumps({
    "disk": below[24:56].hex() + below[72:104].hex(),
    "flash": before[24:104].hex(),
    "filesystem": made[0x38:0x3A].hex() + made[0x68:0x78].hex(),
    "made at": made[0x108:0x10C].hex() + made[0xEC:0xFC].hex(),
}))
"""
_LISTED = (
    "cd {path} && find . -xdev -type f ! -name '.pool-*' | sort | while read -r file;"
    ' do echo "$(stat -c %i "$file") $(sha256sum <"$file" | cut -c1-16) $file"; done'
)


def break_disk(bed: LabSession, node: str, number: int, does: DiskBehaviour, *sectors: int) -> None:
    """Have a disk do something, with nothing of it left in the page cache."""
    drop_caches(bed, node)
    node_faults.break_disk(bed.lab, bed.node(node), number, does, LocalRunner(), sectors=sectors)
    drop_caches(bed, node)


def drop_caches(bed: LabSession, node: str) -> None:
    """Forget what was read, so that the disk is asked again."""
    bed.sh(node, "for nr in 1 2 3; do sync; echo 3 >/proc/sys/vm/drop_caches; done")


def identity(bed: LabSession, node: str) -> dict[str, str]:
    """Tell which disk, flash and filesystem these are: each making of one gives it others.

    The uuids that sanctl gives are the same each time; when and with what seed a filesystem was
    made is not, and neither is a flash's.
    """
    disks = [f"/dev/ubd{chr(ord('a') + nr)}" for nr in (ORIGIN, bed.lab.spec.all_disks)]
    found = bed.sh(node, f"python3 - {shlex.join(disks)}", stdin=_IDENTITY).stdout
    return {str(key): str(value) for key, value in json.loads(found).items()}


def files(bed: LabSession, node: str, path: str) -> dict[str, str]:
    """Return inode number and digest of each file in a pool, by name."""
    found = bed.sh(node, _LISTED.format(path=path), timeout_s=120).stdout
    lines = (line.split(" ", 2) for line in found.splitlines())
    return {name: f"{inode} {digest}" for inode, digest, name in lines}


def notes(bed: LabSession, node: str) -> dict[str, str]:
    """Return what is noted of pools, besides that one was unmounted in order."""
    found = bed.sh(
        node,
        "cd /var/lib/sanctl/pools 2>/dev/null || exit 0; for note in *; do"
        ' [ -e "$note" ] && echo "$note $(cat "$note")"; done; true',
    ).stdout
    pairs = (line.partition(" ") for line in found.splitlines())
    return {name: text for name, _, text in pairs if not name.endswith(".stopped")}


def inode_sector(bed: LabSession, node: str, disk: str, path: str) -> int:
    """Return the first sector of the block that holds a file's inode."""
    number = bed.sh(node, f"stat -c %i {path}").stdout.strip()
    found = bed.sh(node, f"debugfs -R 'imap <{number}>' {disk} 2>/dev/null").stdout
    return int(re.findall(r"located at block (\d+)", found)[0]) * _SECTORS_PER_BLOCK


def content_sector(bed: LabSession, node: str, disk: str, path: str) -> int:
    """Return the first sector of a small file's, or a folder's, content."""
    number = bed.sh(node, f"stat -c %i {path}").stdout.strip()
    found = bed.sh(node, f"debugfs -R 'blocks <{number}>' {disk} 2>/dev/null").stdout
    return int(found.split()[0]) * _SECTORS_PER_BLOCK


def largest_resync_kib(bed: LabSession, node: str, device: str, since_s: float) -> int:
    """Return how much DRBD has found to differ at most, of each resync that began since a time."""
    log = bed.sh(
        node, f"journalctl -q -k --no-pager -o cat --since=@{since_s:.0f}", ok=(0, 1), timeout_s=60
    ).stdout
    lines = (line for line in log.splitlines() if f"drbd {device}/" in line)
    return max(
        (int(kib) for line in lines for kib in re.findall(r"will sync (\d+) KB", line)), default=0
    )


def journal(bed: LabSession, node: str, since_s: float) -> list[str]:
    """Return what sanctl has said since a time: each line once."""
    log = bed.sh(
        node,
        f"journalctl -q --no-pager -o cat --since=@{since_s:.0f}"
        " SYSLOG_IDENTIFIER=sanctl SYSLOG_IDENTIFIER=pool-cache",
        ok=(0, 1),
        timeout_s=60,
    ).stdout
    return list(dict.fromkeys(log.splitlines()))


def await_line(bed: LabSession, node: str, since_s: float, pattern: str, *, within_s: float) -> str:
    """Wait for a line of that journal, and return it."""

    def look() -> str | None:
        return next(
            (each for each in journal(bed, node, since_s) if re.search(pattern, each)), None
        )

    return wait_for(f"{pattern!r} in the journal of {node}", look, within_s=within_s, every_s=1.0)


class Written:
    """A device that a host writes to, and its check."""

    def __init__(self, scene: Scenario, name: str, pool: str) -> None:
        self.scene, self.name = scene, name
        scene.sanctl(
            "device", "create", name, "--size", f"{SIZE_MIB}M", "--pool", pool,
            "--nodes", "n1,n2", "--prefer", "n1", "--initiator", scene.host.iqn,
            timeout_s=300.0,
        )  # fmt: skip
        path = scene.host.login(f"{scene.iqn_prefix()}.{name}", scene.portals())
        self.run = scene.host.start_ledger(name, path, "--rate", "50", "--region", str(32 * _MIB))

    def serves(self, node: str) -> bool:
        return collect.active_node(self.scene.bed, self.name) == node

    def move(self, node: str) -> None:
        bed = self.scene.bed
        wait_for(
            f"the move of {self.name} to {node}",
            lambda: not bed.sh("n3", f"sanctl device move {self.name} --to {node}",
                               ok=range(256), timeout_s=180).status,
            within_s=90,
            every_s=3.0,
        )  # fmt: skip

    def await_in_sync(self) -> None:
        bed = self.scene.bed
        bed.sh("n3", f"crm_resource --cleanup --resource {self.name}", ok=range(256), timeout_s=60)
        wait_for(
            f"both copies of {self.name} in sync",
            lambda: collect.is_in_sync(bed, "n1", self.name),
            within_s=_BACK_DEADLINE_S,
            every_s=2.0,
        )

    def check(self) -> None:
        """Read what was acknowledged from the copy that was on the faulty disk."""
        self.await_in_sync()
        self.move(NODE)
        self.scene.host.stop_ledger(self.run)
        check = self.scene.host.check_ledger(self.run)
        assert check["acknowledged"] > 100
        assert (check["lost"], check["errors"]) == (0, 0), check["findings"]

    def delete(self) -> None:
        self.scene.host.sh(f"systemctl stop {self.run.unit} || true", timeout_s=150)
        self.scene.delete(self.name)
