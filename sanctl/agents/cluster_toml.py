# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads cluster.toml for the agents, which go on where it is of a newer release."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from sanctl.errors import Problem
from sanctl.system import journal, state_files
from sanctl.system.files import read_text_or

if TYPE_CHECKING:
    from sanctl.model.topology import Topology

PATH = "/etc/sanctl/cluster.toml"


def load_topology() -> Topology:
    """Read cluster.toml. What this release does not know in it is logged once, and passed over.

    The file may be of a newer release: before the code is exchanged, or after the way back to an
    older one. No replica here would start. `sanctl status` still lists it as a mistake.

    Raises:
        ConfigError: the file is missing or wrong.
    """
    from sanctl.config.cluster import parse  # noqa: PLC0415 - monitors do not pay for it

    passed_over: list[Problem] = []
    found = parse(read_text_or(PATH, ""), source=PATH, passed_over=passed_over)
    if passed_over:
        _log_passed_over("\n".join(map(str, passed_over)))
    return found


def _log_passed_over(text: str) -> None:
    logged = state_files.of_node("topology-passed-over")
    with contextlib.suppress(OSError):
        if logged.read() == text:
            return
        logged.write(text)
    journal.write(
        f"passed over, as the release of sanctl here does not know it: {text}",
        priority=journal.WARNING,
        action="cluster.toml",
    )


def topology_version() -> str:
    """Return a text that changes with cluster.toml, without reading the file."""
    try:
        found = os.stat(PATH)
    except FileNotFoundError:
        return "none"
    return f"{found.st_ino}.{found.st_size}.{found.st_mtime_ns}"
