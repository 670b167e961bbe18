# SPDX-License-Identifier: GPL-2.0-or-later
"""Declares the JSON fields of `sanctl site ...` and `sanctl replicate ...`."""

from __future__ import annotations

from typing import Annotated, TypedDict

from sanctl.cli.documents.device import Device, Restored


class Site(TypedDict):
    """A second site: a server with a directory for copies of restore points."""

    name: Annotated[str, "its name"]
    address: Annotated[str, "USER@HOST:PORT"]
    path: Annotated[str, "the directory on the server"]
    identity: Annotated[str, "the file on each node with the private key that logs in there"]
    mark: Annotated[str, "the id that the directory carries"]
    fingerprint: Annotated[str, "the fingerprint of the server's key; no other one is taken"]
    limit_bytes_s: Annotated[
        int | None, "how much a copy sends there in a second at most; null: no limit"
    ]
    devices: Annotated[list[str], "the devices that have been copied there"]


class SiteSet(Site):
    """A site of which something was set."""

    changed: Annotated[bool, "false: it was so before"]


class SiteRemoved(TypedDict):
    """A site that was removed from the cluster."""

    name: Annotated[str, "its name; its copies stay where they are"]


class Copy(TypedDict):
    """A copy of a restore point that was found equal to it."""

    point: Annotated[str, "the name of the restore point"]
    token: Annotated[str, "its token; both are the name of the file at the site"]
    made: Annotated[str, "when the restore point was made, in UTC"]
    proven: Annotated[str, "when both digests had been compared, in UTC"]
    size_bytes: Annotated[int, "the size of the device then"]
    changed_bytes: Annotated[int, "what differed from the copy before"]
    sent_bytes: Annotated[int, "what went over the line for it, compressed"]
    digest: Annotated[str, "the digest of the content"]
    read_whole: Annotated[
        str,
        "when it was read as a whole last, in UTC; a copy that was proven by what has changed was "
        "not, and has the time of the one that it goes back to",
    ]


class SiteCopy(Copy):
    """A copy as a site has it; it may be another cluster's."""

    copy: Annotated[str, "its name for `replicate restore` and `replicate failback`"]
    device: Annotated[str, "the name of the device that was copied"]
    uuid: Annotated[str, "that device's UUID"]
    file: Annotated[str, "its file at the site, as raw as the device"]
    is_of_this_cluster: Annotated[bool, "this cluster has that very device"]
    group: Annotated[
        list[str],
        "the devices of which copies were made at that moment, as DEVICE.UUID; empty: of it alone",
    ]
    is_complete: Annotated[bool, "the site has the copies of all of them; of it alone: true"]


class CopyRestored(Device):
    """A device that was created from a copy at a site."""

    copy: Annotated[str, "the copy: SITE:/DEVICE.UUID/POINT.TOKEN/DIGEST"]
    made: Annotated[str, "when its restore point was made, in UTC"]
    duration_s: Annotated[float, "how long it took"]


class FailedBack(Restored):
    """A device that holds a copy at a site instead of what it held."""

    copy: Annotated[
        str | None,
        "the copy: SITE:/DEVICE.UUID/POINT.TOKEN/DIGEST; null: `--release`, and it was not held",
    ]
    made: Annotated[str | None, "when its restore point was made, in UTC; null: `--release`"]
    held: Annotated[bool, "no host is let in; a later copy comes as what has changed"]
    took_over: Annotated[bool, "it goes on instead of the device that was copied"]


class CopyMade(TypedDict):
    """A copy that a run has made."""

    device: Annotated[str, "the device"]
    site: Annotated[str, "the site"]
    copy: Annotated[Copy, "the copy"]
    file: Annotated[str, "its file at the site, as raw as the device"]
    base: Annotated[str | None, "the copy that it began as; null: it was the first"]
    by_extents: Annotated[
        bool, "the filesystem told what has changed; false: the content was compared"
    ]
    read_bytes: Annotated[int, "how much of the restore point was read for the proof"]
    why_whole: Annotated[
        str | None,
        "why it was read as a whole; null: it is proven by what has changed since `base`",
    ]
    removed: Annotated[list[str], "older copies that were removed at the site"]


class CopySchedule(TypedDict):
    """When a device is copied to a site by itself."""

    every: Annotated[str, "the interval, such as `15m`"]
    every_s: Annotated[int, "the same in seconds"]
    keep: Annotated[int, "how many copies the site keeps"]
    since: Annotated[str, "when it was given, in UTC"]


class CopyScheduleShown(TypedDict):
    """A schedule of copies, and whether the command changed it."""

    device: Annotated[str, "the device"]
    site: Annotated[str, "the site"]
    changed: Annotated[bool, "false: it was so before, or it was only shown"]
    schedule: Annotated[CopySchedule | None, "the schedule; null: there is none"]


