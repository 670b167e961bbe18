# SPDX-License-Identifier: GPL-2.0-or-later
"""What a storage node that is a host itself must not have: swap on a device of LIO's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sanctl.model.findings import Finding, Severity

#: How the WWID of a LIO device begins, as multipath names maps.
_LIO = "36001405"


def swap_findings(
    swaps: str, mounts: str, dm_uuid: Callable[[str], str | None]
) -> Iterator[Finding]:
    """Return each swap space that lies on an imported device.

    Args:
        swaps: the text of /proc/swaps.
        mounts: the text of /proc/self/mounts.
        dm_uuid: returns device-mapper's UUID of a device by its kernel name.
    """
    for line in swaps.splitlines()[1:]:
        path = line.split()[0].replace("\\040", " ") if line.split() else ""
        device = _source_of(path, mounts) if not path.startswith("/dev/") else path
        name = device.rpartition("/")[2]
        if _LIO in name or f"mpath-{_LIO}" in (dm_uuid(name) or ""):
            yield Finding(
                code="SAN-DOC-012",
                severity=Severity.CRITICAL,
                subject=f"swap {path}",
                what=f"it lies on an imported device, {device}",
                why="a node that is short of memory would write to its own target, which needs "
                "memory for that: it may hang for good",
                do=f"swapoff {path}, and take it out of fstab; swap belongs on a local disk",
            )


def _source_of(path: str, mounts: str) -> str:
    """Return what is mounted where a file is."""
    best, source = "", ""
    for line in mounts.splitlines():
        words = line.split(" ")
        if len(words) < 2:
            continue
        folder = words[1].replace("\\040", " ")
        is_in = folder in {"/", path} or path.startswith(f"{folder}/")
        # The last one of several at one place is on top.
        if is_in and len(folder) >= len(best):
            best, source = folder, words[0]
    return source
