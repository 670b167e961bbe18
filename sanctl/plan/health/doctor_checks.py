# SPDX-License-Identifier: GPL-2.0-or-later
"""The checks that `sanctl doctor` lists, and to which of them each finding belongs."""

from __future__ import annotations

from collections.abc import Iterable

from sanctl.model.findings import Finding, Severity

#: Each check with its codes, or how they begin. A code of a finding belongs to one check.
CHECKS = (
    ("services", ("SAN-DOC-00",)),
    ("kernel", ("SAN-DOC-01",)),
    ("files", ("SAN-DOC-02", "SAN-HLT-163", "SAN-HLT-164")),
    ("clock", ("SAN-DOC-03", "SAN-HLT-161")),
    ("cluster", ("SAN-HLT-00", "SAN-HLT-128", "SAN-HLT-133", "SAN-CLU-", "SAN-CIB-")),
    ("votes", ("SAN-HLT-08",)),
    ("fencing", ("SAN-HLT-01", "SAN-HLT-131", "SAN-HLT-156", "SAN-FEN-")),
    (
        "nodes",
        (
            "SAN-HLT-02",
            "SAN-HLT-059",
            "SAN-HLT-140",
            "SAN-HLT-141",
            "SAN-HLT-145",
            "SAN-HLT-155",
            "SAN-HLT-162",
            "SAN-HLT-165",
        ),
    ),
    (
        "pools",
        (
            "SAN-HLT-06",
            "SAN-HLT-090",
            "SAN-HLT-091",
            "SAN-HLT-092",
            "SAN-HLT-093",
            "SAN-HLT-154",
            "SAN-DOC-04",
        ),
    ),
    (
        "devices",
        (
            "SAN-HLT-03",
            "SAN-HLT-04",
            "SAN-HLT-052",
            "SAN-HLT-054",
            "SAN-HLT-055",
            "SAN-HLT-056",
            "SAN-HLT-057",
            "SAN-HLT-058",
            "SAN-HLT-110",
            "SAN-HLT-111",
            "SAN-HLT-120",
            "SAN-HLT-121",
            "SAN-HLT-125",
            "SAN-HLT-127",
            "SAN-HLT-130",
            "SAN-HLT-136",
            "SAN-HLT-132",
            "SAN-HLT-147",
            "SAN-HLT-148",
            "SAN-HLT-149",
            "SAN-HLT-166",
            "SAN-HLT-167",
            "SAN-HLT-168",
            "SAN-HLT-170",
            "SAN-HLT-175",
            "SAN-HLT-150",
            "SAN-HLT-142",
            "SAN-HLT-143",
            "SAN-HLT-160",
        ),
    ),
    (
        "hosts",
        (
            "SAN-DOC-053",
            "SAN-HLT-094",
            "SAN-HLT-095",
            "SAN-HLT-113",
            "SAN-HLT-114",
            "SAN-HLT-115",
            "SAN-HLT-123",
            "SAN-HLT-129",
            "SAN-HLT-146",
        ),
    ),
    ("restore points", ("SAN-DOC-052", "SAN-HLT-098", "SAN-HLT-119", "SAN-HLT-124", "SAN-HLT-126")),
    ("backups", ("SAN-DOC-051", "SAN-HLT-158", "SAN-HLT-169", "SAN-HLT-171", "SAN-HLT-172")),
    ("second sites", ("SAN-DOC-050", "SAN-HLT-112", "SAN-HLT-116", "SAN-HLT-122")),
    ("leftovers", ("SAN-HLT-050", "SAN-HLT-051", "SAN-HLT-053")),
    ("cluster.toml", ("SAN-HLT-07", "SAN-CONF-")),
)
#: Those of what only the running cluster says.
OF_THE_CLUSTER = frozenset(
    {
        "votes",
        "fencing",
        "nodes",
        "pools",
        "devices",
        "hosts",
        "restore points",
        "backups",
        "second sites",
        "leftovers",
    }
)


def checks_of(code: str) -> tuple[str, ...]:
    """Return the checks that count a finding of this code."""
    return tuple(name for name, starts in CHECKS if code.startswith(starts))


def count(findings: Iterable[Finding], check: str) -> int:
    """Return how many findings belong to a check; a note is none."""
    return sum(
        1
        for finding in findings
        if finding.severity is not Severity.NOTE and check in checks_of(finding.code)
    )