class Takeover(TypedDict):
    """The device that goes on instead of one that was copied."""

    device: Annotated[str, "its name; it may be another cluster's"]
    uuid: Annotated[str, "its UUID"]
    point: Annotated[str, "the name of the restore point whose copy it was made from"]
    since: Annotated[str, "when it has taken over, in UTC"]


class TakenOver(TypedDict):
    """A takeover that was noted at the site."""

    device: Annotated[str, "the device that goes on"]
    site: Annotated[str, "the site"]
    instead_of: Annotated[str, "the device that it goes on instead of, as DEVICE.UUID"]
    changed: Annotated[bool, "false: it was so before"]
    took_back: Annotated[bool, "that one's takeover of this device has ended"]


class GivenBack(TypedDict):
    """A takeover that has ended."""

    device: Annotated[str, "the device that had been taken over, as DEVICE.UUID"]
    site: Annotated[str, "the site"]
    successor: Annotated[Takeover | None, "what had taken it over; null: nothing had"]
    changed: Annotated[bool, "false: it was not taken over"]


class HoldSet(TypedDict):
    """Whether a device awaits a site after a restart of the whole cluster."""

    device: Annotated[str, "the device"]
    site: Annotated[str, "the site"]
    hold_after_restart: Annotated[bool, "no host is let in then before the site has answered"]
    changed: Annotated[bool, "false: it was so before"]


class Released(TypedDict):
    """A device that lets hosts in without the answer of its sites."""

    device: Annotated[str, "the device"]
    changed: Annotated[bool, "false: hosts were not kept out"]


class CopyGroup(TypedDict):
    """Devices that are copied to a site as they are at one moment."""

    devices: Annotated[list[str], "all of them"]
    point: Annotated[
        str | None, "the restore points of the newest moment that is complete; null: none is"
    ]
    made: Annotated[str | None, "when they were made, in UTC"]
    lag_s: Annotated[
        int | None,
        "how old that moment is, in seconds; null: there is none, or it is not known, as a clock "
        "was ahead",
    ]
    waiting_since: Annotated[
        str | None,
        "since when runs were begun of which none has made its moment complete; null: the last has",
    ]
    schedule: Annotated[CopySchedule | None, "when they are copied by themselves; null: never"]


class CopyProgress(TypedDict):
    """How far a copy is, as its node has published in the last two minutes."""

    node: Annotated[str, "the node that makes it"]
    phase: Annotated[
        str,
        "`sending` what may have changed; `comparing`: it is read here for the proof; `waiting` "
        "for the site, which reads its copy",
    ]
    done_bytes: Annotated[int, "how much of the phase is done; 0 while `waiting`"]
    total_bytes: Annotated[int, "how much there is to do in it"]
    done_percent: Annotated[float | None, "percent done of it; null while `waiting`"]
    left_s: Annotated[
        int | None, "how long the phase takes at its pace until now, in seconds; null: not known"
    ]
    since: Annotated[str, "when the phase began, in UTC"]
    at: Annotated[str, "when that was so, in UTC"]


class CopyState(TypedDict):
    """What the cluster knows of a device's copies at a site."""

    device: Annotated[str, "the device"]
    site: Annotated[str, "the site"]
    copy: Annotated[Copy | None, "the newest copy that was proven; null: none was yet"]
    file: Annotated[str | None, "its file at the site; null: there is none"]
    lag_s: Annotated[
        int | None,
        "how old what the site has is, in seconds; null: it has nothing, or it is not known, as a "
        "clock was ahead",
    ]
    base_here: Annotated[
        bool, "the cluster has the restore point of it, so the next run sends what has changed"
    ]
    takeover: Annotated[
        Takeover | None, "the device that goes on instead of it, as last seen; null: none"
    ]
    takeover_lost: Annotated[
        bool, "the site shows that takeover no more, and not that it was given back either"
    ]
    hold_after_restart: Annotated[
        bool, "after a restart of the whole cluster no host is let in before the site has answered"
    ]
    held: Annotated[
        str | None,
        "no host is let in now: `asking`, or the code of the reason; null: hosts are, or that is "
        "not known",
    ]
    attempt: Annotated[
        bool, "a run is under way, or has ended without a copy and not tidied up yet"
    ]
    progress: Annotated[
        CopyProgress | None,
        "how far the run is; null: none is under way, it has just begun, or that is not known",
    ]
    schedule: Annotated[CopySchedule | None, "when copies are made by themselves; null: never"]
    group: Annotated[
        CopyGroup | None, "the devices that it is copied together with; null: it is copied alone"
    ]
