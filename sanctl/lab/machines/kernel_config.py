# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares a kernel's configuration with kernel-configs/ (`sanctl lab kernel-check`)."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path
from typing import NamedTuple

from sanctl.errors import ConfigError, Problem

PURPOSES = ("storage", "initiator", "lab")
_FRAGMENTS = {
    "storage": "storage-node.config",
    "initiator": "initiator.config",
    "lab": "lab.config",
}
_SETTING = re.compile(r"(CONFIG_[A-Za-z0-9_]+)=(.*)")
_FOLDERS = (
    Path(__file__).resolve().parents[3] / "kernel-configs",
    Path("/usr/share/sanctl/kernel-configs"),
)


class Option(NamedTuple):
    """One line of a fragment: an option that a kernel must have, and the reason."""

    name: str
    wanted: str
    reason: str


def parse_config(text: str) -> dict[str, str]:
    """Read a kernel's configuration; options that are not set are left out."""
    found = {}
    for line in text.splitlines():
        match = _SETTING.fullmatch(line.strip())
        if match:
            found[match[1]] = match[2]
    return found


def parse_fragment(text: str) -> list[Option]:
    """Read a fragment: each option with the comment right above it, or above its block."""
    options = []
    comment: list[str] = []
    in_comment = False
    for line in text.splitlines():
        stripped = line.strip()
        match = _SETTING.fullmatch(stripped)
        if match:
            options.append(Option(match[1], match[2], " ".join(comment)))
        elif stripped.startswith("#"):
            if not in_comment:
                comment = []
            comment.append(stripped.lstrip("# "))
        else:
            comment = []
        in_comment = stripped.startswith("#")
    return options


def missing_options(config: dict[str, str], wanted: list[Option]) -> list[Option]:
    """Return the options that a configuration lacks; `y` is as good as `m`."""
    enough = {"m": ("m", "y")}
    return [
        option
        for option in wanted
        if config.get(option.name) not in enough.get(option.wanted, (option.wanted,))
    ]


def fragment(purpose: str) -> list[Option]:
    """Return the options that a kernel for that purpose must have.

    Raises:
        ConfigError: the fragments are not installed.
    """
    for folder in _FOLDERS:
        path = folder / _FRAGMENTS[purpose]
        if path.is_file():
            return parse_fragment(path.read_text())
    raise ConfigError(
        Problem("SAN-LAB-044", f"{_FRAGMENTS[purpose]} was not found", "look in kernel-configs/")
    )


def read(config: str) -> str:
    """Return a configuration's text: of a file (may be gzipped), or of the running kernel.

    Raises:
        ConfigError: there is no such file, or the running kernel's configuration is not readable.
    """
    candidates = [Path(config)]
    if config == "running":
        version = os.uname().release
        candidates = [
            Path("/proc/config.gz"),
            Path(f"/boot/config-{version}"),
            Path(f"/lib/modules/{version}/config"),
        ]
    for path in candidates:
        if path.is_file():
            raw = path.read_bytes()
            return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    raise ConfigError(
        Problem(
            "SAN-LAB-043",
            f"no kernel configuration at {' or '.join(map(str, candidates))}",
            "give --config FILE (UML prints its own with --showconfig)",
        )
    )
