# SPDX-License-Identifier: GPL-2.0-or-later
"""JSON data of a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sanctl.model.findings import Finding

if TYPE_CHECKING:
    from sanctl.cli.documents import status


def finding_data(finding: Finding) -> status.Finding:
    """Return a finding for the JSON output."""
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "subject": finding.subject,
        "what": finding.what,
        "why": finding.why,
        "do": finding.do,
    }
