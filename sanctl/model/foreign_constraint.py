# SPDX-License-Identifier: GPL-2.0-or-later
"""Location constraints of devices that sanctl has not made: of crm_resource, pcs or by hand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

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
        is_plain: that is all it depends on; else it may be without effect, whatever the time.
    """

    id: str
    device: str
    resource: str
    node: str
    is_ban: bool
    until: str = ""
    is_plain: bool = True

    def is_ban_until(self, when_s: float) -> bool:
        """Whether it is known to keep the device off its node until then, in seconds since 1970.

        Not one whose rule names no node, as it may be about another, or asks for more; nor one
        that ends before, or whose end cannot be read as a moment.
        """
        if not (self.is_ban and self.node and self.is_plain):
            return False
        if not self.until:
            return True
        try:
            # Before 2.1 Pacemaker wrote a space before the offset.
            end = datetime.fromisoformat(self.until.replace(" +", "+").replace(" -", "-"))
        except ValueError:
            return False
        return end.tzinfo is not None and end.timestamp() > when_s

    @property
    def removal(self) -> str:
        """The command that removes it."""
        # By a primitive's name crm_resource looks for what its clone has.
        if self.id.startswith(CLI_PREFIX) and self.resource != self.device:
            return f"crm_resource --clear --resource {self.resource}"
        return f"cibadmin --delete --xpath \"//rsc_location[@id='{self.id}']\""
