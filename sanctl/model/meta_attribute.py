# SPDX-License-Identifier: GPL-2.0-or-later
"""A meta attribute by which somebody keeps Pacemaker from managing or promoting a resource."""

from __future__ import annotations

from typing import NamedTuple


class MetaAttribute(NamedTuple):
    """One meta attribute, where it stands in the CIB."""

    resource: str
    """Clone, group or primitive; empty: the resource defaults, which all resources have."""
    name: str
    value: str

    @property
    def text(self) -> str:
        """What it is, alike for all devices that have it: `deletion` names the resource."""
        where = "" if self.resource else " in the resource defaults"
        return f"{self.name}={self.value}{where}"

    @property
    def text_with_resource(self) -> str:
        """What it is, and whose."""
        return f"{self.resource} has {self.text}" if self.resource else self.text

    @property
    def deletion(self) -> str:
        """The command that takes it away."""
        if not self.resource:
            return f"crm_attribute --type rsc_defaults --name {self.name} --delete"
        return f"crm_resource --resource {self.resource} --meta --delete-parameter {self.name}"


def and_texts(attributes: tuple[MetaAttribute, ...]) -> str:
    """Return what they are, and whose."""
    return " and ".join(each.text_with_resource for each in attributes)


def deletions(attributes: tuple[MetaAttribute, ...]) -> str:
    """Return the commands that take them away, one after the other."""
    return ", then ".join(f"'{each.deletion}'" for each in attributes)
