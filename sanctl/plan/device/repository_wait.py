# SPDX-License-Identifier: GPL-2.0-or-later
"""Words for a wait for a repository that others use."""

from __future__ import annotations

from collections.abc import Sequence


def waiting_text(repository: str, left_s: int, holder: str, devices: Sequence[str]) -> str:
    """Return what a command waits for.

    Args:
        repository: the repository's name.
        left_s: for how long it goes on waiting, in seconds.
        holder: the process that has borg's lock; empty: it is not known.
        devices: the devices of which this node's backups into it have begun, and not ended.
    """
    known = [f"{holder} has it"] if holder else []
    if devices:
        known.append(f"on this node backups are under way of {', '.join(devices)}")
    why = "; ".join(known) or "another command uses it, on this node or another one"
    return f"waiting for repository {repository}, for up to {left_s} s: {why}"
