# SPDX-License-Identifier: GPL-2.0-or-later
"""A finding of `sanctl status` or `sanctl doctor`: severity, subject, text; sorting, grouping."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from sanctl.model.names import format_bytes


class Severity(StrEnum):
    """How bad a finding is."""

    CRITICAL = "critical"
    """A device is not served, or a protection cannot be relied on."""
    WARNING = "warning"
    """Served, with less than the full protection."""
    NOTE = "note"
    """Worth knowing; nothing is degraded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding: what is wrong, why it matters, what to do."""

    code: str
    severity: Severity
    subject: str
    what: str
    why: str = ""
    do: str = ""
    unsynced_bytes: int = 0
    """How much is still to be resynced; `what` ends with `unsynced_text` of it."""


def unsynced_text(amount_bytes: int) -> str:
    """Return the end of a finding's text that says how much is still to be resynced."""
    return f", {format_bytes(amount_bytes)} to sync" if amount_bytes else ""


def is_degraded(findings: tuple[Finding, ...]) -> bool:
    """Whether any finding is more than a note."""
    return any(finding.severity is not Severity.NOTE for finding in findings)


def is_degraded_by(findings: tuple[Finding, ...], code: str) -> bool:
    """Whether findings of that code, and none of another, are more than a note."""
    return {each.code for each in findings if each.severity is not Severity.NOTE} == {code}


# By the first word of the subject. What whole nodes suffer from explains what devices do.
_FIRST = ("cluster", "node", "fencing", "strategy", "quorum", "corosync", "pools", "pool")
_LAST = "device"
_ORDER = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def sorted_findings(findings: list[Finding]) -> tuple[Finding, ...]:
    """Sort findings: the worst first, then those of the cluster and nodes, those of devices last.

    The rest by subject and code.
    """
    return tuple(
        sorted(
            findings,
            key=lambda f: (_ORDER[f.severity], _rank(f.subject), f.subject, f.code, f.what),
        )
    )


def _rank(subject: str) -> int:
    kind = subject.partition(" ")[0]
    if kind in _FIRST:
        return _FIRST.index(kind)
    return len(_FIRST) + (kind == _LAST)


def grouped(findings: tuple[Finding, ...]) -> tuple[tuple[Finding, tuple[str, ...]], ...]:
    """Group findings that say the same about several subjects, so that they fit a screen.

    Returns:
        The first finding of each group, with all subjects of the group. What differs is how much
        each still has to resync: `what` of the first says how much that is of all together.
    """
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        what = finding.what.removesuffix(unsynced_text(finding.unsynced_bytes))
        groups.setdefault((finding.severity.value, finding.code, what), []).append(finding)
    told = []
    for (_, _, what), group in groups.items():
        unsynced_bytes = sum(each.unsynced_bytes for each in group)
        first = replace(
            group[0],
            what=what + unsynced_text(unsynced_bytes),
            unsynced_bytes=unsynced_bytes,
        )
        told.append((first, tuple(each.subject for each in group)))
    return tuple(told)
