# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from dataclasses import replace

from sanctl.model.findings import Finding, Severity, grouped, sorted_findings, unsynced_text


def _finding(subject: str, what: str = "broken") -> Finding:
    return Finding(code="SAN-HLT-034", severity=Severity.WARNING, subject=subject, what=what)


def test_a_finding_of_several_subjects_is_printed_once() -> None:
    findings = sorted_findings(
        [_finding("device b"), _finding("device a"), _finding("node n1", "other")]
    )
    (other, _), (first, subjects) = grouped(findings)
    assert first.what == "broken" and subjects == ("device a", "device b")
    assert other.what == "other"


def test_resyncs_are_one_line_with_what_is_left_of_all_of_them() -> None:
    def resync(subject: str, unsynced_bytes: int, node: str = "n2") -> Finding:
        what = f"replica on {node} is Inconsistent{unsynced_text(unsynced_bytes)}"
        return replace(_finding(subject, what), unsynced_bytes=unsynced_bytes)

    findings = sorted_findings(
        [
            resync("device a", 3 << 30),
            resync("device b", 1 << 30),
            resync("device c", 0),
            resync("device d", 2 << 30, "n1"),
        ]
    )
    several, other = grouped(findings)
    assert several[0].what == "replica on n2 is Inconsistent, 4 GiB to sync"
    assert several[1] == ("device a", "device b", "device c")
    assert other == (findings[3], ("device d",))


def test_what_whole_nodes_suffer_from_comes_before_devices() -> None:
    subjects = [
        "device a",
        "host h1",
        "resource b",
        "pool main on n1",
        "fencing fence-n1",
        "node n1",
        "cluster",
    ]
    worst = Finding(code="SAN-HLT-032", severity=Severity.CRITICAL, subject="device z", what="no")
    found = sorted_findings([*map(_finding, subjects), worst])
    assert [each.subject for each in found] == [
        "device z",
        "cluster",
        "node n1",
        "fencing fence-n1",
        "pool main on n1",
        "host h1",
        "resource b",
        "device a",
    ]
