# SPDX-License-Identifier: GPL-2.0-or-later
"""Location constraints of devices that sanctl has not made: of crm_resource, pcs or by hand."""

from __future__ import annotations

from dataclasses import dataclass

#: What `crm_resource --ban` and `--move` make; `crm_resource --clear` removes no other.
CLI_PREFIX = "cli-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignConstraint:
    """A location constraint of a device that is not sanctl's own.

    Attributes:
        id: its id in the CIB.
        device: the device's name.
        resource: the resource that it names: the device's clone, or the primitive in it.
        node: the node that it is about; empty: its rule names none by `#uname`.
        is_ban: it keeps the device off the node; else it is one of crm_resource that prefers it.
        until: its end, as Pacemaker writes times; empty: it has none. It stays in the CIB after
            that.
    """

    id: str
    device: str
    resource: str
    node: str
    is_ban: bool
    until: str = ""

    @property
    def is_lasting_ban(self) -> bool:
        """Whether it is known to keep the device off its node for as long as it is there.

        One with an end may have ended; one whose rule names no node may be about another.
        """
        return self.is_ban and bool(self.node) and not self.until

    @property
    def removal(self) -> str:
        """The command that removes it."""
        # By a primitive's name crm_resource looks for what its clone has.
        if self.id.startswith(CLI_PREFIX) and self.resource != self.device:
            return f"crm_resource --clear --resource {self.resource}"
        return f"cibadmin --delete --xpath \"//rsc_location[@id='{self.id}']\""
