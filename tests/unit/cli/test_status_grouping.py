# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from sanctl.model.findings import Finding, Severity, grouped, sorted_findings


def _finding(subject: str, what: str = "broken") -> Finding:
    return Finding(code="SAN-HLT-034", severity=Severity.WARNING, subject=subject, what=what)


def test_what_is_said_of_several_is_said_once() -> None:
    findings = sorted_findings(
        [_finding("device b"), _finding("device a"), _finding("node n1", "other")]
    )
    (first, subjects), (other, _) = grouped(findings)
    assert first.what == "broken" and subjects == ("device a", "device b")
    assert other.what == "other"
