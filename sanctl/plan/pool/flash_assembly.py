# SPDX-License-Identifier: GPL-2.0-or-later
"""How a pool's slow disk and flash are assembled at boot: attach, empty first, alone, or refuse.

The invariant: a slow disk is never used without data that is on flash alone, and flash is never
used with a disk that has changed without it.

Two notes of sanctl are needed beside bcache's superblock (docs/adr/0031):

* `write-back`, written before that mode begins and removed when no data is on flash alone any
  more, or when flash has failed and the disk goes on: the kernel stops a disk that lacks data.
* `stopped`, written when the pool was unmounted in order with its flash, and removed before it is
  used again. Without it (and without `write-back`) flash may have been away for a while.
"""

from __future__ import annotations

from enum import StrEnum

from sanctl.model.pool_cache import Attachment, Superblock


class AssemblyAction(StrEnum):
    """What is to be done with slow disk and flash."""

    ATTACH = "attach"
    """Use them together: the data on flash is current."""
    RENEW = "renew"
    """Empty the flash, then use them together."""
    ALONE = "alone"
    """Use the slow disk without flash."""
    REFUSE = "refuse"
    """Use neither: data is on a flash device that is absent."""
    FOREIGN = "foreign"
    """The slow disk is not this pool's."""


def choose_assembly(
    *,
    label: str,
    origin: Superblock | None,
    flash: Superblock | None,
    is_noted_write_back: bool,
    stopped_with: str,
) -> AssemblyAction:
    """Return what to do with a pool's disk and flash.

    Args:
        label: the pool's, as both superblocks have to hold it.
        origin: the slow disk's superblock; None: it has none.
        flash: the flash device's; None: the device is absent or has none.
        is_noted_write_back: the note `write-back` is there.
        stopped_with: the cache set that the note `stopped` names; empty without one.
    """
    if origin is None or origin.is_flash or origin.label != label:
        return AssemblyAction.FOREIGN
    is_ours = flash is not None and flash.is_flash and flash.label == label
    belongs = flash is not None and is_ours and flash.set_uuid == origin.set_uuid
    may_lack = origin.state is Attachment.DIRTY or (
        is_noted_write_back and origin.state is Attachment.CLEAN
    )
    if may_lack:
        return AssemblyAction.ATTACH if belongs else AssemblyAction.REFUSE
    if not is_ours:
        return AssemblyAction.ALONE
    is_known = belongs and origin.state is Attachment.CLEAN and stopped_with == origin.set_uuid
    return AssemblyAction.ATTACH if is_known else AssemblyAction.RENEW
