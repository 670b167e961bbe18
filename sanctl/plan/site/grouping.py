# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which devices a run copies at one moment, and which have left their group by that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sanctl.errors import Problem, Refused
from sanctl.model.device import DeviceSpec
from sanctl.model.site import ProvenCopy
from sanctl.model.site_copy import WantedCopy
from sanctl.plan.site.moments import (
    GroupCopy,
    Moment,
    complete_moments,
    kept_moments,
    replaces,
    retained_tokens,
)


class CopyGroup(NamedTuple):
    """What each copy of one moment says of its group.

    Attributes:
        folders: the folders at the site, DEVICE.UUID, of all its devices, sorted.
        left: the folders of devices that have left it.
    """

    folders: tuple[str, ...]
    left: tuple[str, ...]


#: Of a copy that is of one device alone.
ALONE = CopyGroup((), ())


def folder_of(device: DeviceSpec) -> str:
    """Return the folder that a device has at a site."""
    return f"{device.name}.{device.uuid}"


def group_copies(folders: Mapping[str, Sequence[ProvenCopy]]) -> tuple[GroupCopy, ...]:
    """Return the copies at a site that are of groups.

    Args:
        folders: all proven copies there, by folder, DEVICE.UUID.
    """
    return tuple(
        GroupCopy(folder, copy.token, copy.name, copy.made_s, copy.number, copy.group, copy.left)
        for folder, copies in folders.items()
        for copy in copies
        if copy.group
    )


def group_of_run(
    site: str,
    devices: Sequence[DeviceSpec],
    folders: Mapping[str, Sequence[ProvenCopy]],
    without: Sequence[WantedCopy],
) -> CopyGroup:
    """Return what the copies of a run say of their group.

    A device that was of the group stays in it until the operator says otherwise: a moment without
    it would have the last one with it go.

    Args:
        site: the site's name.
        devices: the devices that are copied.
        folders: all proven copies at the site, by folder, DEVICE.UUID.
        without: the devices that have left the group, as they were typed.

    Raises:
        Refused: the site has a complete moment with another device, of which nothing was said.
    """
    group = tuple(sorted(map(folder_of, devices)))
    together = [
        moment
        for moment in complete_moments(group_copies(folders))
        if not set(group).isdisjoint(moment.group)
    ]
    others = {folder for moment in together for folder in moment.group} - set(group)
    left = {
        folder
        for folder in others
        if _has_left(folder, together) or any(_is_meant(folder, each) for each in without)
    }
    missing = {
        folder: moment
        for moment in kept_moments(together)
        for folder in moment.group
        if folder in others - left
    }
    if missing:
        listed = ", ".join(_short(folder) for folder in sorted(missing))
        moment = next(iter(missing.values()))
        options = " ".join(f"--without {_short(folder)}" for folder in sorted(missing))
        raise Refused(
            Problem(
                "SAN-SITE-027",
                f"at site {site} the complete moment {moment.name} has {listed}, too, which is not "
                "among these devices",
                f"name all devices of the group; or '{options}' if it has left: then the moments "
                "with it may be removed",
            )
        )
    return CopyGroup(group, tuple(sorted(left)))


def retained(folder: str, folders: Mapping[str, Sequence[ProvenCopy]], keep: int) -> frozenset[str]:
    """Return the tokens of a device's copies that stay as they are of complete moments.

    Args:
        folder: the device's folder, DEVICE.UUID.
        folders: all proven copies at the site, by folder.
        keep: how many of the newest moments are kept.
    """
    return retained_tokens(group_copies(folders), folder, keep)


def moments_of(folder: str, folders: Mapping[str, Sequence[ProvenCopy]]) -> tuple[Moment, ...]:
    """Return the complete moments at a site that have a device, the one made last first."""
    found = complete_moments(group_copies(folders))
    return tuple(moment for moment in found if folder in moment.group)


def _has_left(folder: str, moments: Sequence[Moment]) -> bool:
    """Whether it was said before that a device has left, and it has not come back since."""
    with_it = [each for each in moments if folder in each.group]
    return any(
        folder in said.left and all(replaces(said, each) for each in with_it) for said in moments
    )


def _is_meant(folder: str, wanted: WantedCopy) -> bool:
    """Whether a device that was typed, as DEVICE or DEVICE.UUID, is that of a folder."""
    device, _, uuid = folder.partition(".")
    return device == wanted.device and uuid.startswith(wanted.uuid)


def _short(folder: str) -> str:
    return folder[: folder.index(".") + 9]
