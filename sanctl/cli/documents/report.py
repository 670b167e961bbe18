# SPDX-License-Identifier: GPL-2.0-or-later
"""Declares the JSON fields of `sanctl report ...`."""

from __future__ import annotations

from typing import Annotated, TypedDict


class Elsewhere(TypedDict):
    """The newest copy or backup of a device in one place."""

    kind: Annotated[str, "`copy` or `backup`"]
    place: Annotated[str, "the site's or the repository's name"]
    name: Annotated[str | None, "its restore point's or its own name; null: there is none"]
    made: Annotated[str | None, "what it holds is of that moment, in UTC; null: there is none"]
    age_s: Annotated[int | None, "how old it is, in seconds; null: there is none"]
    every_s: Annotated[int | None, "how often one is due, in seconds; null: by no schedule here"]
    late: Annotated[bool, "its schedule is not kept"]


class DeviceLoss(TypedDict):
    """What of a device would be lost with this cluster."""

    device: Annotated[str, "the device"]
    lost_s: Annotated[
        int | None, "what was written in the last so many seconds; null: nothing is elsewhere"
    ]
    met: Annotated[bool, "no schedule is late, and nothing is older than --within"]
    elsewhere: Annotated[list[Elsewhere], "the newest in each place"]


class Rpo(TypedDict):
    """What would be lost of each device with this cluster."""

    within_s: Annotated[int | None, "what --within asked for, in seconds; null: it was not given"]
    unread: Annotated[list[str], "repositories that could not be read: their backups do not count"]
    devices: Annotated[list[DeviceLoss], "by name"]
