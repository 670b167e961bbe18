# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on a device that lets no host in before its second sites have answered."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.admission import ASKING
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.findings import Finding, Severity
from sanctl.plan.site.holding import TAKEN_OVER, held, held_text


def hold_findings(cluster: Cluster, device: DeviceSpec) -> Iterator[Finding]:
    """Return that hosts are kept out of a device since the whole cluster was started anew."""
    found = held(cluster, device)
    if found is None:
        return
    sites = ", ".join(device.awaits)
    release = (
        "if you know that the device does not go on elsewhere: 'sanctl replicate release "
        f"{device.name}'"
    )
    if found.why == ASKING:
        do = f"wait: each node of the device with the site's key asks; {release}"
    elif found.why == TAKEN_OVER:
        seen = [each for each in device.awaits if cluster.cib.takeover(device.name.value, each)]
        undo = " and ".join(
            f"'sanctl replicate giveback {device.name} --at {site}'"
            for site in seen or device.awaits
        )
        do = (
            "docs/howto/site-lost.md: bring home what was written there, and 'sanctl replicate "
            f"takeover {device.name}'; or, if nothing of that is wanted, {undo}"
        )
    else:
        do = (
            f"'sanctl explain {found.why}'; 'journalctl -u sanctl-sites' on its nodes; it is asked "
            f"again all the time; {release}"
        )
    yield Finding(
        code="SAN-HLT-120",
        severity=Severity.WARNING if found.why == ASKING else Severity.CRITICAL,
        subject=f"device {device.name}",
        what=f"no host is let in, since all its nodes were started anew: {held_text(found)} "
        f"({sites})",
        why="it may go on elsewhere, and hosts that write to both have two versions",
        do=do,
    )
