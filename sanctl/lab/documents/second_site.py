# SPDX-License-Identifier: GPL-2.0-or-later
"""What `sanctl bench replicate` and `bench site` print: copies to a site, and going on there."""

from __future__ import annotations

from typing import Annotated, TypedDict


class CopyFigures(TypedDict):
    """One copy to a second site that was made while a host wrote."""

    is_first: Annotated[bool, "it was the first copy, of all that was ever written"]
    failed: Annotated[list[str], "why tries before it made none; empty: it was the first try"]
    changed_bytes: Annotated[
        int,
        "what differs from the copy before, as both are at the site, behind the ledger's blocks",
    ]
    ledger_bytes: Annotated[int, "what differs of the ledger's blocks, which compress"]
    sent_bytes: Annotated[int, "what was sent for it, compressed, as the copy says"]
    line_bytes: Annotated[int, "what the node's interface has sent, with ssh and TCP"]
    ratio: Annotated[float, "what was sent, for the ledger's blocks as well, by `changed_bytes`"]
    took_s: Annotated[float, "seconds of the whole command"]
    pause_s: Annotated[float, "the longest time the host had no answer during the command"]
    before_s: Annotated[float, "the same, in the five seconds before"]
    errors: Annotated[int, "requests of the host that failed"]
    faults: Annotated[
        list[str], "why it is not its restore point, or no state that the host's log allows"
    ]


class CopyBench(TypedDict):
    """What copies of a device to a second site send, and what a host notices of them."""

    device_bytes: Annotated[int, "size of the device"]
    interval_s: Annotated[int, "how often a copy was begun"]
    conditions: Annotated[list[str], "what the figures depend on"]
    versions: Annotated[list[str], "kernel, DRBD's module and packages of the nodes"]
    load_average: Annotated[float, "of this machine, over 15 minutes, at the end"]
    goal: Annotated[float, "what the ratio of each copy should at most be"]
    worst_age_s: Annotated[float, "how old the newest copy was, just before the next one counted"]
    acknowledged: Annotated[int, "writes that were acknowledged"]
    lost: Annotated[int, "of those, how many were not there at the end"]
    errors: Annotated[int, "requests that failed"]
    copies: Annotated[list[CopyFigures], "each copy"]


class SiteStage(TypedDict):
    """A part of a time."""

    stage: Annotated[str, "what was done"]
    took_s: Annotated[float, "for how many seconds"]


class SiteReturn(TypedDict):
    """What a failback has brought home."""

    changed_bytes: Annotated[int, "in how many bytes both devices differed, by blocks of 4 KiB"]
    came_bytes: Annotated[int, "what came over the line for it, as the node says"]


class SiteRoundFigures(TypedDict):
    """A failover to a copy at a second site, and the way home."""

    failover_s: Annotated[float, "from the command until the host had written to the new device"]
    failover_stages: Annotated[list[SiteStage], "what that time was of"]
    turn_s: Annotated[float, "from the last write answered there until the first one at home"]
    turn_stages: Annotated[list[SiteStage], "what that time was of"]
    running_s: Annotated[float, "how long the first copy and failback took, while the host wrote"]
    running_pause_s: Annotated[float, "the longest time the host had no answer meanwhile"]
    running: Annotated[SiteReturn, "what that failback brought home"]
    last: Annotated[SiteReturn, "what the last one did, while the roles turned"]
    ratio: Annotated[float, "what came home by what differed, of both"]
    tried_again: Annotated[list[str], "why commands were given again; empty: none was"]
    acknowledged: Annotated[int, "writes that were acknowledged there, and at home after it"]
    lost: Annotated[int, "of those, how many were not at home at the end"]
    errors: Annotated[int, "requests of the host that failed"]
    faults: Annotated[
        list[str],
        "why a copy is not its restore point, or no state that the host's log allows, or a device "
        "not its copy",
    ]


class SiteBench(TypedDict):
    """How long hosts wait when a device goes on from a copy at a second site, and comes home."""

    device_bytes: Annotated[int, "size of the device"]
    conditions: Annotated[list[str], "what the figures depend on"]
    versions: Annotated[list[str], "kernel, DRBD's module and packages of the nodes"]
    load_average: Annotated[float, "of this machine, over 15 minutes, at the end"]
    failover_goal_s: Annotated[float, "what a failover should at most take"]
    turn_goal_s: Annotated[
        float, "for how long a turn should at most leave the host without answer"
    ]
    came_goal: Annotated[float, "what the ratio of each round should at most be"]
    acknowledged: Annotated[int, "writes that were acknowledged there, and at home after it"]
    lost: Annotated[int, "of those, how many were not at home at the end"]
    errors: Annotated[int, "requests that failed"]
    rounds: Annotated[list[SiteRoundFigures], "each round"]
