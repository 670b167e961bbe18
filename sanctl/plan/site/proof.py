# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: whether a copy is proven by what has changed since a proven one, or read as a whole.

What has changed proves it where the copy began as one that is known to be equal to a restore point
that this node has: both sides read the chunks that may differ, and the digests of the others are
those that the base was proven with. That shows nothing of what has rotted in the others since, so
each copy is read as a whole now and then.
"""

from __future__ import annotations

from typing import NamedTuple

from sanctl.model.site import ProvenCopy
from sanctl.plan.site.copy_order import is_ahead

#: After so long a copy is read as a whole again. A day: what has rotted is found while the copies
#: before it are there still, and a whole reading each night costs hosts little.
WHOLE_AFTER_S = 24 * 3600

#: Why a copy is read as a whole.
WANTED = "as it was asked for"
FIRST = "it is the first"
NO_BASE_HERE = "this node could not read all of the restore point of the copy before"
NO_LIST = "the site has no right list of the digests of the copy before"
RESIZED = "the device has another size than in the copy before"
NOT_NOTED = "the cluster has not noted the copy before as the newest"
DUE = "the last time was a day ago, or that is not known"
NOT_EQUAL = "what had changed was not equal"


class ProofBasis(NamedTuple):
    """What is known of a copy's base before it is sent.

    Attributes:
        base: the copy that it begins as, as the site has it; None: there is none.
        noted: the newest proven copy of the device, as the cluster has noted it; None: none.
        now_s: the time, in seconds since 1970.
        is_wanted: the operator wants it read as a whole.
    """

    base: ProvenCopy | None
    noted: ProvenCopy | None
    now_s: float
    is_wanted: bool = False


def why_whole(
    basis: ProofBasis, size_bytes: int, *, is_by_extents: bool, base_error: str, has_list: bool
) -> str:
    """Return why a copy is read as a whole; empty: it is proven by what has changed.

    Args:
        basis: what is known of its base.
        size_bytes: the size of the restore point.
        is_by_extents: the extents of the base's restore point say what may have changed.
        base_error: why not all of that could be read; empty: it could.
        has_list: the site has a right list of the digests of the base's chunks.
    """
    base, noted = basis.base, basis.noted
    if basis.is_wanted:
        return WANTED
    if base is None:
        return FIRST
    if not is_by_extents or base_error:
        return NO_BASE_HERE
    if base.size_bytes != size_bytes:
        return RESIZED
    if not has_list:
        return NO_LIST
    if noted is None or (noted.token, noted.digest) != (base.token, base.digest):
        return NOT_NOTED
    read_s = base.read_whole_s
    if is_ahead(read_s, basis.now_s) or basis.now_s - read_s >= WHOLE_AFTER_S:
        return DUE
    return ""
