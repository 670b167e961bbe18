# SPDX-License-Identifier: GPL-2.0-or-later
"""A clone of an agent that only watches, as the CIB has it: pools, or the iscsi network."""

from __future__ import annotations

from dataclasses import dataclass

from sanctl.model.foreign_constraint import ForeignConstraint
from sanctl.model.meta_attribute import MetaAttribute


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchClone:
    """A clone, and what keeps Pacemaker from running its agent.

    Attributes:
        id: the clone.
        resource: the primitive in it.
        disabled_by: by which meta attributes, of either or of all resources, it is to be stopped.
        unmanaged_by: by which meta attributes Pacemaker leaves it alone.
        bans: location constraints that are not the rollout's, and keep it off a node.
    """

    id: str
    resource: str
    disabled_by: tuple[MetaAttribute, ...] = ()
    unmanaged_by: tuple[MetaAttribute, ...] = ()
    bans: tuple[ForeignConstraint, ...] = ()
