# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks an inventory's `sanctl_backups`, and says which timers that makes on storage nodes.

The same timers on all of them: each looks at its moment which node is the one to read, and the
others do nothing, so a node that is away takes no backup with it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sanctl.config.document import Document
from sanctl.errors import UsageError
from sanctl.model.backup import parse_repository_name
from sanctl.model.names import DeviceName
from sanctl.plan.device.backups import KEEP_UNITS

VARIABLE, REPOSITORIES = "sanctl_backups", "sanctl_backup_repositories"
#: What the units' names begin with: what has that name and is of no entry is removed.
PREFIX = "sanctl-backup-"
#: How long each waits for its turn by default. The role's argument_specs say the same.
WAIT_S = 14400
#: What an entry has. The role's argument_specs say the same.
KEYS = frozenset({"device", "at", "repository", "keep", "wait_s", "on_active"})
#: Within which time devices of the same moment begin: as many programs at once hold a node up.
SPREAD_S = 60

_CODE = "SAN-BKP-026"
#: What systemd.time(7) has in calendar events. A node's systemd judges the rest.
_CALENDAR = re.compile(r"[A-Za-z0-9*~,./:_+-]+(?: [A-Za-z0-9*~,./:_+-]+)*")
_HIGHEST_COUNT = 9999

Hostvars = Mapping[str, Mapping[str, Any]]


def check_backups(
    document: Document, hostvars: Hostvars, nodes: Sequence[str]
) -> list[dict[str, str]]:
    """Add the problems of `sanctl_backups`; return the timers.

    Args:
        document: collects the problems.
        hostvars: the inventory's variables by host.
        nodes: the storage nodes.

    Returns:
        Of each timer its `unit` without suffix, the `device`, the calendar event `at`, the
        `arguments` of `sanctl backup run`, and those of `sanctl backup expect` without --every.
    """
    entries: Any = hostvars[nodes[0]].get(VARIABLE) if nodes else None
    for name in nodes[1:]:
        if hostvars[name].get(VARIABLE) != entries:
            _note(document, f"is not the same on {name} and on {nodes[0]}", "one for all of them")
    known = hostvars[nodes[0]].get(REPOSITORIES) if nodes else None
    if entries is None:
        return []
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        _note(document, "is no list", "one entry for each device")
        return []
    repositories = sorted(map(str, known)) if isinstance(known, Mapping) else []
    found: dict[tuple[str, str], dict[str, str]] = {}
    for entry in entries:
        problems = list(_problems(entry, repositories))
        for text, hint in problems:
            _note(document, text, hint)
        if problems:
            continue
        timer = _timer(entry)
        # Without a name it is the only one that there is.
        into = entry.get("repository") or repositories[0]
        if found.setdefault((timer["device"], into), timer) is not timer:
            _note(document, f"device {timer['device']} is there twice for one repository")
    return list(found.values())


def _problems(entry: Any, repositories: Sequence[str]) -> Iterator[tuple[str, str]]:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("device"), str):
        yield f"{entry!r} is no entry with a device", "such as {device: vm1, at: '02:00'}"
        return
    device = entry["device"]
    try:
        DeviceName.parse(device)
    except UsageError as error:
        yield error.problems[0].text, error.problems[0].hint
    for key in sorted(map(str, set(entry) - KEYS)):
        yield f"device {device}: {key} is unknown", f"known: {', '.join(sorted(KEYS))}"
    at = entry.get("at")
    if not isinstance(at, str) or not _CALENDAR.fullmatch(at):
        # YAML makes seconds of a 12:00 without quotes.
        yield f"device {device}: at {at!r} is no calendar event in quotes", "such as '02:00'"
    repository = entry.get("repository")
    if repository is None and len(repositories) != 1:
        yield (
            f"device {device}: there are {len(repositories)} repositories, and none is named",
            f"repository: one of {REPOSITORIES}",
        )
    elif repository is not None and not _is_known(repository, repositories):
        yield f"device {device}: {REPOSITORIES} has no repository {repository!r}", ""
    if not _is_count(entry.get("wait_s", WAIT_S)):
        yield f"device {device}: wait_s is no number of seconds", f"such as {WAIT_S}"
    if not isinstance(entry.get("on_active", False), bool):
        yield f"device {device}: on_active is neither true nor false", "such as on_active: true"
    keep = entry.get("keep", {})
    if not isinstance(keep, Mapping) or not all(
        unit in KEEP_UNITS and _is_count(count) and 0 < count <= _HIGHEST_COUNT
        for unit, count in keep.items()
    ):
        yield (
            f"device {device}: keep {keep!r} does not say how many backups are kept",
            f"such as {{daily: 14, weekly: 8}}; known: {', '.join(KEEP_UNITS)}",
        )


def _is_known(repository: object, repositories: Sequence[str]) -> bool:
    try:
        return parse_repository_name(str(repository)) in repositories
    except UsageError:
        return False


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _timer(entry: Mapping[str, Any]) -> dict[str, str]:
    device, repository, keep = entry["device"], entry.get("repository"), entry.get("keep", {})
    words = [device, "--skip-elsewhere", f"--wait {entry.get('wait_s', WAIT_S)}"]
    words += ["--on-active"] if entry.get("on_active") else []
    words += [f"--repository {repository}"] if repository else []
    words += [f"--keep-{unit} {keep[unit]}" for unit in KEEP_UNITS if unit in keep]
    suffix = f".{repository}" if repository else ""
    unit = f"{PREFIX}{device}{suffix}"
    return {
        "unit": unit,
        "device": device,
        "at": entry["at"],
        "arguments": " ".join(words),
        "expected": " ".join([device, *([f"--repository {repository}"] if repository else [])]),
        # systemd's RandomizedDelaySec, also with FixedRandomDelay, differs from node to node: then
        # one may look before, and the other one after the device has moved.
        "delay_s": str(zlib.crc32(unit.encode()) % SPREAD_S),
    }


def _note(document: Document, text: str, hint: str = "") -> None:
    document.note(_CODE, ("variable", VARIABLE), text, hint)
