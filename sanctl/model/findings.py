# SPDX-License-Identifier: GPL-2.0-or-later
"""A finding of `sanctl status` or `sanctl doctor`: severity, subject, text; sorting, grouping."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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


def is_degraded(findings: tuple[Finding, ...]) -> bool:
    """Whether any finding is more than a note."""
    return any(finding.severity is not Severity.NOTE for finding in findings)


def is_degraded_by(findings: tuple[Finding, ...], code: str) -> bool:
    """Whether findings of that code, and none of another, are more than a note."""
    return {each.code for each in findings if each.severity is not Severity.NOTE} == {code}


_ORDER = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def sorted_findings(findings: list[Finding]) -> tuple[Finding, ...]:
    """Sort findings: the worst first, then by subject and code."""
    return tuple(sorted(findings, key=lambda f: (_ORDER[f.severity], f.subject, f.code, f.what)))


def grouped(findings: tuple[Finding, ...]) -> tuple[tuple[Finding, tuple[str, ...]], ...]:
    """Group findings that say the same about several subjects, so that they fit a screen.

    Returns:
        The first finding of each group, with all subjects of the group.
    """
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        key = (finding.severity.value, finding.code, finding.what)
        groups.setdefault(key, []).append(finding)
    return tuple((group[0], tuple(f.subject for f in group)) for group in groups.values())
