# SPDX-License-Identifier: GPL-2.0-or-later
"""What `sanctl bench peers` prints: the stock agents beside sanctl."""

from __future__ import annotations

from typing import Annotated, TypedDict


class PeerTrial(TypedDict):
    """A crash or a planned move of all devices of one stack."""

    stack: Annotated[str, "`sanctl` or `stock agents`"]
    kind: Annotated[str, "`crash` or `planned move`"]
    pauses_s: Annotated[list[float], "how long the host had no answer of each device, sorted"]
    errors: Annotated[int, "requests of the host that failed"]


class PeerComparison(TypedDict):
    """Crashes or planned moves of both stacks; with several devices, of the last one served."""

    kind: Annotated[str, "`crash` or `planned move`"]
    ours_median_s: Annotated[float, "median pause of sanctl"]
    stock_median_s: Annotated[float, "median pause of the stock agents"]
    ratio: Annotated[float, "the second by the first"]
    goal: Annotated[float, "what the ratio should at least be"]


class PeerMonitor(TypedDict):
    """A monitor of an active replica, medians."""

    stack: Annotated[str, "`sanctl` or `stock agents`"]
    program: Annotated[str, "the agent"]
    per_minute: Annotated[float, "how often it runs"]
    cpu_s: Annotated[float, "processor time of the kernel and of all children"]
    wall_s: Annotated[float, "from start to end"]
    of_stock_drbd: Annotated[float, "processor time by that of `ocf:linbit:drbd`"]


class PeerWatching(TypedDict):
    """What the monitors of one active device cost, one of each agent every 10 s."""

    stack: Annotated[str, "`sanctl` or `stock agents`"]
    cpu_s_per_minute: Annotated[float, "processor time of all of them"]
    of_stock_drbd: Annotated[float, "that, by what `ocf:linbit:drbd` alone costs in a minute"]


class Peers(TypedDict):
    """The stock agents beside sanctl, in turns in one laboratory."""

    acknowledged: Annotated[int, "writes that were acknowledged"]
    lost: Annotated[int, "of those, how many were not there at the end"]
    errors: Annotated[int, "requests that failed"]
    devices: Annotated[int, "how many failed over together"]
    versions: Annotated[list[str], "kernel, DRBD's module and packages of the nodes"]
    conditions: Annotated[list[str], "what both stacks share, and what the stock one is given"]
    load_average: Annotated[float, "of this machine, over 15 minutes, at the end"]
    comparisons: Annotated[list[PeerComparison], "each kind"]
    trials: Annotated[list[PeerTrial], "each run, in order"]
    monitors: Annotated[list[PeerMonitor], "each agent's monitor"]
    watching: Annotated[list[PeerWatching], "of each stack"]
