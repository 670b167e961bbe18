# SPDX-License-Identifier: GPL-2.0-or-later
"""Text and JSON of where a change of access lists is not in force yet: nodes in maintenance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sanctl.plan.host.access_lag import AccessLag

if TYPE_CHECKING:
    from sanctl.cli.documents import host as host_documents


def print_lags(lags: Iterable[AccessLag]) -> None:
    """Print which nodes have not carried it out, what that means, and how it ends."""
    for lag in lags:
        end = f"'crm_attribute --node {lag.node} --name maintenance --delete'"
        if lag.is_seen:
            print(
                f"device {lag.device}: not yet on {lag.node}, which is in maintenance: its target "
                "goes on letting in those that could log in there, and nobody else, until that "
                f"ends: {end}"
            )
        else:
            print(
                f"device {lag.device}: not carried out on {lag.node}, which is in maintenance and "
                "whose Pacemaker does not run: if it is on, its target goes on letting in those "
                "that could log in there, and nobody else. Start Pacemaker there ('systemctl start "
                f"pacemaker'), and once crm_mon shows it, end the maintenance: {end}. Before, "
                "Pacemaker would have it fenced"
            )


def lags_data(lags: Iterable[AccessLag]) -> list[host_documents.NotInForce]:
    """Return them as JSON."""
    return [{"device": lag.device.value, "node": lag.node.value} for lag in lags]
