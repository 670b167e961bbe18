# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: a device takes over unasked only from the newest copy that its site has proven.

Otherwise what hosts wrote up to a newer copy, which is safe at the site, would be left behind by a
word that says nothing of it. And where the site has no copy of the device at all the takeover may
be noted where the other cluster never looks, as in another directory: both would go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sanctl.errors import Problem
from sanctl.model.device import DeviceSpec
from sanctl.model.site import ProvenCopy
from sanctl.model.utc_time import utc_text
from sanctl.plan.site.choosing import unread_problem
from sanctl.plan.site.copy_order import is_surely_older, newest_first
from sanctl.plan.site.grouping import moments_of
from sanctl.plan.site.takeover import copy_taken

OPTION = "--allow-older"
Folders = Mapping[str, Sequence[ProvenCopy]]


def older_problem(
    device: DeviceSpec,
    folders: Folders,
    unread: Mapping[str, Sequence[str]],
    *,
    allows_mix: bool,
) -> Problem | None:
    """Return why a device does not take over unasked; None: the site has no newer copy.

    A site without any copy of the device that is taken over is a reason, too. A newer copy with the
    same content is no reason: nothing was written in between. For a device that is copied with
    others, later copies of no complete moment are no reason either, unless the device is taken
    alone.

    Args:
        device: the device that is to go on, made from a copy or put back to one.
        folders: the proven copies at the site, by folder, DEVICE.UUID.
        unread: the names of copies there whose notes cannot be read, by folder.
        allows_mix: the device is taken alone, whatever moments others are of.

    Raises:
        Refused: the device was not made from a copy.
    """
    copy = copy_taken(device)
    if unread.get(copy.folder):
        return unread_problem(copy.site, copy.folder, unread[copy.folder], f"or {OPTION}")
    copies = folders.get(copy.folder, ())
    if not copies:
        return Problem(
            "SAN-SITE-038",
            f"site {copy.site} has no copy of {copy.folder}, of which device {device.name} was "
            "made: it is another directory, or has lost what it had. The other cluster asks the "
            "one that it copies to, and would not learn of the takeover",
            f"'sanctl site list' shows the directory: is it the one of the other cluster? Only "
            f"if it is: {OPTION}",
        )
    own = next((each for each in copies if each.token == copy.token), None)
    later = [
        each
        for each in _counting(copy.folder, folders, own, allows_mix=allows_mix)
        if each.token != copy.token
        and each.digest != copy.digest
        and (own is None or not is_surely_older(each, own))
    ]
    if not later:
        return None
    newest = newest_first(later)[0]
    has = f"{copy.point}, {utc_text(own.made_s)} UTC" if own else f"{copy.point}, which is gone"
    return Problem(
        "SAN-SITE-036",
        f"device {device.name} was made from the copy {copy.device}@{has}, and site {copy.site} "
        f"has {copy.device}@{newest.name}, {utc_text(newest.made_s)} UTC, which is or may be newer",
        f"'sanctl replicate restore' or 'failback' of {copy.device}@{newest.name}; or {OPTION}: "
        "then what is in the newer copy alone is given up",
    )


def _counting(
    folder: str, folders: Folders, own: ProvenCopy | None, *, allows_mix: bool
) -> Sequence[ProvenCopy]:
    """Return the copies of a device that count beside the one that it was made from."""
    copies = folders.get(folder, ())
    if own is None or not own.group or allows_mix:
        return copies
    tokens = {moment.token_of(folder) for moment in moments_of(folder, folders)}
    return [each for each in copies if not each.group or each.token in tokens]
