# SPDX-License-Identifier: GPL-2.0-or-later
"""A clone of an agent that only watches, as the CIB has it: pools, or the iscsi network."""

from __future__ import annotations

from dataclasses import dataclass

from sanctl.model.foreign_constraint import ForeignConstraint


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchClone:
    """A clone, and what keeps Pacemaker from running its agent.

    Attributes:
        id: the clone.
        resource: the primitive in it.
        disabled_by: the resource, of the two, whose meta attribute target-role is Stopped; empty:
            neither's.
        unmanaged_by: the meta attribute by which Pacemaker leaves it alone, and the resource that
            has it; empty: Pacemaker manages it.
        bans: location constraints that are not the rollout's, and keep it off a node.
    """

    id: str
    resource: str
    disabled_by: str = ""
    unmanaged_by: tuple[str, str] | tuple[()] = ()
    bans: tuple[ForeignConstraint, ...] = ()
