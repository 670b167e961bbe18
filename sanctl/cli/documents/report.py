# SPDX-License-Identifier: GPL-2.0-or-later
"""Declares the JSON fields of `sanctl report ...`."""

from __future__ import annotations

from typing import Annotated, TypedDict


class KeptCopy(TypedDict):
    """A copy that a site keeps, or a complete moment of devices that are copied together."""

    name: Annotated[str, "its restore point's name"]
    made: Annotated[str, "what it holds is of that moment, in UTC"]
    proven: Annotated[str, "since when it counts, in UTC"]
    age_before_s: Annotated[
        int | None,
        "how old the newest one that is kept was just before that, in seconds; null: none before "
        "it is kept, or not known, as a clock was put back",
    ]


class Elsewhere(TypedDict):
    """The newest copy or backup of a device in one place."""

    kind: Annotated[str, "`copy` or `backup`"]
    place: Annotated[str, "the site's or the repository's name"]
    name: Annotated[str | None, "its restore point's or its own name; null: there is none"]
    made: Annotated[
        str | None,
        "what it holds is of that moment, in UTC; null: there is none, or the moment has not come "
        "yet, as a clock was ahead, and it does not count",
    ]
    age_s: Annotated[int | None, "how old it is, in seconds; null: there is none"]
    every_s: Annotated[int | None, "how often one is due, in seconds; null: by no schedule here"]
    late: Annotated[bool, "its schedule is not kept"]
    worst_s: Annotated[
        int | None,
        "the highest `age_before_s` of the kept copies; null: fewer than two, not asked, or one is "
        "not known",
    ]
    kept: Annotated[
        list[KeptCopy], "what the site keeps, as it came; none of a backup, or of a site not asked"
    ]
    missing: Annotated[
        str | None,
        "what was proven last at the site, and it does not have any more: `name` is the newest "
        "that it has; null: nothing is missing, or it was not asked",
    ]


class RestoreTest(TypedDict):
    """The last restore from a copy of a device: the digest was the copy's."""

    device: Annotated[str, "the device that was copied"]
    uuid: Annotated[str, "its UUID; it may be another cluster's"]
    site: Annotated[str, "the site that had the copy"]
    point: Annotated[str, "the restore point that was copied"]
    into: Annotated[str, "the device here that was made the same"]
    begun: Annotated[str, "when that was ordered, in UTC"]
    ended: Annotated[str, "when hosts were let in, in UTC"]
    duration_s: Annotated[
        int | None, "from the order to the end, in seconds; null: the nodes' clocks disagree"
    ]
    size_bytes: Annotated[int, "the size of the device"]


class DeviceLoss(TypedDict):
    """What of a device would be lost with this cluster."""

    device: Annotated[str, "the device"]
    lost_s: Annotated[
        int | None, "what was written in the last so many seconds; null: nothing is elsewhere"
    ]
    met: Annotated[
        bool | None,
        "something is elsewhere, no schedule is late, and nothing is older than --within; null: "
        "nothing is demanded",
    ]
    restored: Annotated[
        RestoreTest | None, "the last restore from a copy of it here; null: there was none"
    ]
    elsewhere: Annotated[list[Elsewhere], "the newest in each place"]


class Rpo(TypedDict):
    """What would be lost of each device with this cluster, and how long restores took."""

    cluster: Annotated[str, "the cluster's name"]
    at: Annotated[str, "when this was found, in UTC"]
    within_s: Annotated[int | None, "what --within asked for, in seconds; null: it was not given"]
    unread: Annotated[list[str], "repositories that could not be read: their backups do not count"]
    silent: Annotated[list[str], "sites that did not say what they keep: `kept` is empty there"]
    devices: Annotated[list[DeviceLoss], "by name"]
    other_restores: Annotated[
        list[RestoreTest],
        "the last restores from copies of devices that are not of this cluster",
    ]
