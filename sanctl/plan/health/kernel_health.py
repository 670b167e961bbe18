# SPDX-License-Identifier: GPL-2.0-or-later
"""Finding on a kernel that is installed, and that the next boot takes, without a module of DRBD."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sanctl.model.findings import Finding, Severity

_PART = re.compile(r"[0-9]+|[a-z]+")
#: A line of modules.dep or modules.builtin: the path below the kernel's folder.
_DRBD = re.compile(r"^(?P<folder>\S*/)drbd\.ko(\.\w+)?(:|$)", re.MULTILINE)
#: Debian, Ubuntu: what follows the version. Other distributions have none.
_FLAVOUR = re.compile(r"-[a-z][a-z0-9_-]*$")
#: Where a kernel's own module is, which is DRBD 8.4.
_IN_TREE = "kernel/drivers/block/"


def kernel_findings(
    running: str, installed: Mapping[str, str], *, is_drbd_9: bool
) -> Iterator[Finding]:
    """Return which newer kernels have no DRBD that could serve this node's replicas.

    Args:
        running: the release of the kernel that runs.
        installed: by release the text of modules.dep and modules.builtin.
        is_drbd_9: DRBD 9 runs, which no kernel has of its own.
    """
    for release in sorted(installed, key=_order):
        folders = [match["folder"] for match in _DRBD.finditer(installed[release])]
        if (
            _flavour(release) != _flavour(running)
            or _order(release) <= _order(running)
            or any(not (is_drbd_9 and each.startswith(_IN_TREE)) for each in folders)
        ):
            continue
        which = "DRBD 9" if is_drbd_9 else "DRBD"
        yield Finding(
            code="SAN-DOC-010",
            severity=Severity.WARNING,
            subject=f"kernel {release}",
            what=f"it is installed on this node, newer than the one that runs, without {which}",
            why="after the next boot with it the node has no replicas",
            do=f"install the module for {release} ('dkms status' where it is built here, 'depmod "
            f"{release}' where its file is there), or boot the kernel that runs now",
        )


def _order(release: str) -> tuple[tuple[int, int, str], ...]:
    """Return what releases are compared by: numbers as such, and above words."""
    return tuple(
        (1, int(each), "") if each.isdecimal() else (0, 0, each)
        for each in _PART.findall(release.lower())
    )


def _flavour(release: str) -> str:
    """Return for what a release was built, such as cloud-amd64: another one is booted by choice."""
    found = _FLAVOUR.search(release)
    return found[0] if found else ""
