# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether unattended-upgrades may update, and so restart, the cluster's programs on this node."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from sanctl.model.findings import Finding, Severity
from sanctl.parse.apt import held_packages, last_value, settings, values

_ENABLED = "apt::periodic::unattended-upgrade"
_EXCLUDED = "unattended-upgrade::package-blacklist"
#: Which files in apt.conf.d APT reads.
_PART = re.compile(r"[\w-]+|[\w.-]+\.conf", re.ASCII)
#: What packages are called whose update restarts the cluster's programs, or needs a boot that fits:
#: how their names begin, and names of which an expression has to match one.
_PACKAGES = (
    ("pacemaker", ("pacemaker",)),
    ("corosync", ("corosync",)),
    ("libqb", ("libqb100", "libqb0")),
    ("drbd", ("drbd-utils",)),
    ("linux-image", ("linux-image-amd64", "linux-image-generic", "linux-image-arm64")),
)


def unattended_update_finding(
    parts: Mapping[str, str], main: str, dpkg_status: str
) -> Finding | None:
    """Return a finding where packages of the cluster are updated with nobody there.

    Args:
        parts: the texts of the files in apt.conf.d, by their names.
        main: the text of apt.conf; empty: there is none.
        dpkg_status: the text of dpkg's status file.
    """
    read = [text for name, text in sorted(parts.items()) if _PART.fullmatch(name)]
    found = list(settings([*read, main]))
    # "0" is never; another one is every so many days.
    if last_value(found, _ENABLED) in {"", "0"}:
        return None
    patterns, held = values(found, _EXCLUDED), held_packages(dpkg_status)
    open_ = [
        begin
        for begin, names in _PACKAGES
        if not any(name.startswith(begin) for name in held) and not _matches(patterns, names)
    ]
    if not open_:
        return None
    return Finding(
        code="SAN-DOC-007",
        severity=Severity.WARNING,
        subject="unattended-upgrades",
        what=f"it may update {', '.join(open_)} on this node at any hour",
        why="an update of Pacemaker or Corosync stops all of the node's replicas, and nothing asks "
        "whether the others are in sync; on all nodes it comes in the same night",
        do="exclude them: docs/howto/maintenance.md, Updating packages",
    )


def _matches(patterns: Collection[str], names: Collection[str]) -> bool:
    """Whether an expression matches one of the names from its begin, as unattended-upgrades does.

    One that cannot be read excludes nothing.
    """
    for pattern in patterns:
        try:
            if any(re.match(pattern, name) for name in names):
                return True
        except re.error:
            continue
    return False
