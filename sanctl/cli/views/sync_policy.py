# SPDX-License-Identifier: GPL-2.0-or-later
"""A device's sync policy as JSON data and as one line of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sanctl.model.names import format_bytes
from sanctl.model.sync_policy import SyncPolicy

if TYPE_CHECKING:
    from sanctl.cli.documents import sync as sync_documents


def sync_policy_data(policy: SyncPolicy) -> sync_documents.SyncPolicy:
    """Return a policy for the JSON output."""
    return {
        "full_above": policy.full_above_percent,
        "csums": policy.csums,
        "rate_min": policy.rate_min_kib_s * 1024,
        "rate_max": None if policy.rate_max_kib_s is None else policy.rate_max_kib_s * 1024,
        "window": str(policy.window) if policy.window else None,
        "priority": policy.priority,
        "verify": str(policy.verify) if policy.verify else None,
    }


def sync_policy_text(policy: SyncPolicy) -> str:
    """Say a policy in one line."""
    ceiling = (
        f"{format_bytes(policy.rate_max_kib_s * 1024)}/s" if policy.rate_max_kib_s else "network"
    )
    return ", ".join(
        (
            "what differs"
            if policy.full_above_percent is None
            else f"all above {policy.full_above_percent}%",
            f"checksums {'always' if policy.csums else 'after a crash'}",
            f"{format_bytes(policy.rate_min_kib_s * 1024)}/s beside hosts, at most {ceiling}",
            f"at {policy.window}" if policy.window else "at any hour",
            f"priority {policy.priority}",
            f"verified {policy.verify}" if policy.verify else "not verified by itself",
        )
    )
